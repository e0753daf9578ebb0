//! Certificates that the sandbox shall trust, put where the programs of common distributions look.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};

/// Bundles of Debian and Alpine, Fedora, and SUSE.
const BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// Adds the certificates to each bundle that exists, once; an image without any gets the first.
pub(super) fn install(certificates: &str) -> Result<(), String> {
    let found = BUNDLES
        .iter()
        .filter(|bundle| fs::exists(bundle).unwrap_or(false));
    let mut installed = false;
    for bundle in found {
        add(bundle, certificates)?;
        installed = true;
    }
    if installed {
        return Ok(());
    }
    fs::create_dir_all("/etc/ssl/certs").map_err(|e| format!("cannot make /etc/ssl/certs: {e}"))?;
    add(BUNDLES[0], certificates)
}

fn add(bundle: &str, certificates: &str) -> Result<(), String> {
    let trusted = match fs::read_to_string(bundle) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("cannot read {bundle}: {error}")),
    };
    if trusted.contains(certificates.trim()) {
        return Ok(());
    }
    let gap = if trusted.is_empty() || trusted.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(bundle)
        .and_then(|mut file| writeln!(file, "{gap}{}", certificates.trim()))
        .map_err(|e| format!("cannot add certificates to {bundle}: {e}"))
}

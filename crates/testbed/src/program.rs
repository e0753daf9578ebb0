//! Finds programs of this workspace from inside a test process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow};

use crate::command::run;

/// The root of the checkout that this crate was built in.
pub(crate) fn workspace() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .parent()
        .and_then(Path::parent)
        .unwrap_or(manifest)
        .to_owned()
}

/// The `testbed` program, built if it is missing or older than its source. `SANDBAR_TESTBED_BIN` overrides it.
pub(crate) fn path() -> Result<PathBuf> {
    static PATH: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    if let Some(path) = std::env::var_os("SANDBAR_TESTBED_BIN") {
        return Ok(path.into());
    }
    let build = || build().context("building the testbed program (or set SANDBAR_TESTBED_BIN)");
    PATH.get_or_init(|| build().map_err(|e| format!("{e:#}")))
        .clone()
        .map_err(|e| anyhow!(e))
}

/// Cargo holds no lock while tests run, so it can be asked; when nothing changed it answers at once.
fn build() -> Result<PathBuf> {
    let test = std::env::current_exe().context("finding the test's own program")?;
    // <target>/<profile>/deps/<test>-<hash>, <target>/<profile>/examples/<name>, or <target>/<profile>/<program>
    let folder = test.parent();
    let inner = |folder: &&Path| folder.ends_with("deps") || folder.ends_with("examples");
    let profile = folder
        .filter(inner)
        .map_or(folder, Path::parent)
        .with_context(|| format!("{} is not in a target directory", test.display()))?;
    let name = match profile.file_name().and_then(|n| n.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let target = profile
        .parent()
        .context("the target directory has no parent")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(workspace())
        .args([
            "build",
            "--quiet",
            "--locked",
            "--package",
            "testbed",
            "--bin",
            "testbed",
        ])
        .args(["--profile", name, "--target-dir"])
        .arg(target);
    // what the outer cargo told the test about its package would make build scripts run anew, each way
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&*name);
        }
    }
    run(&mut cargo, "asking cargo")?;
    Ok(profile.join("testbed"))
}

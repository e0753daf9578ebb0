//! Builds the daemon of sandboxes as a static program, which `sandbar` carries: it puts it into images that have nothing else.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How what cargo tells of this build begins that the other one must not hear.
const NOT_PASSED_ON: [&str; 10] = [
    "CARGO_BUILD_",
    "CARGO_CFG_",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_FEATURE_",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
    "CARGO_TARGET_DIR",
    "CARGO_TARGET_TMPDIR",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
];

fn main() {
    let package = directory("CARGO_MANIFEST_DIR");
    let runtime = package.join("../runtime");
    for source in [
        "../runtime/src",
        "../runtime/Cargo.toml",
        "../../Cargo.lock",
        "../../Cargo.toml",
    ] {
        println!("cargo::rerun-if-changed={source}");
    }
    let triple = variable("TARGET");
    // one for all profiles: it is built for size in each of them
    let target = target_directory().join("daemon");
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args([
            "build",
            "--locked",
            "--profile",
            "runtime",
            "--bin",
            "sandbar-runtime",
            "--target",
            &triple,
        ])
        .arg("--manifest-path")
        .arg(runtime.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env("RUSTFLAGS", "-C target-feature=+crt-static");
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if NOT_PASSED_ON.iter().any(|begin| text.starts_with(begin)) {
            cargo.env_remove(&name);
        }
    }
    let status = cargo.status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "cannot build the daemon of sandboxes: {status:?}; it is linked statically, with what libc6-dev or glibc-static has"
    );
    let program = target.join(triple).join("runtime/sandbar-runtime");
    println!("cargo::rustc-env=SANDBAR_RUNTIME={}", program.display());
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn directory(name: &str) -> PathBuf {
    PathBuf::from(variable(name))
}

/// `OUT_DIR` is `<target>/<profile>/build/<package>/out`, with the triple before the profile if one was asked for.
fn target_directory() -> PathBuf {
    let out = directory("OUT_DIR");
    let profile = out.ancestors().nth(3).map(Path::to_owned);
    let above = profile.as_deref().and_then(Path::parent);
    above.unwrap_or(&out).to_owned()
}

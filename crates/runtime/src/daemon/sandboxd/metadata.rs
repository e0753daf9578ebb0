//! What the environment says about the sandbox.

use std::collections::BTreeMap;

use serde::Serialize;

const PREFIX: &str = "SANDBOX_";

/// Parts of the names of variables that may be secrets.
const SECRET: [&str; 5] = ["TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "KEY"];

#[derive(Serialize)]
pub(super) struct Metadata {
    env: BTreeMap<String, String>,
}

pub(super) fn read() -> Metadata {
    let env = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name.starts_with(PREFIX) && !may_be_secret(name))
        .collect();
    Metadata { env }
}

fn may_be_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET.iter().any(|part| name.contains(part))
}

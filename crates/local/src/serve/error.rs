//! Why a server cannot start, said with the file or address it is about.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum StartError {
    #[error("cannot use {path} as the data directory: {source}")]
    Directory { path: PathBuf, source: io::Error },
    #[error("the data directory {path} is in use by {}", holder(*process))]
    InUse { path: PathBuf, process: Option<u32> },
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    /// A file that cannot be what was written; `remedy` says what to do about it.
    #[error("{path} {problem}: {remedy}")]
    Unusable {
        path: PathBuf,
        problem: String,
        remedy: &'static str,
    },
    #[error("\"{name}\" is no name or address that a certificate can be for")]
    Name { name: String },
    #[error("cannot make a key, a certificate or a token: {0}")]
    Crypto(String),
    #[error("cannot listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
}

impl StartError {
    pub(super) fn crypto(error: impl fmt::Display) -> StartError {
        StartError::Crypto(error.to_string())
    }
}

fn holder(process: Option<u32>) -> String {
    match process {
        Some(id) => format!("process {id}"),
        None => "another process".to_owned(),
    }
}

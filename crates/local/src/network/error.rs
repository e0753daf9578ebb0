//! Why something about the network cannot be done, said with what it is about.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::Ipv4Net;
use thiserror::Error;

use super::netlink::NetlinkError;

#[derive(Debug, Error)]
pub enum NetworkError {
    #[error("a network takes the capability CAP_NET_ADMIN: run as root, or without a network")]
    NotPermitted,
    #[error("cannot {doing}: {source}")]
    Kernel { doing: String, source: KernelError },
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error("{path} is not what was written there: remove it when no sandbox runs")]
    Damaged { path: PathBuf },
    #[error("no private network is free for sandboxes: name one that no route leads into")]
    NoRange,
    #[error("sandboxes cannot have the network {range}: {reason}")]
    Range { range: Ipv4Net, reason: String },
    #[error(
        "sandboxes cannot have the network {wanted}: those that were left running have addresses of {known}; start once without naming \
         a network and stop, which ends them, or go on with {known}"
    )]
    Elsewhere { known: Ipv4Net, wanted: Ipv4Net },
    #[error("all addresses of {range} are taken: delete sandboxes or use a wider network")]
    Full { range: Ipv4Net },
    #[error("\"{0}\" cannot be the name of an attached pod")]
    PodName(String),
    #[error("cannot answer DNS queries on {address}: {source}; another program may listen there")]
    Resolver {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("cannot join the namespace {path}: {source}")]
    Namespace { path: PathBuf, source: io::Error },
    #[error("other instances kept choosing their networks: try again ({0})")]
    Turn(io::Error),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// What the kernel said.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct KernelError(NetlinkError);

impl NetworkError {
    pub(super) fn kernel(doing: impl Into<String>) -> impl FnOnce(NetlinkError) -> NetworkError {
        move |source| NetworkError::Kernel {
            doing: doing.into(),
            source: KernelError(source),
        }
    }
}

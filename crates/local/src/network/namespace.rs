//! Work in the network namespace of a pod, done by a thread that joins it and ends.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::oneshot;

use super::error::NetworkError;

/// Runs `work` on a thread of its own, which may join a namespace: no other work follows on it.
pub(super) async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NetworkError> + Send + 'static,
) -> Result<T, NetworkError> {
    let (answer, result) = oneshot::channel();
    let run = move || {
        // nobody waits any more if this fails
        let _ = answer.send(work());
    };
    std::thread::Builder::new()
        .name("network".to_owned())
        .spawn(run)
        .map_err(NetworkError::Thread)?;
    let lost = |_| NetworkError::Thread(io::Error::other("the thread died"));
    result.await.map_err(lost)?
}

/// A file that stands for a namespace.
#[derive(Debug)]
pub(super) struct Namespace {
    path: PathBuf,
    file: File,
}

impl Namespace {
    pub(super) fn open(path: &Path) -> Result<Namespace, NetworkError> {
        let path = path.to_owned();
        match File::open(&path) {
            Ok(file) => Ok(Namespace { path, file }),
            Err(source) => Err(NetworkError::Namespace { path, source }),
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Moves this thread, for good.
    pub(super) fn join(&self) -> Result<(), NetworkError> {
        join(&self.file, LinkNameSpaceType::Network).map_err(|source| NetworkError::Namespace {
            path: self.path.clone(),
            source,
        })
    }
}

fn join(file: &File, kind: LinkNameSpaceType) -> io::Result<()> {
    move_into_link_name_space(file.as_fd(), Some(kind)).map_err(io::Error::from)
}

/// Connects to a port of the loopback addresses in a network namespace such as `/proc/<pid>/ns/net`. Needs the right to
/// join it, which root has; others use `dial_from_inside`.
pub async fn dial(
    namespace: &Path,
    port: u16,
    patience: Duration,
) -> Result<tokio::net::TcpStream, DialError> {
    let path = namespace.to_owned();
    let work = move || {
        let namespace = Namespace::open(&path)?;
        namespace.join()?;
        Ok(connect(port, patience))
    };
    let stream = on_a_thread(work).await??;
    stream.set_nonblocking(true)?;
    Ok(tokio::net::TcpStream::from_std(stream)?)
}

#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error("cannot connect to the port: {0}")]
    Connect(#[from] io::Error),
}

/// As `dial`, in a process of one thread, which it moves for good into the user and network namespaces of another
/// process: only such a process may join a user namespace, and only one that has joined it may go further.
pub fn dial_from_inside(process: u32, port: u16, patience: Duration) -> io::Result<TcpStream> {
    join_all(process)?;
    connect(port, patience)
}

/// Brings the loopback link up in the user and network namespaces of another process. The same holds as for
/// `dial_from_inside`.
pub fn loopback_from_inside(process: u32) -> Result<(), NetworkError> {
    join_all(process).map_err(|source| NetworkError::Namespace {
        path: PathBuf::from(format!("/proc/{process}/ns")),
        source,
    })?;
    super::wire::loopback_up()
}

/// Both files are opened first: what is left behind cannot be seen from inside.
fn join_all(process: u32) -> io::Result<()> {
    let open = |name| File::open(format!("/proc/{process}/ns/{name}"));
    let (user, network) = (open("user")?, open("net")?);
    join(&user, LinkNameSpaceType::User)?;
    join(&network, LinkNameSpaceType::Network)
}

/// `localhost` is both addresses; programs listen on either.
fn connect(port: u16, patience: Duration) -> io::Result<TcpStream> {
    let at = |address: IpAddr| {
        let address = SocketAddr::new(address, port);
        TcpStream::connect_timeout(&address, patience)
    };
    at(Ipv4Addr::LOCALHOST.into()).or_else(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => at(Ipv6Addr::LOCALHOST.into()).map_err(|_| error),
        _ => Err(error),
    })
}

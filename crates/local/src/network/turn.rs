//! One instance at a time chooses its range: two that looked at the same time would take the same.
//!
//! Whose turn it is, is who has bound a socket of a certain name. Such names belong to a network namespace, as ranges
//! do, and are free again when a process dies.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use super::error::NetworkError;

const NAME: &str = "sandbar-network";
/// Choosing takes a few milliseconds.
const PAUSE: Duration = Duration::from_millis(5);
const TRIES: usize = 2000;

/// Until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _socket: UnixListener,
}

impl Turn {
    /// Waits for it.
    pub(super) fn take() -> Result<Turn, NetworkError> {
        let address = SocketAddr::from_abstract_name(NAME).map_err(NetworkError::Turn)?;
        for _ in 0..TRIES {
            match UnixListener::bind_addr(&address) {
                Ok(socket) => return Ok(Turn { _socket: socket }),
                Err(error) if error.kind() == ErrorKind::AddrInUse => std::thread::sleep(PAUSE),
                Err(error) => return Err(NetworkError::Turn(error)),
            }
        }
        Err(NetworkError::Turn(io::Error::from(ErrorKind::AddrInUse)))
    }
}

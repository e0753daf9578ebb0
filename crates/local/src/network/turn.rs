//! One instance at a time chooses its range: two that looked at the same time would take the same.
//!
//! Whose turn it is, is who has bound a socket of a certain name. Such names belong to a network namespace, as ranges
//! do, and are free again when a process dies.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::{Duration, Instant};

use super::error::NetworkError;

const NAME: &str = "sandbar-network";
/// Choosing takes a few milliseconds.
const PAUSE: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(10);
/// Of who goes: nobody waits for it, and many may go at the same time.
const LONG_PATIENCE: Duration = Duration::from_secs(60);

/// Until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _socket: UnixListener,
}

impl Turn {
    /// Waits for it.
    pub(super) fn take() -> Result<Turn, NetworkError> {
        wait(NAME, PATIENCE).map_err(NetworkError::Turn)
    }

    /// Waits for it longer.
    pub(super) fn take_patiently() -> Result<Turn, NetworkError> {
        wait(NAME, LONG_PATIENCE).map_err(NetworkError::Turn)
    }
}

fn wait(name: &str, patience: Duration) -> io::Result<Turn> {
    let address = SocketAddr::from_abstract_name(name)?;
    let begun = Instant::now();
    loop {
        match UnixListener::bind_addr(&address) {
            Ok(socket) => return Ok(Turn { _socket: socket }),
            Err(error) if error.kind() != ErrorKind::AddrInUse => return Err(error),
            Err(error) if begun.elapsed() >= patience => return Err(error),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::time::Duration;

    use super::wait;

    #[test]
    fn a_turn_is_waited_for_as_long_as_patience_lasts() {
        let name = format!("sandbar-test-{}", std::process::id());
        let first = wait(&name, Duration::ZERO).unwrap();
        let error = wait(&name, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let second = std::thread::spawn(move || wait(&name, Duration::from_secs(60)));
        drop(first);
        assert!(second.join().unwrap().is_ok());
    }
}

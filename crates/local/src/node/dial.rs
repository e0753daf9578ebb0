//! Connections to ports of pods, whichever way this node has.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::inside::Inside;

/// A way into the network namespace of a pod.
pub(crate) trait Dial: Send + Sync {
    /// Connects to a port of the pod's loopback addresses.
    fn dial(
        &self,
        pod: &container::Pod,
        port: u16,
        patience: Duration,
    ) -> BoxFuture<'static, io::Result<TcpStream>>;
}

pub(crate) type Dialer = Arc<dyn Dial>;

impl Dial for Inside {
    fn dial(
        &self,
        pod: &container::Pod,
        port: u16,
        patience: Duration,
    ) -> BoxFuture<'static, io::Result<TcpStream>> {
        let (inside, process) = (self.clone(), pod.pid());
        async move { timeout(patience, inside.dial(process, port)).await? }.boxed()
    }
}

/// Why no connection came to be, in the words of those who read about kubelets: `connection refused`.
pub(crate) fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::new(),
    }
}

/// As `in_words`, with what was tried: `dial tcp 10.0.0.1:80: connect: connection refused`.
pub(crate) fn not_connected(authority: &str, error: &io::Error) -> String {
    let why = in_words(error);
    match error.kind() {
        io::ErrorKind::TimedOut => format!("dial tcp {authority}: i/o timeout"),
        _ if error.raw_os_error().is_some() => format!("dial tcp {authority}: connect: {why}"),
        _ => format!("dial tcp {authority}: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::not_connected;

    #[test]
    fn what_keeps_one_from_connecting_is_said_as_kubelets_say_it() {
        let table = [
            (
                io::Error::from_raw_os_error(111),
                "dial tcp 10.0.0.1:80: connect: connection refused",
            ),
            (
                io::Error::from_raw_os_error(113),
                "dial tcp 10.0.0.1:80: connect: no route to host",
            ),
            (
                io::Error::from_raw_os_error(110),
                "dial tcp 10.0.0.1:80: i/o timeout",
            ),
            (
                io::Error::other("no such namespace"),
                "dial tcp 10.0.0.1:80: no such namespace",
            ),
        ];
        for (error, words) in table {
            assert_eq!(not_connected("10.0.0.1:80", &error), words);
        }
    }
}

//! Questions that others answer: the resolvers of the host, in turn.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;
use uuid::Uuid;

use super::wire::Query;

/// Programs in pods wait five seconds for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
const ROUNDS: usize = 2;
const RESOLVERS: usize = 3;
const PORT: u16 = 53;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
}

#[derive(Debug)]
pub(super) struct Forwarder {
    /// Where the host says which resolvers it uses; read each time, as that changes with networks.
    pub(super) resolv_conf: PathBuf,
}

impl Forwarder {
    /// Nothing if none of them answers.
    pub(super) async fn ask(&self, query: &Query, transport: Transport) -> Option<Vec<u8>> {
        let text = std::fs::read_to_string(&self.resolv_conf).ok()?;
        let resolvers = resolvers(&text);
        for resolver in std::iter::repeat_n(&resolvers, ROUNDS).flatten() {
            let asked = async {
                match transport {
                    Transport::Udp => ask_by_udp(*resolver, query).await,
                    Transport::Tcp => ask_by_tcp(*resolver, query).await,
                }
            };
            if let Ok(Ok(Some(answer))) = timeout(PATIENCE, asked).await {
                return Some(answer);
            }
        }
        None
    }
}

fn resolvers(text: &str) -> Vec<SocketAddr> {
    let lines = text.lines().map(str::split_whitespace);
    let given = lines.filter_map(|mut words| match words.next() {
        Some("nameserver") => words.next()?.parse::<IpAddr>().ok(),
        _ => None,
    });
    let addresses = given.map(|address| SocketAddr::new(address, PORT));
    addresses.take(RESOLVERS).collect()
}

/// A socket for each question: its port is one more thing that a forger would have to guess.
async fn ask_by_udp(resolver: SocketAddr, query: &Query) -> io::Result<Option<Vec<u8>>> {
    let any = match resolver {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(resolver).await?;
    let id = new_id();
    socket.send(&query.onward(id)).await?;
    let mut buffer = vec![0; 4096];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(answer) = query.relay(id, buffer[..length].to_vec()) {
            return Ok(Some(answer));
        }
    }
}

async fn ask_by_tcp(resolver: SocketAddr, query: &Query) -> io::Result<Option<Vec<u8>>> {
    let mut stream = TcpStream::connect(resolver).await?;
    let id = new_id();
    write_message(&mut stream, &query.onward(id)).await?;
    let answer = read_message(&mut stream).await?;
    Ok(query.relay(id, answer))
}

/// By TCP a message follows its length.
pub(super) async fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

pub(super) async fn write_message(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let bytes = [&length.to_be_bytes()[..], message].concat();
    stream.write_all(&bytes).await
}

fn new_id() -> u16 {
    let random = Uuid::new_v4();
    let [a, b, ..] = *random.as_bytes();
    u16::from_be_bytes([a, b])
}

#[cfg(test)]
mod tests {
    use super::resolvers;

    #[test]
    fn the_first_three_resolvers_are_used_and_other_lines_are_not() {
        let text = "# nameserver 1.1.1.1\nsearch a b\nnameserver 10.0.0.2\nnameserver\n\
                    nameserver x\n  nameserver ::1 # local\noptions ndots:1\n\
                    nameserver 10.0.0.3\nnameserver 10.0.0.4\n";
        let expected = ["10.0.0.2:53", "[::1]:53", "10.0.0.3:53"];
        let found: Vec<_> = resolvers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }
}

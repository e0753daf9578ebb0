//! `portforward`: connections into a pod, many of them over one connection of a client.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::time::{Instant, sleep_until, timeout};

use super::node::{Duplex, PodRef, PodStreams};
use super::spdy::{self, Stream};
use super::upgrade::ForwardProtocol;
use super::websocket::{self, Dialect, Tunnel};
use super::wire::{self, Inbox, Outbox, PIECE};
use crate::status::Failure;

/// How long a client may take to open the second of two streams.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long one side may go on when the other has said everything. Somebody whose own connection has broken says no more than
/// somebody who waits for an answer.
const HALF_CLOSED: Duration = Duration::from_secs(10);
/// Two for each connection: a browser opens a few dozen, a benchmark some hundred.
const MOST_STREAMS: usize = 512;

/// The pod whose ports are forwarded.
#[derive(Clone)]
pub(super) struct Forward {
    pub(super) node: Arc<dyn PodStreams>,
    pub(super) pod: PodRef,
    /// Those that the query names; only channels need them.
    pub(super) ports: Vec<u16>,
}

impl Forward {
    /// Returns when the client is gone, or `stopped` resolves.
    pub(super) async fn serve(
        self,
        io: impl Duplex,
        protocol: ForwardProtocol,
        stopped: impl Future<Output = ()> + Send,
    ) {
        match protocol {
            ForwardProtocol::Spdy => self.serve_spdy(io, stopped).await,
            ForwardProtocol::Tunnel => self.serve_spdy(Tunnel::new(io).await, stopped).await,
            ForwardProtocol::Channels(dialect) => self.serve_channels(io, dialect, stopped).await,
        }
    }

    async fn serve_spdy(self, io: impl Duplex, stopped: impl Future<Output = ()> + Send) {
        let (connection, driver) = spdy::open(io, MOST_STREAMS);
        let session = async {
            tokio::select! {
                () = self.forward_streams(connection) => {}
                () = stopped => {}
            }
        };
        wire::run(driver, session).await;
    }

    async fn forward_streams(&self, mut connection: spdy::Connection) {
        let mut pairs = Pairs::default();
        let mut running = FuturesUnordered::new();
        loop {
            let deadline = pairs.deadline();
            let expired = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                stream = connection.next() => match stream {
                    Some(stream) => {
                        if let Some(pair) = pairs.take(stream).await {
                            running.push(self.forward_pair(pair));
                        }
                    }
                    None => return,
                },
                Some(()) = running.next() => {}
                () = expired => pairs.expire().await,
            }
        }
    }

    async fn forward_pair(&self, pair: Pair) {
        let Pair { port, data, error } = pair;
        let Stream {
            inbox,
            outbox,
            reset,
            ..
        } = data;
        let work = async {
            match self.dial(port).await {
                Ok(connection) => carry(connection, inbox, outbox).await,
                Err(problem) => {
                    let _ = error.send(problem).await;
                    outbox.reset().await;
                }
            }
        };
        tokio::select! {
            () = work => {}
            // the client does not want the rest
            Ok(()) = reset => {}
        }
        error.close().await;
    }

    /// A connection, or what the client is told instead.
    async fn dial(&self, port: u16) -> Result<Box<dyn Duplex>, Bytes> {
        let PodRef { name, uid, .. } = &self.pod;
        let tell = |failure: Failure| {
            let why = failure.message();
            let text = format!("error forwarding port {port} to pod {name}, uid {uid}: {why}");
            Bytes::from(text)
        };
        self.node.dial(self.pod.clone(), port).await.map_err(tell)
    }

    /// The old way: the query names the ports, and each has one connection, over two channels.
    async fn serve_channels(
        self,
        io: impl Duplex,
        dialect: Dialect,
        stopped: impl Future<Output = ()> + Send,
    ) {
        let count = u8::try_from(self.ports.len()).unwrap_or(127).min(127);
        let readable: Vec<u8> = (0..count).map(|index| 2 * index).collect();
        let (queue, inboxes, driver) = websocket::open(io, dialect, 2 * count, &readable);
        let session = async {
            let connections = self.ports.iter().zip(inboxes).zip(readable);
            let connections = connections.map(|((port, inbox), channel)| {
                let outbox = |channel: u8| Outbox {
                    queue: queue.clone(),
                    channel: channel.into(),
                };
                self.forward_channels(*port, inbox, outbox(channel), outbox(channel + 1))
            });
            let connections = join_all(connections);
            drop(queue);
            tokio::select! {
                _ = connections => {}
                () = stopped => {}
            }
        };
        wire::run(driver, session).await;
    }

    async fn forward_channels(&self, port: u16, inbox: Inbox, data: Outbox, error: Outbox) {
        // the first message of a channel says which port it belongs to
        for outbox in [&data, &error] {
            let number = Bytes::copy_from_slice(&port.to_le_bytes());
            if outbox.send(number).await.is_err() {
                return;
            }
        }
        match self.dial(port).await {
            Ok(connection) => carry(connection, inbox, data).await,
            Err(problem) => _ = error.send(problem).await,
        }
    }
}

/// Carries bytes to and fro until both sides have said everything. A connection that breaks is reset, and its client told
/// nothing else: clients give up all their connections when they are told of one that failed.
async fn carry(connection: Box<dyn Duplex>, inbox: Inbox, outbox: Outbox) {
    let (source, sink) = split(connection);
    let mut there = pin!(send_on(inbox, sink));
    let mut back = pin!(bring_back(source, outbox.clone()));
    let is_over = tokio::select! {
        () = &mut there => timeout(HALF_CLOSED, back).await.is_ok(),
        () = &mut back => timeout(HALF_CLOSED, there).await.is_ok(),
    };
    if !is_over {
        outbox.reset().await;
    }
}

async fn send_on(mut inbox: Inbox, mut sink: impl AsyncWrite + Unpin) {
    while let Some(bytes) = inbox.recv().await {
        if sink.write_all(&bytes).await.is_err() || sink.flush().await.is_err() {
            return;
        }
    }
    let _ = sink.shutdown().await;
}

async fn bring_back(mut source: impl AsyncRead + Unpin, outbox: Outbox) {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(PIECE);
        match source.read_buf(&mut buffer).await {
            Ok(0) => return outbox.close().await,
            Ok(_) => {
                if outbox.send(buffer.split().freeze()).await.is_err() {
                    return;
                }
            }
            Err(_) => return outbox.reset().await,
        }
    }
}

/// The two streams of a connection.
struct Pair {
    port: u16,
    data: Stream,
    error: Outbox,
}

/// Streams whose other half has not come yet, by the connection they belong to.
#[derive(Default)]
struct Pairs(HashMap<String, Half>);

struct Half {
    stream: Stream,
    is_data: bool,
    port: u16,
    deadline: Instant,
}

impl Pairs {
    /// A pair, if the stream completes one.
    async fn take(&mut self, stream: Stream) -> Option<Pair> {
        let Some(Meant {
            is_data,
            port,
            request,
        }) = Meant::by(&stream)
        else {
            stream.outbox.reset().await;
            return None;
        };
        stream.accept().await;
        let new = Half {
            stream,
            is_data,
            port,
            deadline: Instant::now() + PATIENCE,
        };
        let Some(old) = self.0.remove(&request) else {
            self.0.insert(request, new);
            return None;
        };
        if old.is_data == is_data {
            let kind = if is_data { "data" } else { "error" };
            let problem = format!(
                "error processing stream for request {request}: {kind} stream already assigned"
            );
            if !is_data {
                let _ = old.stream.outbox.send(problem.into()).await;
            }
            new.stream.outbox.reset().await;
            self.0.insert(request, old);
            return None;
        }
        let (data, error) = match is_data {
            true => (new, old),
            false => (old, new),
        };
        Some(Pair {
            port: data.port,
            data: data.stream,
            error: error.stream.outbox,
        })
    }

    fn deadline(&self) -> Option<Instant> {
        self.0.values().map(|half| half.deadline).min()
    }

    async fn expire(&mut self) {
        let now = Instant::now();
        let late = self.0.iter().filter(|(_, half)| half.deadline <= now);
        let late: Vec<String> = late.map(|(request, _)| request.clone()).collect();
        for request in late {
            let Some(half) = self.0.remove(&request) else {
                continue;
            };
            if !half.is_data {
                let problem = format!("(request={request}) timed out waiting for streams");
                let _ = half.stream.outbox.send(problem.into()).await;
            }
            half.stream.outbox.reset().await;
        }
    }
}

/// What a stream is for.
struct Meant {
    is_data: bool,
    port: u16,
    request: String,
}

impl Meant {
    fn by(stream: &Stream) -> Option<Self> {
        let port = stream.headers.get("port")?.parse().ok()?;
        let is_data = match stream.headers.get("streamType")? {
            "data" => true,
            "error" => false,
            _ => return None,
        };
        let request = match stream.headers.get("requestID") {
            Some(request) if !request.is_empty() => request.to_owned(),
            // old clients name none, and open the stream for errors just before the one for data
            _ if is_data => stream.id.saturating_sub(2).to_string(),
            _ => stream.id.to_string(),
        };
        (port > 0).then_some(Meant {
            is_data,
            port,
            request,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use bytes::Bytes;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::sync::mpsc;

    use super::{HALF_CLOSED, carry};
    use crate::server::streams::wire::{Outbox, Packet};

    /// The client's end of a forwarded connection, and the pod's.
    struct Ends {
        client: Option<mpsc::Sender<Bytes>>,
        packets: mpsc::Receiver<Packet>,
        pod: DuplexStream,
    }

    fn connect() -> Ends {
        let (pod, connection) = duplex(1024);
        let (client, inbox) = mpsc::channel(1);
        let (queue, packets) = mpsc::channel(1);
        let outbox = Outbox { queue, channel: 1 };
        tokio::spawn(carry(Box::new(connection), inbox, outbox));
        Ends {
            client: Some(client),
            packets,
            pod,
        }
    }

    fn data(bytes: &'static [u8]) -> Option<Packet> {
        let bytes = Bytes::from_static(bytes);
        Some(Packet::Data { channel: 1, bytes })
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_said_everything_still_gets_the_answer() {
        let mut ends = connect();
        let client = ends.client.take().unwrap();
        client.send(Bytes::from_static(b"question")).await.unwrap();
        drop(client);
        let mut question = String::new();
        ends.pod.read_to_string(&mut question).await.unwrap();
        assert_eq!(question, "question");
        tokio::time::sleep(HALF_CLOSED / 2).await;
        ends.pod.write_all(b"answer").await.unwrap();
        drop(ends.pod);
        assert_eq!(ends.packets.recv().await, data(b"answer"));
        assert_eq!(
            ends.packets.recv().await,
            Some(Packet::Close { channel: 1 })
        );
        assert_eq!(ends.packets.recv().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_said_everything_is_not_talked_to_for_ever() {
        let mut ends = connect();
        ends.client = None;
        let talking = tokio::spawn(async move {
            while ends.pod.write_all(b"and then").await.is_ok() {
                tokio::time::sleep(HALF_CLOSED / 4).await;
            }
        });
        let mut last = None;
        while let Some(packet) = ends.packets.recv().await {
            last = Some(packet);
        }
        assert_eq!(last, Some(Packet::Reset { channel: 1 }));
        talking.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_the_pod_has_left_ends_although_the_client_stays() {
        let mut ends = connect();
        drop(ends.pod);
        assert_eq!(
            ends.packets.recv().await,
            Some(Packet::Close { channel: 1 })
        );
        assert_eq!(
            ends.packets.recv().await,
            Some(Packet::Reset { channel: 1 })
        );
        assert_eq!(ends.packets.recv().await, None);
        assert!(ends.client.unwrap().send(Bytes::new()).await.is_err());
    }
}

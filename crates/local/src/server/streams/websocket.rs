//! Channels over a WebSocket: each message begins with the number of its channel.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes, BytesMut};
use futures::{Sink as _, SinkExt as _, Stream as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::wire::{HEARTBEAT, Inbox, Packet, QUEUE, farewell};

/// What the real server takes in one message.
const LARGEST: usize = 32 << 20;
/// The message that closes a channel, in protocols that have one.
const CLOSE: u8 = 255;

/// How messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Binary,
    /// Text, with a digit for the channel.
    Base64,
}

/// What is spoken over a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    pub(super) codec: Codec,
    /// Whether the client can close a channel without closing the socket.
    pub(super) closes_channels: bool,
}

type Socket<Io> = WebSocketStream<Io>;

async fn socket<Io: AsyncRead + AsyncWrite + Unpin>(io: Io) -> Socket<Io> {
    let config = WebSocketConfig::default()
        .max_message_size(Some(LARGEST))
        .max_frame_size(Some(LARGEST));
    WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await
}

/// The channels of a client that may write to `readable` of them, and the driver of its connection.
pub(super) fn open<Io: AsyncRead + AsyncWrite + Unpin + Send>(
    io: Io,
    dialect: Dialect,
    channels: u8,
    readable: &[u8],
) -> (
    mpsc::Sender<Packet>,
    Vec<Inbox>,
    impl Future<Output = ()> + Send + use<Io>,
) {
    let (queue, packets) = mpsc::channel(QUEUE);
    let mut slots: Vec<Slot> = (0..channels).map(|_| None).collect();
    let mut inboxes = Vec::new();
    for channel in readable {
        // a message may be large: no more than one waits
        let (sender, inbox) = mpsc::channel(1);
        if let Some(slot) = slots.get_mut(usize::from(*channel)) {
            *slot = Some(sender);
        }
        inboxes.push(inbox);
    }
    let driver = async move {
        let (sink, stream) = socket(io).await.split();
        let mut reading = std::pin::pin!(read(stream, dialect, slots));
        tokio::select! {
            () = &mut reading => return,
            written = write(sink, dialect.codec, packets) => if written.is_err() { return },
        }
        farewell(reading).await;
    };
    (queue, inboxes, driver)
}

/// Absent where the client may not write, or has closed the channel.
type Slot = Option<mpsc::Sender<Bytes>>;

/// Until the client hangs up, or says what nobody says who speaks the protocol.
async fn read(
    mut messages: impl futures::Stream<Item = Result<Message, Error>> + Unpin,
    dialect: Dialect,
    mut slots: Vec<Slot>,
) {
    while let Some(Ok(message)) = messages.next().await {
        let message = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => text.into(),
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
        };
        match understand(dialect, message) {
            Said::Nothing => {}
            Said::Nonsense => return,
            Said::Close(channel) => match slots.get_mut(usize::from(channel)) {
                Some(slot) => *slot = None,
                None => return,
            },
            Said::Data(channel, bytes) => {
                if let Some(Some(inbox)) = slots.get(usize::from(channel)) {
                    // what nobody reads any more is thrown away
                    let _ = inbox.send(bytes).await;
                }
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    /// The end of the connection.
    Nonsense,
    Close(u8),
    Data(u8, Bytes),
}

fn understand(dialect: Dialect, mut message: Bytes) -> Said {
    let Some(first) = message.first().copied() else {
        return Said::Nothing;
    };
    message.advance(1);
    if dialect.closes_channels && first == CLOSE {
        return match *message {
            [channel] => Said::Close(channel),
            _ => Said::Nonsense,
        };
    }
    let (channel, bytes) = match dialect.codec {
        Codec::Binary => (first, message),
        Codec::Base64 => match STANDARD.decode(&message) {
            Ok(bytes) => (first.wrapping_sub(b'0'), bytes.into()),
            Err(_) => return Said::Nothing,
        },
    };
    match bytes.is_empty() {
        true => Said::Nothing,
        false => Said::Data(channel, bytes),
    }
}

/// Sends packets, and the goodbye when there are no more.
async fn write(
    mut sink: impl futures::Sink<Message, Error = Error> + Unpin,
    codec: Codec,
    mut packets: mpsc::Receiver<Packet>,
) -> Result<(), Error> {
    let mut beat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let packet = tokio::select! {
            packet = packets.recv() => packet,
            _ = beat.tick() => {
                sink.send(Message::Pong(Bytes::new())).await?;
                continue;
            }
        };
        match packet {
            Some(Packet::Data { channel, bytes }) => {
                let channel = u8::try_from(channel).unwrap_or(u8::MAX);
                sink.send(message(codec, channel, &bytes)).await?;
            }
            // channels end with the socket
            Some(_) => {}
            None => break,
        }
    }
    sink.send(goodbye()).await
}

/// Clients take any other end for a failure.
fn goodbye() -> Message {
    Message::Close(Some(CloseFrame {
        code: CloseCode::Normal,
        reason: "".into(),
    }))
}

fn message(codec: Codec, channel: u8, bytes: &[u8]) -> Message {
    match codec {
        Codec::Binary => {
            let mut message = BytesMut::with_capacity(bytes.len() + 1);
            message.extend_from_slice(&[channel]);
            message.extend_from_slice(bytes);
            Message::Binary(message.freeze())
        }
        Codec::Base64 => {
            let digit = char::from(b'0'.wrapping_add(channel));
            Message::text(format!("{digit}{}", STANDARD.encode(bytes)))
        }
    }
}

/// A socket whose messages are pieces of one stream of bytes.
pub(super) struct Tunnel<Io> {
    socket: Socket<Io>,
    /// What is left of the message that is being read.
    rest: Bytes,
    has_said_goodbye: bool,
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Tunnel<Io> {
    pub(super) async fn new(io: Io) -> Self {
        Self {
            socket: socket(io).await,
            rest: Bytes::new(),
            has_said_goodbye: false,
        }
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncRead for Tunnel<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.socket).poll_next(cx)) {
                Some(Ok(Message::Binary(bytes))) => self.rest = bytes,
                Some(Ok(Message::Close(_))) | None => return Poll::Ready(Ok(())),
                Some(Ok(Message::Text(_))) => {
                    let problem = "a text came where only bytes are spoken";
                    return Poll::Ready(Err(std::io::Error::other(problem)));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(std::io::Error::other(error))),
            }
        }
        let length = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Tunnel<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        ready!(Pin::new(&mut self.socket).poll_ready(cx)).map_err(std::io::Error::other)?;
        let message = Message::Binary(Bytes::copy_from_slice(bytes));
        let sent = Pin::new(&mut self.socket).start_send(message);
        Poll::Ready(sent.map(|()| bytes.len()).map_err(std::io::Error::other))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        flushed.map_err(std::io::Error::other)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if !self.has_said_goodbye {
            ready!(Pin::new(&mut self.socket).poll_ready(cx)).map_err(std::io::Error::other)?;
            let sent = Pin::new(&mut self.socket).start_send(goodbye());
            sent.map_err(std::io::Error::other)?;
            self.has_said_goodbye = true;
        }
        self.poll_flush(cx)
    }
}

#[cfg(test)]
mod tests;

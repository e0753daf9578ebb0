//! A connection and its streams.

use std::collections::HashMap;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::frame::{Decoder, Encoder, Event, Reset};
use super::headers::Headers;
use crate::server::streams::wire::{HEARTBEAT, Inbox, Outbox, PIECE, Packet, QUEUE, farewell};

/// Pieces of data that wait for whoever reads a stream.
const WAITING: usize = 8;

/// A connection, as long as it is held.
pub(in crate::server::streams) struct Connection {
    opened: mpsc::Receiver<Stream>,
    /// The driver ends when nobody holds it.
    _queue: mpsc::Sender<Packet>,
}

/// A stream that the client has opened.
pub(in crate::server::streams) struct Stream {
    pub(in crate::server::streams) id: u32,
    pub(in crate::server::streams) headers: Headers,
    pub(in crate::server::streams) inbox: Inbox,
    pub(in crate::server::streams) outbox: Outbox,
    /// Resolves to `Ok` when the client has reset the stream.
    pub(in crate::server::streams) reset: oneshot::Receiver<()>,
}

impl Connection {
    /// The next stream; nothing if the client is gone. It waits to be accepted or reset.
    pub(in crate::server::streams) async fn next(&mut self) -> Option<Stream> {
        self.opened.recv().await
    }
}

impl Stream {
    pub(in crate::server::streams) async fn accept(&self) {
        let channel = self.id;
        // whoever is gone need not be told
        let _ = self.outbox.put(Packet::Accept { channel }).await;
    }
}

/// A connection on which at most so many streams are open at a time, and its driver.
pub(in crate::server::streams) fn open(
    io: impl AsyncRead + AsyncWrite + Send,
    most: usize,
) -> (Connection, impl Future<Output = ()> + Send) {
    let (queue, packets) = mpsc::channel(QUEUE);
    let (opening, opened) = mpsc::channel(WAITING);
    let table = Arc::new(Mutex::new(Table::default()));
    let reader = Reader {
        decoder: Decoder::default(),
        table: Arc::clone(&table),
        most,
        opening,
        queue: queue.downgrade(),
    };
    let driver = async move {
        let (source, sink) = split(io);
        let mut reading = pin!(reader.run(source));
        tokio::select! {
            () = &mut reading => return,
            written = write(sink, packets, &table) => if written.is_err() { return },
        }
        farewell(reading).await;
    };
    let connection = Connection {
        opened,
        _queue: queue,
    };
    (connection, driver)
}

/// The streams that are open in at least one direction.
#[derive(Default)]
struct Table {
    streams: HashMap<u32, Entry>,
    last: u32,
}

struct Entry {
    /// Absent when the client has sent everything.
    inbox: Option<mpsc::Sender<Bytes>>,
    reset: oneshot::Sender<()>,
    /// Whether we have sent everything.
    is_closed: bool,
}

impl Table {
    fn of(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
        table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client_closes(&mut self, stream: u32) {
        if let Some(entry) = self.streams.get_mut(&stream) {
            entry.inbox = None;
            if entry.is_closed {
                self.streams.remove(&stream);
            }
        }
    }

    fn we_close(&mut self, stream: u32) {
        if let Some(entry) = self.streams.get_mut(&stream) {
            entry.is_closed = true;
            if entry.inbox.is_none() {
                self.streams.remove(&stream);
            }
        }
    }

    fn inbox(&self, stream: u32) -> Option<mpsc::Sender<Bytes>> {
        self.streams.get(&stream)?.inbox.clone()
    }
}

struct Reader {
    decoder: Decoder,
    table: Arc<Mutex<Table>>,
    most: usize,
    opening: mpsc::Sender<Stream>,
    queue: mpsc::WeakSender<Packet>,
}

impl Reader {
    /// Until the client hangs up, or says what nobody says who speaks the protocol.
    async fn run(mut self, source: impl AsyncRead) {
        let mut source = pin!(source);
        let mut buffer = BytesMut::new();
        loop {
            match self.decoder.decode(&mut buffer) {
                Ok(Some(Event::GoAway)) | Err(_) => return,
                Ok(Some(event)) => self.handle(event).await,
                Ok(None) => {
                    buffer.reserve(PIECE);
                    if !matches!(source.read_buf(&mut buffer).await, Ok(1..)) {
                        return;
                    }
                }
            }
        }
    }

    async fn handle(&mut self, event: Event) {
        match event {
            Event::Opened {
                stream,
                headers,
                is_last,
            } => self.open(stream, headers, is_last).await,
            Event::Data {
                stream,
                bytes,
                is_last,
            } => {
                let inbox = Table::of(&self.table).inbox(stream);
                if let Some(inbox) = inbox.filter(|_| !bytes.is_empty()) {
                    // what nobody reads any more is thrown away
                    let _ = inbox.send(bytes).await;
                }
                if is_last {
                    Table::of(&self.table).client_closes(stream);
                }
            }
            Event::Other {
                ended: Some(stream),
            } => Table::of(&self.table).client_closes(stream),
            Event::Reset { stream } => {
                let entry = Table::of(&self.table).streams.remove(&stream);
                if let Some(entry) = entry {
                    let _ = entry.reset.send(());
                }
            }
            // those with even numbers are our own
            Event::Ping(id) if id % 2 == 1 => self.say(Packet::Ping(id)).await,
            Event::Ping(_) | Event::GoAway | Event::Other { ended: None } => {}
        }
    }

    async fn open(&mut self, id: u32, headers: Headers, is_last: bool) {
        let Some(queue) = self.queue.upgrade() else {
            return;
        };
        let outbox = Outbox { queue, channel: id };
        let (sender, inbox) = mpsc::channel(WAITING);
        let (resetter, reset) = oneshot::channel();
        let problem = {
            let mut table = Table::of(&self.table);
            let is_mistake = id.is_multiple_of(2) || id <= table.last;
            let is_full = table.streams.len() >= self.most;
            if !is_mistake {
                table.last = id;
            }
            if !is_mistake && !is_full {
                let entry = Entry {
                    inbox: (!is_last).then_some(sender),
                    reset: resetter,
                    is_closed: false,
                };
                table.streams.insert(id, entry);
            }
            (is_mistake || is_full).then_some(is_mistake)
        };
        let refuse = |is_mistake| Packet::Refuse {
            channel: id,
            is_mistake,
        };
        if let Some(is_mistake) = problem {
            return self.say(refuse(is_mistake)).await;
        }
        let stream = Stream {
            id,
            headers,
            inbox,
            outbox,
            reset,
        };
        if self.opening.send(stream).await.is_err() {
            self.say(refuse(false)).await;
        }
    }

    async fn say(&self, packet: Packet) {
        if let Some(queue) = self.queue.upgrade() {
            let _ = queue.send(packet).await;
        }
    }
}

/// Sends packets, and the goodbye when there are no more.
async fn write(
    sink: impl AsyncWrite,
    mut packets: mpsc::Receiver<Packet>,
    table: &Mutex<Table>,
) -> io::Result<()> {
    let mut sink = pin!(sink);
    let mut encoder = Encoder::new();
    let mut beat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut own_ping = 0_u32;
    let mut out = BytesMut::new();
    loop {
        tokio::select! {
            packet = packets.recv() => match packet {
                Some(packet) => encode(&mut encoder, packet, table, &mut out),
                None => break,
            },
            _ = beat.tick() => {
                own_ping = own_ping.wrapping_add(2) & 0x7fff_ffff;
                out.extend_from_slice(&Encoder::ping(own_ping.max(2)));
            }
        }
        sink.write_all_buf(&mut out).await?;
        if packets.is_empty() {
            sink.flush().await?;
        }
    }
    let last = Table::of(table).last;
    sink.write_all(&Encoder::go_away(last)).await?;
    sink.flush().await?;
    sink.shutdown().await
}

fn encode(encoder: &mut Encoder, packet: Packet, table: &Mutex<Table>, out: &mut BytesMut) {
    match packet {
        Packet::Data { channel, bytes } => {
            for piece in bytes.chunks(PIECE) {
                out.extend_from_slice(&Encoder::data(channel, piece.len(), false));
                out.extend_from_slice(piece);
            }
        }
        Packet::Close { channel } => {
            Table::of(table).we_close(channel);
            out.extend_from_slice(&Encoder::data(channel, 0, true));
        }
        Packet::Reset { channel } => {
            Table::of(table).streams.remove(&channel);
            out.extend_from_slice(&Encoder::reset(channel, Reset::Cancel));
        }
        Packet::Accept { channel } => out.extend_from_slice(&encoder.reply(channel)),
        Packet::Refuse {
            channel,
            is_mistake,
        } => {
            let why = match is_mistake {
                true => Reset::ProtocolError,
                false => {
                    Table::of(table).streams.remove(&channel);
                    Reset::Refused
                }
            };
            out.extend_from_slice(&Encoder::reset(channel, why));
        }
        Packet::Ping(id) => out.extend_from_slice(&Encoder::ping(id)),
    }
}

#[cfg(test)]
mod tests;

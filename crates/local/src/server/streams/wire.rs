//! A connection as sessions see it, whatever protocol it speaks: channels that bytes come from and go to.
//!
//! Each protocol has a driver, a future that moves packets between the queue, the inboxes and the socket. It ends when the
//! client is gone. When nobody holds the queue any more, it sends what is left, says goodbye and waits for the client to
//! hang up: a socket that is closed before everything was read may take with it what is still on its way.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How much is read at a time of what a process writes.
pub(super) const PIECE: usize = 32 * 1024;
/// Packets that wait for the socket.
pub(super) const QUEUE: usize = 8;
/// How often something is sent although there is nothing to say. A client that is gone is noticed this way even while
/// nothing is read from it, and one that waits for signs of life gets them while its own questions wait behind its data.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long a client may take to hang up once it has been sent everything.
const FAREWELL: Duration = Duration::from_secs(10);

/// Where bytes of the client come from; it ends when the client has closed the channel, or is gone.
pub(super) type Inbox = mpsc::Receiver<Bytes>;

/// What is to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Packet {
    Data {
        channel: u32,
        bytes: Bytes,
    },
    /// No more will be sent on this channel.
    Close {
        channel: u32,
    },
    /// The channel is over, whatever was still to be sent.
    Reset {
        channel: u32,
    },
    /// The client may use the channel it has opened.
    Accept {
        channel: u32,
    },
    /// The client may not open this channel.
    Refuse {
        channel: u32,
        is_mistake: bool,
    },
    /// An answer to the client's.
    Ping(u32),
}

/// Where bytes for the client go to.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    pub(super) queue: mpsc::Sender<Packet>,
    pub(super) channel: u32,
}

/// The client is gone.
#[derive(Debug)]
pub(super) struct Gone;

impl Outbox {
    pub(super) async fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        let channel = self.channel;
        self.put(Packet::Data { channel, bytes }).await
    }

    pub(super) async fn close(self) {
        let channel = self.channel;
        // whoever is gone need not be told
        let _ = self.put(Packet::Close { channel }).await;
    }

    pub(super) async fn reset(self) {
        let channel = self.channel;
        let _ = self.put(Packet::Reset { channel }).await;
    }

    pub(super) async fn put(&self, packet: Packet) -> Result<(), Gone> {
        self.queue.send(packet).await.map_err(|_| Gone)
    }
}

/// Waits for a client to hang up that has been sent everything.
pub(super) async fn farewell(reading: impl Future<Output = ()>) {
    let _ = timeout(FAREWELL, reading).await;
}

/// Runs a session on its connection. If the client goes first, the session is dropped where it stands.
pub(super) async fn run(driver: impl Future<Output = ()>, session: impl Future<Output = ()>) {
    let mut driver = pin!(driver);
    {
        let session = pin!(session);
        tokio::select! {
            () = &mut driver => return,
            () = session => {}
        }
    }
    driver.await;
}

//! One connection to a shim: calls and their answers, and what the shim says unasked.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{Mutex as AsyncMutex, broadcast, oneshot};
use tokio::task::JoinHandle;

use super::{Error, flush};
use crate::state::Exit;
use crate::wire::{Call, Event, FromShim, Incoming, Outgoing, Reply, Request};

/// What a listener may be behind by.
const EVENTS: usize = 1024;

/// Cheap to clone; the connection closes when the last clone is dropped.
#[derive(Clone)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    _reader: Arc<Reader>,
}

struct Shared {
    socket: UnixStream,
    outgoing: AsyncMutex<Outgoing>,
    next: AtomicU64,
    state: Mutex<State>,
}

struct State {
    waiting: HashMap<u64, oneshot::Sender<Answer>>,
    commands: HashMap<u64, oneshot::Sender<Exit>>,
    /// None once the shim is gone.
    events: Option<broadcast::Sender<Event>>,
}

pub(super) struct Answer {
    pub(super) reply: Reply,
    pub(super) fds: Vec<OwnedFd>,
    /// For a command: how it will end.
    pub(super) exit: Option<oneshot::Receiver<Exit>>,
}

/// The task that reads; it ends with the connection.
struct Reader(JoinHandle<()>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection {
    /// Waits for the shim to introduce itself.
    pub(super) async fn open(socket: UnixStream) -> Result<(Self, i32), Error> {
        let mut incoming = Incoming::default();
        let pid = match receive(&socket, &mut incoming)
            .await
            .map_err(Error::Connection)?
        {
            Some((FromShim::Ready { pid }, _)) => pid,
            Some((FromShim::Reply { reply, .. }, _)) => {
                return Err(match reply {
                    Reply::Failed(failure) => failure.into(),
                    other => super::unexpected(&other),
                });
            }
            Some(_) | None => return Err(Error::ShimGone),
        };
        let shared = Arc::new(Shared {
            socket,
            outgoing: AsyncMutex::default(),
            next: AtomicU64::new(1),
            state: Mutex::new(State {
                waiting: HashMap::new(),
                commands: HashMap::new(),
                events: Some(broadcast::channel(EVENTS).0),
            }),
        });
        let reader = tokio::spawn(read(shared.clone(), incoming));
        let connection = Self {
            shared,
            _reader: Arc::new(Reader(reader)),
        };
        Ok((connection, pid))
    }

    /// Asks and waits for the answer.
    pub(super) async fn call(&self, request: Request) -> Result<Answer, Error> {
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.shared.state();
            if state.events.is_none() {
                return Err(Error::ShimGone);
            }
            state.waiting.insert(id, sender);
        }
        let mut outgoing = self.shared.outgoing.lock().await;
        outgoing
            .push(&Call { id, request }, Vec::new())
            .map_err(Error::Connection)?;
        // a shim that is gone shows to the reader, which lets all who wait know
        let _ = flush(&self.shared.socket, &mut outgoing).await;
        drop(outgoing);
        let answer = receiver.await.map_err(|_| Error::ShimGone)?;
        match answer.reply {
            Reply::Failed(failure) => Err(failure.into()),
            _ => Ok(answer),
        }
    }

    pub(super) fn events(&self) -> broadcast::Receiver<Event> {
        match &self.shared.state().events {
            Some(events) => events.subscribe(),
            None => broadcast::channel(1).1,
        }
    }
}

impl Shared {
    /// A panic elsewhere leaves the tables as they were between two changes.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(shared: Arc<Shared>, mut incoming: Incoming) {
    while let Ok(Some((message, fds))) = receive(&shared.socket, &mut incoming).await {
        let mut state = shared.state();
        match message {
            FromShim::Ready { .. } => {}
            FromShim::Event(event) => {
                if let Some(events) = &state.events {
                    // nobody listens: nobody misses it
                    let _ = events.send(event);
                }
            }
            FromShim::ExecExited { exec, exit } => {
                if let Some(command) = state.commands.remove(&exec) {
                    let _ = command.send(exit);
                }
            }
            FromShim::Reply { id, reply } => {
                let exit = match &reply {
                    Reply::Exec { exec, .. } => {
                        let (sender, receiver) = oneshot::channel();
                        state.commands.insert(*exec, sender);
                        Some(receiver)
                    }
                    _ => None,
                };
                if let Some(caller) = state.waiting.remove(&id) {
                    let _ = caller.send(Answer { reply, fds, exit });
                }
            }
        }
    }
    let mut state = shared.state();
    state.waiting.clear();
    state.commands.clear();
    state.events = None;
}

/// The next message; none at the end.
async fn receive(
    socket: &UnixStream,
    incoming: &mut Incoming,
) -> io::Result<Option<(FromShim, Vec<OwnedFd>)>> {
    loop {
        if let Some(message) = incoming.next()? {
            return Ok(Some(message));
        }
        socket.readable().await?;
        match socket.try_io(Interest::READABLE, || incoming.receive(socket.as_fd())) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

pub(super) fn asynchronous(stream: BlockingStream) -> io::Result<UnixStream> {
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

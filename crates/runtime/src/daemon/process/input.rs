//! What a process reads.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use crate::code::Code;
use crate::daemon::error::Error;
use crate::daemon::sys;

pub(in crate::daemon) struct Input {
    is_pty: bool,
    /// Held while one client writes: inputs are not mixed.
    turn: tokio::sync::Mutex<()>,
    /// Empty when closed.
    pipe: Mutex<Option<Arc<Pipe>>>,
    /// Ends a write that waits for a process that does not read.
    closed: watch::Sender<bool>,
}

pub(super) type Pipe = AsyncFd<OwnedFd>;

impl Input {
    pub(super) fn new(fd: Option<OwnedFd>, is_pty: bool) -> io::Result<Self> {
        let writable = |fd| sys::watch(fd, Interest::WRITABLE);
        Ok(Self {
            is_pty,
            turn: tokio::sync::Mutex::default(),
            pipe: Mutex::new(fd.map(writable).transpose()?.map(Arc::new)),
            closed: watch::Sender::new(false),
        })
    }

    fn locked(&self) -> MutexGuard<'_, Option<Arc<Pipe>>> {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pipe(&self) -> Option<Arc<Pipe>> {
        self.locked().clone()
    }

    pub(super) async fn write_stdin(&self, bytes: &[u8]) -> Result<(), Error> {
        if self.is_pty {
            return Err(Error::internal("the process has a pty and no stdin"));
        }
        self.write(bytes).await
    }

    pub(super) async fn write_pty(&self, bytes: &[u8]) -> Result<(), Error> {
        if !self.is_pty {
            return Err(Error::internal("the process has no pty"));
        }
        self.write(bytes).await
    }

    /// To whichever of the two it reads.
    pub(in crate::daemon) async fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        let closed = || Error::internal("stdin not enabled or closed");
        let _turn = self.turn.lock().await;
        let pipe = self.pipe().ok_or_else(closed)?;
        let mut closing = self.closed.subscribe();
        tokio::select! {
            written = write_all(&pipe, bytes) => {
                written.map_err(|e| Error::internal(format!("error writing to the process: {e}")))
            }
            _ = closing.wait_for(|closed| *closed) => Err(closed()),
        }
    }

    pub(in crate::daemon) fn is_pty(&self) -> bool {
        self.is_pty
    }

    /// Closing again is no error.
    pub(in crate::daemon) async fn close(&self) -> Result<(), Error> {
        if self.is_pty {
            let message = "the stdin of a process with a pty cannot be closed";
            return Err(Error::new(Code::Unknown, message));
        }
        self.closed.send_replace(true);
        let _turn = self.turn.lock().await;
        *self.locked() = None;
        Ok(())
    }
}

async fn write_all(pipe: &Pipe, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let mut ready = pipe.writable().await?;
        match ready.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), bytes)?)) {
            Ok(written) => bytes = &bytes[written?..],
            Err(_would_block) => {}
        }
    }
    Ok(())
}

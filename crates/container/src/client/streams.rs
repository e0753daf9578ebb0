//! The streams of commands and of attached containers: pipes and terminals that the shim handed over.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::termios::Winsize;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::Error;
use super::connection::Connection;
use crate::settings::TerminalSize;
use crate::state::Exit;
use crate::sys;
use crate::wire::{Request, StreamKind};

/// One end of a pipe, or a terminal. Dropping it closes it.
pub struct Pipe(AsyncFd<OwnedFd>);

impl Pipe {
    fn new(fd: OwnedFd) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        sys::watch(fd).map(Self)
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(context))?;
            let unfilled = buffer.initialize_unfilled();
            let read = guard.try_io(|fd| match rustix::io::read(fd.as_fd(), unfilled) {
                // the other side of a terminal is closed: its way to say the end
                Err(Errno::IO) => Ok(0),
                result => Ok(result?),
            });
            if let Ok(result) = read {
                buffer.advance(result?);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(context))?;
            if let Ok(result) = guard.try_io(|fd| Ok(rustix::io::write(fd.as_fd(), bytes)?)) {
                return Poll::Ready(result);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Nothing waits here; dropping is what closes.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// What is there to write to and to read from. A terminal is both, and has no separate errors.
#[derive(Default)]
pub struct Streams {
    pub stdin: Option<Pipe>,
    pub stdout: Option<Pipe>,
    pub stderr: Option<Pipe>,
    terminal: Option<OwnedFd>,
}

impl Streams {
    fn new(kinds: &[StreamKind], fds: Vec<OwnedFd>) -> io::Result<Self> {
        let mut streams = Self::default();
        for (kind, fd) in kinds.iter().zip(fds) {
            match kind {
                StreamKind::Stdin => streams.stdin = Some(Pipe::new(fd)?),
                StreamKind::Stdout => streams.stdout = Some(Pipe::new(fd)?),
                StreamKind::Stderr => streams.stderr = Some(Pipe::new(fd)?),
                StreamKind::Terminal => streams.terminal = Some(fd),
            }
        }
        if let Some(terminal) = &streams.terminal {
            streams.stdin = Some(Pipe::new(terminal.try_clone()?)?);
            if streams.stdout.is_none() {
                streams.stdout = Some(Pipe::new(terminal.try_clone()?)?);
            }
        }
        Ok(streams)
    }

    /// Tells the terminal how large its window is. Nothing happens without one.
    pub fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let Some(terminal) = &self.terminal else {
            return Ok(());
        };
        let size = Winsize {
            ws_row: size.rows,
            ws_col: size.columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        Ok(rustix::termios::tcsetwinsize(terminal, size)?)
    }
}

/// A command that runs in a container. It goes on when this is dropped, without its streams.
pub struct Exec {
    pub streams: Streams,
    connection: Connection,
    id: u64,
    exit: oneshot::Receiver<Exit>,
    ended: Option<Exit>,
}

impl Exec {
    pub(super) fn new(
        connection: Connection,
        id: u64,
        kinds: &[StreamKind],
        fds: Vec<OwnedFd>,
        exit: oneshot::Receiver<Exit>,
    ) -> Result<Self, Error> {
        Ok(Self {
            streams: Streams::new(kinds, fds).map_err(Error::Connection)?,
            connection,
            id,
            exit,
            ended: None,
        })
    }

    /// How it ended. Its output may still be on the way: read the streams to their ends.
    pub async fn wait(&mut self) -> Result<Exit, Error> {
        let exit = match self.ended.take() {
            Some(exit) => exit,
            None => (&mut self.exit).await.map_err(|_| Error::ShimGone)?,
        };
        self.ended = Some(exit.clone());
        Ok(exit)
    }

    pub async fn kill(&self, signal: i32) -> Result<(), Error> {
        let exec = self.id;
        let request = Request::KillExec { exec, signal };
        self.connection.call(request).await.map(|_| ())
    }
}

/// A container's streams, from `Pod::attach`.
pub struct Attached {
    pub streams: Streams,
}

impl Attached {
    pub(super) fn new(kinds: &[StreamKind], fds: Vec<OwnedFd>) -> Result<Self, Error> {
        let streams = Streams::new(kinds, fds).map_err(Error::Connection)?;
        Ok(Self { streams })
    }
}

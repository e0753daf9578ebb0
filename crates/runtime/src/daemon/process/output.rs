//! What a process writes.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;

use bytes::Bytes;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Stream;
use crate::daemon::sys;

const PIPE_CHUNK: usize = 32 << 10;
const PTY_CHUNK: usize = 16 << 10;

thread_local! {
    /// One for all: a process that is silent needs no memory.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; PIPE_CHUNK].into());
}

pub(super) struct Output {
    stream: Stream,
    fd: AsyncFd<OwnedFd>,
}

impl Output {
    pub(super) fn new(stream: Stream, fd: OwnedFd) -> io::Result<Self> {
        let fd = sys::watch(fd, Interest::READABLE)?;
        Ok(Self { stream, fd })
    }

    pub(super) fn stream(&self) -> Stream {
        self.stream
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        self.fd.get_ref()
    }

    /// What was written, as soon as something is. `None` when nobody can write any more.
    pub(super) async fn read(&self) -> Option<Bytes> {
        loop {
            let mut ready = self.fd.readable().await.ok()?;
            match ready.try_io(|fd| self.read_once(fd.get_ref())) {
                Ok(Ok(bytes)) => return Some(bytes).filter(|bytes| !bytes.is_empty()),
                // a terminal whose other end is closed
                Ok(Err(_)) => return None,
                Err(_would_block) => {}
            }
        }
    }

    /// What is there already.
    pub(super) fn read_now(&self) -> Option<Bytes> {
        let bytes = self.read_once(self.fd.get_ref()).ok()?;
        Some(bytes).filter(|bytes| !bytes.is_empty())
    }

    pub(super) async fn discard(&self) {
        while self.read().await.is_some() {}
    }

    fn read_once(&self, fd: &OwnedFd) -> io::Result<Bytes> {
        let most = match self.stream {
            Stream::Stdout | Stream::Stderr => PIPE_CHUNK,
            Stream::Pty => PTY_CHUNK,
        };
        BUFFER.with_borrow_mut(|buffer| {
            loop {
                match rustix::io::read(fd, &mut buffer[..most]) {
                    Ok(length) => return Ok(Bytes::copy_from_slice(&buffer[..length])),
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        })
    }
}

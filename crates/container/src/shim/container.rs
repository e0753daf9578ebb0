//! A container as its shim sees it: a process, its output, and those who watch it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::SystemTime;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use super::log::{Log, Stream};
use super::{Shim, setup};
use crate::process::Held;
use crate::state::{ContainerState, Exit};
use crate::wire::{Reply, StreamKind};

/// How often each output is read after the end: twice what the largest pipe holds.
const DRAINED: usize = 64;

/// What a watcher may be behind by, kept by the kernel; the rest he misses. The most that an ordinary user may ask for.
const WATCHER_BUFFER: usize = 1 << 20;
/// Read at once. Also the most that one container takes of a turn.
const CHUNK: usize = 32 << 10;

pub(super) struct Container {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) attempt: u32,
    pub(super) dir: PathBuf,
    pub(super) stop_signal: i32,
    pub(super) log: Log,
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdin_once: bool,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
    /// Instead of all three.
    pub(super) terminal: Option<OwnedFd>,
    /// None while it is being built.
    pub(super) state: Option<ContainerState>,
    pub(super) watchers: Vec<Watcher>,
    /// None unless it runs.
    pub(super) process: Option<Held>,
}

pub(super) struct Watcher {
    id: u64,
    stdout: OwnedFd,
    stderr: Option<OwnedFd>,
}

impl Container {
    /// Its first process, while it runs.
    pub(super) fn pid(&self) -> Option<i32> {
        let state = self.state.as_ref().filter(|s| s.exit.is_none())?;
        Some(state.pid())
    }

    /// None if it does not run.
    pub(super) fn signal(&self, signal: i32) -> Option<std::io::Result<()>> {
        Some(self.process.as_ref()?.signal(signal))
    }

    pub(super) fn runs_as(&self, pid: i32) -> bool {
        self.pid() == Some(pid)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.as_ref().is_some_and(|s| s.exit.is_some())
    }

    /// What is known of it, once it has been started.
    pub(super) fn state(&self) -> Option<ContainerState> {
        let state = self.state.clone()?;
        let log_dropped = self.log.dropped();
        Some(ContainerState {
            log_dropped,
            ..state
        })
    }

    /// What there is to read. A terminal has one stream for everything.
    pub(super) fn outputs(&self) -> impl Iterator<Item = (Stream, BorrowedFd<'_>)> {
        let stdout = self.terminal.as_ref().or(self.stdout.as_ref());
        let stdout = stdout.map(|fd| (Stream::Stdout, fd.as_fd()));
        let stderr = self.stderr.as_ref().map(|fd| (Stream::Stderr, fd.as_fd()));
        stdout.into_iter().chain(stderr)
    }

    pub(super) fn watchers(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        self.watchers.iter().map(|w| (w.id, w.stdout.as_fd()))
    }

    pub(super) fn forget_watcher(&mut self, id: u64) {
        self.watchers.retain(|w| w.id != id);
    }

    /// Reads once; false when there is nothing more for now, or ever.
    pub(super) fn read(&mut self, stream: Stream) -> bool {
        let mut chunk = [0_u8; CHUNK];
        let output = self.outputs().find(|(s, _)| *s == stream);
        let read = output.map_or(Err(Errno::AGAIN), |(_, fd)| {
            rustix::io::read(fd, &mut chunk)
        });
        match read {
            Err(Errno::AGAIN | Errno::INTR) => false,
            // a terminal whose other side nobody holds is an error to read, not an end
            Ok(0) | Err(_) => {
                self.close(stream);
                false
            }
            Ok(read) => {
                let bytes = &chunk[..read];
                self.log.write(stream, bytes, SystemTime::now());
                self.watchers.retain(|w| w.show(stream, bytes));
                true
            }
        }
    }

    /// Reads what was there when the container ended, and no more than a pipe can hold: somebody who was handed its output may
    /// go on writing for ever.
    pub(super) fn drain(&mut self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            for _ in 0..DRAINED {
                if !self.read(stream) {
                    break;
                }
            }
        }
    }

    /// The end, told once.
    pub(super) fn end(&mut self, exit: Exit) -> Option<ContainerState> {
        self.log.finish(SystemTime::now());
        self.stdin = None;
        self.stdout = None;
        self.stderr = None;
        self.terminal = None;
        self.watchers = Vec::new();
        self.process = None;
        self.state.as_mut()?.exit = Some(exit);
        self.state()
    }

    fn close(&mut self, stream: Stream) {
        match stream {
            Stream::Stdout if self.terminal.is_some() => self.terminal = None,
            Stream::Stdout => self.stdout = None,
            Stream::Stderr => self.stderr = None,
        }
    }

    /// The ends that a new watcher gets: output from now on, and the way in.
    fn watch(&mut self, id: u64) -> std::io::Result<(Vec<StreamKind>, Vec<OwnedFd>)> {
        let (stdout, ours) = pipe()?;
        let mut kinds = vec![StreamKind::Stdout];
        let mut fds = vec![stdout];
        let mut watcher = Watcher {
            id,
            stdout: ours,
            stderr: None,
        };
        if let Some(terminal) = &self.terminal {
            kinds.push(StreamKind::Terminal);
            fds.push(terminal.try_clone()?);
        } else {
            let (stderr, ours) = pipe()?;
            watcher.stderr = Some(ours);
            kinds.push(StreamKind::Stderr);
            fds.push(stderr);
            let stdin = if self.stdin_once {
                self.stdin.take()
            } else {
                self.stdin.as_ref().map(OwnedFd::try_clone).transpose()?
            };
            if let Some(stdin) = stdin {
                kinds.push(StreamKind::Stdin);
                fds.push(stdin);
            }
        }
        self.watchers.push(watcher);
        Ok((kinds, fds))
    }
}

impl Watcher {
    /// Writes what fits. False if nobody reads any more.
    fn show(&self, stream: Stream, bytes: &[u8]) -> bool {
        let fd = match stream {
            Stream::Stdout => Some(&self.stdout),
            Stream::Stderr => self.stderr.as_ref(),
        };
        let written = fd.map_or(Ok(0), |fd| rustix::io::write(fd, bytes));
        matches!(written, Ok(_) | Err(Errno::AGAIN | Errno::INTR))
    }
}

/// A pipe with a large buffer whose writing end never waits.
fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    // a smaller buffer only makes a watcher miss more
    let _ = fcntl_setpipe_size(&write, WATCHER_BUFFER);
    setup::unblock(&write)?;
    Ok((read, write))
}

impl Shim {
    pub(super) fn attach(&mut self, peer: u64, id: u64, name: &str) {
        let watcher = self.new_id();
        let watched = self.running(name).and_then(|container| {
            container.watch(watcher).map_err(|error| {
                crate::wire::Failure::Failed(format!("attaching to container {name}: {error}"))
            })
        });
        match watched {
            Ok((streams, fds)) => self.reply(peer, id, Reply::Attached { streams }, fds),
            Err(failure) => self.reply(peer, id, Reply::Failed(failure), Vec::new()),
        }
    }
}

//! What client, helper and shim say to each other: frames of JSON over a stream socket, with descriptors beside them.
//!
//! A frame is its length in four bytes, the number of its descriptors in one, and JSON. Descriptors travel with the first
//! byte of their frame, so they are there before its last one.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::SystemTime;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::settings::{ContainerSettings, ExecSettings, Limits, PodSettings};
use crate::state::{ContainerState, Exit};

/// Far more than any settings; whoever sends more is not one of us.
const MAX_FRAME: usize = 8 << 20;
const MAX_FDS: usize = 4;
const HEADER: usize = 5;

/// To the helper, with two descriptors: the other end of the first becomes the first connection to the new shim, the second is
/// held until that has recorded itself (`birth`).
#[derive(Serialize, Deserialize)]
pub(crate) struct StartPod {
    pub(crate) settings: PodSettings,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) id: u64,
    pub(crate) request: Request,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Request {
    Start(Box<ContainerSettings>),
    Kill {
        name: String,
        signal: i32,
    },
    Exec {
        name: String,
        settings: ExecSettings,
    },
    KillExec {
        exec: u64,
        signal: i32,
    },
    Attach {
        name: String,
    },
    Resize {
        name: String,
        limits: Limits,
    },
    Remove {
        name: String,
    },
    Containers,
    Stop {
        order: Vec<String>,
        grace_millis: u64,
    },
}

#[derive(Serialize, Deserialize)]
pub(crate) enum FromShim {
    /// The first message of a connection.
    Ready {
        pid: i32,
    },
    Reply {
        id: u64,
        reply: Reply,
    },
    Event(Event),
    ExecExited {
        exec: u64,
        exit: Exit,
    },
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Reply {
    Done,
    Started(Started),
    /// With the ends of its pipes or its terminal.
    Exec {
        exec: u64,
        streams: Vec<StreamKind>,
    },
    Attached {
        streams: Vec<StreamKind>,
    },
    Containers(Vec<ContainerState>),
    Failed(Failure),
}

/// What a descriptor beside a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StreamKind {
    Stdin,
    Stdout,
    Stderr,
    Terminal,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Failure {
    /// What was asked for makes no sense, or is not allowed.
    Refused(String),
    /// The container is not there, or has ended.
    NotRunning(String),
    /// The program of a container cannot be run.
    Unstartable(String),
    /// The machine would not do it.
    Failed(String),
}

/// What came of starting a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub pid: i32,
    pub started_at: SystemTime,
    /// Why limits are not in force, where they are not.
    pub limits_not_applied: Option<String>,
}

/// What happens in a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    Started(ContainerState),
    Exited(ContainerState),
    /// More happened than was listened to: ask for `containers`.
    Missed,
}

/// What a builder that waits for its container is told, with the container's ends of its pipes.
#[derive(Serialize, Deserialize)]
pub(crate) struct Build {
    pub(crate) settings: ContainerSettings,
    pub(crate) dir: PathBuf,
    pub(crate) streams: Vec<StreamKind>,
}

/// What a builder child tells its shim. Of what runs it shows the process, and the terminal if there is one.
#[derive(Serialize, Deserialize)]
pub(crate) enum Built {
    Running {
        pid: i32,
    },
    /// All was made ready, and the program could not be run.
    Unstartable(String),
    Failed(String),
}

/// Frames as they come in.
#[derive(Default)]
pub(crate) struct Incoming {
    bytes: Vec<u8>,
    fds: VecDeque<OwnedFd>,
}

impl Incoming {
    /// Receives once. `Ok(false)` is the end of the stream.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let mut chunk = [0_u8; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut chunk)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        self.bytes.extend_from_slice(&chunk[..received.bytes]);
        Ok(received.bytes > 0)
    }

    /// The next whole frame, if it has arrived.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let Some((header, rest)) = self.bytes.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [a, b, c, d, fds] = *header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let fds = usize::from(fds);
        if length > MAX_FRAME || fds > MAX_FDS {
            return Err(invalid("a frame larger than any that is sent"));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let message = serde_json::from_slice(body)?;
        if self.fds.len() < fds {
            return Err(invalid("a frame without its descriptors"));
        }
        let fds = self.fds.drain(..fds).collect();
        self.bytes.drain(..HEADER + length);
        if self.bytes.is_empty() {
            // a large frame must not stay in the memory of a small process
            self.bytes = Vec::new();
        }
        Ok(Some((message, fds)))
    }
}

/// Frames on their way out of a socket that may be full.
#[derive(Default)]
pub(crate) struct Outgoing {
    frames: VecDeque<Frame>,
    size: usize,
}

struct Frame {
    bytes: Vec<u8>,
    sent: usize,
    fds: Vec<OwnedFd>,
}

impl Outgoing {
    pub(crate) fn push(&mut self, message: &impl Serialize, fds: Vec<OwnedFd>) -> io::Result<()> {
        let body = serde_json::to_vec(message)?;
        let length =
            u32::try_from(body.len()).map_err(|_| invalid("a message too long to send"))?;
        let count = u8::try_from(fds.len()).map_err(|_| invalid("too many descriptors to send"))?;
        if body.len() > MAX_FRAME || fds.len() > MAX_FDS {
            return Err(invalid("a message too long to send"));
        }
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.push(count);
        bytes.extend_from_slice(&body);
        self.size += bytes.len();
        self.frames.push_back(Frame {
            bytes,
            sent: 0,
            fds,
        });
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.size
    }

    /// Sends what the socket takes. On a blocking socket that is everything.
    pub(crate) fn flush(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        while let Some(frame) = self.frames.front_mut() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds: Vec<BorrowedFd<'_>> = frame.fds.iter().map(AsFd::as_fd).collect();
            if frame.sent == 0 && !fds.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(&fds));
            }
            let rest = IoSlice::new(&frame.bytes[frame.sent..]);
            let sent = sendmsg(socket, &[rest], &mut control, SendFlags::NOSIGNAL)?;
            frame.sent += sent;
            self.size -= sent;
            if frame.sent == frame.bytes.len() {
                self.frames.pop_front();
            }
        }
        Ok(())
    }
}

/// Sends one message over a blocking socket.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    message: &impl Serialize,
    fds: Vec<OwnedFd>,
) -> io::Result<()> {
    let mut outgoing = Outgoing::default();
    outgoing.push(message, fds)?;
    outgoing.flush(socket)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    use super::{Incoming, Outgoing};

    #[test]
    fn frames_arrive_whole_with_their_own_descriptors() {
        let (left, right) = UnixStream::pair().unwrap();
        left.set_nonblocking(true).unwrap();
        let long = "x".repeat(300_000);
        let fds = |n| -> Vec<OwnedFd> {
            (0..n)
                .map(|_| left.as_fd().try_clone_to_owned().unwrap())
                .collect()
        };
        let mut outgoing = Outgoing::default();
        outgoing.push(&"first", fds(2)).unwrap();
        outgoing.push(&long, fds(0)).unwrap();
        outgoing.push(&"last", fds(1)).unwrap();
        let mut incoming = Incoming::default();
        let mut seen: Vec<(String, usize)> = Vec::new();
        while seen.len() < 3 {
            let _ = outgoing.flush(left.as_fd());
            incoming.receive(right.as_fd()).unwrap();
            while let Some((text, fds)) = incoming.next::<String>().unwrap() {
                seen.push((text, fds.len()));
            }
        }
        assert_eq!(
            seen,
            [("first".to_owned(), 2), (long, 0), ("last".to_owned(), 1)]
        );
        assert!(outgoing.is_empty());
        assert_eq!(outgoing.len(), 0);
    }

    #[test]
    fn a_frame_that_claims_too_much_is_refused() {
        for header in [[255, 255, 255, 255, 0], [0, 0, 0, 0, 200]] {
            let (mut left, right) = UnixStream::pair().unwrap();
            left.write_all(&header).unwrap();
            let mut incoming = Incoming::default();
            incoming.receive(right.as_fd()).unwrap();
            assert!(incoming.next::<String>().is_err());
        }
    }
}

//! A netlink socket, used by one thread at a time; it stays in the network namespace it was opened in.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, sendto, sockopt,
};
use thiserror::Error;

use super::message::{ACKNOWLEDGE, Message, Received, received, u32_at};

const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Something changed while the kernel listed it.
const INTERRUPTED: u16 = 0x10;
/// The kernel fills at most 32 KiB of a buffer at once.
const BUFFER: usize = 64 * 1024;
/// More than all the rules of a node with thousands of pods.
const SEND_BUFFER: usize = 16 * 1024 * 1024;
/// The kernel answers before `send` returns; only a lost answer could make one wait.
const PATIENCE: Duration = Duration::from_secs(10);
const DUMP_TRIES: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::network) enum Protocol {
    Route,
    Netfilter,
}

#[derive(Debug, Error)]
pub(in crate::network) enum NetlinkError {
    #[error("cannot open a netlink socket: {0}")]
    Open(io::Error),
    #[error("cannot talk to the kernel: {0}")]
    Talk(io::Error),
    /// `index` counts the messages of the request.
    #[error("the kernel refused: {error}")]
    Refused { index: usize, error: io::Error },
    #[error("what the kernel listed kept changing")]
    Unsettled,
}

impl NetlinkError {
    pub(in crate::network) fn is(&self, errno: Errno) -> bool {
        match self {
            NetlinkError::Open(error)
            | NetlinkError::Talk(error)
            | NetlinkError::Refused { error, .. } => {
                error.raw_os_error() == Some(errno.raw_os_error())
            }
            NetlinkError::Unsettled => false,
        }
    }
}

#[derive(Debug)]
pub(in crate::network) struct Socket {
    socket: OwnedFd,
    sequence: u32,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Socket {
    /// In the network namespace of this thread.
    pub(in crate::network) fn open(protocol: Protocol) -> Result<Socket, NetlinkError> {
        let cannot = |error: Errno| NetlinkError::Open(error.into());
        let number = match protocol {
            Protocol::Route => None,
            Protocol::Netfilter => Some(netlink::NETFILTER),
        };
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            number,
        )
        .map_err(cannot)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))
            .map_err(cannot)?;
        if protocol == Protocol::Netfilter {
            // without the right to force it the limit of the system has to do
            let _ = sockopt::set_socket_send_buffer_size_force(&socket, SEND_BUFFER);
        }
        Ok(Socket {
            socket,
            sequence: 0,
        })
    }

    /// Sends all messages at once and waits until each is done. The kernel tries each, also after one failed; the
    /// first failure is told.
    pub(in crate::network) fn request(
        &mut self,
        messages: Vec<Message>,
    ) -> Result<(), NetlinkError> {
        let flags = vec![ACKNOWLEDGE; messages.len()];
        let first = self.send(messages, &flags)?;
        let mut awaited = flags.len();
        self.answers(first, flags.len(), |_, _| {
            awaited -= 1;
            awaited == 0
        })
    }

    /// Sends a batch, the marks of its begin and end included, of which either all or nothing happens. Only the last
    /// message before the end is confirmed, as that answer follows every failure; thousands of confirmations would
    /// not fit the receive buffer. A batch that fails as a whole is answered by a failure of its begin.
    pub(in crate::network) fn transact(
        &mut self,
        messages: Vec<Message>,
    ) -> Result<(), NetlinkError> {
        let mut flags = vec![0; messages.len()];
        let confirmed = messages.len().saturating_sub(2);
        flags[confirmed] = ACKNOWLEDGE;
        let first = self.send(messages, &flags)?;
        self.answers(first, flags.len(), |index, failed| {
            index == confirmed || (index == 0 && failed)
        })
    }

    /// Everything that the kernel lists for a request.
    pub(in crate::network) fn dump<T>(
        &mut self,
        request: &Message,
        mut read: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        for _ in 0..DUMP_TRIES {
            let sequence = self.send(vec![request.clone()], &[0])?;
            let mut found = Vec::new();
            if self.listed(sequence, |body| found.extend(read(body)))? {
                return Ok(found);
            }
        }
        Err(NetlinkError::Unsettled)
    }

    /// Whether the list is of one moment.
    fn listed(&mut self, sequence: u32, mut take: impl FnMut(&[u8])) -> Result<bool, NetlinkError> {
        let mut settled = true;
        let mut buffer = vec![0; BUFFER];
        loop {
            let length = self.receive(&mut buffer)?;
            for message in received(&buffer[..length]) {
                if message.sequence != sequence {
                    continue;
                }
                settled &= message.flags & INTERRUPTED == 0;
                match message.kind {
                    DONE => return Ok(settled),
                    ERROR => failure(&message, 0)?,
                    _ => take(message.body),
                }
            }
        }
    }

    /// Reads answers to `count` messages until one is the `last`, given its index and whether it is a failure.
    fn answers(
        &self,
        first: u32,
        count: usize,
        mut last: impl FnMut(usize, bool) -> bool,
    ) -> Result<(), NetlinkError> {
        let mut result = Ok(());
        let mut buffer = vec![0; BUFFER];
        loop {
            let length = match self.receive(&mut buffer) {
                Ok(length) => length,
                // a failure that was told already says more than answers that were lost
                Err(error) => return result.and(Err(error)),
            };
            for message in received(&buffer[..length]) {
                let index = message.sequence.wrapping_sub(first);
                let index = usize::try_from(index).unwrap_or(usize::MAX);
                if message.kind != ERROR || index >= count {
                    continue;
                }
                let answer = failure(&message, index);
                let last = last(index, answer.is_err());
                result = result.and(answer);
                if last {
                    return result;
                }
            }
        }
    }

    /// The number of the first message.
    fn send(&mut self, messages: Vec<Message>, flags: &[u16]) -> Result<u32, NetlinkError> {
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        for (message, flags) in messages.into_iter().zip(flags) {
            self.sequence = self.sequence.wrapping_add(1);
            bytes.extend(message.numbered(self.sequence, *flags));
        }
        let kernel = netlink::SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &bytes, SendFlags::empty(), &kernel)
            .map_err(|error| NetlinkError::Talk(error.into()))?;
        Ok(first)
    }

    fn receive(&self, buffer: &mut [u8]) -> Result<usize, NetlinkError> {
        loop {
            match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((length, _)) => return Ok(length),
                Err(Errno::INTR) => {}
                Err(error) => return Err(NetlinkError::Talk(error.into())),
            }
        }
    }
}

/// An answer holds a negative error number; none is zero.
fn failure(message: &Received<'_>, index: usize) -> Result<(), NetlinkError> {
    match u32_at(message.body, 0).map(u32::cast_signed) {
        Some(0) | None => Ok(()),
        Some(number) => Err(NetlinkError::Refused {
            index,
            error: io::Error::from_raw_os_error(number.saturating_neg()),
        }),
    }
}

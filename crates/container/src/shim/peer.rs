//! The shim's clients: several at a time, none of them waited for.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::PollFlags;

use super::{Shim, setup};
use crate::wire::{Call, FromShim, Incoming, Outgoing, Reply};

/// A client that lets this much pile up does not read, and is let go.
const MAX_BEHIND: usize = 4 << 20;

pub(super) struct Peer {
    pub(super) id: u64,
    pub(super) socket: OwnedFd,
    incoming: Incoming,
    outgoing: Outgoing,
    gone: bool,
}

impl Peer {
    /// Whether something waits for the socket to take it.
    pub(super) fn is_behind(&self) -> bool {
        !self.outgoing.is_empty()
    }

    fn send(&mut self, message: &FromShim, fds: Vec<OwnedFd>) {
        if self.outgoing.push(message, fds).is_err() || self.outgoing.len() > MAX_BEHIND {
            self.gone = true;
        } else {
            self.flush();
        }
    }

    fn flush(&mut self) {
        match self.outgoing.flush(self.socket.as_fd()) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.gone = true,
        }
    }

    /// One read, and all whole calls in what has arrived.
    fn receive(&mut self) -> Vec<Call> {
        match self.incoming.receive(self.socket.as_fd()) {
            Ok(true) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Ok(false) | Err(_) => self.gone = true,
        }
        let mut calls = Vec::new();
        loop {
            match self.incoming.next::<Call>() {
                Ok(Some((call, _))) => calls.push(call),
                Ok(None) => return calls,
                Err(error) => {
                    eprintln!("a client is not understood: {error}");
                    self.gone = true;
                    return calls;
                }
            }
        }
    }
}

impl Shim {
    pub(super) fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            self.welcome(OwnedFd::from(stream));
        }
    }

    /// A new client is told whom it speaks to.
    pub(super) fn welcome(&mut self, socket: OwnedFd) {
        if let Err(error) = setup::unblock(&socket) {
            eprintln!("accepting a client: {error}");
            return;
        }
        let mut peer = Peer {
            id: self.new_id(),
            socket,
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            gone: false,
        };
        let pid = i32::try_from(std::process::id()).unwrap_or(0);
        peer.send(&FromShim::Ready { pid }, Vec::new());
        self.peers.push(peer);
    }

    pub(super) fn serve(&mut self, id: u64, flags: PollFlags) {
        let Some(peer) = self.peers.iter_mut().find(|p| p.id == id) else {
            return;
        };
        if flags.contains(PollFlags::OUT) {
            peer.flush();
        }
        let calls = peer.receive();
        for call in calls {
            self.handle(id, call);
        }
        self.peers.retain(|p| !p.gone);
    }

    /// Answers a call. A client that is gone gets no answer, and descriptors meant for it are closed.
    pub(super) fn reply(&mut self, peer: u64, id: u64, reply: Reply, fds: Vec<OwnedFd>) {
        self.tell(peer, &FromShim::Reply { id, reply }, fds);
    }

    pub(super) fn tell(&mut self, peer: u64, message: &FromShim, fds: Vec<OwnedFd>) {
        if let Some(peer) = self.peers.iter_mut().find(|p| p.id == peer) {
            peer.send(message, fds);
        }
    }

    pub(super) fn broadcast(&mut self, message: &FromShim) {
        for peer in &mut self.peers {
            peer.send(message, Vec::new());
        }
    }
}

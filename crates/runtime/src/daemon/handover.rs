//! Whether the daemon goes on, or is about to be replaced by another that takes over what it has.

use std::time::Duration;

use tokio::sync::watch;

use super::error::Error;
use crate::code::Code;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Serving,
    /// New connections wait.
    Draining,
    /// What processes write stays in their pipes.
    Pausing,
    /// What was read of them goes out, and connections end.
    Closing,
}

pub(super) struct Handover {
    phase: watch::Sender<Phase>,
    /// Those who are between reading something and having passed it on.
    reading: watch::Sender<usize>,
    /// Of clients that are waited for.
    connections: watch::Sender<usize>,
    /// Requests that are finished before anything else happens.
    finishing: watch::Sender<usize>,
}

impl Default for Handover {
    fn default() -> Self {
        Self {
            phase: watch::Sender::new(Phase::Serving),
            reading: watch::Sender::default(),
            connections: watch::Sender::default(),
            finishing: watch::Sender::default(),
        }
    }
}

/// One more for as long as it is kept.
pub(super) struct Counted(watch::Sender<usize>);

impl Counted {
    fn new(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// One less for as long as it is kept. It must be one that is counted.
pub(super) struct Uncounted(watch::Sender<usize>);

impl Drop for Uncounted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count += 1);
    }
}

impl Handover {
    pub(super) fn turn_to(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Waits until things may be read and passed on, which they must be before the answer is dropped.
    pub(super) async fn reading(&self) -> Counted {
        self.until(|phase| phase < Phase::Pausing).await;
        Counted::new(&self.reading)
    }

    /// The same, if that is so now.
    pub(super) fn reading_now(&self) -> Option<Counted> {
        let may_read = *self.phase.borrow() < Phase::Pausing;
        may_read.then(|| Counted::new(&self.reading))
    }

    pub(super) async fn draining(&self) {
        self.until(|phase| phase >= Phase::Draining).await;
    }

    pub(super) async fn pausing(&self) {
        self.until(|phase| phase >= Phase::Pausing).await;
    }

    pub(super) async fn closing(&self) {
        self.until(|phase| phase == Phase::Closing).await;
    }

    pub(super) async fn serving(&self) {
        self.until(|phase| phase == Phase::Serving).await;
    }

    async fn until(&self, is: impl Fn(Phase) -> bool) {
        // fails only when this is dropped, which is borrowed
        let _ = self.phase.subscribe().wait_for(|phase| is(*phase)).await;
    }

    pub(super) fn connected(&self) -> Counted {
        Counted::new(&self.connections)
    }

    /// The connection of a request that cannot be answered before the handover is not waited for.
    pub(super) fn unconnected(&self) -> Uncounted {
        self.connections.send_modify(|count| *count -= 1);
        Uncounted(self.connections.clone())
    }

    pub(super) fn finishing(&self) -> Counted {
        Counted::new(&self.finishing)
    }

    pub(super) async fn until_finished(&self, limit: Duration) {
        none_of(&self.finishing, limit).await;
    }

    /// Until nobody is reading.
    pub(super) async fn until_unread(&self, limit: Duration) {
        none_of(&self.reading, limit).await;
    }

    /// Until nobody is connected who is waited for.
    pub(super) async fn until_alone(&self, limit: Duration) {
        none_of(&self.connections, limit).await;
    }
}

async fn none_of(count: &watch::Sender<usize>, limit: Duration) {
    let mut count = count.subscribe();
    let _ = tokio::time::timeout(limit, count.wait_for(|count| *count == 0)).await;
}

/// What a client is told whose stream ends though nothing has happened to what it is about.
pub(super) fn come_again() -> Error {
    let message = "the daemon is being replaced by a newer one: connect again";
    Error::new(Code::Unavailable, message)
}

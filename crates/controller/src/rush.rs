//! Whoever waits for an answer goes first.
//!
//! An API server has few cores. While a claim is being answered, what nobody waits for would only make it wait longer.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::{sync::watch, time::timeout};

/// A request that hangs holds up nobody for longer. This is not the time that controllers go by, because nothing is
/// decided by it.
const PATIENCE: Duration = Duration::from_millis(100);

/// Clones are one rush.
#[derive(Clone, Default)]
pub struct Rush(Arc<watch::Sender<Tickets>>);

#[derive(Default)]
struct Tickets {
    next: u64,
    open: BTreeSet<u64>,
}

/// Somebody waits while this is kept.
pub struct Ticket {
    number: u64,
    rush: Rush,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.rush.0.send_modify(|tickets| {
            tickets.open.remove(&self.number);
        });
    }
}

impl Rush {
    pub fn enter(&self) -> Ticket {
        let mut number = 0;
        self.0.send_modify(|tickets| {
            number = tickets.next;
            tickets.next += 1;
            tickets.open.insert(number);
        });
        let rush = self.clone();
        Ticket { number, rush }
    }

    /// Waits until those have their answer who wait for one now. Who comes later does not count, so that a stream of
    /// claims stops nothing.
    pub async fn over(&self) {
        let mut tickets = self.0.subscribe();
        let next = tickets.borrow().next;
        let are_served =
            |tickets: &Tickets| tickets.open.first().is_none_or(|first| *first >= next);
        // the sender lives in `self`, and a rush that lasts is waited out
        let _ = timeout(PATIENCE, tickets.wait_for(are_served)).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::{PATIENCE, Rush};

    #[tokio::test]
    async fn only_those_are_waited_for_who_came_before() {
        let rush = Rush::default();
        assert!(rush.over().now_or_never().is_some());
        let first = rush.enter();
        let mut over = Box::pin(rush.over());
        assert!(over.as_mut().now_or_never().is_none());
        let _later = rush.enter();
        drop(first);
        assert!(over.now_or_never().is_some());
    }

    #[tokio::test]
    async fn nobody_waits_for_ever() {
        let rush = Rush::default();
        let _hanging = rush.enter();
        let start = tokio::time::Instant::now();
        rush.over().await;
        assert!(start.elapsed() >= PATIENCE);
    }
}

//! Whoever must hear of every write, of whatever resource.

use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::object::Event;

#[derive(Default)]
pub(super) struct Followers(Mutex<Vec<UnboundedSender<Event>>>);

impl Followers {
    pub(super) fn add(&self) -> UnboundedReceiver<Event> {
        let (sender, receiver) = unbounded_channel();
        let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        senders.push(sender);
        receiver
    }

    /// Those that are gone are left out from then on.
    pub(super) fn tell(&self, event: &Event) {
        let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        senders.retain(|sender| sender.send(event.clone()).is_ok());
    }

    pub(super) fn close(&self) {
        let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        senders.clear();
    }
}

/// Every event of the store, in the order of revisions. What is not read stays in memory.
pub struct Follow {
    pub(super) after: u64,
    pub(super) events: UnboundedReceiver<Event>,
}

impl Follow {
    /// The next event; `None` when the store is closed.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let event = self.events.recv().await?;
            if event.entry.revision > self.after {
                return Some(event);
            }
        }
    }
}

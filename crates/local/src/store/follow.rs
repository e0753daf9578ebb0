//! Whoever must hear of every write, of whatever resource.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::object::Event;

/// No list when the store is closed: who comes then hears nothing and is told so.
pub(super) struct Followers(Mutex<Option<Vec<UnboundedSender<Event>>>>);

impl Default for Followers {
    fn default() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }
}

impl Followers {
    pub(super) fn add(&self) -> UnboundedReceiver<Event> {
        let (sender, receiver) = unbounded_channel();
        if let Some(senders) = &mut *self.lock() {
            senders.push(sender);
        }
        receiver
    }

    /// Those that are gone are left out from then on.
    pub(super) fn tell(&self, event: &Event) {
        if let Some(senders) = &mut *self.lock() {
            senders.retain(|sender| sender.send(event.clone()).is_ok());
        }
    }

    pub(super) fn close(&self) {
        self.lock().take();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<UnboundedSender<Event>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

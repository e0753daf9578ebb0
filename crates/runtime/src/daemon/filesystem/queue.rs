//! Events that wait for a client: bounded for each, and for all together.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message as _;

use crate::messages::filesystem::{EntryInfo, EventType, FilesystemEvent};

/// Events that wait for one client; then the oldest are forgotten. About as many as the kernel keeps.
const MOST: usize = 16_384;

/// Bytes that may wait for all clients together: three queues that are full of short names.
pub(super) const BUDGET: usize = 16 << 20;

/// The bytes that wait in all queues. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Total(Arc<AtomicUsize>);

impl Total {
    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) > BUDGET
    }
}

pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    total: Total,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// The sizes of all of them.
    bytes: usize,
}

/// Smaller than what a client is told, and shared by all who are told it.
#[derive(Clone)]
pub(super) struct Event {
    name: Box<str>,
    kind: EventType,
    entry: Option<Arc<EntryInfo>>,
}

impl Event {
    pub(super) fn new(name: &str, kind: EventType, entry: Option<Arc<EntryInfo>>) -> Self {
        Self {
            name: name.into(),
            kind,
            entry,
        }
    }

    /// As if it were not shared.
    fn size(&self) -> usize {
        let entry = self.entry.as_ref();
        let entry = entry.map_or(0, |entry| size_of::<EntryInfo>() + entry.encoded_len());
        size_of::<Self>() + self.name.len() + entry
    }
}

impl From<FilesystemEvent> for Event {
    fn from(event: FilesystemEvent) -> Self {
        let kind = event.r#type();
        Self::new(&event.name, kind, event.entry.map(Arc::new))
    }
}

impl From<Event> for FilesystemEvent {
    fn from(event: Event) -> Self {
        Self {
            name: event.name.into(),
            r#type: event.kind.into(),
            entry: event.entry.map(Arc::unwrap_or_clone),
        }
    }
}

impl Queue {
    pub(super) fn new(total: &Total, events: Vec<FilesystemEvent>) -> Self {
        let queue = Self {
            waiting: Mutex::default(),
            total: total.clone(),
        };
        for event in events {
            queue.push(event.into());
        }
        queue
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, event: Event) {
        let mut waiting = self.waiting();
        if waiting.events.len() == MOST {
            self.forget_oldest(&mut waiting);
        }
        let size = event.size();
        waiting.bytes += size;
        waiting.events.push_back(event);
        self.total.0.fetch_add(size, Ordering::Relaxed);
    }

    fn forget_oldest(&self, waiting: &mut Waiting) {
        if let Some(oldest) = waiting.events.pop_front() {
            let size = oldest.size();
            waiting.bytes -= size;
            self.total.0.fetch_sub(size, Ordering::Relaxed);
        }
    }

    /// All of them, in the order in which they happened.
    pub(super) fn take(&self) -> Vec<FilesystemEvent> {
        let taken = std::mem::take(&mut *self.waiting());
        self.total.0.fetch_sub(taken.bytes, Ordering::Relaxed);
        taken.events.into_iter().map(Into::into).collect()
    }

    pub(super) fn all(&self) -> Vec<FilesystemEvent> {
        let waiting = self.waiting();
        waiting.events.iter().cloned().map(Into::into).collect()
    }

    /// Forgets the older half, if more waits here than that share.
    pub(super) fn shrink(&self, share: usize) {
        let mut waiting = self.waiting();
        let half = waiting.bytes / 2;
        while waiting.bytes > share.max(half) {
            self.forget_oldest(&mut waiting);
        }
        waiting.events.shrink_to_fit();
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let left = self.waiting().bytes;
        self.total.0.fetch_sub(left, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{BUDGET, FilesystemEvent, MOST, Queue, Total};

    fn event(number: usize) -> FilesystemEvent {
        FilesystemEvent {
            name: number.to_string(),
            ..FilesystemEvent::default()
        }
    }

    #[test]
    fn the_newest_events_are_kept_and_all_are_counted() {
        let total = Total::default();
        let queue = Queue::new(&total, Vec::new());
        for number in 0..MOST + 10 {
            queue.push(event(number).into());
        }
        let events = queue.take();
        assert_eq!(events.len(), MOST);
        assert_eq!(events.last(), Some(&event(MOST + 9)));
        queue.push(event(0).into());
        drop(queue);
        assert_eq!(total.0.load(std::sync::atomic::Ordering::Relaxed), 0);
    }

    #[test]
    fn who_has_little_keeps_it_when_others_have_too_much() {
        let total = Total::default();
        let queues = [(); 41].map(|()| Queue::new(&total, Vec::new()));
        let (little, much) = queues.split_first().unwrap();
        little.push(event(0).into());
        for number in 0..MOST {
            for queue in much {
                queue.push(event(number).into());
            }
        }
        assert!(total.is_over());
        while total.is_over() {
            for queue in &queues {
                queue.shrink(BUDGET / queues.len() / 2);
            }
        }
        assert_eq!(little.take(), [event(0)]);
        for queue in much {
            let events = queue.take();
            assert!(events.len() > 100);
            assert_eq!(events.last(), Some(&event(MOST - 1)));
        }
    }
}

//! Accepting writes: preconditions are decided here, in memory, before the disk is asked.
//!
//! A write is checked against everything accepted before it, so of two that race on one object exactly one is
//! accepted. Readers see it when it is durable, and so does the loser: its answer waits for the winner's, or it
//! would read again, find the old state and lose again until the disk is done.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

use tokio::sync::oneshot;

use super::error::{StorageError, WriteError};
use super::object::{Change, Entry, Event, EventKind, Record};
use super::snapshot::{Objects, Snapshot};
use super::watch::History;

pub(super) type Outcome = Result<(), Arc<StorageError>>;

/// What a caller gets from `accept`: its answer, and what to wait for before believing it.
pub(super) struct Answer {
    pub(super) result: Result<Arc<Entry>, WriteError>,
    pub(super) settled: Option<oneshot::Receiver<Outcome>>,
}

/// A caller in the queue; one that lost a race has no event and only waits for what is before it.
pub(super) struct Waiting {
    pub(super) event: Option<Event>,
    pub(super) settled: oneshot::Sender<Outcome>,
}

/// Everything accepted since the last batch was taken, and the state it leads to.
pub(super) struct Batch {
    pub(super) waiting: Vec<Waiting>,
    pub(super) result: Snapshot,
}

/// The state that writers, the writer thread and readers share.
pub(super) struct Shared {
    pending: Mutex<Pending>,
    /// Told when the queue gets its first caller or is closed.
    work: Condvar,
    /// What readers see: nothing that a loss of power could take back.
    durable: RwLock<Snapshot>,
    pub(super) history: Arc<History>,
    pub(super) counters: Counters,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) writes: AtomicU64,
    pub(super) commits: AtomicU64,
    pub(super) failures: AtomicU64,
}

struct Pending {
    /// The objects with all accepted writes.
    objects: Objects,
    /// The last revision given out. Those of a failed batch are not given again.
    revision: u64,
    /// Absent without a disk: what is accepted is published at once.
    queue: Option<Vec<Waiting>>,
    /// A batch is with the writer thread.
    committing: bool,
    closed: bool,
}

impl Shared {
    pub(super) fn new(initial: Snapshot, history: Arc<History>, on_disk: bool) -> Shared {
        let pending = Pending {
            objects: initial.objects.clone(),
            revision: initial.revision,
            queue: on_disk.then(Vec::new),
            committing: false,
            closed: false,
        };
        Shared {
            pending: Mutex::new(pending),
            work: Condvar::new(),
            durable: RwLock::new(initial),
            history,
            counters: Counters::default(),
        }
    }

    pub(super) fn durable(&self) -> Snapshot {
        self.durable
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// One object without the cost of a snapshot.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Snapshot) -> T) -> T {
        read(&self.durable.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn accept(&self, change: Change) -> Answer {
        let mut pending = self.lock();
        if pending.closed {
            return Answer {
                result: Err(WriteError::Closed),
                settled: None,
            };
        }
        let accepted = pending.apply(change);
        if pending.queue.is_none() {
            if let Ok(event) = &accepted {
                // still under the lock: events are published in the order of their revisions
                self.publish(pending.state(), std::iter::once(event.clone()));
            }
            return Answer {
                result: accepted.map(|event| event.entry),
                settled: None,
            };
        }
        let settled = match &accepted {
            Ok(event) => Some(self.enqueue(&mut pending, Some(event.clone()))),
            Err(error) if self.is_unsettled(&pending, error) => {
                Some(self.enqueue(&mut pending, None))
            }
            Err(_) => None,
        };
        Answer {
            result: accepted.map(|event| event.entry),
            settled,
        }
    }

    fn enqueue(&self, pending: &mut Pending, event: Option<Event>) -> oneshot::Receiver<Outcome> {
        let (settled, receiver) = oneshot::channel();
        if let Some(queue) = &mut pending.queue {
            queue.push(Waiting { event, settled });
            if queue.len() == 1 {
                self.work.notify_one();
            }
        }
        receiver
    }

    /// Whether the state that a conflict reports may still be taken back.
    fn is_unsettled(&self, pending: &Pending, error: &WriteError) -> bool {
        let in_flight = pending.committing || pending.queue.as_ref().is_some_and(|q| !q.is_empty());
        match error {
            WriteError::Conflict {
                current: Some(entry),
                ..
            } => in_flight && entry.revision > self.read(Snapshot::revision),
            WriteError::Conflict { current: None, .. } => in_flight,
            WriteError::Storage(_) | WriteError::Closed => false,
        }
    }

    /// Waits for work; `None` when the store is closed and nothing is left.
    pub(super) fn next_batch(&self) -> Option<Batch> {
        let mut pending = self.lock();
        loop {
            let waiting = pending
                .queue
                .as_mut()
                .map(std::mem::take)
                .unwrap_or_default();
            if !waiting.is_empty() {
                pending.committing = true;
                return Some(Batch {
                    waiting,
                    result: pending.state(),
                });
            }
            if pending.closed {
                return None;
            }
            pending = self
                .work
                .wait(pending)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The batch is durable: shows it to readers, then to watches, then answers its writers. A watch so never
    /// tells of a state that a read does not find yet.
    pub(super) fn settle(&self, batch: Batch) {
        let Batch { waiting, result } = batch;
        let (events, settled): (Vec<_>, Vec<_>) =
            waiting.into_iter().map(|w| (w.event, w.settled)).unzip();
        let events: Vec<Event> = events.into_iter().flatten().collect();
        // without events nothing was committed, so no revision became durable either
        if !events.is_empty() {
            self.publish(result, events);
        }
        self.lock().committing = false;
        for settled in settled {
            // a caller that gave up waiting does not need the answer
            let _ = settled.send(Ok(()));
        }
    }

    /// The batch is not durable: it and everything accepted on top of it is undone.
    pub(super) fn undo(&self, batch: Batch, error: StorageError) {
        let error = Arc::new(error);
        let mut pending = self.lock();
        let after = pending
            .queue
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default();
        pending.objects = self.durable().objects;
        pending.committing = false;
        drop(pending);
        self.counters.failures.fetch_add(1, Ordering::Relaxed);
        for waiting in batch.waiting.into_iter().chain(after) {
            let _ = waiting.settled.send(Err(Arc::clone(&error)));
        }
    }

    /// No write is accepted from now on; those in the queue are still committed.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
    }

    /// Lets go of callers that nobody will answer any more.
    pub(super) fn abandon(&self) {
        let mut pending = self.lock();
        pending.closed = true;
        pending.queue = pending.queue.take().map(|_| Vec::new());
    }

    fn publish(&self, state: Snapshot, events: impl IntoIterator<Item = Event>) {
        let revision = state.revision;
        let mut durable = self.durable.write().unwrap_or_else(PoisonError::into_inner);
        let replaced = std::mem::replace(&mut *durable, state);
        drop(durable);
        // after the lock: freeing the parts that no other snapshot shares takes a while
        drop(replaced);
        self.history.publish(events, revision);
    }

    /// A panic can only come out of a caller's `build`, which runs before anything is changed: the state behind
    /// a poisoned lock is whole.
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    fn state(&self) -> Snapshot {
        Snapshot {
            objects: self.objects.clone(),
            revision: self.revision,
        }
    }

    fn apply(&mut self, change: Change) -> Result<Event, WriteError> {
        let Change {
            key,
            precondition,
            deletes,
            build,
        } = change;
        let previous = self.objects.get(&key).map(|record| Arc::clone(&record.0));
        if !precondition.holds(previous.as_ref()) || (deletes && previous.is_none()) {
            return Err(WriteError::Conflict {
                key,
                current: previous,
            });
        }
        let revision = self.revision + 1;
        let value = build(revision);
        let created = previous.as_ref().map_or(revision, |entry| entry.created);
        // one copy of the key for all states of an object
        let key = previous.as_ref().map_or(key, |entry| entry.key.clone());
        let entry = Arc::new(Entry {
            key,
            revision,
            value,
            created,
        });
        self.revision = revision;
        let kind = if deletes {
            self.objects.remove(&entry.key);
            EventKind::Deleted
        } else {
            self.objects.insert(Record(Arc::clone(&entry)));
            if previous.is_some() {
                EventKind::Modified
            } else {
                EventKind::Added
            }
        };
        Ok(Event {
            kind,
            entry,
            previous,
        })
    }
}

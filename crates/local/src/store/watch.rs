//! The recent past of each resource, and the watches that read it.
//!
//! Each resource has its own ring of events: a busy one does not push out what watches of a quiet one may still
//! need. A watch is a position in the ring; its cost does not depend on how many others there are.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::Notify;

use super::error::WatchError;
use super::follow::Followers;
use super::key::Scope;
use super::object::Event;

/// How many events a watch takes out of the ring at once: what a consumer that stopped reading keeps in memory.
const CHUNK: usize = 64;

/// What is kept for the watches of each resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) events: usize,
    pub(super) bytes: usize,
}

/// The rings of all resources.
pub(super) struct History {
    limits: Limits,
    /// The revision at open: before it nothing is known of any resource.
    start: u64,
    /// Every event up to this revision is in its ring.
    published: AtomicU64,
    topics: Mutex<Topics>,
    pub(super) followers: Followers,
}

#[derive(Default)]
struct Topics {
    by_resource: HashMap<Box<str>, Arc<Topic>>,
    closed: bool,
}

struct Topic {
    ring: RwLock<Ring>,
    changed: Notify,
}

struct Ring {
    /// In the order of revisions.
    events: VecDeque<Event>,
    /// The sum of the values in `events`. Previous states are not counted: nearly all are the value of an
    /// earlier event, too.
    bytes: usize,
    /// No event after this revision has been dropped.
    oldest: u64,
    closed: bool,
}

impl History {
    pub(super) fn new(limits: Limits, start: u64) -> Arc<History> {
        Arc::new(History {
            limits,
            start,
            published: AtomicU64::new(start),
            topics: Mutex::default(),
            followers: Followers::default(),
        })
    }

    /// Appends the events of one commit and wakes whoever watches their resources.
    pub(super) fn publish(&self, events: impl IntoIterator<Item = Event>, revision: u64) {
        let mut touched: Vec<(Arc<str>, Arc<Topic>)> = Vec::new();
        for event in events {
            self.followers.tell(&event);
            let resource = event.entry.key.resource();
            let known = touched.iter().position(|(name, _)| **name == *resource);
            let at = known.unwrap_or_else(|| {
                touched.push((resource.into(), self.topic(resource)));
                touched.len() - 1
            });
            let topic = &touched[at].1;
            topic
                .ring
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .push(event, self.limits);
        }
        self.published.store(revision, Ordering::Release);
        for (_, topic) in touched {
            topic.changed.notify_waiters();
        }
    }

    pub(super) fn watch(self: &Arc<Self>, scope: Scope, after: u64) -> Result<Watch, WatchError> {
        let topic = self.topic(scope.resource());
        let oldest = topic
            .ring
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .oldest;
        if after < oldest {
            return Err(WatchError::Gone {
                requested: after,
                oldest,
            });
        }
        let history = Arc::clone(self);
        let taken = VecDeque::new();
        Ok(Watch {
            history,
            topic,
            scope,
            position: after,
            delivered: after,
            taken,
            ended: false,
        })
    }

    /// Ends every watch once it has read what is left.
    pub(super) fn close(&self) {
        self.followers.close();
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        topics.closed = true;
        for topic in topics.by_resource.values() {
            topic
                .ring
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .closed = true;
            topic.changed.notify_waiters();
        }
    }

    fn topic(&self, resource: &str) -> Arc<Topic> {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(topic) = topics.by_resource.get(resource) {
            return Arc::clone(topic);
        }
        let ring = Ring {
            events: VecDeque::new(),
            bytes: 0,
            oldest: self.start,
            closed: topics.closed,
        };
        let topic = Arc::new(Topic {
            ring: RwLock::new(ring),
            changed: Notify::new(),
        });
        topics
            .by_resource
            .insert(resource.into(), Arc::clone(&topic));
        topic
    }
}

impl Ring {
    fn push(&mut self, event: Event, limits: Limits) {
        self.bytes += size(&event);
        self.events.push_back(event);
        // the newest stays, however large: else no watch could ever see it
        while self.events.len() > 1
            && (self.events.len() > limits.events || self.bytes > limits.bytes)
        {
            let Some(dropped) = self.events.pop_front() else {
                break;
            };
            self.bytes -= size(&dropped);
            self.oldest = dropped.entry.revision;
        }
    }
}

/// What an event adds to those before it.
fn size(event: &Event) -> usize {
    let previous = event.previous.as_ref().map(|previous| &previous.value);
    event.entry.value.len_beside(previous)
}

/// The events of one scope, in the order of their revisions, without gap and without repetition.
///
/// A consumer that falls behind what is kept is told `Gone`; it never holds up writers or other watches.
pub struct Watch {
    history: Arc<History>,
    topic: Arc<Topic>,
    scope: Scope,
    /// Everything in the ring up to this revision has been taken or does not concern the scope.
    position: u64,
    /// Everything of the scope up to this revision has been given to the consumer.
    delivered: u64,
    taken: VecDeque<Event>,
    ended: bool,
}

impl Watch {
    /// The next event; `None` when the store is closed or after an error. Nothing is lost if the future is
    /// dropped before it is ready.
    pub async fn next(&mut self) -> Option<Result<Event, WatchError>> {
        let topic = Arc::clone(&self.topic);
        loop {
            let mut changed = std::pin::pin!(topic.changed.notified());
            // registered before looking: an event that comes in between wakes it
            changed.as_mut().enable();
            match self.try_next() {
                Ok(Some(event)) => return Some(Ok(event)),
                Ok(None) if self.ended => return None,
                Ok(None) => changed.await,
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// The next event if there is one already.
    pub fn try_next(&mut self) -> Result<Option<Event>, WatchError> {
        if self.taken.is_empty() && !self.ended {
            self.take().inspect_err(|_| self.ended = true)?;
        }
        let event = self.taken.pop_front();
        if let Some(event) = &event {
            self.delivered = event.entry.revision;
        }
        Ok(event)
    }

    /// The consumer has been given everything of its scope up to this revision: the revision of a bookmark. It
    /// grows with every write to the store, of whatever resource, as long as the consumer keeps up.
    pub fn progress(&mut self) -> u64 {
        if self.taken.is_empty() && !self.ended {
            // read before the ring: what is published later may not be in what is taken now
            let published = self.history.published.load(Ordering::Acquire);
            // an error is not lost: the next call of `next` runs into it again
            if self.take().is_ok() && self.taken.is_empty() {
                self.position = self.position.max(published);
                self.delivered = self.position;
            }
        }
        self.delivered
    }

    fn take(&mut self) -> Result<(), WatchError> {
        let ring = self
            .topic
            .ring
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if self.position < ring.oldest {
            return Err(WatchError::Gone {
                requested: self.delivered,
                oldest: ring.oldest,
            });
        }
        let unseen = ring
            .events
            .partition_point(|event| event.entry.revision <= self.position);
        for event in ring.events.range(unseen..) {
            if self.taken.len() == CHUNK {
                return Ok(());
            }
            self.position = event.entry.revision;
            if self.scope.covers(event.entry.key.namespace()) {
                self.taken.push_back(event.clone());
            }
        }
        self.ended = ring.closed;
        Ok(())
    }
}

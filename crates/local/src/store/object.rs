//! What is stored, what is asked to change, and what watches are told.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::key::Key;
use super::value::Value;

/// One object as of one revision. Never changes; everyone shares it by `Arc`.
#[derive(PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    /// The write that made this state.
    pub revision: u64,
    /// The object as its writer built it.
    pub value: Value,
    /// The revision of the write that created the object: its row in the database. An object deleted and made
    /// again is another row.
    pub(super) created: u64,
}

impl Entry {
    /// The same object in another state.
    pub(crate) fn changed(&self, value: Value, revision: u64) -> Entry {
        Entry {
            key: self.key.clone(),
            revision,
            value,
            created: self.created,
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}@{} ({} bytes)",
            self.key,
            self.revision,
            self.value.len()
        )
    }
}

/// An entry in the ordered set of a snapshot: found by key, equal by key.
#[derive(Clone, Debug)]
pub(super) struct Record(pub(super) Arc<Entry>);

impl Borrow<Key> for Record {
    fn borrow(&self) -> &Key {
        &self.0.key
    }
}

impl Ord for Record {
    fn cmp(&self, other: &Record) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}

impl PartialOrd for Record {
    fn partial_cmp(&self, other: &Record) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Record) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for Record {}

/// What must be true of the object for a change to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// There is no such object.
    Absent,
    /// The object exists and this is its revision.
    Revision(u64),
    /// Nothing; a delete still needs something to delete.
    Any,
}

impl Precondition {
    pub(super) fn holds(self, current: Option<&Arc<Entry>>) -> bool {
        match self {
            Precondition::Absent => current.is_none(),
            Precondition::Revision(revision) => current.is_some_and(|e| e.revision == revision),
            Precondition::Any => true,
        }
    }
}

/// Builds the object from the revision it is about to get.
type Build = Box<dyn FnOnce(u64) -> Value + Send>;

/// One object to be written or deleted.
pub struct Change {
    pub(super) key: Key,
    pub(super) precondition: Precondition,
    pub(super) deletes: bool,
    pub(super) build: Build,
}

impl Change {
    /// `build` runs once the precondition is known to hold, while every other writer waits: it should only put
    /// the revision into an object that is otherwise ready.
    pub fn put<V: Into<Value>>(
        key: Key,
        precondition: Precondition,
        build: impl FnOnce(u64) -> V + Send + 'static,
    ) -> Change {
        Change {
            key,
            precondition,
            deletes: false,
            build: Box::new(|revision| build(revision).into()),
        }
    }

    /// `build` makes the last state that watches are shown, carrying the revision of the delete; see `put`.
    pub fn delete<V: Into<Value>>(
        key: Key,
        precondition: Precondition,
        build: impl FnOnce(u64) -> V + Send + 'static,
    ) -> Change {
        Change {
            key,
            precondition,
            deletes: true,
            build: Box::new(|revision| build(revision).into()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
}

/// One committed write, as watches see it. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub kind: EventKind,
    /// The state that the write made; for `Deleted` the last state, with the revision of the delete.
    pub entry: Arc<Entry>,
    /// The state before; absent exactly for `Added`. An object that stops matching a selector is `Deleted` to
    /// whoever selected it.
    pub previous: Option<Arc<Entry>>,
}

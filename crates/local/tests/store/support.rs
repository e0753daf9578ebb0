//! Objects that prove their own wholeness, and small helpers.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use local::store::{
    Change, Entry, Event, EventKind, Key, Options, Precondition, Snapshot, Store, Watch,
};

/// Pseudo-random numbers from a seed, so that a failure can be repeated.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Less than `sides`.
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

pub(crate) fn ephemeral() -> Store {
    Store::open(Options::ephemeral()).unwrap()
}

pub(crate) fn pod(name: &str) -> Key {
    Key::new("pods", "default", name)
}

/// An object of about `fill` bytes from which a missing, torn or misplaced part can be told.
pub(crate) fn object(key: &Key, revision: u64, fill: usize) -> Vec<u8> {
    let word = format!("{key}@{revision} ");
    let fill = word.repeat(fill / word.len());
    serde_json::json!({ "key": key.to_string(), "revision": revision, "fill": fill })
        .to_string()
        .into_bytes()
}

pub(crate) fn put(key: &Key, precondition: Precondition) -> Change {
    put_sized(key, precondition, 100)
}

pub(crate) fn put_sized(key: &Key, precondition: Precondition, fill: usize) -> Change {
    let named = key.clone();
    Change::put(key.clone(), precondition, move |revision| {
        object(&named, revision, fill)
    })
}

pub(crate) fn delete(key: &Key, precondition: Precondition) -> Change {
    let named = key.clone();
    Change::delete(key.clone(), precondition, move |revision| {
        object(&named, revision, 100)
    })
}

/// That the entry is what `object` made for this key and this revision, to the last byte.
pub(crate) fn assert_whole(entry: &Entry) -> Result<()> {
    let parsed: serde_json::Value = serde_json::from_slice(&entry.value.bytes())
        .with_context(|| format!("{entry:?} is torn"))?;
    let fill = parsed["fill"].as_str().context("no fill")?.len();
    let expected = object(&entry.key, entry.revision, fill);
    ensure!(
        entry.value.bytes() == expected,
        "{entry:?} does not hold what was written"
    );
    Ok(())
}

/// The objects as plain data, to be compared: the revision of each, and a hash of its value.
pub(crate) type State = BTreeMap<Key, (u64, u64)>;

pub(crate) fn state<'a>(entries: impl IntoIterator<Item = &'a Arc<Entry>>) -> State {
    entries
        .into_iter()
        .map(|entry| (entry.key.clone(), digest(entry)))
        .collect()
}

pub(crate) fn digest(entry: &Entry) -> (u64, u64) {
    let mut hasher = DefaultHasher::new();
    entry.value.bytes().hash(&mut hasher);
    (entry.revision, hasher.finish())
}

/// Replays one event, insisting that it fits the state it comes upon.
pub(crate) fn replay(state: &mut State, event: &Event) {
    let (key, entry) = (&event.entry.key, &event.entry);
    let before = state.get(key).map(|(revision, _)| *revision);
    assert_eq!(
        before,
        event.previous.as_ref().map(|previous| previous.revision),
        "{event:?}"
    );
    assert_eq!(
        event.kind == EventKind::Added,
        before.is_none(),
        "{event:?}"
    );
    match event.kind {
        EventKind::Added | EventKind::Modified => {
            state.insert(key.clone(), digest(entry));
        }
        EventKind::Deleted => {
            state.remove(key);
        }
    }
}

/// Everything that the watch can give without waiting.
pub(crate) fn drain(watch: &mut Watch) -> Vec<Event> {
    std::iter::from_fn(|| watch.try_next().unwrap()).collect()
}

/// What has been promised so far: the least that a store must show after whatever happened to it.
#[derive(Clone, Default)]
pub(crate) struct Ledger {
    /// The last acknowledged write of each object, and whether it left one.
    acknowledged: BTreeMap<Key, (u64, bool)>,
    highest: u64,
}

impl Ledger {
    /// A line that the child printed; others are not ours.
    pub(crate) fn note(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let ["ack", kind, resource, namespace, name, revision] = words[..] else {
            return;
        };
        let revision = revision.parse().unwrap();
        let key = Key::new(resource, namespace, name);
        let slot = self.acknowledged.entry(key).or_default();
        *slot = (*slot).max((revision, kind == "put"));
        self.highest = self.highest.max(revision);
    }

    pub(crate) fn len(&self) -> usize {
        self.acknowledged.len()
    }

    pub(crate) fn check(&self, snapshot: &Snapshot) -> Result<()> {
        let reached = snapshot.revision();
        ensure!(
            reached >= self.highest,
            "at {reached} after acknowledging {}",
            self.highest
        );
        for (key, (revision, present)) in &self.acknowledged {
            match snapshot.get(key) {
                Some(entry) => {
                    let kept = if *present { *revision } else { revision + 1 };
                    ensure!(
                        entry.revision >= kept,
                        "{entry:?} after acknowledging {revision}"
                    );
                    assert_whole(entry)?;
                }
                // a later delete may have been stored without being answered
                None => ensure!(
                    !present || (may_be_deleted(key) && reached > *revision),
                    "{key} is lost after acknowledging {revision}"
                ),
            }
        }
        Ok(())
    }

    /// What has been seen once must stay, too.
    pub(crate) fn adopt(&mut self, snapshot: &Snapshot, entries: State) {
        self.highest = snapshot.revision();
        let absent = self
            .acknowledged
            .keys()
            .filter(|key| !entries.contains_key(key))
            .cloned();
        let absent: Vec<Key> = absent.collect();
        self.acknowledged = entries
            .into_iter()
            .map(|(key, (revision, _))| (key, (revision, true)))
            .collect();
        self.acknowledged.extend(
            absent
                .into_iter()
                .map(|key| (key, (snapshot.revision(), false))),
        );
    }
}

/// The child deletes only these: all others, once acknowledged, must be there.
pub(crate) fn may_be_deleted(key: &Key) -> bool {
    key.name().starts_with("brief")
}

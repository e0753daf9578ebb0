//! What a process remembers of a pool between two passes. Losing it costs time, never a promise.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use api::sigs::v1beta1::SandboxWarmPoolStatus;
use engine::{
    member::{Node, Revision, Time, Uid},
    rollout::{Create, Endings, Ledger, Pace, Progress, Refusals},
};
use k8s_openapi::jiff::Timestamp;

use super::refill::Refill;
use crate::meta::Key;

/// A node on which so many updates in place have failed in a row gets no more of them.
const TOO_MANY: u32 = 3;

#[derive(Default)]
pub(super) struct Memory {
    pub(super) ledger: Ledger,
    /// The members that the last plan counted, without those that were deleted for it.
    pub(super) counted: HashMap<Uid, Key>,
    pub(super) progress: Option<Progress>,
    pub(super) endings: Option<Endings>,
    /// Members beyond the size of the pool that a quota did not allow.
    pub(super) refusals: Refusals,
    /// The words with which the last one was refused.
    pub(super) no_surge: Option<String>,
    /// Creations of which nobody knows whether they were done, by the name of the member.
    pub(super) unsure: BTreeMap<String, Create>,
    pub(super) refill: Refill,
    pub(super) pace: Pace,
    /// The status that was written last. A server with older definitions keeps less of it than was written.
    pub(super) told: Option<SandboxWarmPoolStatus>,
    /// Since when there has been something to tell.
    pub(super) untold_since: Option<Timestamp>,
    /// The revision that is in the history, or that was not allowed into it.
    pub(super) recorded: Option<Revision>,
    /// Why there is no history.
    pub(super) no_history: Option<String>,
    /// It has been told that there is no room.
    pub(super) is_without_room: bool,
    pub(super) stalls: Stalls,
    fallbacks: HashMap<Node, u32>,
}

/// What somebody was told to do about a pool as it was asked for last.
#[derive(Default)]
pub(super) struct Stalls {
    occasion: String,
    told: BTreeSet<&'static str>,
}

impl Stalls {
    /// Whether this has not been told yet on this occasion; from now on it has.
    pub(super) fn is_news(&mut self, occasion: &str, reason: &'static str) -> bool {
        if self.occasion != occasion {
            occasion.clone_into(&mut self.occasion);
            self.told.clear();
        }
        self.told.insert(reason)
    }
}

impl Memory {
    /// A member beyond the size of the pool was refused, in these words.
    pub(super) fn surge_was_refused(&mut self, why: String, now: Time) {
        if self.refusals.until(now).is_none() {
            self.refusals.refused(now);
        }
        self.no_surge = Some(why);
    }

    pub(super) fn surge_was_granted(&mut self) {
        self.refusals.granted();
        self.no_surge = None;
    }

    /// A creation of which nobody knew whether it was done was not. The ledger of the last plan may have counted it, and
    /// would let the rollout take out one more instead.
    pub(super) fn was_never_made(&mut self, name: &str) {
        self.unsure.remove(name);
        self.lose_count();
    }

    /// Perhaps something was done, and the ledger must not promise what it does not know. What was done is seen in a
    /// moment, and before that no more is taken out.
    pub(super) fn lose_count(&mut self) {
        self.ledger = Ledger::default();
        self.pace = Pace::default();
    }

    pub(super) fn fell_back(&mut self, node: Node) {
        *self.fallbacks.entry(node).or_default() += 1;
    }

    /// What one revision could not do says nothing about another.
    pub(super) fn forgive(&mut self) {
        self.fallbacks.clear();
    }

    pub(super) fn succeeded(&mut self, node: &Node) {
        self.fallbacks.remove(node);
    }

    pub(super) fn no_in_place(&self) -> BTreeSet<Node> {
        let failing = self
            .fallbacks
            .iter()
            .filter(|(_, count)| **count >= TOO_MANY);
        failing.map(|(node, _)| node.clone()).collect()
    }
}

/// The memories of all pools, by uid. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Memories(Arc<Mutex<HashMap<Box<str>, Memory>>>);

impl Memories {
    /// For a pass to work with; a pool is in work once at a time.
    pub(super) fn take(&self, pool: &str) -> Memory {
        self.all().remove(pool).unwrap_or_default()
    }

    pub(super) fn put(&self, pool: &str, memory: Memory) {
        self.all().insert(pool.into(), memory);
    }

    /// Only pools that are there are worth remembering.
    pub(super) fn retain(&self, is_there: impl Fn(&str) -> bool) -> Vec<Box<str>> {
        let mut all = self.all();
        let gone: Vec<_> = all.keys().filter(|pool| !is_there(pool)).cloned().collect();
        all.retain(|pool, _| is_there(pool));
        gone
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Box<str>, Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use engine::{
        member::{Node, Revision},
        rollout::{Create, Ledger},
    };

    use super::{Memory, TOO_MANY};

    #[test]
    fn a_ledger_that_may_have_counted_what_was_never_made_is_forgotten() {
        let create = Create {
            revision: Revision::from("x"),
            count: 1,
            for_rollout: true,
        };
        let mut memory = Memory {
            ledger: Ledger(Some(1)),
            ..Memory::default()
        };
        memory.unsure.insert("a".to_owned(), create);
        memory.was_never_made("a");
        assert_eq!((memory.ledger, memory.unsure.len()), (Ledger(None), 0));
    }

    fn excluded(memory: &Memory) -> Vec<Node> {
        memory.no_in_place().into_iter().collect()
    }

    #[test]
    fn a_node_on_which_updates_fail_in_a_row_gets_no_more_of_them() {
        let (one, other) = (Node::from("one"), Node::from("other"));
        let mut memory = Memory::default();
        for _ in 1..TOO_MANY {
            memory.fell_back(one.clone());
            memory.fell_back(other.clone());
        }
        memory.succeeded(&other);
        memory.fell_back(other);
        assert_eq!(excluded(&memory), []);
        memory.fell_back(one.clone());
        assert_eq!(excluded(&memory), [one]);
        memory.forgive();
        assert_eq!(excluded(&memory), []);
    }
}

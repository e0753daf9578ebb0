//! What this process remembers of claims that are not settled.
//!
//! All of it may be lost: what counts is on the objects. The ledger makes latencies honest, wakes claims that wait for a
//! member, and knows of a write whose answer was lost before the watch does.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::jiff::Timestamp;

use super::view::Claim;
use crate::{
    events::News,
    meta::{Key, Meta},
    sigs::{names, pool::member::is_on_offer, sandbox::view::Sandbox},
    store::Change,
    trace,
};

/// Clones are one ledger.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Pages>>);

#[derive(Default)]
struct Pages {
    claims: HashMap<Box<str>, Memory>,
    /// By pool and turn.
    waiting: HashMap<Key, BTreeMap<u64, Key>>,
    next_turn: u64,
}

/// What is remembered of one claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// When it was first seen.
    pub observed: Option<Timestamp>,
    /// When its status first said Ready.
    pub ready: Option<Timestamp>,
    /// What there is to tell once the claim has its answer.
    pub news: Option<News>,
    /// Its pool knows that it came.
    pub is_counted: bool,
    /// Its place among those who wait. It keeps it also when somebody who has just come takes the member that it was woken
    /// for.
    pub turn: Option<u64>,
    /// The trace that it belongs to, whether it says so itself or not.
    pub trace: Option<String>,
    pub given: Option<Given>,
    pub unsure: Option<Unsure>,
}

/// What a claim was given from the stock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub revision: String,
    /// The pool wanted another one by then.
    pub is_stale: bool,
}

/// A sandbox that was asked for, and nobody knows with what success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsure {
    pub key: Key,
    /// As it was before; nothing of one that was to be made.
    pub seen: Option<Meta>,
}

impl Ledger {
    /// Takes in what has become known of a claim.
    pub fn observe(&self, change: &Change<'_, Claim>, now: Timestamp) {
        let pages = &mut *self.pages();
        match (change.before, change.after) {
            (None, Some(claim)) if !is_settled(claim) => {
                let uid = claim.meta.uid.clone();
                pages.claims.entry(uid).or_default().observed = Some(now);
            }
            (Some(claim), None) => {
                pages.claims.remove(&claim.meta.uid);
                pages.leave(&claim.pool(), &claim.meta.key);
            }
            _ => {}
        }
    }

    pub fn memory(&self, claim: &str) -> Memory {
        let pages = self.pages();
        pages.claims.get(claim).cloned().unwrap_or_default()
    }

    pub fn note(&self, claim: &str, change: impl FnOnce(&mut Memory)) {
        change(self.pages().claims.entry(claim.into()).or_default());
    }

    /// The trace that a claim belongs to: what it says itself, or what began when it was first seen, which whoever starts
    /// anew learns from its sandbox.
    pub fn trace(&self, claim: &Meta, sandboxes: &[Arc<Sandbox>]) -> Option<String> {
        let own = trace::of(&claim.annotations).map(ToOwned::to_owned);
        let begun = || self.memory(&claim.uid).trace;
        let given = || {
            let mut traces = sandboxes.iter().filter_map(|sandbox| {
                trace::of(&sandbox.meta.annotations).filter(|trace| trace::read(trace).is_some())
            });
            traces.next().map(ToOwned::to_owned)
        };
        own.or_else(begun).or_else(given)
    }

    /// Nothing is left to be done for it.
    pub fn settle(&self, claim: &str) {
        self.pages().claims.remove(claim);
    }

    pub fn wait(&self, pool: &Key, claim: &Meta) {
        let pages = &mut *self.pages();
        let memory = pages.claims.entry(claim.uid.clone()).or_default();
        let turn = *memory.turn.get_or_insert(pages.next_turn);
        pages.next_turn = pages.next_turn.max(turn + 1);
        let waiting = pages.waiting.entry(pool.clone()).or_default();
        waiting.insert(turn, claim.key.clone());
    }

    pub fn leave(&self, pool: &Key, claim: &Key) {
        self.pages().leave(pool, claim);
    }

    /// The claim that has waited longest for the member that a sandbox has just become.
    pub fn served_by(&self, change: &Change<'_, Sandbox>) -> Option<Key> {
        let pages = &mut *self.pages();
        let after = change.after.filter(|_| !pages.waiting.is_empty())?;
        let was_on_offer = change.before.is_some_and(|before| is_on_offer(before));
        if was_on_offer || !is_on_offer(after) {
            return None;
        }
        let pool = after.meta.key.beside(&after.meta.owner.as_ref()?.name);
        let (_, first) = pages.waiting.get(&pool)?.first_key_value()?;
        let first = first.clone();
        pages.leave(&pool, &first);
        Some(first)
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    fn leave(&mut self, pool: &Key, claim: &Key) {
        if let Some(queue) = self.waiting.get_mut(pool) {
            queue.retain(|_, waiting| waiting != claim);
            if queue.is_empty() {
                self.waiting.remove(pool);
            }
        }
    }
}

/// Whether a claim that is seen for the first time has had its answer, and says so.
fn is_settled(claim: &Claim) -> bool {
    claim.meta.annotations.get(names::FIRST_READY).is_some()
}

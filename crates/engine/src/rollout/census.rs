//! What a snapshot holds, counted once.

use super::{Settings, Snapshot, Wait, count};
use crate::member::{Difference, Failure, Member, Node, State, Time};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// What a member is good for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Claimable,
    /// Ready, but not for long enough.
    Young,
    Pending,
    Failed(Failure),
    Dead,
    /// Taken out for an update in place.
    Fenced,
    /// Promised to a claim.
    Reserved,
    Terminating,
}

/// A member and what the pass thinks of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) member: &'a Member,
    pub(super) class: Class,
    pub(super) difference: Difference,
    /// Not at the target, and not on the way to it.
    pub(super) stale: bool,
    /// A claim without wishes may get its revision.
    pub(super) accepted: bool,
    /// Since when, or from when on, it has been Ready for long enough.
    pub(super) matures: Option<Time>,
}

impl Entry<'_> {
    /// Whether it is already among the members that the rollout has out of stock.
    pub(super) fn is_out(&self) -> bool {
        match self.class {
            Class::Fenced => true,
            Class::Dead => self.member.for_rollout || self.member.intent.is_some(),
            Class::Young | Class::Pending | Class::Failed(_) => self.member.for_rollout,
            Class::Claimable | Class::Reserved | Class::Terminating => false,
        }
    }

    pub(super) fn is_updated(&self) -> bool {
        !self.stale && self.class != Class::Fenced
    }

    pub(super) fn is_ready(&self) -> bool {
        self.member.state.is_ready()
    }

    fn is_waiting(&self) -> bool {
        matches!(self.class, Class::Pending | Class::Failed(_))
    }

    /// When a member that does not become Ready is given up; unschedulable ones wait for room instead.
    pub(super) fn stuck_at(&self, grace: Option<Duration>) -> Option<Time> {
        let hopeful = self.class == Class::Failed(Failure::Unschedulable);
        (self.is_waiting() && !hopeful).then(|| grace.map(|grace| self.member.created + grace))?
    }
}

/// The counts of a pass. Creations that are on the way count as pending members.
#[derive(Debug)]
pub(super) struct Census<'a> {
    pub(super) entries: Vec<Entry<'a>>,
    /// Members that occupy a place: all but the terminating ones.
    pub(super) live: i64,
    pub(super) terminating: i64,
    /// Live members that are neither at the target nor on the way to it.
    pub(super) old: i64,
    pub(super) old_pending: i64,
    /// Claimable members of an acceptable revision.
    pub(super) claimable: i64,
    /// Out of stock by the rollout's doing, before the ledger is subtracted.
    pub(super) out: i64,
    /// On the way for other reasons than the rollout.
    pub(super) replenishing: i64,
    pub(super) updating: i64,
    pub(super) in_flight: i64,
}

impl<'a> Census<'a> {
    pub(super) fn take(snapshot: &Snapshot<'a>, settings: &Settings, now: Time) -> Self {
        let mut census = Self {
            entries: Vec::with_capacity(snapshot.members.len()),
            live: 0,
            terminating: 0,
            old: 0,
            old_pending: 0,
            claimable: 0,
            out: 0,
            replenishing: 0,
            updating: 0,
            in_flight: 0,
        };
        for member in snapshot.members {
            census.add(examine(member, snapshot, settings, now));
        }
        for create in snapshot.in_flight {
            let count = i64::from(create.count);
            census.in_flight += count;
            census.live += count;
            if create.for_rollout {
                census.out += count;
            } else {
                census.replenishing += count;
            }
            let difference = snapshot.pool.revisions.difference(&create.revision);
            if settings.strategy.replaces(difference) {
                census.old += count;
                census.old_pending += count;
            }
        }
        census
    }

    fn add(&mut self, entry: Entry<'a>) {
        self.entries.push(entry);
        if entry.class == Class::Terminating {
            self.terminating += 1;
            return;
        }
        let waiting = matches!(entry.class, Class::Pending | Class::Young);
        self.live += 1;
        self.old += i64::from(entry.stale);
        self.old_pending += i64::from(entry.stale && entry.class == Class::Pending);
        self.claimable += i64::from(entry.class == Class::Claimable && entry.accepted);
        self.out += i64::from(entry.is_out());
        self.replenishing += i64::from((waiting || entry.is_waiting()) && !entry.is_out());
        self.updating += i64::from(entry.class == Class::Fenced);
    }

    pub(super) fn fresh(&self) -> i64 {
        self.live - self.old
    }

    /// Members at the target that do not become Ready, by the reason that most of them give.
    pub(super) fn failing(&self) -> Option<(Failure, u32)> {
        let mut counts = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| !entry.stale) {
            if let State::Failed(failure) = entry.member.state {
                *counts.entry(failure).or_insert(0) += 1;
            }
        }
        counts
            .into_iter()
            .max_by_key(|(failure, count)| (*count, *failure))
    }

    /// Members at the target that are Ready.
    pub(super) fn working(&self) -> u32 {
        count(
            self.entries
                .iter()
                .filter(|entry| !entry.stale && entry.is_ready())
                .count(),
        )
    }

    /// Says so if members wait for a node with room.
    pub(super) fn without_room(&self) -> Option<Wait> {
        let (failure, failing) = self.failing()?;
        let ready = self.working();
        (failure == Failure::Unschedulable).then_some(Wait::BrokenTarget {
            failure,
            failing,
            ready,
        })
    }

    pub(super) fn claimable_on(&self) -> HashMap<Option<&'a Node>, u32> {
        let mut nodes = HashMap::new();
        for entry in self
            .entries
            .iter()
            .filter(|entry| entry.class == Class::Claimable)
        {
            *nodes.entry(entry.member.node.as_ref()).or_insert(0) += 1;
        }
        nodes
    }
}

fn examine<'a>(
    member: &'a Member,
    snapshot: &Snapshot<'_>,
    settings: &Settings,
    now: Time,
) -> Entry<'a> {
    let revisions = &snapshot.pool.revisions;
    let difference = revisions.difference(&member.revision);
    let on_the_way = member
        .intent
        .as_ref()
        .is_some_and(|intent| intent.target == revisions.target);
    let matures = match member.state {
        State::Ready { since } => Some(since + settings.min_ready),
        State::Pending | State::Failed(_) | State::Dead | State::Terminating => None,
    };
    Entry {
        member,
        class: classify(member, matures.is_some_and(|at| now >= at)),
        difference,
        stale: settings.strategy.replaces(difference) && !on_the_way,
        accepted: snapshot.pool.accepts(&member.revision),
        matures,
    }
}

fn classify(member: &Member, mature: bool) -> Class {
    match member.state {
        State::Terminating => Class::Terminating,
        State::Dead => Class::Dead,
        _ if member.intent.is_some() => Class::Fenced,
        _ if member.reserved => Class::Reserved,
        State::Ready { .. } if mature => Class::Claimable,
        State::Ready { .. } => Class::Young,
        State::Pending => Class::Pending,
        State::Failed(failure) => Class::Failed(failure),
    }
}

//! What a snapshot holds, counted once.

use super::{Action, Endings, Replenish, Rolling, Settings, Snapshot, Wait, count};
use crate::member::{Difference, Failure, Member, Node, Revision, State, Time};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// A pod that goes is mostly given half a minute, and keeps its room for so long.
const GOING: Duration = Duration::from_secs(60);

/// What a member is good for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Claimable,
    /// Ready, but not for long enough.
    Young,
    Pending,
    Failed(Failure),
    /// To be replaced now.
    Dead,
    /// Dead, and kept for a while, because the next would end as well.
    Ended,
    /// Taken out for an update in place.
    Fenced,
    /// Promised to a claim.
    Reserved,
    /// Of a revision that was rolled back as bad: nobody may get it.
    Retired,
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
            Class::Dead | Class::Ended => self.member.for_rollout || self.member.intent.is_some(),
            Class::Young | Class::Pending | Class::Failed(_) | Class::Retired => {
                self.member.for_rollout
            }
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

    /// How long it may be that one who waits for a quota only waits for those that go.
    pub(super) fn hopes_until(&self) -> Option<Time> {
        let waits = self.class == Class::Failed(Failure::Quota);
        waits.then(|| self.member.created + GOING)
    }

    /// When a member that does not become Ready is given up; those without room wait for it instead.
    pub(super) fn stuck_at(&self, grace: Option<Duration>) -> Option<Time> {
        let hopeful = matches!(self.class, Class::Failed(failure) if failure.is_want_of_room());
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
    /// Claimable members of whatever revision.
    pub(super) claimable_at_all: i64,
    /// Out of stock by the rollout's doing, before the ledger is subtracted.
    pub(super) out: i64,
    /// On the way for other reasons than the rollout.
    pub(super) replenishing: i64,
    pub(super) updating: i64,
    pub(super) in_flight: i64,
    pub(super) reserved: i64,
    pub(super) endings: Endings,
    /// When one of those that have ended may be replaced.
    pub(super) kept_until: Option<Time>,
    /// Members at the target have ended again and again, and it is not known yet whether the next will.
    is_target_ending: bool,
    /// A member has waited for a quota longer than a pod that goes would have kept it.
    pub(super) is_short_for_long: bool,
    /// What is wrong with the target of a rolling update, which then goes no further.
    pub(super) broken: Option<Wait>,
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
            claimable_at_all: 0,
            out: 0,
            replenishing: 0,
            updating: 0,
            in_flight: 0,
            reserved: 0,
            endings: snapshot.endings.cloned().unwrap_or_default(),
            kept_until: None,
            is_target_ending: false,
            is_short_for_long: false,
            broken: None,
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
        let revisions = &snapshot.pool.revisions;
        let is_new = |revision: &Revision| {
            let difference = revisions.difference(revision);
            !settings.strategy.replaces(difference)
        };
        census.keep_ended(is_new, |_| true, now);
        census.is_target_ending =
            census.endings.are_lasting(&revisions.target) && census.fresh() > 0;
        let mut waits = census.entries.iter().filter_map(Entry::hopes_until);
        census.is_short_for_long = waits.any(|until| now >= until);
        let rolling = settings.rolling();
        census.broken = rolling.and_then(|rolling| census.broken(snapshot, rolling));
        let is_partitioned =
            rolling.is_some_and(|rolling| census.old <= i64::from(rolling.partition));
        let falls_back = rolling.is_some_and(|rolling| census.falls_back(snapshot, rolling));
        let is_made_again = |entry: &Entry<'_>| {
            let is_like_the_next = falls_back && entry.member.revision == revisions.current;
            !entry.stale || is_partitioned || is_like_the_next
        };
        census.keep_ended(|revision| !is_new(revision), is_made_again, now);
        census
    }

    /// A target that fails as often as it ever worked stops the rollout, after one batch at the latest.
    /// Members without room do not: taking out old ones may be just what makes it.
    fn broken(&self, snapshot: &Snapshot<'_>, rolling: &Rolling) -> Option<Wait> {
        let mut failures = self.failures();
        failures.retain(|failure, _| !failure.is_want_of_room());
        let (failure, failing) = most(failures)?;
        let ready = self.working();
        let target = &snapshot.pool.revisions.target;
        let best = snapshot
            .progress
            .filter(|progress| progress.target == *target);
        let worked = best.map_or(ready, |progress| progress.best_available.max(ready));
        let batch = rolling.max_unavailable.max(rolling.max_surge).max(1);
        (failing >= worked.min(batch)).then_some(Wait::BrokenTarget {
            failure,
            failing,
            ready,
        })
    }

    /// Whether what claims take is made up for by the revision that worked last.
    pub(super) fn falls_back(&self, snapshot: &Snapshot<'_>, rolling: &Rolling) -> bool {
        let revisions = &snapshot.pool.revisions;
        rolling.replenish == Replenish::LastGood
            && self.broken.is_some()
            && !revisions.retired(&revisions.current)
    }

    /// Keeps members of these revisions that have ended in their places as long as another like them would be made.
    fn keep_ended(
        &mut self,
        is_asked: impl Fn(&Revision) -> bool,
        is_made_again: impl Fn(&Entry<'_>) -> bool,
        now: Time,
    ) {
        let is_concerned = |entry: &Entry<'_>| {
            entry.class == Class::Dead && is_asked(&entry.member.revision) && is_made_again(entry)
        };
        let known = self.endings.revisions();
        let known = known.filter(|revision| is_asked(revision));
        let mut ended: BTreeMap<Revision, u32> =
            known.map(|revision| (revision.clone(), 0)).collect();
        for entry in self.entries.iter().filter(|entry| is_concerned(entry)) {
            *ended.entry(entry.member.revision.clone()).or_default() += 1;
        }
        for (revision, ended) in ended {
            let of_it = |entry: &Entry<'_>| entry.member.revision == revision;
            let working = self.entries.iter().filter(|entry| entry.is_ready());
            let working = count(working.filter(|entry| of_it(entry)).count());
            let release = self.endings.release(&revision, ended, working, now);
            self.kept_until = self.kept_until.into_iter().chain(release.until).min();
            let dead = self.entries.iter_mut();
            let dead = dead.filter(|entry| is_concerned(entry) && of_it(entry));
            for entry in dead.skip(release.count as usize) {
                entry.class = Class::Ended;
            }
        }
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
        self.claimable_at_all += i64::from(entry.class == Class::Claimable);
        self.out += i64::from(entry.is_out());
        self.replenishing += i64::from((waiting || entry.is_waiting()) && !entry.is_out());
        self.updating += i64::from(entry.class == Class::Fenced);
        self.reserved += i64::from(entry.class == Class::Reserved);
    }

    /// Members that will be there after these actions, for sure: those in flight may never come, and those that are promised
    /// to claims go with them. For the sake of either no other member shall go.
    pub(super) fn staying(&self, actions: &[Action]) -> i64 {
        let deletes = actions.iter().filter(|action| action.is_delete());
        let going = i64::from(count(deletes.count()));
        self.live - self.in_flight - self.reserved - going
    }

    pub(super) fn fresh(&self) -> i64 {
        self.live - self.old
    }

    /// Members at the target that do not become Ready, by the reason that most of them give.
    pub(super) fn failing(&self) -> Option<(Failure, u32)> {
        most(self.failures())
    }

    fn failures(&self) -> BTreeMap<Failure, u32> {
        let mut counts = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| !entry.stale) {
            let failure = match entry.member.state {
                State::Failed(failure) => failure,
                State::Dead if entry.class == Class::Ended => Failure::Ended,
                _ => continue,
            };
            *counts.entry(failure).or_insert(0) += 1;
        }
        if counts.is_empty() && self.is_target_ending && self.working() == 0 {
            counts.insert(Failure::Ended, 1);
        }
        counts
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

    /// Says so if members wait for room.
    pub(super) fn without_room(&self) -> Option<Wait> {
        let (failure, failing) = self.failing()?;
        let ready = self.working();
        failure.is_want_of_room().then_some(Wait::BrokenTarget {
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

fn most(failures: BTreeMap<Failure, u32>) -> Option<(Failure, u32)> {
    failures
        .into_iter()
        .max_by_key(|(failure, count)| (*count, *failure))
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
        class: classify(
            member,
            matures.is_some_and(|at| now >= at),
            revisions.retired(&member.revision),
        ),
        difference,
        stale: settings.strategy.replaces(difference) && !on_the_way,
        accepted: snapshot.pool.accepts(&member.revision),
        matures,
    }
}

fn classify(member: &Member, mature: bool, retired: bool) -> Class {
    match member.state {
        State::Terminating => Class::Terminating,
        State::Dead => Class::Dead,
        _ if member.intent.is_some() => Class::Fenced,
        _ if member.reserved => Class::Reserved,
        _ if retired => Class::Retired,
        State::Ready { .. } if mature => Class::Claimable,
        State::Ready { .. } => Class::Young,
        State::Pending => Class::Pending,
        State::Failed(failure) => Class::Failed(failure),
    }
}

//! The rolling update: replenish, then take out old members as far as stock and demand allow.

mod fences;
mod take;

use super::census::{Census, Class, Entry};
use super::plain::scale_limit;
use super::stock::{Inputs, Stock};
use super::{
    Action, Cause, Create, Delete, Draft, Ledger, Rolling, Settings, Snapshot, Update, Wait, whole,
};
use crate::demand::Demand;
use crate::member::{Intent, Revision, Time};
use std::cmp::Reverse;
use std::time::Duration;

/// An update in place is given up after three times the usual, but never before this.
const SHORTEST_DEADLINE: Duration = Duration::from_secs(30);
/// Surge that claims will have used up within this time is left to them.
const ABSORB_WITHIN: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_secs(10);

pub(super) fn draft(
    snapshot: &Snapshot<'_>,
    settings: &Settings,
    rolling: &Rolling,
    demand: &Demand,
    census: &Census<'_>,
    now: Time,
) -> Draft {
    let inputs = Inputs {
        snapshot,
        settings,
        rolling,
        demand,
        census,
        now,
    };
    let mut roll = Roll::open(&inputs);
    let out = roll.out;
    let floor = whole(roll.stock.floor);
    roll.create();
    roll.bury();
    roll.settle_fences();
    if settings.paused {
        roll.shrink(roll.tolerated());
        roll.refuse(Wait::Paused {
            old: whole(census.old),
        });
    } else if roll.to_update() > 0 {
        roll.take();
    } else {
        roll.shrink(roll.tolerated());
    }
    let wait = roll.verdict();
    if matches!(wait, Wait::Floor { .. }) {
        // demand fades without any event
        roll.again = Some(now + LOOK_AGAIN);
    }
    let Roll {
        actions,
        again,
        ledger,
        ..
    } = roll;
    Draft {
        actions,
        wait,
        ledger,
        out,
        floor,
        again,
    }
}

/// One pass over a pool; the numbers follow what the pass has decided so far.
struct Roll<'a> {
    inputs: &'a Inputs<'a>,
    replicas: i64,
    /// Members beyond `replicas` that this stage of the rollout needs.
    surge: i64,
    /// As it is before the actions of this plan.
    ledger: Ledger,
    /// Members that the rollout has out of stock.
    out: i64,
    claimable: i64,
    updating: i64,
    /// Old members that may still be given up.
    quota: i64,
    stock: Stock,
    broken: Option<Wait>,
    /// Members whose fate this pass has decided already, by their place in the census.
    decided: Vec<bool>,
    actions: Vec<Action>,
    wait: Option<Wait>,
    again: Option<Time>,
}

impl<'a> Roll<'a> {
    fn open(inputs: &'a Inputs<'a>) -> Self {
        let Inputs {
            snapshot,
            settings,
            rolling,
            census,
            ..
        } = inputs;
        let replicas = i64::from(snapshot.pool.replicas);
        let old = to_update(inputs);
        let surge = old.min(rolling.max_surge.into());
        let surge = if settings.paused {
            0
        } else if snapshot.no_surge_until.is_some() {
            surge.min((census.live - replicas).max(0))
        } else {
            surge
        };
        let extra = extra(inputs, replicas, surge, old > 0);
        Self {
            inputs,
            replicas,
            surge,
            ledger: Ledger(Some(extra)),
            out: census.out - extra,
            claimable: census.claimable,
            updating: census.updating,
            quota: old,
            stock: Stock::of(inputs, extra, surge),
            broken: census.broken.clone(),
            decided: vec![false; census.entries.len()],
            actions: Vec::new(),
            wait: None,
            again: None,
        }
    }

    fn to_update(&self) -> i64 {
        to_update(self.inputs)
    }

    fn entries(&self) -> impl Iterator<Item = (usize, &'a Entry<'a>)> + use<'a> {
        self.inputs.census.entries.iter().enumerate()
    }

    fn create(&mut self) {
        let Inputs {
            snapshot,
            settings,
            rolling,
            census,
            ..
        } = self.inputs;
        let missing = whole(self.replicas + self.surge - census.live);
        let limit = scale_limit(settings, census).min(settings.create_limit);
        if missing > limit {
            self.refuse(Wait::CreateLimit { missing, limit });
        }
        let total = i64::from(missing.min(limit));
        let for_rollout = (self.surge - self.ledger.0.unwrap_or(0)).clamp(0, total);
        let revisions = &snapshot.pool.revisions;
        let kept = i64::from(rolling.partition) - census.old;
        let is_last = revisions.current == revisions.target;
        let at_current = if is_last || revisions.retired(&revisions.current) {
            0
        } else if census.falls_back(snapshot, rolling) {
            total - for_rollout
        } else {
            kept.clamp(0, total)
        };
        let marked_at_current = (for_rollout - (total - at_current)).max(0);
        let marked_at_target = for_rollout - marked_at_current;
        self.push_create(&revisions.current, at_current - marked_at_current, false);
        self.push_create(&revisions.current, marked_at_current, true);
        self.push_create(
            &revisions.target,
            total - at_current - marked_at_target,
            false,
        );
        self.push_create(&revisions.target, marked_at_target, true);
    }

    fn push_create(&mut self, revision: &Revision, number: i64, for_rollout: bool) {
        if number > 0 {
            let create = Create {
                revision: revision.clone(),
                count: whole(number),
                for_rollout,
            };
            self.actions.push(Action::Create(create));
        }
    }

    fn bury(&mut self) {
        let Inputs { settings, now, .. } = *self.inputs;
        for (index, entry) in self.entries() {
            let stuck_at = entry.stuck_at(settings.ready_grace);
            let cause = match entry.class {
                Class::Dead => Cause::Dead,
                // whatever partition or pause says: nobody can have it, and its place is needed
                Class::Retired => Cause::Retired,
                _ if stuck_at.is_some_and(|at| now >= at) => Cause::Stuck,
                _ => continue,
            };
            self.delete(index, cause, entry.is_out());
            // the partition keeps so many, and this one is not among them
            self.quota -= i64::from(entry.stale);
        }
    }

    /// Members too many: more than the size of the pool, what is still to be created at the target, and
    /// what is tolerated.
    fn surplus(&self, tolerated: i64) -> i64 {
        let Inputs {
            rolling, census, ..
        } = self.inputs;
        let to_create = self.replicas - i64::from(rolling.partition) - census.fresh();
        let needed = self.surge.min(to_create).max(tolerated).max(0);
        census.staying(&self.actions) - self.replicas - needed
    }

    /// Surge that may stay because claims use it up soon, or because a rollout that is paused needs it later.
    fn tolerated(&self) -> i64 {
        let Inputs {
            snapshot,
            rolling,
            demand,
            settings,
            ..
        } = self.inputs;
        let surge = snapshot.ledger.0.unwrap_or(rolling.max_surge.into()).max(0);
        let soon = demand.rate * ABSORB_WITHIN.as_secs_f64();
        let is_needed_later = settings.paused && self.to_update() > 0;
        if is_needed_later || soon >= surge as f64 {
            surge
        } else {
            0
        }
    }

    /// Brings a pool without a rollout to its size: what the partition does not keep, then what nobody can claim,
    /// then the newest. In the middle of one that is paused, what nobody can claim goes before what is old.
    fn shrink(&mut self, tolerated: i64) {
        let Inputs {
            census,
            settings,
            now,
            ..
        } = self.inputs;
        if census.live > self.replicas {
            self.again = Some(*now + LOOK_AGAIN);
        }
        let surplus = whole(self.surplus(tolerated)).min(settings.delete_limit);
        if surplus == 0 {
            return;
        }
        let old_first = self.to_update() > 0;
        let mut members: Vec<_> = self
            .entries()
            .filter(|(index, _)| !self.decided[*index])
            .collect();
        members.retain(|(_, entry)| {
            !matches!(
                entry.class,
                Class::Reserved | Class::Terminating | Class::Fenced
            )
        });
        members.sort_by_key(|(_, entry)| {
            let is_claimable = entry.class == Class::Claimable;
            (
                old_first && is_claimable,
                entry.stale != old_first,
                is_claimable,
                entry.is_ready(),
                Reverse(entry.member.created),
            )
        });
        for (index, _) in members.into_iter().take(surplus as usize) {
            self.delete(index, Cause::Surplus, true);
        }
    }

    fn intent(&self) -> Intent {
        let Inputs {
            snapshot,
            demand,
            now,
            ..
        } = self.inputs;
        Intent {
            target: snapshot.pool.revisions.target.clone(),
            deadline: *now + (3 * demand.in_place).max(SHORTEST_DEADLINE),
            begun: false,
        }
    }

    fn update(&mut self, index: usize, intent: Intent) {
        self.decided[index] = true;
        let uid = self.inputs.census.entries[index].member.uid.clone();
        self.actions
            .push(Action::UpdateInPlace(Update { uid, intent }));
    }

    fn delete(&mut self, index: usize, cause: Cause, booked: bool) {
        self.decided[index] = true;
        let uid = self.inputs.census.entries[index].member.uid.clone();
        self.actions
            .push(Action::Delete(Delete { uid, cause, booked }));
    }

    /// Remembers the first reason, before which only a limit on creations gives way; equal reasons of
    /// several members add up.
    fn refuse(&mut self, wait: Wait) {
        match (&mut self.wait, wait) {
            (Some(Wait::InPlaceOnly { members }), Wait::InPlaceOnly { members: more })
            | (Some(Wait::InPlaceLate { members }), Wait::InPlaceLate { members: more }) => {
                *members += more;
            }
            (free @ (None | Some(Wait::CreateLimit { .. })), wait) => *free = Some(wait),
            (Some(_), _) => {}
        }
    }

    fn verdict(&mut self) -> Wait {
        let census = self.inputs.census;
        let (old, pending) = (whole(census.old), whole(census.old_pending));
        if let Some(wait) = self.wait.take() {
            wait
        } else if self.to_update() > 0
            && let Some(broken) = self.broken.take()
        {
            broken
        } else if self.to_update() > 0 && self.actions.is_empty() {
            Wait::OldPending { old, pending }
        } else if self.to_update() > 0 {
            Wait::Replacing { old }
        } else if census.updating > 0 {
            Wait::Updating {
                members: whole(census.updating),
            }
        } else if let Some(failing) = self.broken.take().or_else(|| census.without_room()) {
            failing
        } else if old > 0 {
            Wait::Partition {
                old,
                partition: self.inputs.rolling.partition,
            }
        } else {
            Wait::Settled
        }
    }
}

/// Old members that the partition does not keep.
fn to_update(inputs: &Inputs<'_>) -> i64 {
    (inputs.census.old - i64::from(inputs.rolling.partition)).max(0)
}

/// Members that the rollout added, less those it removed.
///
/// What can be claimed `beyond` the size of the pool, now or when the rollout is done with it, is the rollout's in any case:
/// a pool that is made smaller has it. What is on the way for claims is not: it stands in for nobody yet. Surge that is
/// not needed any more is not replenished, so claims take it off the ledger. Booked on a rollout that is under way is every
/// lost member, and without a ledger every missing one, also when its last old member is gone and its end has not been told:
/// the next edit would take out as many again.
fn extra(inputs: &Inputs<'_>, replicas: i64, surge: i64, under_way: bool) -> i64 {
    let Inputs {
        snapshot, census, ..
    } = inputs;
    let lost = if under_way { snapshot.lost } else { 0 };
    let beyond = census.claimable_at_all + census.out - replicas;
    let missing = census.live - replicas;
    let revisions = &snapshot.pool.revisions;
    let is_over = revisions.current == revisions.target;
    match snapshot.ledger.0 {
        Some(extra) => beyond.max((extra - i64::from(lost)).min(surge)),
        None if under_way || !is_over => missing,
        None => missing.max(0),
    }
}

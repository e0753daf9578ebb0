//! How fast a rollout goes while claims come.
//!
//! A step costs the cluster far more than the write itself: a pod ends or begins, and the scheduler, the node and
//! the collector all write about it. Sixteen steps at once are felt by every claim of the next half second; the
//! same steps one after the other are not. So steps are spread evenly as long as anybody claims, and nobody
//! waits for them otherwise.
//!
//! Who has just begun to look after a pool takes nothing out of it for a moment: what the one before had on the wire arrives
//! first, and is seen. A deletion of the other's and one of its own would together be more than may be missing.

use std::time::Duration;

use super::{Action, Cause, Plan, Settings};
use crate::{demand::Demand, member::Time};

/// Between two steps: a replacement is two of them, so that a pool turns over five members a second.
const GAP: Duration = Duration::from_millis(100);
/// A large pool goes faster than that, so that pacing never makes a whole turn last longer.
const WHOLE_TURN: Duration = Duration::from_secs(60);
/// Steps that were not taken when they could have been may be made up for over this time.
const MAKE_UP: Duration = Duration::from_millis(200);

/// How long a request may be on its way after whoever sent it has been replaced.
const ON_THE_WIRE: Duration = Duration::from_secs(1);

/// When the next step may be taken. Lost with the process; the next one begins anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// When this process first planned for the pool.
    first: Option<Time>,
    /// In microseconds since the epoch: the gap of a large pool is not a whole number of milliseconds.
    due: u64,
}

impl Pace {
    /// Takes out of the plan what comes too early, and says when to plan again. What is left is taken for done.
    pub fn hold_back(
        &mut self,
        plan: &mut Plan,
        settings: &Settings,
        demand: &Demand,
        replicas: u32,
        now: Time,
    ) -> Option<Time> {
        settings.rolling()?;
        let arrived = self.wait_for_others(plan, now);
        let spread = match demand.peak > 0.0 {
            true => self.spread(plan, replicas, now),
            false => None,
        };
        [arrived, spread].into_iter().flatten().min()
    }

    /// Until all that was on the wire has arrived, nothing that could be claimed goes.
    fn wait_for_others(&mut self, plan: &mut Plan, now: Time) -> Option<Time> {
        let arrived = *self.first.get_or_insert(now) + ON_THE_WIRE;
        let planned = plan.actions.len();
        plan.actions
            .retain(|action| now >= arrived || !takes_out(action));
        (plan.actions.len() < planned).then_some(arrived)
    }

    fn spread(&mut self, plan: &mut Plan, replicas: u32, now: Time) -> Option<Time> {
        let gap = gap(replicas);
        let (now, make_up) = (now.0.saturating_mul(1000), micros(MAKE_UP));
        let due = self.due.max(now.saturating_sub(make_up));
        let allowed = match now.checked_sub(due) {
            Some(late) => late / gap + 1,
            None => 0,
        };
        let mut left = u32::try_from(allowed).unwrap_or(u32::MAX);
        let mut is_held_back = false;
        plan.actions.retain_mut(|action| {
            let wanted = steps(action);
            let taken = wanted.min(left);
            left -= taken;
            is_held_back |= taken < wanted;
            if let Action::Create(create) = action
                && wanted > 0
            {
                create.count = taken;
            }
            wanted == 0 || taken > 0
        });
        let taken = allowed - u64::from(left);
        if taken > 0 {
            self.due = due + taken * gap;
        }
        is_held_back.then(|| Time(self.due.max(now).div_ceil(1000)))
    }
}

/// Whether a member that could be claimed may go.
fn takes_out(action: &Action) -> bool {
    match action {
        Action::Delete(delete) => matches!(delete.cause, Cause::Stale | Cause::Surplus),
        Action::UpdateInPlace(_) => true,
        Action::Create(_) | Action::Release(_) => false,
    }
}

/// How much of a rollout an action is. What makes up for claims, or mends, is none of it.
fn steps(action: &Action) -> u32 {
    match action {
        Action::Create(create) if create.for_rollout => create.count,
        Action::Delete(delete) if delete.cause == Cause::Stale => 1,
        Action::UpdateInPlace(_) => 1,
        Action::Create(_) | Action::Delete(_) | Action::Release(_) => 0,
    }
}

fn gap(replicas: u32) -> u64 {
    let turn = micros(WHOLE_TURN) / (2 * u64::from(replicas.max(1)));
    turn.clamp(1, micros(GAP))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

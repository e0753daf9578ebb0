//! How fast a rollout goes while claims come.
//!
//! A step costs the cluster far more than the write itself: a pod ends or begins, and the scheduler, the node and
//! the collector all write about it. Sixteen steps at once are felt by every claim of the next half second; the
//! same steps one after the other are not. So steps are spread evenly as long as anybody claims, and nobody
//! waits for them otherwise.

use std::time::Duration;

use super::{Action, Cause, Plan, Settings};
use crate::{demand::Demand, member::Time};

/// Between two steps: a replacement is two of them, so that a pool turns over five members a second.
const GAP: Duration = Duration::from_millis(100);
/// A large pool goes faster than that, so that pacing never makes a whole turn last longer.
const WHOLE_TURN: Duration = Duration::from_secs(60);
/// Steps that were not taken when they could have been may be made up for over this time.
const MAKE_UP: Duration = Duration::from_millis(200);

/// When the next step may be taken. Lost with the process, which then takes one at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
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
        if settings.rolling().is_none() || demand.peak <= 0.0 {
            return None;
        }
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

//! Telling how a pool is.

use std::{sync::Arc, time::Duration};

use api::sigs::v1beta1::SandboxWarmPoolStatus;
use engine::{
    member::{Failure, State, Time},
    rollout::Reason,
};

use super::{
    member::{self, member, member_and_pod, time},
    memory::Memory,
    run::{CONTROLLER, Pools, Round, Troubles},
    status::{self, Report},
    view::Pool,
};
use crate::{
    clock::after,
    events::{News, Teller},
    queue::Next,
    sigs::{names, sandbox::view::Sandbox},
    write::Guard,
};

const TELLER: Teller = Teller {
    controller: CONTROLLER,
    api_version: names::EXTENSIONS_API_VERSION,
    kind: member::KIND,
};
/// What nobody waits for is told when it has been so for this long: mostly, what a claim takes has been made up for by then.
pub(crate) const TOLD_AFTER: Duration = Duration::from_secs(1);
/// A creation of which nobody knows whether it was done is asked for again after so long.
const UNSURE: Duration = Duration::from_secs(1);

impl Pools {
    pub(super) async fn report(
        &self,
        round: &Round,
        memory: &mut Memory,
        troubles: &Troubles,
    ) -> Option<Next> {
        self.tell_of_room(round, memory).await;
        if self.record(round, memory).await.is_err() {
            return Some(Next::Retry);
        }
        let no_history = memory.no_history.clone();
        let no_pods = self.why_without_pods(round, memory);
        let status = &round.plan.status;
        let is_rolling = status.current_revision != status.update_revision;
        // a rollout makes room itself: what it lacks is told beside how it goes, and is no stall of its own
        let no_room = troubles.no_room.as_ref();
        let (held_up, no_room) = match is_rolling {
            true => (no_room.cloned(), None),
            false => (None, no_room),
        };
        let no_pods = no_pods.or(held_up);
        let report = Report::Planned {
            plan: &round.plan,
            invalid: round.invalid.as_ref(),
            refused: troubles.refused.as_ref().or(no_room).map(String::as_str),
            no_pods: no_pods.as_deref(),
            no_history: no_history.as_deref(),
        };
        let told = self.write(&round.pool, &report, memory).await;
        if troubles.are_any() {
            return Some(Next::Retry);
        }
        let until = |at: Time| {
            at.since(time(self.clock.now()))
                .max(Duration::from_millis(1))
        };
        let waits = [
            round.plan.requeue_after,
            round.again.map(until),
            (!memory.unsure.is_empty()).then_some(UNSURE),
            memory.is_without_room.then_some(self.options.recheck),
        ];
        soonest(told, waits)
    }

    pub(super) async fn report_no_template(
        &self,
        pool: &Pool,
        members: &[Arc<Sandbox>],
        memory: &mut Memory,
    ) -> Option<Next> {
        let states = members.iter().map(|sandbox| member(sandbox).state);
        let is_active = |state: &State| !matches!(state, State::Terminating | State::Dead);
        let active: Vec<State> = states.filter(is_active).collect();
        let ready = active.iter().filter(|state| state.is_ready());
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let report = Report::NoTemplate {
            replicas: count(active.len()),
            ready: count(ready.count()),
        };
        soonest(self.write(pool, &report, memory).await, [])
    }

    /// Writes the status, if there is something new in it and its time has come.
    async fn write(&self, pool: &Pool, report: &Report<'_>, memory: &mut Memory) -> Told {
        let now = self.clock.now();
        let new = status::current(pool, report, now);
        let Some(patch) = status::patch(&pool.status, &new) else {
            memory.untold_since = None;
            return Told::All;
        };
        let old = memory.told.as_ref();
        // a server with older definitions does not keep everything
        if old.is_some_and(|old| status::patch(old, &new).is_none())
            && keeps_counts(&pool.status, &new)
        {
            memory.untold_since = None;
            return Told::All;
        }
        if !status::is_urgent(old.unwrap_or(&pool.status), &new) {
            let since = *memory.untold_since.get_or_insert(now);
            let due = after(since, TOLD_AFTER);
            if now < due {
                return Told::Later(time(due).since(time(now)).max(Duration::from_millis(1)));
            }
        }
        self.tell_of_stall(pool, report, &new, memory).await;
        // one of a leader before this that is late must not be the last word
        match self
            .writer
            .patch_status(&self.stores.pools, &pool.meta, Guard::Unchanged, patch)
            .await
        {
            Ok(_) => {
                memory.told = Some(new);
                memory.untold_since = None;
                Told::Now
            }
            Err(_) => Told::Not,
        }
    }

    /// The words with which the pods of members are refused, if that is what the pool suffers from.
    fn why_without_pods(&self, round: &Round, memory: &Memory) -> Option<String> {
        let words = |failure| self.first(round, failure).and_then(member::refusal);
        let conditions = &round.plan.conditions;
        match (conditions.stalled.reason, conditions.progressing.reason) {
            (Reason::PodRefused, _) => words(Failure::Refused),
            (Reason::QuotaExceeded, _) | (_, Reason::QuotaExceeded) => {
                words(Failure::Quota).or_else(|| memory.no_surge.clone())
            }
            _ => None,
        }
    }

    /// The oldest of the members that fail so.
    fn first<'a>(&self, round: &'a Round, failure: Failure) -> Option<&'a Sandbox> {
        let members = round.members.iter().map(AsRef::as_ref);
        let failing = members.filter(|sandbox: &&Sandbox| {
            member_and_pod(sandbox, &self.stores.pods).state == State::Failed(failure)
        });
        failing.min_by_key(|sandbox| (sandbox.meta.created, sandbox.name()))
    }

    /// Says that somebody has to do something, once for each edit. It comes before the status: who finds the status knows
    /// that it was told, though the process had died in between.
    async fn tell_of_stall(
        &self,
        pool: &Pool,
        report: &Report<'_>,
        new: &SandboxWarmPoolStatus,
        memory: &mut Memory,
    ) {
        let room = Reason::Unschedulable.as_str();
        let Some(reason) = status::stall(report).filter(|reason| *reason != room) else {
            return;
        };
        let revision = new.update_revision.as_deref().unwrap_or_default();
        let occasion = format!("{}/{revision}", pool.meta.generation);
        let is_told = status::says_stalled(&pool.status, new, reason);
        if !memory.stalls.is_news(&occasion, reason) || is_told {
            return;
        }
        let news = News {
            is_warning: true,
            reason,
            action: "Reconcile",
            message: status::stalled_message(new),
            occasion,
        };
        TELLER
            .tell(&self.writer, &pool.meta, &news, self.clock.now())
            .await;
    }

    /// Says once that members find no room, and once that they do again.
    async fn tell_of_room(&self, round: &Round, memory: &mut Memory) {
        let count = round.plan.status.unschedulable;
        if memory.is_without_room == (count > 0) {
            return;
        }
        memory.is_without_room = count > 0;
        let news = match self.first(round, Failure::Unschedulable) {
            Some(first) => News {
                is_warning: true,
                reason: "WarmPoolNotProgressing",
                action: "Reconcile",
                message: format!("{count} members find no node with room"),
                occasion: first.meta.uid.to_string(),
            },
            None => News {
                is_warning: false,
                reason: "WarmPoolProgressing",
                action: "Reconcile",
                message: "All members have found a node".to_owned(),
                occasion: self.clock.now().to_string(),
            },
        };
        TELLER
            .tell(&self.writer, &round.pool.meta, &news, self.clock.now())
            .await;
    }
}

/// What became of a status.
enum Told {
    /// The answer may bring what somebody else has changed, so that the pool is looked at again.
    Now,
    All,
    Later(Duration),
    Not,
}

/// When to look again, if not now.
fn soonest(told: Told, waits: impl IntoIterator<Item = Option<Duration>>) -> Option<Next> {
    let later = match told {
        Told::Now => return None,
        Told::All => None,
        Told::Later(wait) => Some(wait),
        Told::Not => return Some(Next::Retry),
    };
    let soonest = waits.into_iter().flatten().chain(later).min();
    Some(soonest.map_or(Next::Never, Next::In))
}

/// Whether the fields that every version of the definition has are stored as they were written.
fn keeps_counts(stored: &SandboxWarmPoolStatus, new: &SandboxWarmPoolStatus) -> bool {
    let counts = |status: &SandboxWarmPoolStatus| {
        let SandboxWarmPoolStatus {
            replicas,
            ready_replicas,
            selector,
            ..
        } = status;
        (*replicas, *ready_replicas, selector.clone())
    };
    counts(stored) == counts(new)
}

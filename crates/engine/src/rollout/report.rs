//! What a pass says: numbers, conditions, and why it does not do more.

use super::census::{Census, Class};
use super::{Draft, Plan, Settings, Snapshot, count, whole};
use crate::demand::Demand;
use crate::member::{Failure, Revision, Time};
use std::fmt;
use std::time::Duration;

/// Why a plan is not longer than it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Nothing is left to do.
    Settled,
    /// The actions of this plan do what can be done; more follows when they show.
    Replacing {
        old: u32,
    },
    /// The strategy leaves old members to the claims.
    UntilClaimed {
        old: u32,
    },
    Paused {
        old: u32,
    },
    Partition {
        old: u32,
        partition: u32,
    },
    /// Only members that are updating in place are left.
    Updating {
        members: u32,
    },
    /// Only old members are left that are promised or not Ready yet.
    OldPending {
        old: u32,
        pending: u32,
    },
    /// `out < max` fails.
    MaxUnavailable {
        out: i64,
        max: u32,
    },
    /// maxUnavailable and maxSurge are both zero.
    NoBudget,
    /// `claimable > floor + reserve` fails.
    Floor {
        claimable: u32,
        floor: u32,
        reserve: u32,
    },
    /// The floor that was asked for leaves no room, even with all of the surge claimable.
    FloorUnsatisfiable {
        floor: u32,
        best: u32,
        surge: u32,
    },
    BrokenTarget {
        failure: Failure,
        failing: u32,
        ready: u32,
    },
    MaxConcurrent {
        updating: u32,
        max: u32,
    },
    /// These cannot change in place, and nothing else is allowed.
    InPlaceOnly {
        members: u32,
    },
    /// These passed the deadline of their update in place, and nothing else is allowed.
    InPlaceLate {
        members: u32,
    },
    CreateLimit {
        missing: u32,
        limit: u32,
    },
}

impl fmt::Display for Wait {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::Settled => write!(out, "all members have the target revision"),
            Wait::Replacing { old } => write!(out, "{old} old members are being replaced"),
            Wait::UntilClaimed { old } => {
                write!(out, "{old} old members stay until they are claimed")
            }
            Wait::Paused { old } => write!(out, "paused with {old} old members"),
            Wait::Partition { old, partition } => {
                write!(
                    out,
                    "{old} old members stay, the partition keeps {partition}"
                )
            }
            Wait::Updating { members } => write!(out, "{members} members are updating in place"),
            Wait::OldPending { old, pending } => {
                write!(
                    out,
                    "{old} old members are left, {pending} of them not ready yet"
                )
            }
            Wait::MaxUnavailable { out: taken, max } => {
                write!(
                    out,
                    "the rollout has {taken} members out, maxUnavailable is {max}"
                )
            }
            Wait::NoBudget => {
                write!(
                    out,
                    "maxUnavailable and maxSurge are both 0, raise one of them"
                )
            }
            Wait::Floor {
                claimable,
                floor,
                reserve,
            } => write!(
                out,
                "{claimable} members are claimable, the floor is {floor} and {reserve} are \
                 reserved for claims"
            ),
            Wait::FloorUnsatisfiable { floor, best, surge } => write!(
                out,
                "the floor is {floor}, but at most {best} members are claimable with a surge of \
                 {surge}: raise maxSurge or replicas, or lower the floor"
            ),
            Wait::BrokenTarget {
                failure,
                failing,
                ready,
            } => write!(
                out,
                "{failing} members of the target revision fail ({}), {ready} are ready",
                failure_text(*failure)
            ),
            Wait::MaxConcurrent { updating, max } => {
                write!(
                    out,
                    "{updating} members are updating in place, at most {max} may"
                )
            }
            Wait::InPlaceOnly { members } => write!(
                out,
                "{members} members cannot change in place and inPlace is Only"
            ),
            Wait::InPlaceLate { members } => write!(
                out,
                "{members} members passed the deadline of their update and inPlace is Only"
            ),
            Wait::CreateLimit { missing, limit } => {
                write!(
                    out,
                    "{missing} members are missing, {limit} may be created now"
                )
            }
        }
    }
}

fn failure_text(failure: Failure) -> &'static str {
    match failure {
        Failure::ImagePull => "image cannot be pulled",
        Failure::CrashLoop => "container crashes",
        Failure::Unschedulable => "no node has room",
    }
}

/// The numbers of a pool before this plan's actions.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Unclaimed members, without those that terminate or are dead; creations on the way are not in it.
    pub replicas: u32,
    pub ready: u32,
    /// Ready for long enough, not fenced, not promised.
    pub available: u32,
    pub updated: u32,
    pub updated_ready: u32,
    pub updated_available: u32,
    pub pending: u32,
    pub updating: u32,
    pub failed: u32,
    /// Failed for want of a node with room; they are kept.
    pub unschedulable: u32,
    pub terminating: u32,
    /// Creations on the way.
    pub creating: u32,
    pub surge_in_use: u32,
    /// Members that the rollout has out of stock.
    pub out: u32,
    /// What the floor asks for under the present load.
    pub floor: u32,
    /// Claims per second.
    pub rate: f64,
    /// Follows the update revision when the rollout is complete.
    pub current_revision: Revision,
    pub update_revision: Revision,
}

/// How far the rollout has come: what decides whether it still moves.
///
/// To be stored with the pool; without it the clock starts again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub target: Revision,
    /// The most members of the target that were claimable at one time.
    pub best_available: u32,
    /// The fewest old members.
    pub fewest_old: u32,
    /// When either last improved, or the clock last stood still.
    pub at: Time,
    /// Since when no old member is left and the floor holds.
    pub stable: Option<Time>,
}

/// Why a condition is as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Complete,
    Rolling,
    Replenishing,
    UntilClaimed,
    Paused,
    PartitionReached,
    MaxUnavailable,
    NoBudget,
    Floor,
    FloorUnsatisfiable,
    ImagePull,
    CrashLoop,
    Unschedulable,
    InPlaceOnly,
    DeadlineExceeded,
    AsExpected,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Complete => "Complete",
            Reason::Rolling => "Rolling",
            Reason::Replenishing => "Replenishing",
            Reason::UntilClaimed => "UntilClaimed",
            Reason::Paused => "Paused",
            Reason::PartitionReached => "PartitionReached",
            Reason::MaxUnavailable => "MaxUnavailable",
            Reason::NoBudget => "NoBudget",
            Reason::Floor => "Floor",
            Reason::FloorUnsatisfiable => "FloorUnsatisfiable",
            Reason::ImagePull => "ImagePull",
            Reason::CrashLoop => "CrashLoop",
            Reason::Unschedulable => "Unschedulable",
            Reason::InPlaceOnly => "InPlaceOnly",
            Reason::DeadlineExceeded => "DeadlineExceeded",
            Reason::AsExpected => "AsExpected",
        }
    }
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub status: bool,
    pub reason: Reason,
    pub message: String,
}

/// The conditions of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditions {
    pub progressing: Condition,
    /// Somebody has to do something.
    pub stalled: Condition,
}

pub(super) fn plan(
    snapshot: &Snapshot<'_>,
    settings: &Settings,
    demand: &Demand,
    census: &Census<'_>,
    draft: Draft,
    now: Time,
) -> Plan {
    let mut status = status(snapshot, demand, census, &draft);
    let progress = progress(snapshot, settings, census, &draft, &status, now);
    let rolling = settings.rolling();
    let window = rolling.map_or(Duration::ZERO, |rolling| rolling.stabilise);
    // once over it stays over: load that dips below the floor later is no rollout
    let over = census.old == 0 && status.current_revision == status.update_revision;
    let complete = over || progress.stable.is_some_and(|since| now >= since + window);
    if complete {
        status.current_revision = snapshot.pool.revisions.target.clone();
    }
    let deadline = rolling.and_then(|rolling| rolling.progress_deadline);
    let expires = deadline
        .filter(|_| !clock_stands(&draft.wait))
        .map(|span| progress.at + span);
    let late = expires.is_some_and(|at| now >= at);
    let moments = moments(settings, census, now)
        .chain(draft.again)
        .chain(expires)
        .chain(progress.stable.map(|since| since + window));
    let next = moments.filter(|at| *at > now).min();
    Plan {
        conditions: conditions(snapshot, census, &draft, &status, complete, late),
        actions: draft.actions,
        wait: draft.wait,
        status,
        ledger: draft.ledger,
        progress,
        requeue_after: next.map(|at| at.since(now)),
    }
}

fn status(snapshot: &Snapshot<'_>, demand: &Demand, census: &Census<'_>, draft: &Draft) -> Status {
    let tally = |wanted: &dyn Fn(&super::census::Entry<'_>) -> bool| {
        let live = census
            .entries
            .iter()
            .filter(|entry| !matches!(entry.class, Class::Terminating | Class::Dead));
        count(live.filter(|entry| wanted(entry)).count())
    };
    let unschedulable = Class::Failed(Failure::Unschedulable);
    Status {
        replicas: tally(&|_| true),
        ready: tally(&|entry| entry.is_ready()),
        available: tally(&|entry| entry.class == Class::Claimable),
        updated: tally(&|entry| entry.is_updated()),
        updated_ready: tally(&|entry| entry.is_updated() && entry.is_ready()),
        updated_available: tally(&|entry| entry.is_updated() && entry.class == Class::Claimable),
        pending: tally(&|entry| matches!(entry.class, Class::Pending | Class::Young)),
        updating: tally(&|entry| entry.class == Class::Fenced),
        failed: tally(&|entry| matches!(entry.class, Class::Failed(_))),
        unschedulable: tally(&|entry| entry.class == unschedulable),
        terminating: whole(census.terminating),
        creating: whole(census.in_flight),
        surge_in_use: whole(census.live - i64::from(snapshot.pool.replicas)),
        out: whole(draft.out),
        floor: draft.floor,
        rate: demand.rate,
        current_revision: snapshot.pool.revisions.current.clone(),
        update_revision: snapshot.pool.revisions.target.clone(),
    }
}

/// Old members that claims take while the target is broken are a loss, not progress.
fn progress(
    snapshot: &Snapshot<'_>,
    settings: &Settings,
    census: &Census<'_>,
    draft: &Draft,
    status: &Status,
    now: Time,
) -> Progress {
    let target = &snapshot.pool.revisions.target;
    let before = snapshot
        .progress
        .filter(|progress| progress.target == *target);
    let old = whole(census.old);
    let broken = matches!(draft.wait, Wait::BrokenTarget { .. });
    let moved = before.is_none_or(|before| {
        status.updated_available > before.best_available || (old < before.fewest_old && !broken)
    });
    let at = match before {
        Some(before) if !moved && !clock_stands(&draft.wait) => before.at,
        _ => now,
    };
    let partition = settings.rolling().map_or(0, |rolling| rolling.partition);
    let holds = old == 0 && partition == 0 && status.updated_available >= draft.floor;
    Progress {
        target: target.clone(),
        best_available: before
            .map_or(0, |before| before.best_available)
            .max(status.updated_available),
        fewest_old: before.map_or(old, |before| before.fewest_old.min(old)),
        at,
        stable: holds.then(|| before.and_then(|before| before.stable).unwrap_or(now)),
    }
}

fn clock_stands(wait: &Wait) -> bool {
    matches!(
        wait,
        Wait::Settled | Wait::Paused { .. } | Wait::Partition { .. } | Wait::UntilClaimed { .. }
    )
}

/// When members change their meaning without any event.
fn moments(settings: &Settings, census: &Census<'_>, now: Time) -> impl Iterator<Item = Time> {
    census
        .entries
        .iter()
        .filter_map(move |entry| match entry.class {
            Class::Young => entry.matures,
            Class::Fenced => {
                let deadline = entry.member.intent.as_ref().map(|intent| intent.deadline);
                entry.matures.or(deadline)
            }
            Class::Pending | Class::Failed(_) => entry.stuck_at(settings.ready_grace),
            Class::Claimable | Class::Dead | Class::Reserved | Class::Terminating => None,
        })
        .filter(move |at| *at > now)
}

fn conditions(
    snapshot: &Snapshot<'_>,
    census: &Census<'_>,
    draft: &Draft,
    status: &Status,
    complete: bool,
    late: bool,
) -> Conditions {
    let reason = reason(draft, census, complete);
    let message = format!(
        "{} of {} members updated, {} available, {} old; {}",
        status.updated, snapshot.pool.replicas, status.updated_available, census.old, draft.wait
    );
    let needs_help = matches!(
        reason,
        Reason::NoBudget
            | Reason::FloorUnsatisfiable
            | Reason::ImagePull
            | Reason::CrashLoop
            | Reason::Unschedulable
            | Reason::InPlaceOnly
    );
    let stalled = late || needs_help;
    let why = match (late, needs_help) {
        (_, true) => reason,
        (true, false) => Reason::DeadlineExceeded,
        (false, false) => Reason::AsExpected,
    };
    let resting = matches!(
        reason,
        Reason::Paused | Reason::PartitionReached | Reason::UntilClaimed
    );
    Conditions {
        progressing: Condition {
            status: !stalled && !resting,
            reason: if late && !needs_help {
                Reason::DeadlineExceeded
            } else {
                reason
            },
            message: message.clone(),
        },
        stalled: Condition {
            status: stalled,
            reason: why,
            message,
        },
    }
}

fn reason(draft: &Draft, census: &Census<'_>, complete: bool) -> Reason {
    match &draft.wait {
        Wait::Paused { .. } => Reason::Paused,
        Wait::Partition { .. } => Reason::PartitionReached,
        Wait::UntilClaimed { .. } => Reason::UntilClaimed,
        Wait::NoBudget => Reason::NoBudget,
        Wait::FloorUnsatisfiable { .. } => Reason::FloorUnsatisfiable,
        Wait::InPlaceOnly { .. } | Wait::InPlaceLate { .. } => Reason::InPlaceOnly,
        Wait::BrokenTarget { failure, .. } => failure_reason(*failure),
        // what keeps the members out is worth more than the number of them
        Wait::MaxUnavailable { .. } => census
            .failing()
            .filter(|(_, failing)| i64::from(*failing) >= draft.out.max(1))
            .map_or(Reason::MaxUnavailable, |(failure, _)| {
                failure_reason(failure)
            }),
        Wait::Floor { .. } => Reason::Floor,
        Wait::Settled if complete => Reason::Complete,
        Wait::Settled | Wait::CreateLimit { .. } => Reason::Replenishing,
        Wait::Replacing { .. }
        | Wait::Updating { .. }
        | Wait::OldPending { .. }
        | Wait::MaxConcurrent { .. } => Reason::Rolling,
    }
}

fn failure_reason(failure: Failure) -> Reason {
    match failure {
        Failure::ImagePull => Reason::ImagePull,
        Failure::CrashLoop => Reason::CrashLoop,
        Failure::Unschedulable => Reason::Unschedulable,
    }
}

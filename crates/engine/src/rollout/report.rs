//! What a pass says: numbers, conditions, and why it does not do more.

use super::census::{Census, Class};
use super::order::unmatched;
use super::quota::Shortage;
use super::{Draft, Plan, Settings, Snapshot, count, whole};
use crate::demand::Demand;
use crate::member::{Difference, Failure, Revision, Time};
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
        Failure::Quota => "a quota leaves no room",
        Failure::Refused => "pod cannot be made",
        Failure::Ended => "pod ends by itself",
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
    /// Not Ready and the pod says why, or ended and kept for a while.
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
    QuotaExceeded,
    PodRefused,
    PodEnded,
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
            Reason::QuotaExceeded => "QuotaExceeded",
            Reason::PodRefused => "PodRefused",
            Reason::PodEnded => "PodEnded",
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
    let stands = clock_stands(snapshot, census, &draft.wait);
    let progress = progress(snapshot, settings, census, &draft, &status, stands, now);
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
        .filter(|_| !stands && !complete)
        .map(|span| progress.at + span);
    let late = expires.is_some_and(|at| now >= at);
    let moments = moments(settings, census, now)
        .chain(draft.again)
        .chain(census.kept_until)
        .chain(expires)
        .chain(snapshot.no_surge_until)
        .chain(progress.stable.map(|since| since + window));
    let next = moments.filter(|at| *at > now).min();
    Plan {
        conditions: conditions(snapshot, settings, census, &draft, &status, complete, late),
        actions: draft.actions,
        wait: draft.wait,
        status,
        ledger: draft.ledger,
        progress,
        endings: census.endings.clone(),
        requeue_after: next.map(|at| at.since(now)),
    }
}

fn status(snapshot: &Snapshot<'_>, demand: &Demand, census: &Census<'_>, draft: &Draft) -> Status {
    let tally = |wanted: &dyn Fn(&super::census::Entry<'_>) -> bool| {
        let live = census.entries.iter().filter(|entry| {
            !matches!(entry.class, Class::Terminating | Class::Dead | Class::Ended)
        });
        count(live.filter(|entry| wanted(entry)).count())
    };
    let ended = census.entries.iter();
    let ended = count(ended.filter(|entry| entry.class == Class::Ended).count());
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
        failed: tally(&|entry| matches!(entry.class, Class::Failed(_))) + ended,
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
    stands: bool,
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
        Some(before) if !moved && !stands => before.at,
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

/// Nothing is to be rolled, or nothing may be. A rollout whose last old member is gone still has to become available.
fn clock_stands(snapshot: &Snapshot<'_>, census: &Census<'_>, wait: &Wait) -> bool {
    let revisions = &snapshot.pool.revisions;
    let is_over = revisions.difference(&revisions.current) == Difference::Same && census.old == 0;
    let is_resting = matches!(
        wait,
        Wait::Paused { .. } | Wait::Partition { .. } | Wait::UntilClaimed { .. }
    );
    is_over || is_resting
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
            Class::Failed(Failure::Quota) => entry.hopes_until(),
            Class::Pending | Class::Failed(_) => entry.stuck_at(settings.ready_grace),
            Class::Claimable
            | Class::Dead
            | Class::Ended
            | Class::Reserved
            | Class::Retired
            | Class::Terminating => None,
        })
        .filter(move |at| *at > now)
}

fn conditions(
    snapshot: &Snapshot<'_>,
    settings: &Settings,
    census: &Census<'_>,
    draft: &Draft,
    status: &Status,
    complete: bool,
    late: bool,
) -> Conditions {
    let shortage = Shortage::of(snapshot, settings, census);
    let reason = reason(draft, census, shortage.is_some(), complete);
    let short = shortage.as_ref().map(|it| format!("; {it}"));
    let message = format!(
        "{} of {} members updated, {} available, {} old; {}{}{}{}",
        status.updated,
        snapshot.pool.replicas,
        status.updated_available,
        census.old,
        draft.wait,
        short.unwrap_or_default(),
        old_endings(census),
        idle_terms(settings, census)
    );
    let needs_help = match reason {
        Reason::NoBudget
        | Reason::FloorUnsatisfiable
        | Reason::ImagePull
        | Reason::CrashLoop
        | Reason::Unschedulable
        | Reason::PodRefused
        | Reason::PodEnded
        | Reason::InPlaceOnly => true,
        // a rollout that goes on makes the room itself, and so does whoever goes
        Reason::QuotaExceeded => match &shortage {
            Some(shortage) => shortage.is_the_end(),
            None => census.is_short_for_long,
        },
        _ => false,
    };
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
            // whoever waits for the end of the rollout looks here, and for what is to be done at the other
            reason: if late {
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

/// Says so if old members have ended and are not replaced at once.
fn old_endings(census: &Census<'_>) -> String {
    let entries = census.entries.iter();
    let kept = entries.filter(|entry| entry.stale && entry.class == Class::Ended);
    match kept.count() {
        0 => String::new(),
        kept => format!("; {kept} of the old ones have ended and are replaced later"),
    }
}

/// Says so if a rule about the order of members speaks of labels that none of them has.
fn idle_terms(settings: &Settings, census: &Census<'_>) -> String {
    let Some(rolling) = settings.rolling().filter(|_| census.live > 0) else {
        return String::new();
    };
    let labels = census.entries.iter();
    let labels = labels.map(|entry| entry.member.labels.as_deref());
    let idle = unmatched(rolling.priority.as_ref(), &rolling.scatter, labels);
    match idle.is_empty() {
        true => String::new(),
        false => format!("; no member has labels that match {}", idle.join(", ")),
    }
}

fn reason(draft: &Draft, census: &Census<'_>, is_short: bool, complete: bool) -> Reason {
    match &draft.wait {
        Wait::MaxUnavailable { .. }
        | Wait::Floor { .. }
        | Wait::Replacing { .. }
        | Wait::Updating { .. }
        | Wait::OldPending { .. }
        | Wait::MaxConcurrent { .. }
            if is_short =>
        {
            Reason::QuotaExceeded
        }
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
        Failure::Quota => Reason::QuotaExceeded,
        Failure::Refused => Reason::PodRefused,
        Failure::Ended => Reason::PodEnded,
    }
}

//! The two strategies of the reference: replace nothing, or everything at once.

use super::census::{Census, Class, Entry};
use super::{
    Action, Cause, Create, Delete, Draft, Ledger, Settings, Snapshot, Strategy, Wait, whole,
};
use crate::member::Time;
use std::cmp::Reverse;

pub(super) fn draft(
    snapshot: &Snapshot<'_>,
    settings: &Settings,
    census: &Census<'_>,
    now: Time,
) -> Draft {
    let recreate = settings.strategy == Strategy::Recreate && !settings.paused;
    let mut actions = Vec::new();
    let mut staying = Vec::new();
    for entry in &census.entries {
        match fate(entry, settings, recreate, now) {
            Fate::Goes(action) => actions.push(action),
            Fate::Stays => staying.push(entry),
            Fate::Ignored => {}
        }
    }
    let wanted = i64::from(snapshot.pool.replicas);
    // a member on its way out holds its place until it is gone, and so does one whose deletion may fail
    let missing = whole(wanted - census.live - census.terminating);
    let limit = scale_limit(settings, census).min(settings.create_limit);
    let created = missing.min(limit);
    if created > 0 {
        let revision = snapshot.pool.revisions.target.clone();
        actions.insert(
            0,
            Action::Create(Create {
                revision,
                count: created,
                for_rollout: false,
            }),
        );
    }
    let surplus = whole(census.staying(&actions) - wanted);
    actions.extend(shrink(staying, surplus.min(settings.delete_limit)));
    let wait = if recreate && census.old > 0 {
        Wait::Replacing {
            old: whole(census.old),
        }
    } else if missing > created {
        Wait::CreateLimit { missing, limit }
    } else if let Some(failing) = failing(census) {
        failing
    } else if census.old > 0 {
        Wait::UntilClaimed {
            old: whole(census.old),
        }
    } else {
        Wait::Settled
    };
    Draft {
        actions,
        wait,
        ledger: Ledger::default(),
        out: 0,
        floor: 0,
        again: None,
    }
}

/// Says so if no member of the target works, or no node has room.
fn failing(census: &Census<'_>) -> Option<Wait> {
    let (failure, failing) = census.failing()?;
    let broken = Wait::BrokenTarget {
        failure,
        failing,
        ready: 0,
    };
    (census.working() == 0)
        .then_some(broken)
        .or_else(|| census.without_room())
}

/// Creations that the limit on members which are not claimable leaves.
pub(super) fn scale_limit(settings: &Settings, census: &Census<'_>) -> u32 {
    settings.scale_limit.map_or(u32::MAX, |limit| {
        whole(i64::from(limit) - (census.live - census.claimable))
    })
}

enum Fate {
    Goes(Action),
    Stays,
    Ignored,
}

fn fate(entry: &Entry<'_>, settings: &Settings, recreate: bool, now: Time) -> Fate {
    let uid = &entry.member.uid;
    let delete = |cause| {
        Action::Delete(Delete {
            uid: uid.clone(),
            cause,
            booked: false,
        })
    };
    let stuck = entry
        .stuck_at(settings.ready_grace)
        .is_some_and(|at| now >= at);
    let late = entry
        .member
        .intent
        .as_ref()
        .is_some_and(|intent| now >= intent.deadline);
    match entry.class {
        Class::Terminating => Fate::Ignored,
        Class::Dead => Fate::Goes(delete(Cause::Dead)),
        Class::Retired => Fate::Goes(delete(Cause::Retired)),
        Class::Reserved => Fate::Ignored,
        _ if recreate && entry.stale => Fate::Goes(delete(Cause::Stale)),
        // left behind by a rolling update that was the strategy before
        Class::Fenced if entry.is_ready() => Fate::Goes(Action::Release(uid.clone())),
        Class::Fenced if late => Fate::Goes(delete(Cause::Fallback)),
        Class::Fenced => Fate::Ignored,
        _ if stuck => Fate::Goes(delete(Cause::Stuck)),
        Class::Claimable | Class::Young | Class::Pending | Class::Failed(_) | Class::Ended => {
            Fate::Stays
        }
    }
}

/// Members that are not Ready go first, then the newest.
fn shrink(mut members: Vec<&Entry<'_>>, surplus: u32) -> Vec<Action> {
    if surplus == 0 {
        return Vec::new();
    }
    members.sort_by_key(|entry| (entry.is_ready(), Reverse(entry.member.created)));
    members
        .into_iter()
        .take(surplus as usize)
        .map(|entry| Delete {
            uid: entry.member.uid.clone(),
            cause: Cause::Surplus,
            booked: false,
        })
        .map(Action::Delete)
        .collect()
}

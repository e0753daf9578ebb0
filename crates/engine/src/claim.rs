//! Which member a claim gets.

use crate::member::{Claim, Difference, Policy, Pool, Revision, Time, Uid};
use crate::queue::Index;
use crate::rollout::Strategy;
use std::time::Duration;

/// What a pool says about claims besides its policy.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// Under [`Strategy::Recreate`] old members are about to be deleted, so nobody gets one.
    pub strategy: &'a Strategy,
    pub min_ready: Duration,
    /// Claims may narrow the policy of the pool.
    pub overrides: bool,
}

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The member is reserved for the claim.
    Member(Chosen),
    /// Nothing acceptable is claimable.
    Nothing {
        /// Acceptable members that may become Ready.
        coming: usize,
        /// When the first acceptable member that is Ready has been so for long enough.
        matures: Option<Time>,
    },
}

/// The member for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    pub uid: Uid,
    pub revision: Revision,
    /// It is not at the target.
    pub stale: bool,
}

/// Why a claim may not have the policy it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The pool does not let claims choose.
    OverrideForbidden,
    /// The claim asks for a revision that the pool's own policy excludes.
    Excluded,
    /// The revision was rolled back as bad.
    Retired,
}

/// Picks a member and reserves it: exactly in the order of the policy, within a revision from the node
/// that holds most, longest Ready first.
pub fn choose(
    index: &mut Index,
    pool_uid: &Uid,
    pool: &Pool,
    claim: &Claim,
    rules: &Rules<'_>,
    now: Time,
) -> Result<Choice, Refusal> {
    let policy = narrow(pool, claim.policy.as_ref(), rules.overrides)?;
    let min_ready = u64::try_from(rules.min_ready.as_millis()).unwrap_or(u64::MAX);
    let by = now.0.checked_sub(min_ready).map(Time);
    let revisions = acceptable(index, pool_uid, pool, &policy, rules.strategy);
    let first = by.and_then(|by| {
        revisions
            .iter()
            .find_map(|revision| Some((index.first(pool_uid, revision, by)?, revision)))
    });
    let Some((uid, revision)) = first else {
        let ready = revisions
            .iter()
            .filter_map(|revision| index.earliest(pool_uid, revision));
        return Ok(Choice::Nothing {
            coming: revisions
                .iter()
                .map(|revision| index.coming(pool_uid, revision))
                .sum(),
            matures: ready.min().map(|since| since + rules.min_ready),
        });
    };
    let (uid, revision) = (uid.clone(), revision.clone());
    index.reserve(&uid, &claim.uid);
    let stale = pool.revisions.difference(&revision) != Difference::Same;
    Ok(Choice::Member(Chosen {
        uid,
        revision,
        stale,
    }))
}

/// What holds when both the pool and the claim have a say: never more revisions than the pool allows.
pub fn narrow(pool: &Pool, wish: Option<&Policy>, overrides: bool) -> Result<Policy, Refusal> {
    let own = &pool.policy;
    let policy = match (own, wish) {
        (own, None) => own,
        (own, Some(wish)) if own == wish => own,
        _ if !overrides => return Err(Refusal::OverrideForbidden),
        (Policy::PreferNewest | Policy::DrainOld, Some(wish)) => wish,
        (own, Some(Policy::PreferNewest | Policy::DrainOld)) => own,
        (own @ Policy::Pinned(pinned), Some(Policy::RequireNewest)) if is_newest(pool, pinned) => {
            own
        }
        (Policy::RequireNewest, Some(wish @ Policy::Pinned(pinned))) if is_newest(pool, pinned) => {
            wish
        }
        (Policy::RequireNewest | Policy::Pinned(_), Some(_)) => return Err(Refusal::Excluded),
    };
    match policy {
        Policy::Pinned(pinned) if pool.revisions.retired(pinned) => Err(Refusal::Retired),
        policy => Ok(policy.clone()),
    }
}

fn is_newest(pool: &Pool, revision: &Revision) -> bool {
    pool.revisions.difference(revision) == Difference::Same
}

/// The revisions that members have and the claim may get, best first.
fn acceptable(
    index: &Index,
    pool_uid: &Uid,
    pool: &Pool,
    policy: &Policy,
    strategy: &Strategy,
) -> Vec<Revision> {
    let mut revisions: Vec<_> = index
        .revisions(pool_uid)
        .filter(|revision| {
            let difference = pool.revisions.difference(revision);
            let doomed = *strategy == Strategy::Recreate && strategy.replaces(difference);
            let wanted = match policy {
                Policy::PreferNewest | Policy::DrainOld => true,
                Policy::RequireNewest => difference == Difference::Same,
                Policy::Pinned(pinned) => pinned == *revision,
            };
            wanted && !doomed && !pool.revisions.retired(revision)
        })
        .cloned()
        .collect();
    revisions.sort_by(|left, right| age(pool, left).cmp(&age(pool, right)).then(left.cmp(right)));
    if *policy == Policy::DrainOld {
        revisions.reverse();
    }
    revisions
}

/// The target is youngest, then what equals it, then the others as the pool lists them; what it does not
/// list is oldest.
fn age(pool: &Pool, revision: &Revision) -> (bool, usize) {
    let revisions = &pool.revisions;
    if *revision == revisions.target {
        return (false, 0);
    }
    let listed = revisions
        .older
        .iter()
        .position(|older| older.revision == *revision);
    (
        !is_newest(pool, revision),
        listed.map_or(usize::MAX, |place| place + 1),
    )
}

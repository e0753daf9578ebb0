//! One planner for every way a pool takes on a new revision.
//!
//! A controller calls [`plan`] on each pass with one snapshot and carries out the actions, each with a
//! precondition on uid and resourceVersion. Whatever it must remember between two passes comes back in the
//! plan: the [`Ledger`], the [`Progress`], the [`Endings`]. Losing one of them costs time, never a promise.
//!
//! What the rollout itself took out of stock is told apart from what claims took by double entry. A
//! member created by the rollout carries a mark ([`Member::for_rollout`]), and the ledger holds how many
//! members the rollout added, less those it removed. Then
//!
//! ```text
//! out = marked members that are not claimable yet + fenced members − ledger
//! ```
//!
//! is how many claimable members the pool has less than it would have without the rollout. Claims move
//! neither side, so they can neither starve a rollout nor hide what it does, and a stale snapshot only
//! makes the number too high. `out` never exceeds maxUnavailable. A member that ends in any other way is
//! booked on the rollout: a deletion that a former leader had on the wire may arrive when another plans.

mod census;
mod endings;
mod order;
mod pace;
mod plain;
mod quota;
mod report;
mod rolling;
mod settings;
mod stock;

pub use endings::Endings;
pub use order::{Operator, Priority, Requirement, ScatterTerm, Weight};
pub use pace::Pace;
pub use quota::Refusals;
pub use report::{Condition, Conditions, Progress, Reason, Status, Wait};
pub use settings::{InPlace, Replenish, Rolling, Settings, Strategy};

use crate::demand::Demand;
use crate::member::{Intent, Member, Node, Pool, Revision, Time, Uid};
use census::Census;
use std::collections::BTreeSet;
use std::time::Duration;

/// A pool as one pass sees it.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    pub pool: &'a Pool,
    /// Every unclaimed member, the terminating ones included.
    pub members: &'a [Member],
    /// Creations that were accepted and that `members` does not show yet.
    pub in_flight: &'a [Create],
    pub ledger: Ledger,
    /// Members that have ended since the last plan though no claim had taken them and no action deleted them.
    pub lost: u32,
    pub progress: Option<&'a Progress>,
    pub endings: Option<&'a Endings>,
    /// Members beyond the size of the pool are refused for want of room, and are not asked for until then.
    pub no_surge_until: Option<Time>,
    /// Nodes on which updates in place failed too often; members there are replaced.
    pub no_in_place: &'a BTreeSet<Node>,
}

/// How many members the rollout added, less those it removed: the memory of one process.
///
/// The controller keeps the ledger of the last plan and calls [`Ledger::done`] for each action that the
/// API accepted. A process that has just started has the default; the planner then books every missing
/// member on the rollout, which can only make it slower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger(pub Option<i64>);

impl Ledger {
    pub fn done(&mut self, action: &Action) {
        let change = match action {
            Action::Create(create) if create.for_rollout => i64::from(create.count),
            Action::Delete(delete) if delete.booked => -1,
            Action::Create(_)
            | Action::Delete(_)
            | Action::UpdateInPlace(_)
            | Action::Release(_) => 0,
        };
        self.0 = self.0.map(|extra| extra + change);
    }
}

/// What to do to the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Create(Create),
    Delete(Delete),
    /// Fence the member with this intent, then change it; both may have happened in part already.
    UpdateInPlace(Update),
    /// Take the fence off: the update is complete, or nobody wants it any more.
    Release(Uid),
}

impl Action {
    fn is_delete(&self) -> bool {
        matches!(self, Self::Delete(_))
    }
}

/// So many new members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    pub revision: Revision,
    pub count: u32,
    /// To be written on the members.
    pub for_rollout: bool,
}

/// One member less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    pub uid: Uid,
    pub cause: Cause,
    /// The ledger falls by one; otherwise the member is replaced like a claimed one.
    pub booked: bool,
}

/// Why a member is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// It has not the target revision.
    Stale,
    /// The pool has more members than it shall have.
    Surplus,
    /// It did not become Ready in time.
    Stuck,
    /// It never will.
    Dead,
    /// Its revision was rolled back as bad.
    Retired,
    /// Its update in place passed the deadline.
    Fallback,
}

/// One member that changes in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    pub uid: Uid,
    pub intent: Intent,
}

/// What a pass decided, and what it saw.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// In this order: claims wait for creations, so these come first.
    pub actions: Vec<Action>,
    /// Why it is not more: the inequality that fails, with its numbers.
    pub wait: Wait,
    pub status: Status,
    pub conditions: Conditions,
    pub ledger: Ledger,
    pub progress: Progress,
    pub endings: Endings,
    /// Look again after this time even if nothing happens.
    pub requeue_after: Option<Duration>,
}

/// Decides what a pool needs now.
///
/// Each pass makes progress or says in [`Plan::wait`] why it cannot. The plan of a settled pool has no
/// actions, and nothing is done twice on a snapshot that shows what was done already.
pub fn plan(snapshot: &Snapshot<'_>, settings: &Settings, demand: &Demand, now: Time) -> Plan {
    let census = Census::take(snapshot, settings, now);
    let draft = match &settings.strategy {
        Strategy::OnReplenish | Strategy::Recreate => {
            plain::draft(snapshot, settings, &census, now)
        }
        Strategy::RollingUpdate(rolling) => {
            rolling::draft(snapshot, settings, rolling, demand, &census, now)
        }
    };
    report::plan(snapshot, settings, demand, &census, draft, now)
}

/// The decision before it is reported.
struct Draft {
    actions: Vec<Action>,
    wait: Wait,
    ledger: Ledger,
    /// Members that the rollout has out of stock, before this plan's actions.
    out: i64,
    /// F_eff.
    floor: u32,
    /// Look again then, because the decision depends on time.
    again: Option<Time>,
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A number of members that is known not to be negative.
fn whole(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

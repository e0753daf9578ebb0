//! What the owner of a pool asked for; percentages are resolved to members already.

use super::order::{Priority, ScatterTerm};
use crate::member::Difference;
use std::time::Duration;

/// Everything about a rollout that is not the state of the pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub strategy: Strategy,
    /// Nothing but replenishment happens.
    pub paused: bool,
    /// A member is claimable when it was Ready for so long.
    pub min_ready: Duration,
    /// A member that is not Ready at this age is replaced, unless no node has room for it.
    pub ready_grace: Option<Duration>,
    /// Creations at most in one pass.
    pub create_limit: u32,
    /// Deletions of members beyond the wanted number at most in one pass.
    pub delete_limit: u32,
    /// Members at most that are not claimable while the pool grows (`scaleStrategy.maxUnavailable`).
    pub scale_limit: Option<u32>,
}

impl Settings {
    pub fn new(strategy: Strategy) -> Self {
        Self {
            strategy,
            paused: false,
            min_ready: Duration::ZERO,
            ready_grace: None,
            create_limit: 300,
            delete_limit: 300,
            scale_limit: None,
        }
    }

    /// Whether the order of members depends on their labels; others need not be told.
    pub fn looks_at_labels(&self) -> bool {
        self.rolling()
            .is_some_and(|rolling| rolling.priority.is_some() || !rolling.scatter.is_empty())
    }

    pub(super) fn rolling(&self) -> Option<&Rolling> {
        match &self.strategy {
            Strategy::RollingUpdate(rolling) => Some(rolling),
            Strategy::OnReplenish | Strategy::Recreate => None,
        }
    }
}

/// How members of other revisions give way.
#[derive(Clone, Debug, PartialEq)]
pub enum Strategy {
    /// They stay until they are claimed or deleted; what is created from now on has the target revision.
    ///
    /// A pool that now names another template keeps all its members, equal in content or not. Terminating
    /// members occupy their place.
    OnReplenish,
    /// All are deleted in one pass, and replaced as they disappear.
    ///
    /// A pool that now names another template loses all its members even if the content is equal, because
    /// members carry the name of their template. Only changed metadata replaces nothing.
    Recreate,
    /// They are replaced or updated in place, a few at a time.
    ///
    /// A pool that now names another template of equal content updates its members' metadata in place; where
    /// updates in place are not allowed, members are replaced. Terminating members do not occupy a place.
    RollingUpdate(Rolling),
}

impl Strategy {
    /// Whether a member that differs so from the target counts as old.
    pub fn replaces(&self, difference: Difference) -> bool {
        match difference {
            Difference::Same => false,
            Difference::Metadata => matches!(self, Strategy::RollingUpdate(_)),
            Difference::Reference
            | Difference::Resources
            | Difference::Image
            | Difference::Replace => true,
        }
    }
}

/// The settings of a rolling update.
#[derive(Clone, Debug, PartialEq)]
pub struct Rolling {
    pub max_unavailable: u32,
    pub max_surge: u32,
    /// So many members keep their revision.
    pub partition: u32,
    /// Claimable members of an acceptable revision at least. Not set: replicas − maxUnavailable, and then
    /// it never keeps a rollout from going on.
    pub floor: Option<u32>,
    pub in_place: InPlace,
    /// Updates in place at most at a time, besides what maxUnavailable allows.
    pub max_concurrent: Option<u32>,
    /// So long without progress is a stall. The clock stands while paused and at the partition.
    pub progress_deadline: Option<Duration>,
    /// So long the floor must have held before the rollout is called complete.
    pub stabilise: Duration,
    pub priority: Option<Priority>,
    pub scatter: Vec<ScatterTerm>,
    pub replenish: Replenish,
}

impl Rolling {
    pub fn new(max_unavailable: u32, max_surge: u32) -> Self {
        Self {
            max_unavailable,
            max_surge,
            partition: 0,
            floor: None,
            in_place: InPlace::IfPossible,
            max_concurrent: None,
            progress_deadline: None,
            stabilise: Duration::ZERO,
            priority: None,
            scatter: Vec::new(),
            replenish: Replenish::Target,
        }
    }
}

/// Whether idle members change in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlace {
    /// Where the difference allows it; otherwise, and after a failure, they are replaced.
    IfPossible,
    Never,
    /// Members that cannot change in place stay as they are, and the plan says so.
    Only,
}

/// What replaces claimed members while the target proves broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replenish {
    /// The target all the same: each claim costs a good member, but freshness is never in doubt.
    Target,
    /// The current revision, so that the pool outlives a bad template under load.
    LastGood,
}

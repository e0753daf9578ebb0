//! What both API families say about a pool: its members, its revisions and who asks for one.
//!
//! A controller maps its objects to these types and nothing else crosses into the decisions. A [`Member`]
//! is small, because a pass looks at all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

/// A point in time, in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// How long ago `earlier` was; nothing if it lies ahead (clocks of two machines differ).
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, span: Duration) -> Time {
        Time(
            self.0
                .saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        )
    }
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(&self.0)
            }
        }
    )*};
}

names! {
    /// The uid of an object: never given twice, so it survives a name that is used again.
    Uid;
    /// The name of a template's content, as members carry it.
    Revision;
    /// The name of a machine.
    Node;
}

/// The labels that ordering strategies look at.
pub type Labels = BTreeMap<Box<str>, Box<str>>;

/// One unclaimed sandbox of a pool. Claimed ones do not exist here.
///
/// A caller with requests on the way shows their outcome already: a deletion it has not seen yet as
/// [`State::Terminating`], an update it has not seen yet as an [`Intent`] that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub uid: Uid,
    pub revision: Revision,
    pub node: Option<Node>,
    pub created: Time,
    pub state: State,
    /// The fence: as long as it stands, nobody may claim the member.
    pub intent: Option<Box<Intent>>,
    pub labels: Option<Arc<Labels>>,
    /// The rollout created it, as surge or for a member that it took out (written on the object).
    pub for_rollout: bool,
    /// It has been promised to a claim whose write is not confirmed yet.
    pub reserved: bool,
}

/// How a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// On the way, or Ready once and not any more.
    Pending,
    /// It could be used since then: Ready, the runtime answered and, after an update in place, the update
    /// was proven complete.
    Ready { since: Time },
    /// Not Ready, and the pod says why.
    Failed(Failure),
    /// Its pod has ended. It will never be Ready again; only its deletion is left.
    Dead,
    /// Deleted, or its deletion was accepted.
    Terminating,
}

impl State {
    pub fn is_ready(self) -> bool {
        matches!(self, Self::Ready { .. })
    }
}

/// Why a member does not become Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    ImagePull,
    CrashLoop,
    Unschedulable,
    /// A quota leaves no room for the pod.
    Quota,
    /// The server does not let the pod be made.
    Refused,
    /// Its pods end by themselves.
    Ended,
}

impl Failure {
    /// Nothing is wrong with the member itself, and when others go it may come up.
    pub fn is_want_of_room(self) -> bool {
        match self {
            Self::Unschedulable | Self::Quota => true,
            Self::ImagePull | Self::CrashLoop | Self::Refused | Self::Ended => false,
        }
    }
}

/// What a fence says: the update in place that the member is taken out for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    pub target: Revision,
    /// Past it the update is given up and the member replaced.
    pub deadline: Time,
    /// The change was written to the member, not only the fence.
    pub begun: bool,
}

/// How a revision differs from the target.
///
/// A pool that names another template is updated even if both templates are equal in content; that is
/// [`Difference::Reference`]. What each strategy makes of it is said at
/// [`Strategy`](crate::rollout::Strategy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Equal in meaning, whatever the recorded name is.
    Same,
    /// Equal in content, of another template.
    Reference,
    /// Only labels and annotations.
    Metadata,
    Resources,
    Image,
    /// Something that a live pod cannot take on.
    Replace,
}

/// A revision that is not the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Older {
    pub revision: Revision,
    pub difference: Difference,
    /// Rolled back as bad: nobody may get it any more.
    pub retired: bool,
}

/// The revisions of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revisions {
    /// What members shall be.
    pub target: Revision,
    /// What they all were when the last rollout ended; equal to the target between rollouts.
    pub current: Revision,
    /// Every other revision that a member may have, newest first. One that is missing counts as
    /// [`Difference::Replace`].
    pub older: Vec<Older>,
}

impl Revisions {
    pub fn difference(&self, revision: &Revision) -> Difference {
        if *revision == self.target {
            return Difference::Same;
        }
        self.older(revision)
            .map_or(Difference::Replace, |older| older.difference)
    }

    pub fn retired(&self, revision: &Revision) -> bool {
        self.older(revision).is_some_and(|older| older.retired)
    }

    fn older(&self, revision: &Revision) -> Option<&Older> {
        self.older.iter().find(|older| older.revision == *revision)
    }
}

/// Which revision a claim gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The newest that can be had at once.
    #[default]
    PreferNewest,
    /// The target or nothing.
    RequireNewest,
    /// The oldest acceptable first: least churn, slowest freshness.
    DrainOld,
    /// This one or nothing.
    Pinned(Revision),
}

/// What a pool shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    pub replicas: u32,
    pub revisions: Revisions,
    pub policy: Policy,
}

impl Pool {
    /// Whether a claim without wishes of its own may get this revision.
    pub fn accepts(&self, revision: &Revision) -> bool {
        match &self.policy {
            Policy::PreferNewest | Policy::DrainOld => !self.revisions.retired(revision),
            Policy::RequireNewest => self.revisions.difference(revision) == Difference::Same,
            Policy::Pinned(pinned) => pinned == revision && !self.revisions.retired(revision),
        }
    }
}

/// Who asks for a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub uid: Uid,
    /// Narrows the policy of the pool.
    pub policy: Option<Policy>,
}

#[cfg(test)]
mod tests {
    use super::{Member, Time};
    use std::time::Duration;

    #[test]
    fn a_member_stays_small() {
        assert!(size_of::<Member>() <= 96, "{}", size_of::<Member>());
    }

    #[test]
    fn time_never_runs_backwards() {
        assert_eq!(Time(5).since(Time(9)), Duration::ZERO);
        assert_eq!(Time(5) + Duration::from_secs(1), Time(1005));
    }
}

//! When a sandbox or a claim expires, and what is done then.
//!
//! Expiry takes two passes: the first one marks the object as expired and nothing else, so that whoever watches learns why
//! before anything vanishes; the second one acts. Both are repeated harmlessly. An end that is moved to the future or
//! removed brings a retained sandbox back to life, so nothing here remembers that there once was one. Suspending a sandbox
//! stops no clock: ends are points in time, and only the one that counts from [`Claim::finished_at`] waits for an event.

use std::time::{Duration, SystemTime};

/// What is to be done about the end of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry<Effect> {
    /// Nothing that is known now ends it.
    Never,
    In(Duration),
    Expired(Effect),
}

/// How soon to look again after marking.
pub const AFTER_MARKING: Duration = Duration::from_millis(1);

/// The end of a sandbox is looked for at most this often.
pub const LEAST_WAIT_OF_SANDBOX: Duration = Duration::from_secs(2);

/// What a sandbox says about its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    pub shutdown_time: Option<SystemTime>,
    pub policy: SandboxPolicy,
    /// Its condition already says that it has expired.
    pub is_marked: bool,
}

/// What becomes of a sandbox that has expired; its pod and its service go in any case, its volume claims only with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SandboxPolicy {
    Delete,
    #[default]
    Retain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxEffect {
    /// Say that it has expired and come back [`AFTER_MARKING`].
    Mark,
    /// Delete pod and service, then the sandbox.
    Delete,
    /// Delete pod and service, then clear all status but the conditions.
    Retain,
}

impl Sandbox {
    pub fn expiry(&self, now: SystemTime) -> Expiry<SandboxEffect> {
        until(self.shutdown_time, now, || {
            match (self.is_marked, self.policy) {
                (false, _) => SandboxEffect::Mark,
                (true, SandboxPolicy::Delete) => SandboxEffect::Delete,
                (true, SandboxPolicy::Retain) => SandboxEffect::Retain,
            }
        })
    }
}

/// What a claim says about its end. A claim without a lifecycle has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    pub shutdown_time: Option<SystemTime>,
    /// How long after its sandbox finished; admission refuses negative ones.
    pub ttl_after_finished: Option<Duration>,
    pub policy: ClaimPolicy,
    /// Since when its sandbox is finished, if it is.
    pub finished_at: Option<SystemTime>,
    /// Its condition already says that it has expired.
    pub is_marked: bool,
}

/// What becomes of a claim that has expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClaimPolicy {
    Delete,
    DeleteForeground,
    #[default]
    Retain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimEffect {
    /// Say that it has expired and come back [`AFTER_MARKING`].
    Mark,
    /// Delete the claim; its sandbox follows.
    Delete,
    /// Delete the claim, which stays until its sandbox and the pod are gone.
    DeleteForeground,
    /// Keep the claim and delete the sandbox that it controls.
    DeleteSandbox,
}

impl Claim {
    /// The earlier of the two ends that a claim may have.
    pub fn expires_at(&self) -> Option<SystemTime> {
        let after_finished = self
            .finished_at
            .zip(self.ttl_after_finished)
            .and_then(|(finished, ttl)| finished.checked_add(ttl));
        match (self.shutdown_time, after_finished) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        }
    }

    pub fn expiry(&self, now: SystemTime) -> Expiry<ClaimEffect> {
        until(self.expires_at(), now, || {
            match (self.is_marked, self.policy) {
                (false, _) => ClaimEffect::Mark,
                (true, ClaimPolicy::Delete) => ClaimEffect::Delete,
                (true, ClaimPolicy::DeleteForeground) => ClaimEffect::DeleteForeground,
                (true, ClaimPolicy::Retain) => ClaimEffect::DeleteSandbox,
            }
        })
    }
}

fn until<Effect>(
    end: Option<SystemTime>,
    now: SystemTime,
    effect: impl FnOnce() -> Effect,
) -> Expiry<Effect> {
    match end.map(|end| end.duration_since(now)) {
        None => Expiry::Never,
        Some(Ok(left)) if !left.is_zero() => Expiry::In(left),
        Some(_) => Expiry::Expired(effect()),
    }
}

impl Expiry<SandboxEffect> {
    /// When to look again; nothing if no time will change anything.
    pub fn next_look(self) -> Option<Duration> {
        match self {
            Self::Never | Self::Expired(SandboxEffect::Delete | SandboxEffect::Retain) => None,
            Self::In(left) => Some(left.max(LEAST_WAIT_OF_SANDBOX)),
            Self::Expired(SandboxEffect::Mark) => Some(AFTER_MARKING),
        }
    }
}

impl Expiry<ClaimEffect> {
    /// When to look again; nothing if no time will change anything.
    pub fn next_look(self) -> Option<Duration> {
        match self {
            Self::Never
            | Self::Expired(
                ClaimEffect::Delete | ClaimEffect::DeleteForeground | ClaimEffect::DeleteSandbox,
            ) => None,
            Self::In(left) => Some(left),
            Self::Expired(ClaimEffect::Mark) => Some(AFTER_MARKING),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use proptest::{
        option,
        prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest},
    };

    use super::{
        AFTER_MARKING, Claim, ClaimEffect, ClaimPolicy, Expiry, LEAST_WAIT_OF_SANDBOX, Sandbox,
        SandboxEffect, SandboxPolicy,
    };

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_sandbox_ends_at_its_time_and_not_before() {
        use Expiry::{Expired, In, Never};
        use SandboxPolicy::{Delete, Retain};
        let cases = [
            (None, Delete, false, Never),
            (None, Retain, true, Never),
            (Some(101), Delete, false, In(seconds(1))),
            (Some(101), Retain, true, In(seconds(1))),
            (Some(100), Delete, false, Expired(SandboxEffect::Mark)),
            (Some(99), Retain, false, Expired(SandboxEffect::Mark)),
            (Some(100), Delete, true, Expired(SandboxEffect::Delete)),
            (Some(1), Retain, true, Expired(SandboxEffect::Retain)),
        ];
        for (end, policy, is_marked, expiry) in cases {
            let sandbox = Sandbox {
                shutdown_time: end.map(at),
                policy,
                is_marked,
            };
            assert_eq!(sandbox.expiry(at(100)), expiry, "{sandbox:?}");
        }
    }

    #[test]
    fn a_claim_ends_at_the_earlier_of_its_ends() {
        use Expiry::{Expired, In, Never};
        let cases = [
            (None, None, None, Never),
            (None, None, Some(10), Never),
            (None, Some(5), None, Never),
            (Some(130), Some(5), None, In(seconds(30))),
            (Some(130), Some(5), Some(98), In(seconds(3))),
            (Some(101), Some(50), Some(98), In(seconds(1))),
            (None, Some(0), Some(100), Expired(ClaimEffect::Mark)),
            (Some(130), Some(2), Some(98), Expired(ClaimEffect::Mark)),
            (Some(100), None, None, Expired(ClaimEffect::Mark)),
        ];
        for (end, ttl, finished, expiry) in cases {
            let claim = Claim {
                shutdown_time: end.map(at),
                ttl_after_finished: ttl.map(seconds),
                finished_at: finished.map(at),
                ..Claim::default()
            };
            assert_eq!(claim.expiry(at(100)), expiry, "{claim:?}");
        }
    }

    #[test]
    fn a_marked_claim_does_as_its_policy_says() {
        let cases = [
            (ClaimPolicy::Delete, ClaimEffect::Delete),
            (ClaimPolicy::DeleteForeground, ClaimEffect::DeleteForeground),
            (ClaimPolicy::Retain, ClaimEffect::DeleteSandbox),
        ];
        for (policy, effect) in cases {
            let claim = Claim {
                shutdown_time: Some(at(1)),
                policy,
                is_marked: true,
                ..Claim::default()
            };
            assert_eq!(claim.expiry(at(2)), Expiry::Expired(effect));
            assert_eq!(claim.expiry(at(2)).next_look(), None);
        }
    }

    #[test]
    fn the_next_look_is_not_sooner_than_it_helps() {
        let next = |end: u64, is_marked| {
            let sandbox = Sandbox {
                shutdown_time: Some(at(end)),
                is_marked,
                ..Sandbox::default()
            };
            sandbox.expiry(at(100)).next_look()
        };
        assert_eq!(next(101, false), Some(LEAST_WAIT_OF_SANDBOX));
        assert_eq!(next(160, false), Some(seconds(60)));
        assert_eq!(next(100, false), Some(AFTER_MARKING));
        assert_eq!(next(100, true), None);
        assert_eq!(Sandbox::default().expiry(at(100)).next_look(), None);
    }

    fn claims() -> impl Strategy<Value = Claim> {
        let time = || option::of(0_u64..1000);
        (time(), time(), time(), any::<bool>()).prop_map(|(end, ttl, finished, is_marked)| Claim {
            shutdown_time: end.map(at),
            ttl_after_finished: ttl.map(seconds),
            finished_at: finished.map(at),
            policy: ClaimPolicy::Delete,
            is_marked,
        })
    }

    proptest! {
        #[test]
        fn waiting_as_told_ends_in_expiry(claim in claims(), now in 0_u64..2000) {
            if let Expiry::In(left) = claim.expiry(at(now)) {
                prop_assert!(!left.is_zero());
                prop_assert!(matches!(claim.expiry(at(now) + left), Expiry::Expired(_)));
                let before = at(now) + left - Duration::from_nanos(1);
                prop_assert_eq!(claim.expiry(before), Expiry::In(Duration::from_nanos(1)));
            }
        }

        #[test]
        fn what_has_expired_stays_so(claim in claims(), now in 0_u64..2000, later in 0_u64..1000) {
            if let Expiry::Expired(effect) = claim.expiry(at(now)) {
                prop_assert_eq!(claim.expiry(at(now + later)), Expiry::Expired(effect));
            }
        }
    }
}

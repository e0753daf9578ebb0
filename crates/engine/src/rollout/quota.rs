//! Room that a quota does not give.
//!
//! Taking old members out may be just what makes room, so that a quota stops no rollout that may take any out. It goes on with
//! the surge that there is room for, and says so.

use super::census::{Census, Class};
use super::endings::backoff;
use super::{Settings, Snapshot, count, whole};
use crate::member::{Failure, Time};
use std::fmt;

/// Members beyond the size of the pool that the server refused to make. Lost with the process, which then asks once more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// How often in a row.
    times: u32,
    until: Time,
}

impl Refusals {
    /// One was refused, and the next is asked for later each time.
    pub fn refused(&mut self, now: Time) {
        self.until = now + backoff(self.times);
        self.times = self.times.saturating_add(1);
    }

    /// One was made.
    pub fn granted(&mut self) {
        *self = Self::default();
    }

    /// Until when no more are asked for.
    pub fn until(&self, now: Time) -> Option<Time> {
        Some(self.until).filter(|until| now < *until)
    }
}

/// What a rolling update does without.
pub(super) struct Shortage {
    /// Surge members that there is room for.
    used: u32,
    /// Members that wait for room.
    waiting: u32,
    max_surge: u32,
    max_unavailable: u32,
}

impl Shortage {
    pub(super) fn of(
        snapshot: &Snapshot<'_>,
        settings: &Settings,
        census: &Census<'_>,
    ) -> Option<Self> {
        let rolling = settings.rolling()?;
        let waiting = census.entries.iter();
        let waiting = waiting.filter(|entry| entry.class == Class::Failed(Failure::Quota));
        let waiting = count(waiting.count());
        let is_short = waiting > 0 || snapshot.no_surge_until.is_some();
        let replicas = i64::from(snapshot.pool.replicas);
        let used = whole(census.live - i64::from(waiting) - replicas);
        (is_short && census.old > 0 && !settings.paused).then_some(Self {
            used: used.min(rolling.max_surge),
            waiting,
            max_surge: rolling.max_surge,
            max_unavailable: rolling.max_unavailable,
        })
    }

    /// Whether the rollout goes no further before somebody gives it room.
    pub(super) fn is_the_end(&self) -> bool {
        self.max_unavailable == 0 && self.used == 0
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            used,
            waiting,
            max_surge,
            max_unavailable,
        } = self;
        write!(
            out,
            "a quota leaves room for {used} of {max_surge} surge members, {waiting} wait for room"
        )?;
        match self.is_the_end() {
            true => write!(
                out,
                "; maxUnavailable is 0: raise it, or what the quota gives"
            ),
            false => write!(
                out,
                "; the rollout goes on with maxUnavailable {max_unavailable}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Refusals;
    use crate::member::Time;
    use std::time::Duration;

    #[test]
    fn surge_that_is_refused_is_asked_for_later_each_time_until_it_is_granted() {
        let mut refusals = Refusals::default();
        let mut now = Time(1_000_000);
        assert_eq!(refusals.until(now), None);
        for seconds in [10, 20, 40, 80, 160, 300, 300] {
            refusals.refused(now);
            let until = now + Duration::from_secs(seconds);
            assert_eq!(refusals.until(now), Some(until), "{seconds}");
            now = until;
            assert_eq!(refusals.until(now), None, "{seconds}");
        }
        refusals.granted();
        refusals.refused(now);
        assert_eq!(refusals.until(now), Some(now + Duration::from_secs(10)));
    }
}

//! How fast a pool may make up for what was taken; without limits unless they are asked for.

use std::time::Duration;

use engine::member::Time;

/// The limits on one pool. Lost with the process, which then begins like one that has seen nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Refill {
    last_count: Option<u32>,
    hold_until: Option<Time>,
    bucket: Option<Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    saved: Duration,
    price: Duration,
    at: Time,
}

/// How many members may be created now, and when there may be more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Allowance {
    pub(super) count: u32,
    pub(super) again: Option<Time>,
}

impl Refill {
    /// Each drop of the count begins the delay anew; the first look and a larger pool wait for nothing.
    pub(super) fn allow(
        &mut self,
        now: Time,
        active: u32,
        wanted: u32,
        delay: Duration,
        rate: f64,
    ) -> Allowance {
        let dropped = self.last_count.is_some_and(|last| active < last);
        self.last_count = Some(active);
        if dropped && active < wanted && !delay.is_zero() {
            self.hold_until = Some(now + delay);
        }
        if let Some(until) = self.hold_until.filter(|until| now < *until) {
            let again = Some(until);
            return Allowance { count: 0, again };
        }
        self.hold_until = None;
        if rate <= 0.0 {
            let count = u32::MAX;
            return Allowance { count, again: None };
        }
        // the time that one creation takes is the currency, so that nothing is rounded
        let price = Duration::from_secs_f64(1.0 / rate).max(Duration::from_nanos(1));
        let full = price.max(Duration::from_secs(1));
        let bucket = self.bucket.get_or_insert(Bucket {
            saved: full,
            price,
            at: now,
        });
        bucket.price = price;
        bucket.saved = (bucket.saved + now.since(bucket.at)).min(full);
        bucket.at = now;
        let count = bucket.saved.as_nanos() / price.as_nanos();
        let wait = price.saturating_sub(bucket.saved);
        Allowance {
            count: u32::try_from(count).unwrap_or(u32::MAX),
            again: (count == 0).then(|| now + wait.max(Duration::from_millis(1))),
        }
    }

    /// These were asked for, whatever became of them.
    pub(super) fn spent(&mut self, count: u32) {
        if let Some(bucket) = &mut self.bucket {
            bucket.saved = bucket.saved.saturating_sub(bucket.price * count);
        }
        self.last_count = self.last_count.map(|last| last + count);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::member::Time;

    use super::{Allowance, Refill};

    const DELAY: Duration = Duration::from_secs(10);

    #[test]
    fn without_limits_everything_is_allowed() {
        let mut refill = Refill::default();
        let allowed = refill.allow(Time(0), 0, 9, Duration::ZERO, 0.0);
        assert_eq!((allowed.count, allowed.again), (u32::MAX, None));
    }

    #[test]
    fn a_drop_holds_creations_and_another_drop_holds_them_longer() {
        let mut refill = Refill::default();
        let mut allow = |at, active| refill.allow(Time(at), active, 9, DELAY, 0.0);
        let held = |until| Allowance {
            count: 0,
            again: Some(Time(until)),
        };
        assert_eq!(allow(0, 0).count, u32::MAX);
        assert_eq!(allow(1_000, 9).count, u32::MAX);
        assert_eq!(allow(2_000, 8), held(12_000));
        assert_eq!(allow(3_000, 7), held(13_000));
        assert_eq!(allow(12_999, 7), held(13_000));
        assert_eq!(allow(13_000, 7).count, u32::MAX);
    }

    #[test]
    fn a_rate_gives_so_many_a_second_and_starts_full() {
        let mut refill = Refill::default();
        let mut take = |at, wanted: u32| {
            let allowed = refill.allow(Time(at), 0, 9, Duration::ZERO, 2.0);
            refill.spent(wanted.min(allowed.count));
            (allowed.count, allowed.again)
        };
        assert_eq!(take(0, 9), (2, None));
        assert_eq!(take(0, 9), (0, Some(Time(500))));
        assert_eq!(take(500, 9), (1, None));
        assert_eq!(take(10_000, 9), (2, None));
    }
}

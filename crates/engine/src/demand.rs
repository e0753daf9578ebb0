//! How much a pool is asked for, and how long its members take: measured from events, only ever a hint.
//!
//! Every estimate has a value before the first event, so that a process that has just started decides
//! like one that saw an idle pool.

use crate::member::Time;
use std::time::Duration;

/// The rate forgets what lies further back; long against a start, short against a working day.
const MEMORY: Duration = Duration::from_secs(30);
/// What is left of claims that is as good as forgotten. Without this a single claim would keep a member in reserve
/// for the hours in which its trace fades to nothing.
const FORGOTTEN: f64 = 0.01;
/// A peak is the busiest of the last slots.
const SLOT_MILLIS: u64 = 5_000;
const SLOTS: usize = 12;
/// A pod from a cached image takes 2.5 to 3.5 s; the guess errs to the slow side.
const START: Duration = Duration::from_secs(5);
const IN_PLACE: Duration = Duration::from_secs(3);
/// The share of the newest duration in the mean once there are enough of them.
const SMOOTHING: f64 = 0.1;

/// Something that happened to a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A claim came, whether it found a member or not.
    Claimed,
    /// A member became claimable so long after its creation.
    Started(Duration),
    /// A member became claimable again so long after it was fenced.
    UpdatedInPlace(Duration),
}

/// What the events say at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// λ̂: claims per second, smoothed.
    pub rate: f64,
    /// Claims per second in the busiest slot of the last minute; never below the rate.
    pub peak: f64,
    /// τ̂c: from creation to claimable.
    pub start: Duration,
    /// τ̂i: from the fence to claimable again.
    pub in_place: Duration,
}

impl Default for Demand {
    fn default() -> Self {
        Self {
            rate: 0.0,
            peak: 0.0,
            start: START,
            in_place: IN_PLACE,
        }
    }
}

/// The memory behind [`Demand`]: a few numbers for each pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meter {
    began: Option<Time>,
    /// Each claim adds one, and all of it fades.
    weight: f64,
    faded: Time,
    slots: [u32; SLOTS],
    slot: u64,
    start: Mean,
    in_place: Mean,
}

impl Meter {
    pub fn record(&mut self, event: Event, at: Time) {
        match event {
            Event::Claimed => {
                self.began.get_or_insert(at);
                self.weight = self.weight_at(at) + 1.0;
                self.faded = self.faded.max(at);
                self.turn_to(at.0 / SLOT_MILLIS);
                self.slots[slot_index(self.slot)] += 1;
            }
            Event::Started(took) => self.start.add(took),
            Event::UpdatedInPlace(took) => self.in_place.add(took),
        }
    }

    pub fn demand(&self, now: Time) -> Demand {
        let rate = self.rate(now);
        Demand {
            rate,
            peak: self.peak(now).max(rate),
            start: self.start.value().unwrap_or(START),
            in_place: self.in_place.value().unwrap_or(IN_PLACE),
        }
    }

    /// The first seconds see only a part of what a full memory would hold; the divisor makes up for it.
    fn rate(&self, now: Time) -> f64 {
        let Some(began) = self.began else { return 0.0 };
        let memory = MEMORY.as_secs_f64();
        let age = now.since(began).as_secs_f64().max(1.0);
        self.weight_at(now) / (memory * (1.0 - (-age / memory).exp()))
    }

    fn weight_at(&self, at: Time) -> f64 {
        let memories = at.since(self.faded).as_secs_f64() / MEMORY.as_secs_f64();
        let left = self.weight * (-memories).exp();
        if left < FORGOTTEN { 0.0 } else { left }
    }

    fn peak(&self, now: Time) -> f64 {
        let mut seen = self.clone();
        seen.turn_to(now.0 / SLOT_MILLIS);
        let busiest = seen.slots.iter().copied().max().unwrap_or(0);
        f64::from(busiest) * 1000.0 / SLOT_MILLIS as f64
    }

    /// Empties the slots between the last one written and the one that begins.
    fn turn_to(&mut self, slot: u64) {
        let passed = slot.saturating_sub(self.slot).min(SLOTS as u64);
        for step in 0..passed {
            self.slots[slot_index(slot - step)] = 0;
        }
        self.slot = self.slot.max(slot);
    }
}

fn slot_index(slot: u64) -> usize {
    usize::try_from(slot % SLOTS as u64).unwrap_or(0)
}

/// A mean of durations in which the newest weigh most.
#[derive(Clone, Debug, Default, PartialEq)]
struct Mean {
    seconds: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, took: Duration) {
        self.count = self.count.saturating_add(1);
        let share = SMOOTHING.max(1.0 / f64::from(self.count));
        self.seconds += share * (took.as_secs_f64() - self.seconds);
    }

    fn value(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_secs_f64(self.seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::{Demand, Event, Meter};
    use crate::member::Time;
    use std::time::Duration;

    fn steady(per_second: u64, seconds: u64) -> Meter {
        let mut meter = Meter::default();
        for claim in 0..per_second * seconds {
            meter.record(Event::Claimed, Time(1_000_000 + claim * 1000 / per_second));
        }
        meter
    }

    #[test]
    fn a_pool_without_events_has_no_demand() {
        assert_eq!(Meter::default().demand(Time(7)), Demand::default());
    }

    #[test]
    fn a_steady_rate_is_seen_early_and_stays() {
        for seconds in [5, 30, 300] {
            let rate = steady(10, seconds)
                .demand(Time(1_000_000 + seconds * 1000))
                .rate;
            assert!((9.0..11.0).contains(&rate), "{rate} after {seconds} s");
        }
    }

    #[test]
    fn demand_fades_when_nobody_asks() {
        let demand = steady(10, 60).demand(Time(1_000_000 + 60_000 + 300_000));
        assert!(demand.rate < 0.01 && demand.peak < 0.01, "{demand:?}");
    }

    #[test]
    fn a_single_claim_is_no_demand_any_more_after_a_few_minutes() {
        let mut meter = Meter::default();
        meter.record(Event::Claimed, Time(1_000_000));
        assert!(meter.demand(Time(1_030_000)).rate > 0.0);
        assert_eq!(meter.demand(Time(1_180_000)), Demand::default());
    }

    #[test]
    fn a_burst_stays_in_the_peak_for_a_minute() {
        let mut meter = steady(1, 60);
        for _ in 0..100 {
            meter.record(Event::Claimed, Time(1_060_000));
        }
        assert!(meter.demand(Time(1_100_000)).peak >= 20.0);
        assert!(meter.demand(Time(1_130_000)).peak < 5.0);
    }

    #[test]
    fn durations_follow_the_newest() {
        let mut meter = Meter::default();
        meter.record(Event::Started(Duration::from_secs(2)), Time(0));
        assert_eq!(meter.demand(Time(0)).start, Duration::from_secs(2));
        for _ in 0..100 {
            meter.record(Event::Started(Duration::from_secs(8)), Time(0));
            meter.record(Event::UpdatedInPlace(Duration::from_secs(1)), Time(0));
        }
        let demand = meter.demand(Time(0));
        assert!(demand.start > Duration::from_millis(7_900), "{demand:?}");
        assert_eq!(demand.in_place.as_secs_f64().round(), 1.0);
    }
}

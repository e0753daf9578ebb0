//! When claims arrive.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Even,
    /// Arrivals that know nothing of each other.
    Random,
}

/// The same numbers in every run, so that two controllers see the same load.
const SEED: u64 = 1;

/// The times between arrivals.
pub(crate) struct Arrivals {
    state: u64,
    rate: f64,
    pace: Pace,
}

impl Arrivals {
    /// `rate` a second.
    pub(crate) fn new(rate: f64, pace: Pace) -> Self {
        Self {
            state: SEED,
            rate,
            pace,
        }
    }

    fn next_number(&mut self) -> u64 {
        // splitmix64
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    /// The time to the next arrival.
    fn next(&mut self) -> Option<Duration> {
        if self.pace == Pace::Even {
            return Some(Duration::from_secs_f64(1.0 / self.rate));
        }
        // 53 bits are what a float holds; one more, so that it is never zero
        let unit = ((self.next_number() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        Some(Duration::from_secs_f64(-unit.ln() / self.rate))
    }
}

#[cfg(test)]
mod tests {
    use super::{Arrivals, Pace};
    use std::time::Duration;

    #[test]
    fn gaps_are_exponential_with_the_mean_of_the_rate() {
        let gaps: Vec<Duration> = Arrivals::new(20.0, Pace::Random).take(20_000).collect();
        let mean = gaps.iter().sum::<Duration>().as_secs_f64() / 20_000.0;
        assert!((mean - 0.05).abs() < 0.002, "{mean}");
        let long = gaps.iter().filter(|gap| gap.as_secs_f64() > 0.05).count();
        let share = long as f64 / 20_000.0;
        assert!((share - (-1.0_f64).exp()).abs() < 0.02, "{share}");
    }

    #[test]
    fn every_run_has_the_same_load() {
        let load = |pace| Arrivals::new(5.0, pace).take(10).collect::<Vec<_>>();
        assert_eq!(load(Pace::Random), load(Pace::Random));
        assert_eq!(load(Pace::Even), [Duration::from_millis(200); 10]);
    }
}

//! Times of the same thing, and words about what takes a while.

use std::time::Duration;

pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Says what takes a while.
pub fn progress(what: &str) {
    eprintln!("… {what}");
}

/// Times of the same thing, in order.
pub struct Times(Vec<Duration>);

impl Times {
    pub fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    pub fn percentile(&self, percent: usize) -> Duration {
        let last = self.0.len().saturating_sub(1);
        let at = (self.0.len() * percent / 100).min(last);
        self.0.get(at).copied().unwrap_or_default()
    }

    pub fn median(&self) -> Duration {
        self.percentile(50)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Duration> for Times {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        Self::new(times.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::Times;
    use std::time::Duration;

    #[test]
    fn a_percentile_is_a_time_that_was_measured() {
        let times: Times = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(times.median(), Duration::from_millis(101));
        assert_eq!(times.percentile(99), Duration::from_millis(199));
        assert_eq!(times.percentile(100), Duration::from_millis(200));
    }

    #[test]
    fn few_times_have_percentiles_too() {
        let one: Times = [Duration::from_millis(7)].into_iter().collect();
        assert_eq!(one.percentile(99), Duration::from_millis(7));
        let none: Times = std::iter::empty().collect();
        assert_eq!(none.percentile(99), Duration::ZERO);
    }
}

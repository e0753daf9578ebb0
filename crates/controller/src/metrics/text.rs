//! Counters, gauges and histograms, and the text in which Prometheus reads them.
//!
//! The text is of version 0.0.4, in which a family has the name of its samples: what reads the metrics of other controllers
//! reads these. Newer formats call counters otherwise.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A number that grows.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }
}

#[derive(Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    pub(crate) fn set(&self, value: usize) {
        self.0.store(value as u64, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many values are how large.
pub(crate) struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one for what is beyond them.
    counts: Box<[AtomicU64]>,
    sum: Mutex<f64>,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: Mutex::default(),
        }
    }

    pub(crate) fn observe(&self, value: f64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        *self.sum.lock().unwrap_or_else(PoisonError::into_inner) += value;
        self.counts[place].fetch_add(1, Ordering::Relaxed);
    }
}

/// One line or several, all with the same labels.
pub(crate) trait Series {
    const KIND: &'static str;
    fn write(&self, to: &mut Text, name: &str, labels: &Labels<'_>);
}

impl Series for Counter {
    const KIND: &'static str = "counter";

    fn write(&self, to: &mut Text, name: &str, labels: &Labels<'_>) {
        to.sample(name, labels, None, self.0.load(Ordering::Relaxed));
    }
}

impl Series for Gauge {
    const KIND: &'static str = "gauge";

    fn write(&self, to: &mut Text, name: &str, labels: &Labels<'_>) {
        to.sample(name, labels, None, self.get());
    }
}

impl Series for Histogram {
    const KIND: &'static str = "histogram";

    fn write(&self, to: &mut Text, name: &str, labels: &Labels<'_>) {
        let (bucket, mut all) = (format!("{name}_bucket"), 0);
        let sum = *self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        let bounds = self.bounds.iter().map(f64::to_string);
        let bounds = bounds.chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&self.counts) {
            all += count.load(Ordering::Relaxed);
            to.sample(&bucket, labels, Some(("le", &bound)), all);
        }
        to.sample(&format!("{name}_sum"), labels, None, sum);
        to.sample(&format!("{name}_count"), labels, None, all);
    }
}

type Labels<'a> = [(&'static str, &'a str)];

/// All series of one name.
pub(crate) struct Family<S, const N: usize> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; N],
    make: fn() -> S,
    series: Mutex<BTreeMap<[Box<str>; N], Arc<S>>>,
}

impl<S: Series, const N: usize> Family<S, N> {
    fn made_by(
        make: fn() -> S,
        name: &'static str,
        labels: [&'static str; N],
        help: &'static str,
    ) -> Self {
        Self {
            name,
            help,
            labels,
            make,
            series: Mutex::default(),
        }
    }

    pub(crate) fn with(&self, values: [&str; N]) -> Arc<S> {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let one = series.entry(values.map(Box::from));
        Arc::clone(one.or_insert_with(|| Arc::new((self.make)())))
    }

    pub(crate) fn write(&self, to: &mut Text) {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        if series.is_empty() {
            return;
        }
        to.head(self.name, self.help, S::KIND);
        for (values, one) in &*series {
            let mut labels = self.labels.map(|label| (label, ""));
            for ((_, value), text) in labels.iter_mut().zip(values) {
                *value = text;
            }
            one.write(to, self.name, &labels);
        }
    }
}

impl<S: Series + Default, const N: usize> Family<S, N> {
    pub(crate) fn new(name: &'static str, labels: [&'static str; N], help: &'static str) -> Self {
        Self::made_by(S::default, name, labels, help)
    }
}

/// What values a histogram tells apart.
pub(crate) trait Bounds {
    const BOUNDS: &'static [f64];
}

impl<const N: usize> Family<Histogram, N> {
    pub(crate) fn of<B: Bounds>(
        name: &'static str,
        labels: [&'static str; N],
        help: &'static str,
    ) -> Self {
        Self::made_by(|| Histogram::new(B::BOUNDS), name, labels, help)
    }
}

/// A page of metrics.
#[derive(Default)]
pub(crate) struct Text(String);

impl Text {
    pub(crate) fn into_string(self) -> String {
        self.0
    }

    pub(crate) fn head(&mut self, name: &str, help: &str, kind: &str) {
        // writing into memory does not fail
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    pub(crate) fn sample(
        &mut self,
        name: &str,
        labels: &Labels<'_>,
        more: Option<(&'static str, &str)>,
        value: impl std::fmt::Display,
    ) {
        self.0.push_str(name);
        for (index, (label, value)) in labels.iter().copied().chain(more).enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let value = value.replace('\\', r"\\").replace('\n', r"\n");
            let value = value.replace('"', "\\\"");
            let _ = write!(self.0, "{before}{label}=\"{value}\"");
        }
        let end = if labels.is_empty() && more.is_none() {
            ""
        } else {
            "}"
        };
        let _ = writeln!(self.0, "{end} {value}");
    }

    /// A family of one sample without labels.
    pub(crate) fn single(
        &mut self,
        name: &str,
        help: &str,
        kind: &str,
        value: impl std::fmt::Display,
    ) {
        self.head(name, help, kind);
        self.sample(name, &[], None, value);
    }
}

#[cfg(test)]
mod tests {
    use super::{Bounds, Counter, Family, Gauge, Histogram, Text};

    struct Tens;

    impl Bounds for Tens {
        const BOUNDS: &'static [f64] = &[0.5, 10.0];
    }

    fn page(write: impl Fn(&mut Text)) -> String {
        let mut text = Text::default();
        write(&mut text);
        text.into_string()
    }

    #[test]
    fn a_family_without_series_is_not_told() {
        let family: Family<Counter, 1> = Family::new("a_total", ["x"], "As.");
        assert_eq!(page(|text| family.write(text)), "");
        family.with(["one \"two\"\n\\"]).add(3);
        assert_eq!(
            page(|text| family.write(text)),
            "# HELP a_total As.\n# TYPE a_total counter\na_total{x=\"one \\\"two\\\"\\n\\\\\"} 3\n"
        );
    }

    #[test]
    fn a_series_is_one_however_often_it_is_asked_for() {
        let family: Family<Gauge, 0> = Family::new("depth", [], "How deep.");
        family.with([]).set(4);
        family.with([]).set(2);
        assert!(page(|text| family.write(text)).ends_with("gauge\ndepth 2\n"));
    }

    #[test]
    fn buckets_hold_all_that_is_not_larger() {
        let family: Family<Histogram, 1> = Family::of::<Tens>("took", ["x"], "How long.");
        let one = family.with(["y"]);
        for value in [0.1, 0.5, 7.25, 10.5] {
            one.observe(value);
        }
        let expected = "took_bucket{x=\"y\",le=\"0.5\"} 2\n\
                        took_bucket{x=\"y\",le=\"10\"} 3\n\
                        took_bucket{x=\"y\",le=\"+Inf\"} 4\n\
                        took_sum{x=\"y\"} 18.35\n\
                        took_count{x=\"y\"} 4\n";
        assert!(page(|text| family.write(text)).ends_with(expected));
    }
}

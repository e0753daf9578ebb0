//! The table that is printed, row by row as the figures come.

use std::time::Duration;

use bench::times::{Times, millis};

pub(crate) struct Table {
    has_rival: bool,
}

/// What a figure should be at most.
pub(crate) struct Bound {
    /// Which of the figures of a row is meant, if there are several.
    pub(crate) of: &'static str,
    pub(crate) value: f64,
    pub(crate) most: f64,
    pub(crate) unit: &'static str,
}

impl Table {
    pub(crate) fn begin(has_rival: bool) -> Self {
        if has_rival {
            println!("| what | sandbar | kubelet | target | |");
            println!("|---|---|---|---|---|");
        } else {
            println!("| what | measured | target | |");
            println!("|---|---|---|---|");
        }
        Self { has_rival }
    }

    pub(crate) fn row(&self, what: &str, measured: &str, bound: Option<Bound>) {
        self.row_beside(what, measured, "", bound);
    }

    /// A row that says what the rival needs for the same.
    pub(crate) fn row_beside(&self, what: &str, ours: &str, rival: &str, bound: Option<Bound>) {
        let (target, verdict) = match bound {
            None => (String::new(), ""),
            Some(Bound {
                of,
                value,
                most,
                unit,
            }) => (
                format!("{of} ≤ {most} {unit}").trim_start().to_owned(),
                if value <= most { "ok" } else { "MISSED" },
            ),
        };
        if self.has_rival {
            println!("| {what} | {ours} | {rival} | {target} | {verdict} |");
        } else {
            println!("| {what} | {ours} | {target} | {verdict} |");
        }
    }
}

/// Median and the slowest but one in a hundred.
pub(crate) fn middle_and_last(times: &Times) -> String {
    show(times.median(), times.percentile(99))
}

pub(crate) fn middle_and_worst(times: &Times) -> String {
    show(times.median(), times.percentile(100))
}

fn show(one: Duration, other: Duration) -> String {
    let digits = |time: Duration| if millis(time) < 100.0 { 1 } else { 0 };
    let (first, second) = (digits(one), digits(other));
    format!("{:.first$} / {:.second$} ms", millis(one), millis(other))
}

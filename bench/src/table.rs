//! The table that is printed, row by row as the figures come.

use std::time::Duration;

use crate::times::{Times, millis};

pub struct Table {
    has_rival: bool,
}

/// What a figure should be.
pub struct Bound {
    /// Which of the figures of a row is meant, if there are several.
    pub of: &'static str,
    pub value: f64,
    pub limit: Limit,
    pub unit: &'static str,
}

pub enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Table {
    /// `rival` is what the other side is called, if there is one.
    pub fn begin(rival: Option<&str>) -> Self {
        if let Some(rival) = rival {
            println!("| what | sandbar | {rival} | target | |");
            println!("|---|---|---|---|---|");
        } else {
            println!("| what | measured | target | |");
            println!("|---|---|---|---|");
        }
        let has_rival = rival.is_some();
        Self { has_rival }
    }

    pub fn row(&self, what: &str, measured: &str, bound: Option<Bound>) {
        self.row_beside(what, measured, "", bound);
    }

    /// A row that says what the rival needs for the same.
    pub fn row_beside(&self, what: &str, ours: &str, rival: &str, bound: Option<Bound>) {
        let (target, verdict) = match bound {
            None => (String::new(), ""),
            Some(bound) => (bound.target(), bound.verdict()),
        };
        if self.has_rival {
            println!("| {what} | {ours} | {rival} | {target} | {verdict} |");
        } else {
            println!("| {what} | {ours} | {target} | {verdict} |");
        }
    }
}

impl Bound {
    fn target(&self) -> String {
        let (sign, limit) = match self.limit {
            Limit::AtMost(limit) => ("≤", limit),
            Limit::AtLeast(limit) => ("≥", limit),
        };
        let target = format!("{} {sign} {limit} {}", self.of, self.unit);
        target.trim_start().to_owned()
    }

    fn verdict(&self) -> &'static str {
        let is_met = match self.limit {
            Limit::AtMost(limit) => self.value <= limit,
            Limit::AtLeast(limit) => self.value >= limit,
        };
        if is_met { "ok" } else { "MISSED" }
    }
}

/// Median and the slowest but one in a hundred.
pub fn middle_and_last(times: &Times) -> String {
    show(times.median(), times.percentile(99))
}

pub fn middle_and_worst(times: &Times) -> String {
    show(times.median(), times.percentile(100))
}

fn show(one: Duration, other: Duration) -> String {
    let digits = |time: Duration| if millis(time) < 100.0 { 1 } else { 0 };
    let (first, second) = (digits(one), digits(other));
    format!("{:.first$} / {:.second$} ms", millis(one), millis(other))
}

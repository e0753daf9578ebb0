//! The table that is printed, row by row as the figures come.

/// What a figure should be.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    None,
    AtMost(f64),
    AtLeast(f64),
}

pub(crate) struct Table;

impl Table {
    pub(crate) fn begin() -> Self {
        println!("| what | measured | target | |");
        println!("|---|---|---|---|");
        Self
    }

    pub(crate) fn row(&mut self, what: &str, value: f64, unit: Unit, target: Target) {
        let (wanted, verdict) = match target {
            Target::None => (String::new(), ""),
            Target::AtMost(most) => (
                format!("≤ {}", unit.show(most)),
                if value <= most { "ok" } else { "missed" },
            ),
            Target::AtLeast(least) => (
                format!("≥ {}", unit.show(least)),
                if value >= least { "ok" } else { "missed" },
            ),
        };
        println!("| {what} | {} | {wanted} | {verdict} |", unit.show(value));
    }

    pub(crate) fn note(&mut self, what: &str, said: &str) {
        println!("| {what} | {said} | | |");
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Unit {
    Micros,
    Millis,
    PerSecond,
    MiB,
}

impl Unit {
    fn show(self, value: f64) -> String {
        let digits = match value {
            v if v >= 100.0 => 0,
            v if v >= 10.0 => 1,
            _ => 2,
        };
        match self {
            Self::Micros => format!("{value:.0} µs"),
            Self::Millis if value.fract() == 0.0 => format!("{value:.0} ms"),
            Self::Millis => format!("{value:.digits$} ms"),
            Self::PerSecond => format!("{value:.0}"),
            Self::MiB => format!("{value:.0} MiB"),
        }
    }
}

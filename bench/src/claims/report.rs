//! The figures: a table for people and a file for programs.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use crate::Schemas;

/// What a figure should be.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    None,
    AtMost(f64),
    AtLeast(f64),
    Below(f64),
}

impl Target {
    fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::None => None,
            Self::AtMost(most) => Some(value <= most),
            Self::AtLeast(least) => Some(value >= least),
            Self::Below(limit) => Some(value < limit),
        }
    }

    fn show(self, unit: Unit) -> String {
        match self {
            Self::None => String::new(),
            // nothing but zero is meant
            Self::AtMost(0.0) => unit.show(0.0),
            Self::AtMost(most) => format!("≤ {}", unit.show(most)),
            Self::AtLeast(least) => format!("≥ {}", unit.show(least)),
            Self::Below(limit) => format!("< {}", unit.show(limit)),
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Unit {
    Number,
    Millis,
    Seconds,
    MiB,
    Percent,
}

impl Unit {
    fn show(self, value: f64) -> String {
        let number = match value {
            v if v.fract() == 0.0 || v >= 1000.0 => format!("{v:.0}"),
            v if v >= 100.0 => format!("{v:.0}"),
            v if v >= 10.0 => format!("{v:.1}"),
            v => format!("{v:.2}"),
        };
        match self {
            Self::Number => number,
            Self::Millis => format!("{number} ms"),
            Self::Seconds => format!("{number} s"),
            Self::MiB => format!("{number} MiB"),
            Self::Percent => format!("{number} %"),
        }
    }
}

/// One row's figures of one controller.
pub(crate) struct Figure {
    what: String,
    reference: &'static str,
    shown: Vec<String>,
    targets: Vec<String>,
    verdict: Option<bool>,
    values: Map<String, Value>,
}

impl Figure {
    /// `reference` is what the issue that asked for the figure says of the reference controller.
    pub(crate) fn new(what: impl Into<String>, reference: &'static str) -> Self {
        Self {
            what: what.into(),
            reference,
            shown: Vec::new(),
            targets: Vec::new(),
            verdict: None,
            values: Map::new(),
        }
    }

    pub(crate) fn part(mut self, key: &str, value: f64, unit: Unit, target: Target) -> Self {
        self.values.insert(key.to_owned(), json!(value));
        self.shown.push(unit.show(value));
        self.targets.push(target.show(unit));
        self.judge(target.is_met(value));
        self
    }

    /// Something that has no number.
    pub(crate) fn word(mut self, key: &str, word: &str, is_met: Option<bool>) -> Self {
        self.values.insert(key.to_owned(), json!(word));
        self.shown.push(word.to_owned());
        self.targets.push(String::new());
        self.judge(is_met);
        self
    }

    /// For programs only.
    pub(crate) fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.values.insert(key.to_owned(), value.into());
        self
    }

    fn judge(&mut self, is_met: Option<bool>) {
        self.verdict = match (self.verdict, is_met) {
            (Some(before), Some(now)) => Some(before && now),
            (before, now) => now.or(before),
        };
    }

    fn target(&self) -> String {
        let first = self.targets.first().cloned().unwrap_or_default();
        // the same for all parts is said once
        if self.targets.iter().all(|target| *target == first) {
            return first;
        }
        let dash = |target: &String| match target.as_str() {
            "" => "–".to_owned(),
            said => said.to_owned(),
        };
        let targets: Vec<String> = self.targets.iter().map(dash).collect();
        targets.join(" / ")
    }

    fn verdict(&self) -> &'static str {
        match self.verdict {
            Some(true) => "ok",
            Some(false) => "**missed**",
            None => "",
        }
    }

    fn cells(&self) -> String {
        let shown = self.shown.join(" / ");
        format!(" {shown} | {} | {} |", self.target(), self.verdict())
    }
}

/// The figures of one controller.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) command: String,
    pub(crate) schemas: Schemas,
    figures: Vec<Figure>,
}

impl Column {
    pub(crate) fn new(name: &'static str, command: &str, schemas: Schemas) -> Self {
        Self {
            name,
            command: command.to_owned(),
            schemas,
            figures: Vec::new(),
        }
    }

    /// Says it at once as well: a later failure must not lose it.
    pub(crate) fn add(&mut self, figure: Figure) {
        eprintln!("  {} |{}", figure.what, figure.cells());
        self.figures.push(figure);
    }
}

pub(crate) fn table(columns: &[Column]) -> String {
    let mut text = "| what | reference |".to_owned();
    for column in columns {
        // writing to a string does not fail
        let _ = write!(
            text,
            " {}, {} | target | |",
            column.name,
            column.schemas.name()
        );
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---|---|---|".repeat(columns.len()));
    let mut rows: Vec<(&str, &str)> = Vec::new();
    for figure in columns.iter().flat_map(|column| &column.figures) {
        if !rows.iter().any(|(what, _)| *what == figure.what) {
            rows.push((&figure.what, figure.reference));
        }
    }
    for (what, reference) in rows {
        let _ = write!(text, "\n| {what} | {reference} |");
        for column in columns {
            let found = column.figures.iter().find(|figure| figure.what == what);
            text.push_str(&found.map_or_else(|| " | | |".to_owned(), Figure::cells));
        }
    }
    text
}

pub(crate) fn save(columns: &[Column], path: &Path) -> Result<()> {
    let columns = columns.iter().map(|column| {
        let figures = column.figures.iter().map(|figure| {
            json!({
                "what": figure.what,
                "reference": figure.reference,
                "target": figure.target(),
                "met": figure.verdict,
                "values": figure.values,
            })
        });
        json!({
            "name": column.name,
            "command": column.command,
            "schemas": column.schemas.name(),
            "figures": figures.collect::<Vec<_>>(),
        })
    });
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let report = json!({"cores": cores, "controllers": columns.collect::<Vec<_>>()});
    let text = serde_json::to_string_pretty(&report)?;
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{Column, Figure, Target, Unit, table};
    use crate::Schemas;

    #[test]
    fn columns_share_rows_and_each_is_judged_by_its_own_target() {
        let mut columns = [
            Column::new("default flags", "a", Schemas::Full),
            Column::new("lean", "b", Schemas::Lean),
        ];
        columns[0].add(
            Figure::new("p50 / p99", "67 / 130 ms")
                .part("p50", 18.25, Unit::Millis, Target::AtMost(20.0))
                .part("p99", 50.0, Unit::Millis, Target::AtMost(45.0)),
        );
        columns[1].add(
            Figure::new("p50 / p99", "67 / 130 ms")
                .part("p50", 18.0, Unit::Millis, Target::AtMost(18.0))
                .part("p99", 39.0, Unit::Millis, Target::AtMost(40.0)),
        );
        columns[1].add(Figure::new("cold", "").part(
            "cold",
            0.0,
            Unit::Number,
            Target::AtMost(0.0),
        ));
        let lines = [
            "| what | reference | default flags, full schemas | target | | lean, lean schemas | target | |",
            "|---|---|---|---|---|---|---|---|",
            "| p50 / p99 | 67 / 130 ms | 18.2 ms / 50 ms | ≤ 20 ms / ≤ 45 ms | **missed** | 18 ms / 39 ms | ≤ 18 ms / ≤ 40 ms | ok |",
            "| cold |  | | | | 0 | 0 | ok |",
        ];
        assert_eq!(table(&columns), lines.join("\n"));
    }

    #[test]
    fn a_target_of_all_parts_is_said_once() {
        let most = Target::AtMost(9.0);
        let figure = Figure::new("writes", "")
            .part("a", 8.5, Unit::Number, most)
            .part("b", 9.5, Unit::Number, most);
        assert_eq!(figure.target(), "≤ 9");
        let figure = figure.part("c", 1.0, Unit::Number, Target::None);
        assert_eq!(figure.target(), "≤ 9 / ≤ 9 / –");
        assert_eq!(figure.verdict(), "**missed**");
    }
}

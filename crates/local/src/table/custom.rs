//! The columns that a CRD defines.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::Definition;
use super::cells::{INVALID, UNKNOWN, age, elapsed, go_number, name, time};
use crate::server::resource::Column;

/// What a kind without columns shows beside the name.
pub(super) const AGE: Definition = Definition::AGE.of_type("date");

pub(super) fn definition(column: &Column) -> Value {
    let description = match column.description.as_str() {
        "" => format!(
            "Custom resource definition column (in JSONPath format): {}",
            column.path.text()
        ),
        description => description.to_owned(),
    };
    json!({
        "name": column.name,
        "type": column.column_type,
        "format": column.format,
        "description": description,
        "priority": column.priority,
    })
}

pub(super) fn cells(columns: &[Column], object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = Vec::with_capacity(columns.len().max(1) + 1);
    cells.push(name(object).into());
    if columns.is_empty() {
        cells.push(age(object, now).into());
    }
    cells.extend(columns.iter().map(|column| {
        let found = column.path.first(object);
        found.map_or(Value::Null, |value| cell(&column.column_type, value, now))
    }));
    cells
}

/// A value in the type of its column, null where it is of another.
fn cell(column_type: &str, value: &Value, now: Timestamp) -> Value {
    match (column_type, value) {
        ("string", value) => printed(value).into(),
        ("integer", Value::Number(number)) => number
            .as_i64()
            .or_else(|| number.as_f64().and_then(truncated))
            .into(),
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => shown_date(text, now).into(),
        _ => Value::Null,
    }
}

fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => go_number(number),
        Value::String(text) => text.clone(),
        Value::Array(_) | Value::Object(_) => html_safe(&value.to_string()),
    }
}

/// Go writes JSON so that it may stand in HTML. These characters occur in texts only.
fn html_safe(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' => safe.push_str("\\u003c"),
            '>' => safe.push_str("\\u003e"),
            '&' => safe.push_str("\\u0026"),
            '\u{2028}' => safe.push_str("\\u2028"),
            '\u{2029}' => safe.push_str("\\u2029"),
            other => safe.push(other),
        }
    }
    safe
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a column of integers shows the whole part, and bounds are checked"
)]
fn truncated(float: f64) -> Option<i64> {
    let whole = float.trunc();
    (whole.abs() < 9.2e18).then_some(whole as i64)
}

fn shown_date(text: &str, now: Timestamp) -> String {
    match (text, time(text)) {
        (_, Some(time)) => elapsed(time, now),
        ("" | "null" | "0001-01-01T00:00:00Z", None) => UNKNOWN.to_owned(),
        (_, None) => INVALID.to_owned(),
    }
}

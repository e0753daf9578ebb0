//! Steps from a value to one of its parts.

use std::{cmp::Ordering, fmt};

use serde_json::{Number, Value};
use thiserror::Error;

use crate::patch::go;

/// One step down: into a field of a map, or to an element of a list. The order of the variants is
/// the order in which the server lists them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement {
    Field(String),
    /// The element with these values in its key fields, sorted by field.
    Key(Vec<(String, Item)>),
    /// The element of a set.
    Value(Item),
    Index(i64),
}

/// A value with an order: numbers, then strings, booleans, lists, maps, null. An integer equals the
/// float of the same size.
#[derive(Clone, Debug)]
pub struct Item(pub Value);

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("managed fields hold {0:?}, which is not a path element")]
pub struct BadPathElement(pub String);

impl PathElement {
    /// Reads a key of FieldsV1. `None` for a kind of element that a later version may have added.
    pub fn parse(text: &str) -> Result<Option<Self>, BadPathElement> {
        let bad = || BadPathElement(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(bad)?;
        Ok(Some(match kind {
            "f" => Self::Field(rest.to_owned()),
            "v" => Self::Value(Item(serde_json::from_str(rest).map_err(|_| bad())?)),
            "k" => match serde_json::from_str(rest) {
                Ok(Value::Object(fields)) => Self::key(fields),
                _ => return Err(bad()),
            },
            "i" => Self::Index(rest.parse().map_err(|_| bad())?),
            kind if kind.len() == 1 => return Ok(None),
            _ => return Err(bad()),
        }))
    }

    /// The element of a keyed list whose key fields have these values.
    pub fn key(fields: impl IntoIterator<Item = (String, Value)>) -> Self {
        let mut fields: Vec<_> = fields
            .into_iter()
            .map(|(name, value)| (name, Item(value)))
            .collect();
        fields.sort_by(|one, other| one.0.cmp(&other.0));
        Self::Key(fields)
    }

    /// The element as a key of FieldsV1.
    pub fn encode(&self) -> String {
        match self {
            Self::Field(name) => ["f:", name].concat(),
            Self::Key(fields) => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), value.0))
                    .collect();
                format!(
                    "k:{}",
                    go::escape_html(&format!("{{{}}}", fields.join(",")))
                )
            }
            Self::Value(value) => format!("v:{}", go::escape_html(&value.0.to_string())),
            Self::Index(index) => format!("i:{index}"),
        }
    }
}

/// As it stands in the words about a conflict: `.spec.ports[port=80,protocol="TCP"]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::String(text) => f.write_str(&go::quote(text)),
            other => other.fmt(f),
        }
    }
}

impl Item {
    fn rank(&self) -> u8 {
        match &self.0 {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }
}

impl Ord for Item {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Value::Number(one), Value::Number(other)) => compare_numbers(one, other),
            (Value::String(one), Value::String(other)) => one.cmp(other),
            (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
            (Value::Array(_) | Value::Object(_), Value::Array(_) | Value::Object(_)) => {
                // never keys, so any total order will do
                (self.rank(), self.0.to_string()).cmp(&(other.rank(), other.0.to_string()))
            }
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Item {}

fn compare_numbers(one: &Number, other: &Number) -> Ordering {
    match (one.as_i64(), other.as_i64()) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => {
            let float = |number: &Number| number.as_f64().unwrap_or_default();
            float(one).total_cmp(&float(other))
        }
    }
}

/// Whether two values are the same; numbers by their size.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => compare_numbers(one, other).is_eq(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            // both are sorted by name
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| one.0 == other.0 && same(one.1, other.1))
        }
        _ => one == other,
    }
}

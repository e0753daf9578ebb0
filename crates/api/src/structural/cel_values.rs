//! JSON as the values of CEL, by its schema.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use kube_cel::cel::{
    Value as Cel,
    objects::{Key, Map as CelMap},
};
use serde_json::{Map, Value};

use super::{
    correlate::old_item,
    formats,
    golang::{self, Num},
    node::{Additional, ListType, Node, Type},
};

/// How much of a field an expression needs.
pub(super) enum Need {
    Nothing,
    /// That it is there; its value is the same in `self` and `oldSelf`, and that is all that is asked of it.
    Presence,
    Value,
}

/// The value of `self` or `oldSelf`: of an object, only the fields that are needed, each of which is asked for by the
/// name that rules have for it, its own name, and its value. Sets and keyed lists take the order they have in `beside`:
/// they are equal in any order.
pub(super) fn of(
    node: &Node,
    root: bool,
    value: &Value,
    beside: Option<&Value>,
    need: impl Fn(&str, &str, &Value) -> Need,
) -> Cel {
    match value {
        Value::Object(fields) if root || node.embedded || !node.properties.is_empty() => {
            members(node, root, fields, beside, need)
        }
        other => convert(node, other, beside),
    }
}

/// The declared fields of an object, and those that every resource has.
fn members(
    node: &Node,
    root: bool,
    fields: &Map<String, Value>,
    beside: Option<&Value>,
    need: impl Fn(&str, &str, &Value) -> Need,
) -> Cel {
    let mut map = HashMap::new();
    let resource = root || node.embedded;
    for (name, value) in fields {
        let Some(escaped) = escape(name) else {
            continue;
        };
        let need = need(&escaped, name, value);
        if matches!(need, Need::Nothing) {
            continue;
        }
        let beside = beside.and_then(|beside| beside.get(name));
        let value = match (name.as_str(), node.properties.get(name)) {
            (_, Some(_)) if matches!(need, Need::Presence) => Cel::Bool(true),
            ("metadata", None) if resource => names_of(value),
            ("apiVersion" | "kind", None) if resource => plain(value),
            (_, Some(property)) => convert(property, value, beside),
            (_, None) => continue,
        };
        map.insert(Key::String(Arc::new(escaped.into_owned())), value);
    }
    Cel::Map(CelMap { map: Arc::new(map) })
}

/// Rules see no more of an object's metadata than its name.
fn names_of(metadata: &Value) -> Cel {
    let of = |name: &str| Some((name.to_owned(), metadata.get(name)?.clone()));
    let names: Map<_, _> = ["name", "generateName"]
        .into_iter()
        .filter_map(of)
        .collect();
    plain(&Value::Object(names))
}

fn convert(node: &Node, value: &Value, beside: Option<&Value>) -> Cel {
    match value {
        Value::Object(fields) => match &node.additional {
            Additional::Each(each) => {
                let entry = |(key, value): (&String, &Value)| {
                    let beside = beside.and_then(|beside| beside.get(key));
                    (
                        Key::String(Arc::new(key.clone())),
                        convert(each, value, beside),
                    )
                };
                Cel::Map(CelMap {
                    map: Arc::new(fields.iter().map(entry).collect()),
                })
            }
            _ if node.properties.is_empty() && !node.embedded => plain(value),
            _ => members(node, false, fields, beside, |_, _, _| Need::Value),
        },
        Value::Array(items) => match &node.items {
            Some(of_items) => {
                let ordered = in_order(node, value, items, beside);
                let convert =
                    |(item, beside): (&Value, Option<&Value>)| convert(of_items, item, beside);
                Cel::List(Arc::new(ordered.into_iter().map(convert).collect()))
            }
            None => plain(value),
        },
        Value::Number(number) => match (node.declared, Num::of(number)) {
            (Some(Type::Number), number) => Cel::Float(number.float()),
            (Some(Type::Integer), Num::Float(float)) if golang::is_whole(float) => whole(float),
            _ => plain(value),
        },
        Value::String(text) => formatted(node, text).unwrap_or_else(|| plain(value)),
        other => plain(other),
    }
}

/// The items of a list, each with the one it is compared with.
fn in_order<'a>(
    node: &Node,
    list: &'a Value,
    items: &'a [Value],
    beside: Option<&'a Value>,
) -> Vec<(&'a Value, Option<&'a Value>)> {
    let others = beside.and_then(Value::as_array);
    let as_written = || {
        let other = |index: usize| others.and_then(|others| others.get(index));
        items
            .iter()
            .enumerate()
            .map(|(index, item)| (item, other(index)))
            .collect()
    };
    let Some(others) = others.filter(|others| others.len() == items.len()) else {
        return as_written();
    };
    match &node.list {
        ListType::Atomic => as_written(),
        ListType::Set if others.iter().all(|other| items.contains(other)) => {
            others.iter().map(|other| (other, Some(other))).collect()
        }
        ListType::Set => as_written(),
        ListType::Map(_) => {
            let found = |other: &'a Value| Some((old_item(node, list, other)?, Some(other)));
            others
                .iter()
                .map(found)
                .collect::<Option<Vec<_>>>()
                .unwrap_or_else(as_written)
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a whole number that JSON keeps exactly"
)]
fn whole(float: f64) -> Cel {
    Cel::Int(float as i64)
}

fn formatted(node: &Node, text: &str) -> Option<Cel> {
    if node.declared != Some(Type::String) {
        return None;
    }
    let timestamp = |text: &str| {
        chrono::DateTime::parse_from_rfc3339(text)
            .ok()
            .map(Cel::Timestamp)
    };
    match node.format.as_ref()?.0.as_str() {
        "date-time" => timestamp(text),
        "date" => timestamp(&format!("{text}T00:00:00Z")),
        "duration" => formats::go_duration(text)
            .map(|nanoseconds| Cel::Duration(chrono::Duration::nanoseconds(nanoseconds))),
        "byte" => formats::decode_base64(text).map(|bytes| Cel::Bytes(Arc::new(bytes))),
        _ => None,
    }
}

fn plain(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(truth) => Cel::Bool(*truth),
        Value::Number(number) => match Num::of(number) {
            Num::Int(int) => Cel::Int(int),
            Num::Float(float) => Cel::Float(float),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(plain).collect())),
        Value::Object(fields) => Cel::Map(CelMap {
            map: Arc::new(
                fields
                    .iter()
                    .map(|(key, value)| (Key::String(Arc::new(key.clone())), plain(value)))
                    .collect(),
            ),
        }),
    }
}

/// The name by which a rule calls a field; a field whose name cannot be said is hidden.
pub(super) fn escape(name: &str) -> Option<Cow<'_, str>> {
    const RESERVED: &[&str] = &[
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    let sayable = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    if name.is_empty()
        || name.starts_with(|c: char| c.is_ascii_digit())
        || !name.chars().all(sayable)
    {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(Cow::Owned(format!("__{name}__")));
    }
    if name.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Some(Cow::Borrowed(name));
    }
    let escaped = name
        .replace("__", "__underscores__")
        .replace('-', "__dash__")
        .replace('.', "__dot__")
        .replace('/', "__slash__");
    Some(Cow::Owned(escaped))
}

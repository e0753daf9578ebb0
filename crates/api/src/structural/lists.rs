//! Sets and keyed lists hold nothing twice.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::{
    error::{FieldError, Reason},
    golang::Num,
    node::{Additional, ListType, Node},
    path::Path,
};

/// The duplicates in an object, but for parts that are the same in the old one.
pub(super) fn check(
    node: &Node,
    value: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if !node.below.keyed_lists || old == Some(value) {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let old = old.and_then(|old| old.get(name));
                match (node.properties.get(name), &node.additional) {
                    (Some(property), _) => check(property, value, old, &path.field(name), errors),
                    (None, Additional::Each(each)) => {
                        check(each, value, old, &path.key(name), errors);
                    }
                    (None, Additional::Unsaid | Additional::Any(_)) => {}
                }
            }
        }
        Value::Array(items) => {
            match &node.list {
                ListType::Atomic => {}
                ListType::Set => {
                    let shown = items.iter().collect::<Vec<_>>();
                    duplicates(&shown, path, errors);
                }
                ListType::Map(keys) => keyed(keys, items, path, errors),
            }
            if let Some(node) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    let old = old.and_then(|old| old.get(index));
                    check(node, item, old, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

/// Each value that is there more than once is reported at its second place.
fn duplicates(values: &[&Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut seen: HashMap<Cow<'_, Value>, usize> = HashMap::new();
    for (index, value) in values.iter().enumerate() {
        let times = seen.entry(comparable(value)).or_default();
        *times += 1;
        if *times == 2 {
            let field = path.index(index).bracketed("");
            errors.push(FieldError::with_value(Reason::Duplicate, field, value, ""));
        }
    }
}

/// A number that does not fit 64 signed bits is the same as all that are the same float.
fn comparable(value: &Value) -> Cow<'_, Value> {
    match value {
        Value::Number(number) => match Num::of(number) {
            Num::Int(_) => Cow::Borrowed(value),
            Num::Float(float) => Cow::Owned(json!(float)),
        },
        other => Cow::Borrowed(other),
    }
}

fn keyed(keys: &[String], items: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let stray = items
        .iter()
        .position(|item| !item.is_null() && !item.is_object());
    if let Some(index) = stray {
        let field = path.index(index).bracketed("");
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(field, &items[index], detail));
        return;
    }
    let mut seen: HashSet<Vec<Option<&Value>>> = HashSet::with_capacity(items.len());
    let mut keys_of = items
        .iter()
        .map(|item| keys.iter().map(|key| item.get(key)).collect());
    if keys_of.all(|keys| seen.insert(keys)) {
        return;
    }
    let identities: Vec<Value> = items.iter().map(|item| identity(keys, item)).collect();
    let shown: Vec<&Value> = identities.iter().collect();
    duplicates(&shown, path, errors);
}

/// The keys that an item has.
fn identity(keys: &[String], item: &Value) -> Value {
    let of = |key: &String| Some((key.clone(), item.get(key)?.clone()));
    json!(keys.iter().filter_map(of).collect::<Map<_, _>>())
}

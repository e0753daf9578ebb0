//! Sets and keyed lists hold nothing twice.

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
    for (index, value) in values.iter().enumerate() {
        let before = values[..index]
            .iter()
            .filter(|other| same(value, other))
            .count();
        if before == 1 {
            let field = path.index(index).bracketed("");
            errors.push(FieldError::with_value(Reason::Duplicate, field, value, ""));
        }
    }
}

fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => Num::of(left) == Num::of(right),
        (left, right) => left == right,
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
    let alike =
        |left: &Value, right: &Value| keys.iter().all(|key| left.get(key) == right.get(key));
    let mut pairs = (1..items.len()).flat_map(|right| (0..right).map(move |left| (left, right)));
    if !pairs.any(|(left, right)| alike(&items[left], &items[right])) {
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

//! Fields of objects, read and written without ceremony. Objects are decoded, so a field has its type or is absent.

use serde_json::{Map, Value};

/// The text of a field; empty if it is absent.
pub(super) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// As [`text`], by JSON pointer.
pub(super) fn text_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(super) fn int(object: &Value, key: &str) -> Option<i64> {
    object.get(key).and_then(Value::as_i64)
}

/// A field that is true.
pub(super) fn flag(object: &Value, key: &str) -> bool {
    object.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// The items of a list; none if it is absent.
pub(super) fn items<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    match object.get(key) {
        Some(Value::Array(items)) => items,
        _ => &[],
    }
}

/// The entries of a map, by key; none if it is absent.
pub(super) fn entries<'a>(
    object: &'a Value,
    key: &str,
) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let map = object.get(key).and_then(Value::as_object);
    map.into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value))
}

/// What a field holds, if that is a struct or a map.
pub(super) fn child<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| value.is_object())
}

/// A struct, which is made if it is absent.
pub(super) fn made<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    made_in(as_map(object), key)
}

pub(super) fn made_in<'a>(
    map: &'a mut Map<String, Value>,
    key: &str,
) -> &'a mut Map<String, Value> {
    if !map.contains_key(key) {
        map.insert(key.to_owned(), Value::Null);
    }
    as_map(&mut map[key])
}

/// A value as a map; what is none becomes an empty one.
pub(super) fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

pub(super) fn child_mut<'a>(
    map: &'a mut Map<String, Value>,
    key: &str,
) -> Option<&'a mut Map<String, Value>> {
    map.get_mut(key).and_then(Value::as_object_mut)
}

/// The structs of a list.
pub(super) fn items_mut<'a>(
    map: &'a mut Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let items = map.get_mut(key).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Sets a field that is absent.
pub(super) fn fill(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    if !map.contains_key(key) {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets a text that is absent or empty.
pub(super) fn fill_text(map: &mut Map<String, Value>, key: &str, value: &str) {
    let has = map
        .get(key)
        .and_then(Value::as_str)
        .is_some_and(|text| !text.is_empty());
    if !has {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets a number that is absent or zero.
pub(super) fn fill_int(map: &mut Map<String, Value>, key: &str, value: i64) {
    if map.get(key).and_then(Value::as_i64).unwrap_or(0) == 0 {
        map.insert(key.to_owned(), value.into());
    }
}

/// Takes a field from another object: its value, or its absence.
pub(super) fn take_from(new: &mut Map<String, Value>, old: &Value, key: &str) {
    match old.get(key) {
        Some(value) => new.insert(key.to_owned(), value.clone()),
        None => new.remove(key),
    };
}

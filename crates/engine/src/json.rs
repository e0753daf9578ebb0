//! Reading JSON objects that came from outside.

use serde_json::{Map, Value};

pub(crate) type Object = Map<String, Value>;

/// The field of an object; nothing if it is null or there is no such object.
pub(crate) fn child<'a>(value: &'a Value, field: &str) -> Option<&'a Value> {
    value.get(field).filter(|child| !child.is_null())
}

pub(crate) fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value
        .get(field)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn int(value: &Value, field: &str) -> Option<i64> {
    value.get(field).and_then(Value::as_i64)
}

pub(crate) fn object<'a>(value: &'a Value, field: &str) -> Option<&'a Object> {
    value.get(field).and_then(Value::as_object)
}

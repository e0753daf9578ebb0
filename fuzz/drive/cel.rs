//! Rules of a schema, compiled and applied to an object: no panic, no end of it.

use api::structural::Schema;
use serde_json::{Value, json};

/// A rule, a zero byte, and an object as JSON.
pub(crate) fn drive(input: &[u8]) {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let mut part = || parts.next().and_then(|part| std::str::from_utf8(part).ok());
    let (Some(rule), object) = (part(), part()) else {
        return;
    };
    let schema = json!({
        "type": "object",
        "x-kubernetes-validations": [{"rule": rule}],
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "string", "maxLength": 20},
            "c": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 9}},
            "d": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "number"}},
        },
    });
    let Ok(schema) = Schema::compile(&schema) else {
        return;
    };
    let object: Option<Value> = object.and_then(|text| serde_json::from_str(text).ok());
    let object = object.unwrap_or_else(|| json!({"a": 1, "b": "x", "c": ["y"], "d": {"e": 0.5}}));
    schema.validate(&object);
    schema.validate_update(&object, &json!({"a": 2, "b": "z", "c": []}));
}

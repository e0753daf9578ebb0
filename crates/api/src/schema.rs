//! From derived JSON schemas to what a CRD may carry, and the schemas that several kinds share.
//!
//! The functions returning [`Schema`] are named by `#[schemars(schema_with = …)]` on fields whose
//! Rust type says less than the API does.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::core;

/// The structural schema of `T`: references inlined, no nulls, no dialect keywords.
pub fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
        settings.transforms.clear();
    });
    structural(
        settings
            .into_generator()
            .into_root_schema_for::<T>()
            .to_value(),
    )
}

/// Optional fields are absent or present, never null: a schema that admits null would keep
/// `field: null` where the existing CRDs prune it and apply the default.
fn structural(schema: Value) -> Value {
    let Value::Object(mut schema) = schema else {
        return schema;
    };
    if let Some(inner) = without_null(&mut schema) {
        return structural(inner);
    }
    schema.remove("title");
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    if let Some(Value::String(format)) = schema.get("format")
        && !KNOWN_FORMATS.contains(&format.as_str())
    {
        schema.remove("format");
    }
    for (key, value) in &mut schema {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                properties
                    .values_mut()
                    .for_each(|property| *property = structural(property.take()));
            }
            ("items" | "additionalProperties", nested) => *nested = structural(nested.take()),
            _ => {}
        }
    }
    Value::Object(schema)
}

/// Formats that mean something to the API server; what else is derived (`uint8`, `float`) it warns about.
const KNOWN_FORMATS: &[&str] = &["date-time", "int32", "int64", "double", "byte"];

/// Removes the null that `Option` adds: from the type, from the enum, or as the branch
/// `anyOf: [T, null]`, in which case the schema becomes `T` with the keywords of the field.
fn without_null(schema: &mut Map<String, Value>) -> Option<Value> {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    let Some(Value::Array(branches)) = schema.get_mut("anyOf") else {
        return None;
    };
    let before = branches.len();
    branches.retain(|branch| branch.get("type").is_none_or(|name| name != "null"));
    if branches.len() == before || branches.len() != 1 {
        return None;
    }
    let mut inner = branches.remove(0);
    schema.remove("anyOf");
    for (key, value) in std::mem::take(schema) {
        inner[key] = value;
    }
    Some(inner)
}

fn schema(value: Value) -> Schema {
    Schema::try_from(value).unwrap_or_else(|error| unreachable!("a schema literal: {error}"))
}

pub(crate) fn date_time(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "format": "date-time"}))
}

pub(crate) fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    schema(core::int_or_string())
}

const UP_TO_ALL: &str = "must be a whole number or a percentage between 0% and 100%";

/// An absolute number, or a share of the replicas between `0%` and `100%`. All of them are `100%` and spelled in no other
/// way, because one that rounds looks for that word.
pub(crate) fn int_or_percent(generator: &mut SchemaGenerator) -> Schema {
    int_or(generator, "100|0*[0-9]{1,2}", UP_TO_ALL)
}

/// The same, and the share may be a fraction.
pub(crate) fn int_or_fraction(generator: &mut SchemaGenerator) -> Schema {
    int_or(generator, "100|0*[0-9]{1,2}([.][0-9]{1,9})?", UP_TO_ALL)
}

/// An absolute number, or a share of the replicas that may be more than all of them.
pub(crate) fn int_or_any_percent(generator: &mut SchemaGenerator) -> Schema {
    let message = "must be a whole number or a whole percentage such as 25%";
    int_or(generator, "0*[0-9]{1,2}|[1-9][0-9]{2,8}", message)
}

fn int_or(generator: &mut SchemaGenerator, share: &str, message: &str) -> Schema {
    let mut schema = int_or_string(generator);
    let rule = format!("type(self) == int || self.matches('^({share})%$')");
    let rules = json!([{"rule": rule, "message": message}]);
    schema.insert("x-kubernetes-validations".into(), rules);
    schema
}

pub(crate) fn quantities(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "object", "additionalProperties": core::quantity()}))
}

/// No schema at all; whatever is written is kept.
pub(crate) fn schemaless(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"x-kubernetes-preserve-unknown-fields": true}))
}

/// A pod spec of which only the containers' names are known. With those as keys, who applies one field of a container on
/// the server takes nothing from the owners of its other fields.
pub(crate) fn lean_pod_spec() -> Value {
    json!({
        "description": "A pod's spec, kept as it comes and checked when the pod is made; see `kubectl explain pod.spec`.",
        "type": "object",
        "required": ["containers"],
        "properties": {"containers": lean_containers(), "initContainers": lean_containers()},
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

fn lean_containers() -> Value {
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}},
            "x-kubernetes-preserve-unknown-fields": true,
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    })
}

/// Conditions as a plain list: merge patches replace it whole.
pub(crate) fn condition_list(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "array", "items": condition()}))
}

/// Conditions keyed by their type.
pub(crate) fn condition_map(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array",
        "items": condition(),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }))
}

fn condition() -> Value {
    const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
    json!({
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "message": {"type": "string", "maxLength": 32768},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            "reason": {
                "type": "string",
                "minLength": 1,
                "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            },
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "type": {
                "type": "string",
                "maxLength": 316,
                "pattern": format!(
                    r"^({LABEL}(\.{LABEL})*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
                ),
            },
        },
    })
}

//! The schemas of custom kinds, as the CRD has them and with what every object has.

use api::core::OBJECT_META;
use serde_json::{Map, Value, json};

use super::Dialect;
use super::schemas::{API_VERSION, KIND, KINDS, METADATA, property_reference};
use crate::server::resource::{Custom, Resource};

const PRESERVED: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

/// The definition of a custom kind.
pub(super) fn definition(resource: &Resource, custom: &Custom, dialect: Dialect) -> Value {
    let open_api: Value = serde_json::from_str(&custom.open_api).unwrap_or_default();
    let mut schema = match open_api.as_object() {
        // who knows some of the fields would take all others for mistakes
        Some(schema) if dialect == Dialect::V2 && is_true(schema, PRESERVED) => {
            json!({"type": "object"})
        }
        Some(schema) => {
            let mut schema = converted(schema, dialect);
            let metadata = referring(dialect, METADATA);
            put_properties(
                &mut schema,
                [
                    ("apiVersion", described(API_VERSION)),
                    ("kind", described(KIND)),
                    ("metadata", metadata),
                ],
            );
            Value::Object(schema)
        }
        None => json!({"type": "object"}),
    };
    schema[KINDS] = json!([{
        "group": resource.group,
        "version": resource.version,
        "kind": resource.kind,
    }]);
    put_selectable(&mut schema, custom);
    schema
}

/// Which fields of a kind a selector may name.
pub(super) fn put_selectable(schema: &mut Value, custom: &Custom) {
    let selectable: Vec<Value> = custom
        .selectable
        .iter()
        .map(|(path, _)| json!({"fieldPath": path.strip_prefix('.').unwrap_or(path)}))
        .collect();
    if !selectable.is_empty() {
        schema["x-kubernetes-selectable-fields"] = json!(selectable);
    }
}

fn described(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn referring(dialect: Dialect, description: &str) -> Value {
    let mut schema = property_reference(dialect, OBJECT_META);
    schema["description"] = json!(description);
    schema
}

fn is_true(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

fn put_properties(
    schema: &mut Map<String, Value>,
    properties: impl IntoIterator<Item = (&'static str, Value)>,
) {
    let all = schema.entry("properties").or_insert_with(|| json!({}));
    for (name, property) in properties {
        all[name] = property;
    }
}

fn converted(schema: &Map<String, Value>, dialect: Dialect) -> Map<String, Value> {
    let mut out = Map::new();
    for (key, value) in schema {
        let value = match (key.as_str(), value) {
            // OpenAPI 2 cannot say these, or its readers stumble over them
            (key, _) if dialect == Dialect::V2 && is_left_out(schema, key) => continue,
            ("default" | "example" | "additionalProperties", Value::Bool(_)) => value.clone(),
            (_, Value::Bool(false)) => continue,
            ("properties", Value::Object(properties)) => properties
                .iter()
                .map(|(name, property)| (name.clone(), nested(property, dialect)))
                .collect(),
            ("items" | "additionalProperties", value) => nested(value, dialect),
            ("minimum" | "maximum" | "multipleOf", value) => shortest(value),
            (_, value) => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    match dialect {
        Dialect::V3 if is_true(schema, INT_OR_STRING) => unfold(&mut out),
        Dialect::V3 => {}
        Dialect::V2 => require_no_nullable(schema, &mut out),
    }
    if is_true(schema, EMBEDDED) && !(dialect == Dialect::V2 && is_true(schema, PRESERVED)) {
        embed(&mut out, dialect);
    }
    out
}

/// A bound as Go writes it: `1`, whoever wrote `1.0`.
fn shortest(number: &Value) -> Value {
    let float = number.as_f64().filter(|_| number.is_f64());
    let whole = float.and_then(|float| float.to_string().parse::<i64>().ok());
    whole.map_or_else(|| number.clone(), Value::from)
}

fn nested(schema: &Value, dialect: Dialect) -> Value {
    match schema {
        Value::Object(schema) => Value::Object(converted(schema, dialect)),
        other => other.clone(),
    }
}

fn is_left_out(schema: &Map<String, Value>, key: &str) -> bool {
    let nullable = is_true(schema, "nullable");
    let preserved = is_true(schema, PRESERVED);
    match key {
        "default" | "nullable" | "allOf" | "oneOf" | "anyOf" | "not" => true,
        "items" | "properties" => nullable || preserved,
        "type" => match schema.get("type").and_then(Value::as_str) {
            _ if nullable => true,
            Some("array") => preserved || !schema.contains_key("items"),
            Some("object") => preserved,
            _ => false,
        },
        _ => false,
    }
}

/// What may be null has no type in OpenAPI 2, so it cannot be required either.
fn require_no_nullable(schema: &Map<String, Value>, out: &mut Map<String, Value>) {
    let is_nullable = |name: &Value| {
        let property = schema.get("properties").zip(name.as_str());
        property.is_some_and(|(properties, name)| properties[name]["nullable"] == true)
    };
    let Some(Value::Array(required)) = out.get_mut("required") else {
        return;
    };
    required.retain(|name| !is_nullable(name));
    if required.is_empty() {
        out.remove("required");
    }
}

/// An integer or a string says so in the words of OpenAPI as well.
fn unfold(schema: &mut Map<String, Value>) {
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    let all_of = schema.get("allOf").and_then(Value::as_array);
    let said = |schema: &Value| schema["anyOf"] == either;
    if schema.get("anyOf") == Some(&either) || all_of.is_some_and(|all| all.iter().any(said)) {
        return;
    }
    match (schema.contains_key("anyOf"), schema.get_mut("allOf")) {
        (false, _) => {
            schema.insert("anyOf".to_owned(), either);
        }
        (true, Some(Value::Array(all_of))) => all_of.push(json!({"anyOf": either})),
        (true, _) => {
            schema.insert("allOf".to_owned(), json!([{"anyOf": either}]));
        }
    }
}

fn embed(schema: &mut Map<String, Value>, dialect: Dialect) {
    const CONVENTIONS: &str =
        "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
    let api_version = format!(
        "apiVersion defines the versioned schema of this representation of an object. More info: {CONVENTIONS}#resources"
    );
    let kind = format!(
        "kind is a string value representing the type of this object. In CamelCase. More info: {CONVENTIONS}#types-kinds"
    );
    let metadata = format!("Standard object's metadata. More info: {CONVENTIONS}#metadata");
    put_properties(
        schema,
        [
            ("apiVersion", described(&api_version)),
            ("kind", described(&kind)),
            ("metadata", referring(dialect, &metadata)),
        ],
    );
    let required = schema.entry("required").or_insert_with(|| json!([]));
    if let Value::Array(required) = required {
        for name in ["kind", "apiVersion"] {
            if !required.contains(&json!(name)) {
                required.push(json!(name));
            }
        }
    }
}

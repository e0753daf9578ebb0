//! The metadata of resources, whole or embedded: what is unknown in it is dropped, what is malformed refused.

use serde_json::{Map, Value, json};

use super::golang;

/// What a field of metadata holds.
enum Shape {
    Text,
    Int,
    Bool,
    Time,
    Texts,
    Map,
    Any,
    Structs(&'static str, &'static [(&'static str, Shape)]),
}

const FIELDS: &[(&str, Shape)] = &[
    ("annotations", Shape::Map),
    ("creationTimestamp", Shape::Time),
    ("deletionGracePeriodSeconds", Shape::Int),
    ("deletionTimestamp", Shape::Time),
    ("finalizers", Shape::Texts),
    ("generateName", Shape::Text),
    ("generation", Shape::Int),
    ("labels", Shape::Map),
    (
        "managedFields",
        Shape::Structs("ManagedFieldsEntry", MANAGED),
    ),
    ("name", Shape::Text),
    ("namespace", Shape::Text),
    ("ownerReferences", Shape::Structs("OwnerReference", OWNER)),
    ("resourceVersion", Shape::Text),
    ("selfLink", Shape::Text),
    ("uid", Shape::Text),
];

const OWNER: &[(&str, Shape)] = &[
    ("apiVersion", Shape::Text),
    ("blockOwnerDeletion", Shape::Bool),
    ("controller", Shape::Bool),
    ("kind", Shape::Text),
    ("name", Shape::Text),
    ("uid", Shape::Text),
];

/// The fields of an owner that are written even when empty.
const OWNER_ALWAYS: &[&str] = &["apiVersion", "kind", "name", "uid"];

const MANAGED: &[(&str, Shape)] = &[
    ("apiVersion", Shape::Text),
    ("fieldsType", Shape::Text),
    ("fieldsV1", Shape::Any),
    ("manager", Shape::Text),
    ("operation", Shape::Text),
    ("subresource", Shape::Text),
    ("time", Shape::Time),
];

/// Drops unknown fields from metadata and returns their names, or says what is malformed.
pub(super) fn drop_unknown(metadata: &mut Value) -> Result<Vec<String>, String> {
    let mut unknown = Vec::new();
    let Value::Object(fields) = metadata else {
        if metadata.is_null() {
            return Ok(unknown);
        }
        let found = kind(metadata);
        return Err(format!(
            "json: cannot unmarshal {found} into Go value of type v1.ObjectMeta"
        ));
    };
    structure(fields, FIELDS, "ObjectMeta", "", "", &mut unknown)?;
    Ok(unknown)
}

/// Metadata of an embedded resource is also written anew: what is empty goes.
pub(super) fn tidy(metadata: &mut Value) -> Result<Vec<String>, String> {
    let unknown = drop_unknown(metadata)?;
    let Value::Object(fields) = metadata else {
        *metadata = json!({});
        return Ok(unknown);
    };
    fields.retain(|_, value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.as_i64() != Some(0),
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        Value::Bool(_) => true,
    });
    if let Some(Value::Array(owners)) = fields.get_mut("ownerReferences") {
        for owner in owners.iter_mut().filter_map(Value::as_object_mut) {
            owner.retain(|_, value| !value.is_null());
            for name in OWNER_ALWAYS {
                owner.entry(*name).or_insert_with(|| json!(""));
            }
        }
    }
    Ok(unknown)
}

fn structure(
    fields: &mut Map<String, Value>,
    shapes: &'static [(&'static str, Shape)],
    of: &str,
    path: &str,
    go_path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    let mut problem = None;
    fields.retain(|name, value| {
        let Ok(index) = shapes.binary_search_by(|(known, _)| (*known).cmp(name)) else {
            unknown.push(format!("{path}{name}"));
            return false;
        };
        let go_path = format!("{go_path}{name}");
        let place = format!("{path}{name}");
        if let Err(error) = shaped(value, &shapes[index].1, of, &place, &go_path, unknown) {
            problem.get_or_insert(error);
        }
        true
    });
    problem.map_or(Ok(()), Err)
}

fn shaped(
    value: &mut Value,
    shape: &'static Shape,
    of: &str,
    path: &str,
    go_path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    let wrong = |value: &Value, wanted: &str| {
        let found = kind(value);
        Err(format!(
            "json: cannot unmarshal {found} into Go struct field {of}.{go_path} of type {wanted}"
        ))
    };
    match (shape, value) {
        (_, Value::Null) | (Shape::Any, _) => Ok(()),
        (Shape::Text | Shape::Time, Value::String(_)) => Ok(()),
        (Shape::Text | Shape::Time, other) => wrong(other, "string"),
        (Shape::Bool, Value::Bool(_)) => Ok(()),
        (Shape::Bool, other) => wrong(other, "bool"),
        (Shape::Int, Value::Number(number)) if number.is_i64() => Ok(()),
        (Shape::Int, other) => wrong(other, "int64"),
        (Shape::Texts, Value::Array(items)) => {
            match items
                .iter()
                .find(|item| !item.is_string() && !item.is_null())
            {
                Some(item) => wrong(item, "string"),
                None => Ok(()),
            }
        }
        (Shape::Texts, other) => wrong(other, "[]string"),
        (Shape::Map, Value::Object(entries)) => {
            match entries
                .values()
                .find(|entry| !entry.is_string() && !entry.is_null())
            {
                Some(entry) => wrong(entry, "string"),
                None => Ok(()),
            }
        }
        (Shape::Map, other) => wrong(other, "map[string]string"),
        (Shape::Structs(name, shapes), Value::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                let Value::Object(fields) = item else {
                    return wrong(item, &format!("v1.{name}"));
                };
                let place = format!("{path}[{index}].");
                structure(
                    fields,
                    shapes,
                    name,
                    &place,
                    &format!("{go_path}."),
                    unknown,
                )?;
            }
            Ok(())
        }
        (Shape::Structs(name, _), other) => wrong(other, &format!("[]v1.{name}")),
    }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) => match number.is_i64() {
            true => "number".to_owned(),
            false => format!("number {}", golang::Num::of(number)),
        },
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

//! Resources within resources: their metadata is read and checked like that of any object.

use serde_json::{Value, json};

use super::{
    error::FieldError,
    metadata, names,
    node::{Additional, Node},
    path::Path,
};

/// Tidies the metadata of embedded resources; returns the paths of unknown fields, or what cannot be read.
pub(super) fn coerce(node: &Node, object: &mut Value) -> Result<Vec<String>, FieldError> {
    let mut unknown = Vec::new();
    visit(node, object, &Path::ROOT, &mut unknown)?;
    unknown.sort();
    Ok(unknown)
}

fn visit(
    node: &Node,
    value: &mut Value,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    if !node.below.resources {
        return Ok(());
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if node.embedded {
                    own(name, value, path, unknown)?;
                }
                match (node.properties.get(name), &node.additional) {
                    (Some(property), _) => visit(property, value, &path.field(name), unknown)?,
                    (None, Additional::Each(each)) => visit(each, value, &path.key(name), unknown)?,
                    (None, Additional::Unsaid | Additional::Any(_)) => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(of_items) = &node.items {
                for (index, item) in items.iter_mut().enumerate() {
                    visit(of_items, item, &path.index(index), unknown)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// A field that every resource has.
fn own(
    name: &str,
    value: &mut Value,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    let place = path.field(name);
    match name {
        "apiVersion" | "kind" if !value.is_string() => {
            let field = place.bracketed("");
            Err(FieldError::invalid(field, value, "must be a string"))
        }
        "metadata" => {
            let before = value.clone();
            let found = metadata::tidy(value)
                .map_err(|problem| FieldError::invalid(place.bracketed(""), &before, &problem))?;
            let prefix = place.bracketed("");
            unknown.extend(found.into_iter().map(|name| format!("{prefix}.{name}")));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether embedded resources are named and labelled as resources must be.
pub(super) fn check(node: &Node, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if !node.below.resources {
        return;
    }
    match value {
        Value::Object(fields) => {
            if node.embedded {
                resource(value, path, errors);
            }
            for (name, value) in fields {
                match (node.properties.get(name), &node.additional) {
                    (Some(property), _) => check(property, value, &path.field(name), errors),
                    (None, Additional::Each(each)) => check(each, value, &path.key(name), errors),
                    (None, Additional::Unsaid | Additional::Any(_)) => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(of_items) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    check(of_items, item, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn resource(value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let field = |name: &str| path.field(name).bracketed("");
    for name in ["apiVersion", "kind"] {
        let Some(value) = value.get(name) else {
            errors.push(FieldError::required(field(name), ""));
            continue;
        };
        let detail = match value.as_str() {
            None => Some("must be a string".to_owned()),
            Some("") => Some("must not be empty".to_owned()),
            Some(text) if name == "apiVersion" => (text.matches('/').count() > 1)
                .then(|| format!("unexpected GroupVersion string: {text}")),
            Some(text) => names::kind_problem(text),
        };
        if let Some(detail) = detail {
            errors.push(FieldError::invalid(field(name), value, &detail));
        }
    }
    if let Some(metadata) = value.get("metadata") {
        meta(metadata, &field("metadata"), errors);
    }
}

fn meta(metadata: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let text = |name: &str| {
        metadata
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let mut add = |part: &str, value: &str, problems: Vec<String>| {
        errors.extend(problems.into_iter().map(|problem| {
            FieldError::invalid(format!("{field}.{part}"), &json!(value), &problem)
        }));
    };
    if !text("generateName").is_empty() {
        let name = text("generateName");
        add(
            "generateName",
            name,
            names::path_segment_problems(name, true),
        );
    }
    if !text("name").is_empty() {
        add(
            "name",
            text("name"),
            names::path_segment_problems(text("name"), false),
        );
    }
    if !text("namespace").is_empty() {
        add(
            "namespace",
            text("namespace"),
            names::label_problems(text("namespace")),
        );
    }
    for part in ["labels", "annotations"] {
        for (key, value) in metadata
            .get(part)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            // the keys of annotations may be written in capitals
            let name = if part == "annotations" {
                key.to_lowercase()
            } else {
                key.clone()
            };
            add(part, key, names::qualified_name_problems(&name));
            let value = value.as_str().unwrap_or_default();
            if part == "labels" {
                add(part, value, names::label_value_problems(value));
            }
        }
    }
}

//! Defaults must be valid themselves, and hold nothing that would be pruned.

use serde_json::Value;

use crate::structural::{
    check, embedded,
    error::FieldError,
    node::Node,
    path::Path,
    prune,
    rules::{Ratchet, Walk},
};

/// What is wrong with the defaults in a schema.
pub(super) fn check(schema: &Value, node: &Node, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(schema, node, path, &mut errors);
    errors
}

fn visit(schema: &Value, node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    if !node.below.defaults {
        return;
    }
    if let Some(default) = &node.default {
        one(node, default, &format!("{path}.default"), errors);
    }
    if let (Some(schema), Some(items)) = (schema.get("items"), &node.items) {
        visit(schema, items, &format!("{path}.items"), errors);
    }
    for (name, property) in &node.properties {
        let path = format!("{path}.properties[{name}]");
        visit(&schema["properties"][name], property, &path, errors);
    }
}

fn one(node: &Node, default: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let mut pruned = default.clone();
    if !prune::prune_default(node, &mut pruned).is_empty() {
        errors.push(FieldError::invalid(
            field,
            default,
            "must not have unknown fields",
        ));
    }
    let before = errors.len();
    if let Err(error) = embedded::coerce(node, &mut pruned) {
        errors.push(FieldError {
            field: format!("{field}.{}", error.field),
            ..error
        });
        return;
    }
    let mut found = Vec::new();
    embedded::check(node, default, &Path::ROOT, &mut found);
    errors.extend(found.into_iter().map(|error| FieldError {
        field: format!("{field}.{}", error.field),
        ..error
    }));
    if errors.len() > before {
        return;
    }
    errors.extend(check::check(node, default, &Path::ROOT, None).into_errors(field));
    if errors.len() > before {
        return;
    }
    // once as a value that stays, once as one that is new
    for old in [Some(default), None] {
        let mut walk = Walk::new(field);
        walk.value(node, default, old, &Path::ROOT, Ratchet::default(), false);
        if !walk.broken.errors.is_empty() {
            errors.extend(walk.broken.errors);
            return;
        }
    }
}

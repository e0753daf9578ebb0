//! Filling in defaults.

use serde_json::Value;

use super::node::{Additional, Node};

/// Sets what is absent, or null and not allowed to be, to its default.
pub(super) fn fill(node: &Node, value: &mut Value) {
    if !node.below.defaults {
        return;
    }
    match value {
        Value::Object(fields) => {
            for name in &node.defaulted {
                let Some(property) = node.properties.get(name) else {
                    continue;
                };
                let absent = match fields.get(name) {
                    None => true,
                    Some(value) => value.is_null() && !property.nullable,
                };
                if absent && let Some(default) = &property.default {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields {
                match (node.properties.get(name), &node.additional) {
                    (Some(property), _) => fill(property, value),
                    (None, Additional::Each(each)) => member(each, value),
                    (None, Additional::Unsaid | Additional::Any(_)) => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = &node.items {
                items.iter_mut().for_each(|item| member(node, item));
            }
        }
        _ => {}
    }
}

/// An entry or an item: there is nothing to add, only a null to replace.
fn member(node: &Node, value: &mut Value) {
    if value.is_null()
        && !node.nullable
        && let Some(default) = &node.default
    {
        *value = default.clone();
    }
    fill(node, value);
}

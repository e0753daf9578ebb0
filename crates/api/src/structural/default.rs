//! Filling in defaults.

use serde_json::Value;

use super::node::{Additional, Node};

/// Sets what is absent, or null and not allowed to be, to its default.
/// Parts that are the same in `admitted` have theirs.
pub(super) fn fill(node: &Node, value: &mut Value, admitted: Option<&Value>) {
    if !node.below.defaults || admitted == Some(value) {
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
                let admitted = admitted.and_then(|admitted| admitted.get(name));
                match (node.properties.get(name), &node.additional) {
                    (Some(property), _) => fill(property, value, admitted),
                    (None, Additional::Each(each)) => member(each, value, admitted),
                    (None, Additional::Unsaid | Additional::Any(_)) => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = &node.items {
                for (index, item) in items.iter_mut().enumerate() {
                    let admitted = admitted.and_then(|admitted| admitted.get(index));
                    member(node, item, admitted);
                }
            }
        }
        _ => {}
    }
}

/// An entry or an item: there is nothing to add, only a null to replace.
fn member(node: &Node, value: &mut Value, admitted: Option<&Value>) {
    if value.is_null()
        && !node.nullable
        && let Some(default) = &node.default
    {
        *value = default.clone();
    }
    fill(node, value, admitted);
}

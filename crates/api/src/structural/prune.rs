//! Dropping what the schema does not know.

use serde_json::{Map, Value};

use super::{
    node::{Additional, Node},
    path::Path,
};

/// What every resource has.
pub(super) const META: &[&str] = &["apiVersion", "kind", "metadata"];

/// Drops unknown fields, and returns their paths, sorted.
pub(super) fn prune(root: &Node, object: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    let mut pruner = Pruner {
        dropped: &mut dropped,
    };
    pruner.value(object, Some(root), &Path::ROOT, true);
    dropped.sort();
    dropped
}

/// Drops nulls that are neither allowed nor replaced by a default.
pub(super) fn drop_nulls(node: &Node, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                let Some(member) = node.member(name) else {
                    return true;
                };
                if value.is_null() && member.drops_null() {
                    return false;
                }
                drop_nulls(member, value);
                true
            });
        }
        Value::Array(items) => {
            if let Some(node) = &node.items {
                items.iter_mut().for_each(|item| drop_nulls(node, item));
            }
        }
        _ => {}
    }
}

struct Pruner<'a> {
    dropped: &'a mut Vec<String>,
}

impl Pruner<'_> {
    fn value(&mut self, value: &mut Value, node: Option<&Node>, path: &Path<'_>, root: bool) {
        match value {
            Value::Object(fields) => match node {
                None => {
                    for name in std::mem::take(fields).keys() {
                        self.dropped.push(path.field(name).dotted());
                    }
                }
                Some(node) => self.fields(fields, node, path, root),
            },
            Value::Array(items) => {
                let of_items = node.and_then(|node| node.items.as_deref());
                let keeps = node.is_some_and(|node| node.preserve_unknown);
                for (index, item) in items.iter_mut().enumerate() {
                    match (keeps, of_items) {
                        (true, None) => {}
                        (true, Some(of_items)) => self.kept(item, of_items, &path.index(index)),
                        (false, of_items) => self.value(item, of_items, &path.index(index), false),
                    }
                }
            }
            _ => {}
        }
    }

    /// The items of a list that keeps everything keep everything too, down to the next property.
    fn kept(&mut self, value: &mut Value, node: &Node, path: &Path<'_>) {
        match value {
            Value::Object(fields) => self.known_fields(fields, node, path),
            Value::Array(items) => {
                if let Some(of_items) = &node.items {
                    for (index, item) in items.iter_mut().enumerate() {
                        self.kept(item, of_items, &path.index(index));
                    }
                }
            }
            _ => {}
        }
    }

    fn known_fields(&mut self, fields: &mut Map<String, Value>, node: &Node, path: &Path<'_>) {
        for (name, value) in fields {
            if node.embedded && META.contains(&name.as_str()) {
                continue;
            }
            let place = path.field(name);
            match (node.properties.get(name), &node.additional) {
                (Some(property), _) => self.value(value, Some(property), &place, false),
                (None, Additional::Each(each)) => self.value(value, Some(each), &place, false),
                (None, Additional::Any(_)) => self.value(value, None, &place, false),
                (None, Additional::Unsaid) => {}
            }
        }
    }

    fn fields(
        &mut self,
        fields: &mut Map<String, Value>,
        node: &Node,
        path: &Path<'_>,
        root: bool,
    ) {
        if node.preserve_unknown {
            self.known_fields(fields, node, path);
            return;
        }
        let resource = root || node.embedded;
        fields.retain(|name, value| {
            if resource && META.contains(&name.as_str()) {
                return true;
            }
            let place = path.field(name);
            match (node.properties.get(name), &node.additional) {
                (Some(property), _) => self.value(value, Some(property), &place, false),
                (None, Additional::Each(each)) => self.value(value, Some(each), &place, false),
                (None, Additional::Any(_)) => self.value(value, None, &place, false),
                (None, Additional::Unsaid) => {
                    self.dropped.push(place.dotted());
                    return false;
                }
            }
            true
        });
    }
}

/// The unknown fields of a default.
pub(super) fn prune_default(node: &Node, default: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    let mut pruner = Pruner {
        dropped: &mut dropped,
    };
    pruner.value(default, Some(node), &Path::ROOT, false);
    dropped
}

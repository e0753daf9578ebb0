//! Merging an applied configuration into a live object.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{path::PathElement, typed::list_element};
use crate::patch::types::{Form, ListType, MapType, TypeRef};

/// The live value with everything that the applied value sets; nothing is removed.
pub(super) fn merge(schema: TypeRef<'_>, live: &Value, applied: &Value) -> Value {
    node(schema, Some(live), Some(applied)).unwrap_or(Value::Null)
}

fn node(schema: TypeRef<'_>, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    let decides = applied.or(live);
    match schema.form(decides) {
        Form::Map(map) if !schema.is_atomic(map) => {
            let (old, new) = (as_map(live), as_map(applied));
            match (old, new) {
                (None, None) => decides.cloned(),
                (old, new) => merge_fields(schema, map, old, new),
            }
        }
        Form::List(list) if !list.is_atomic() => {
            let (old, new) = (as_list(live), as_list(applied));
            match (old.is_empty(), new.is_empty()) {
                (true, true) => decides.cloned(),
                _ => Merge::new(schema, list, old, new).run(),
            }
        }
        Form::Map(_) | Form::List(_) | Form::Scalar(_) | Form::Nothing => decides.cloned(),
    }
}

fn merge_fields(
    schema: TypeRef<'_>,
    map: &MapType,
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
) -> Option<Value> {
    let get = |fields: Option<&Map<String, Value>>, name: &String| {
        fields.and_then(|fields| fields.get(name)).cloned()
    };
    let names = old.into_iter().chain(new).flat_map(Map::keys);
    let mut out = Map::new();
    for name in names {
        if out.contains_key(name) {
            continue;
        }
        let (old, new) = (get(old, name), get(new, name));
        let merged = match schema.field(map, name) {
            Some(field) => node(field, old.as_ref(), new.as_ref()),
            None => new.or(old),
        };
        if let Some(merged) = merged {
            out.insert(name.clone(), merged);
        }
    }
    (!out.is_empty()).then_some(Value::Object(out))
}

/// Merges two keyed lists or sets. Elements that only the live list has keep their places among
/// each other, the applied ones come in the applied order, and a shared element is where both meet.
struct Merge<'s, 'v> {
    schema: TypeRef<'s>,
    list: &'s ListType,
    old: &'v [Value],
    new: &'v [Value],
    old_elements: Vec<PathElement>,
    new_elements: Vec<PathElement>,
    /// Null where the live list has the element more than once.
    old_values: BTreeMap<PathElement, &'v Value>,
    new_values: BTreeMap<PathElement, &'v Value>,
}

impl<'s, 'v> Merge<'s, 'v> {
    fn new(schema: TypeRef<'s>, list: &'s ListType, old: &'v [Value], new: &'v [Value]) -> Self {
        let elements = |items: &[Value]| -> Vec<PathElement> {
            items
                .iter()
                .filter_map(|item| list_element(schema, list, item).ok())
                .collect()
        };
        let (old_elements, new_elements) = (elements(old), elements(new));
        let mut old_values = BTreeMap::new();
        for (element, item) in old_elements.iter().zip(old) {
            old_values
                .entry(element.clone())
                .and_modify(|copy| *copy = &Value::Null)
                .or_insert(item);
        }
        let new_values = new_elements.iter().cloned().zip(new).collect();
        Self {
            schema,
            list,
            old,
            new,
            old_elements,
            new_elements,
            old_values,
            new_values,
        }
    }

    fn run(self) -> Option<Value> {
        let mut shared = self
            .new_elements
            .iter()
            .filter(|element| self.old_values.contains_key(element));
        let mut next_shared = shared.next();
        let mut taken: BTreeSet<&PathElement> = BTreeSet::new();
        let mut out = Vec::new();
        let (mut left, mut right) = (0, 0);
        while left < self.old_elements.len() || right < self.new_elements.len() {
            let old = self.old_elements.get(left);
            let new = self.new_elements.get(right);
            if let Some(old) = old {
                let is_shared = self.new_values.contains_key(old);
                if !is_shared {
                    out.extend(self.element(Some(&self.old[left]), None));
                    left += 1;
                    continue;
                }
                let waits = next_shared.is_some_and(|next| next != old);
                if new.is_some_and(|new| new != old) && waits {
                    // comes later, in the applied order
                    left += 1;
                    continue;
                }
                if new == Some(old) || taken.contains(old) {
                    left += 1;
                }
            }
            let Some(new) = new else {
                continue;
            };
            taken.insert(new);
            let copy = self.old_values.get(new).copied();
            out.extend(self.element(copy, Some(&self.new[right])));
            right += 1;
            if next_shared == Some(new) || old == Some(new) {
                next_shared = shared.next();
            }
        }
        (!out.is_empty()).then_some(Value::Array(out))
    }

    fn element(&self, old: Option<&Value>, new: Option<&Value>) -> Option<Value> {
        node(self.schema.follow(self.list.element), old, new)
    }
}

/// The map, if the value is one with fields; an empty one is a value like any other.
fn as_map(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value
        .and_then(Value::as_object)
        .filter(|fields| !fields.is_empty())
}

fn as_list(value: Option<&Value>) -> &[Value] {
    value
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

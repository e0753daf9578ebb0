//! Which old value a new one goes back to.
//!
//! Fields and entries correlate by name, items of keyed lists by their keys, other items not at all. What
//! correlates and did not change may stay wrong.

use serde_json::{Map, Value};

use super::node::{ListType, Node};

/// A new value, the old one it goes back to, and their schema.
#[derive(Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) node: &'a Node,
    pub(super) new: &'a Value,
    pub(super) old: &'a Value,
    /// How many checks pass decides which of several schemas is reported, so none may be left out.
    pub(super) counts: bool,
}

impl<'a> Pair<'a> {
    /// The pair of a field or entry that both have.
    pub(super) fn member(self, name: &str) -> Option<Self> {
        Some(Self {
            node: self.node.member(name)?,
            new: self.new.get(name)?,
            old: self.old.get(name)?,
            ..self
        })
    }

    /// The pair of an item.
    pub(super) fn item(self, index: usize) -> Option<Self> {
        let new = self.new.get(index)?;
        Some(Self {
            node: self.node.items.as_deref()?,
            new,
            old: old_item(self.node, self.old, new)?,
            ..self
        })
    }

    /// Whether nothing changed; the order of a keyed list does not matter. What no schema describes counts as changed.
    pub(super) fn unchanged(self) -> bool {
        let undescribed = |new: &Map<String, Value>| {
            let described = |name: &String| self.node.member(name).is_some();
            !new.keys().all(described)
        };
        if self.new.as_object().is_some_and(undescribed) {
            return false;
        }
        let below = self.node.below;
        if !below.unknown {
            let same = self.new == self.old;
            if same || !below.keyed_lists {
                return same;
            }
        }
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => match self.node.list {
                ListType::Atomic | ListType::Set => new == old,
                ListType::Map(_) => {
                    new.len() == old.len()
                        && (0..new.len()).all(|index| self.item(index).is_some_and(Self::unchanged))
                }
            },
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new
                        .keys()
                        .all(|name| self.member(name).is_some_and(Self::unchanged))
            }
            (new, old) => new == old,
        }
    }
}

/// The old item with the same keys as a new one.
pub(super) fn old_item<'a>(list: &Node, old: &'a Value, new: &Value) -> Option<&'a Value> {
    let ListType::Map(keys) = &list.list else {
        return None;
    };
    let new = new.as_object()?;
    if keys.is_empty() || !keys.iter().all(|key| scalar(new, key)) {
        return None;
    }
    old.as_array()?.iter().find(|item| {
        item.as_object().is_some_and(|item| {
            keys.iter()
                .all(|key| scalar(item, key) && item.get(key) == new.get(key))
        })
    })
}

fn scalar(item: &Map<String, Value>, key: &str) -> bool {
    matches!(
        item.get(key),
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_))
    )
}

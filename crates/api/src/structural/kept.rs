//! The parts of an object that a change leaves alone.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::{node::Node, prune::META};

/// Parts that were taken out of an object, so that whoever walks over it does not look at them. In their place is null
/// until they are put back.
#[derive(Clone, Default)]
pub struct Kept {
    here: Vec<(String, Value)>,
    below: Vec<(String, Self)>,
}

impl Kept {
    /// Takes out what is the same in the old object, down to the fields that differ. What every resource has stays: it is
    /// read whole.
    pub(super) fn take(new: &mut Map<String, Value>, old: &Map<String, Value>) -> Self {
        let mut kept = Self::default();
        for (name, value) in new {
            if META.contains(&name.as_str()) {
                continue;
            }
            match (old.get(name), value) {
                (Some(old), value) if old == value => {
                    kept.here.push((name.clone(), value.take()));
                }
                (Some(Value::Object(old)), Value::Object(new)) => {
                    kept.below.push((name.clone(), Self::take(new, old)));
                }
                _ => {}
            }
        }
        kept
    }

    /// Takes out what a merge patch does not name, where that cannot change what is said of the rest: a part that stays
    /// the same is only looked at by rules, by schemas that judge the parts of a value together, in resources, where
    /// fields have no schema, and by those who read the fields of these names.
    pub(super) fn beside(
        patch: &Map<String, Value>,
        node: &Node,
        object: &mut Map<String, Value>,
        read: &[&str],
    ) -> Self {
        static NOTHING: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        let mut kept = Self::default();
        if node.is_judged_as_one() {
            return kept;
        }
        for (name, value) in object {
            let is_read = META.contains(&name.as_str()) || node.rules_read(name);
            let Some(member) = node.member(name).filter(|_| !is_read) else {
                continue;
            };
            let below = member.below;
            let is_free = !(below.rules || below.resources || below.unknown);
            match (patch.get(name), value) {
                (None, value @ (Value::Object(_) | Value::Array(_)))
                    if is_free && !read.contains(&name.as_str()) =>
                {
                    kept.here.push((name.clone(), value.take()));
                }
                (None, Value::Object(fields)) => {
                    let below = Self::beside(&NOTHING, member, fields, read);
                    kept.below.push((name.clone(), below));
                }
                (Some(Value::Object(patch)), Value::Object(fields)) => {
                    let below = Self::beside(patch, member, fields, read);
                    kept.below.push((name.clone(), below));
                }
                _ => {}
            }
        }
        kept
    }

    /// Into the object it was taken out of, or one that has come of it.
    pub fn put_back(self, object: &mut Value) {
        let Value::Object(object) = object else {
            return;
        };
        for (name, kept) in self.below {
            if let Some(object) = object.get_mut(&name) {
                kept.put_back(object);
            }
        }
        object.extend(self.here);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::{Value, json};

    use crate::structural::Schema;

    fn spec(properties: &Value, rule: &str) -> Value {
        let rules = json!([{"rule": rule}]);
        json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules})
    }

    #[test]
    fn what_a_patch_leaves_alone_is_set_aside_unless_somebody_looks_at_it() {
        let list = json!({"type": "array", "items": {"type": "string"}});
        let part = json!({"type": "object", "properties": {"one": list, "two": list}});
        let either = json!({
            "type": "object", "properties": {"one": list, "two": list},
            "anyOf": [{"required": ["one"]}, {"required": ["two"]}],
        });
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let properties = json!({
            "free": part, "touched": part, "either": either, "any": any, "read": list, "compared": list,
        });
        let rule = "self.read.size() < 3 && self.compared == oldSelf.compared";
        let root = json!({"type": "object", "properties": {"spec": spec(&properties, rule)}});
        let schema = Schema::compile(&root).unwrap();
        let both = json!({"one": ["a"], "two": ["b"]});
        let object = json!({"kind": "A", "metadata": {"labels": {}}, "spec": {
            "free": both, "touched": both, "either": both, "any": both, "read": ["c"], "compared": ["d"],
        }});
        let mut rest = object.clone();
        let change = json!({"one": ["e"]});
        let patch = json!({"spec": {"touched": change, "either": change}});
        let kept = schema.set_aside(&mut rest, &patch);
        let expected = json!({"kind": "A", "metadata": {"labels": {}}, "spec": {
            "free": null, "touched": {"one": ["a"], "two": null}, "either": both, "any": both,
            "read": ["c"], "compared": null,
        }});
        assert_eq!(rest, expected);
        kept.put_back(&mut rest);
        assert_eq!(rest, object);
    }
}

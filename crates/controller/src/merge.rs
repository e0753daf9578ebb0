//! Merge patches.

use serde_json::{Map, Value};

/// The merge patch that turns one value into the other; nothing if they are equal.
pub fn patch(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return Some(new.clone());
    };
    let removed = old.keys().filter(|key| !new.contains_key(*key));
    let mut changes: Map<String, Value> = removed.map(|key| (key.clone(), Value::Null)).collect();
    for (key, value) in new {
        match old.get(key) {
            Some(before) => changes.extend(patch(before, value).map(|patch| (key.clone(), patch))),
            None => drop(changes.insert(key.clone(), value.clone())),
        }
    }
    Some(Value::Object(changes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::patch;

    #[test]
    fn only_what_differs_is_in_a_patch() {
        let old = json!({"a": 1, "b": {"c": [1], "d": 2}, "e": {"f": 1}});
        let new = json!({"a": 1, "b": {"c": [1, 2]}, "g": {"h": 1}});
        let wanted = json!({"b": {"c": [1, 2], "d": null}, "e": null, "g": {"h": 1}});
        assert_eq!(patch(&old, &new), Some(wanted));
        assert_eq!(patch(&old, &old), None);
    }
}

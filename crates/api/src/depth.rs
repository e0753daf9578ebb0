//! How deep values may be nested.

use serde_json::Value;

/// The levels that an object may have. Whoever reads JSON with `serde_json`, as every client in Rust does, gives up at
/// 128, and an object is shown within lists and events and beside the record of its field owners, which nests as deep
/// as it does.
pub const MOST_NESTED: usize = 100;

/// Whether there are lists or objects within each other for more than so many levels.
pub fn is_deeper(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(|item| is_deeper(item, levels - 1)),
        Value::Object(fields) => {
            levels == 0 || fields.values().any(|field| is_deeper(field, levels - 1))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::is_deeper;

    #[test]
    fn levels_are_counted_at_the_deepest_place() {
        let value = json!({"a": 1, "b": [{"c": []}]});
        assert!(is_deeper(&value, 3));
        assert!(!is_deeper(&value, 4));
        assert!(!is_deeper(&json!("text"), 0));
    }
}

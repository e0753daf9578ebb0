//! The paths of printer columns.

use local::table::json_path::JsonPath;
use serde_json::{Value, json};

/// A path, a zero byte, and an object as JSON.
pub(crate) fn drive(input: &[u8]) {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let mut part = || parts.next().and_then(|part| std::str::from_utf8(part).ok());
    let (Some(path), object) = (part(), part()) else {
        return;
    };
    let Ok(path) = JsonPath::parse(path) else {
        return;
    };
    let object: Option<Value> = object.and_then(|text| serde_json::from_str(text).ok());
    let object = object.unwrap_or_else(|| {
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "n": 1}]}, "a": [[1], []]})
    });
    path.first(&object);
}

//! The causes of a refusal in a fixed order: servers find faults by walking maps, so their order is open.

use serde_json::Value;

/// Sorts `details.causes`, and the same faults where the message lists them.
pub(crate) fn sort(status: &mut Value) {
    let Some(Value::Array(causes)) = status.pointer_mut("/details/causes") else {
        return;
    };
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
    causes.sort_by_key(|cause| (text(cause, "field"), text(cause, "message")));
    let mut parts: Vec<String> = causes
        .iter()
        .map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message")))
        .collect();
    // a fault found twice is listed twice as a cause and once in the message
    parts.dedup();
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some((head, list)) = message.split_once(": [")
        && let Some(list) = list.strip_suffix(']')
        && list.len() == parts.join(", ").len()
        && parts.iter().all(|part| list.contains(part.as_str()))
    {
        *message = format!("{head}: [{}]", parts.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::sort;
    use serde_json::json;

    #[test]
    fn causes_and_message_are_sorted_together() {
        let mut status = json!({
            "message": "X is invalid: [b: two, a: one]",
            "details": {"causes": [
                {"field": "b", "message": "two"},
                {"field": "a", "message": "one"},
                {"field": "a", "message": "one"},
            ]},
        });
        sort(&mut status);
        assert_eq!(status["message"], "X is invalid: [a: one, b: two]");
        assert_eq!(status["details"]["causes"][2]["field"], "b");
    }
}

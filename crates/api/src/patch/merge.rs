//! JSON merge patch (RFC 7386), with the server's liberty.

use serde_json::Value;

use crate::patch::{PatchError, go};

/// The object after the patch. Lists are replaced, null removes a field.
pub fn apply(mut object: Value, patch: &Value) -> Result<Value, PatchError> {
    if !patch.is_object() {
        return Err(PatchError::BadRequest(format!(
            "error decoding patch: {}",
            go::cannot_unmarshal(patch, go::MAP)
        )));
    }
    json_patch::merge(&mut object, &bare_lists(patch));
    Ok(object)
}

/// The patch with the null fields taken out of objects in its lists, where the RFC would keep them.
fn bare_lists(patch: &Value) -> Value {
    match patch {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), bare_lists(value)))
            .collect(),
        Value::Array(items) => items.iter().map(bare).collect(),
        scalar => scalar.clone(),
    }
}

fn bare(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), bare(value)))
            .collect(),
        Value::Array(items) => items.iter().map(bare).collect(),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::apply;

    #[test]
    fn nulls_go_from_objects_in_lists_and_stay_in_lists() {
        let patch =
            json!({"a": null, "b": {"c": null, "d": [{"e": null, "f": [{"g": null}]}, null]}});
        assert_eq!(
            apply(json!({"a": 1}), &patch).unwrap(),
            json!({"b": {"d": [{"f": [{}]}, null]}})
        );
    }
}

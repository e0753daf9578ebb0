//! JSON patch (RFC 6902), with the server's liberties.

use json_patch::{AddOperation, Patch, PatchOperation};
use serde_json::Value;

use crate::patch::{PatchError, go};

/// The longest patch that the API server takes.
const MAX_OPERATIONS: usize = 10_000;

/// The object after all operations of the patch.
pub fn apply(mut object: Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Array(operations) = patch else {
        return Err(PatchError::BadRequest(format!(
            "error decoding patch: {}",
            go::cannot_unmarshal(patch, "[]handlers.jsonPatchOp")
        )));
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    for operation in operations {
        object = apply_one(object, operation)
            .map_err(|error| PatchError::Unprocessable(error.to_string()))?;
    }
    Ok(object)
}

fn apply_one(
    mut object: Value,
    operation: &Value,
) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
    let mut operation: PatchOperation = serde_json::from_value(operation.clone())?;
    // the server lets a field be replaced that is not there
    if let PatchOperation::Replace(replace) = &operation {
        let parent = replace.path.parent();
        let parent = parent.and_then(|parent| parent.resolve(&object).ok());
        if parent.is_some_and(Value::is_object) {
            operation = PatchOperation::Add(AddOperation {
                path: replace.path.clone(),
                value: replace.value.clone(),
            });
        }
    }
    json_patch::patch(&mut object, &Patch(vec![operation]))?;
    Ok(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::apply;

    #[test]
    fn a_patch_that_fails_half_way_says_which_code_and_keeps_its_reason_back() {
        let patch =
            json!([{"op": "add", "path": "/a", "value": 1}, {"op": "remove", "path": "/b"}]);
        let error = apply(json!({}), &patch).unwrap_err();
        assert_eq!(error.code(), 422);
        assert_eq!(error.status()["reason"], "Invalid");
        let too_long = vec![json!({"op": "test", "path": "", "value": {}}); 10_001];
        assert_eq!(apply(json!({}), &too_long.into()).unwrap_err().code(), 413);
    }
}

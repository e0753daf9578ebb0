//! JSON patch (RFC 6902), with the server's liberties.

use std::borrow::Cow;

use json_patch::{AddOperation, CopyOperation, MoveOperation, Patch, PatchOperation};
use serde_json::Value;

use crate::depth::{MOST_NESTED, is_deeper};
use crate::patch::{PatchError, go};

/// The longest patch that the API server takes.
const MAX_OPERATIONS: usize = 10_000;
/// How many bytes the copies of one patch may make: a few of them can double a list without end.
const MAX_COPIED: usize = 3 * 1024 * 1024;

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
    let mut copied = 0;
    for operation in operations {
        object = apply_one(object, operation, &mut copied)
            .map_err(|error| PatchError::Unprocessable(error.to_string()))?;
    }
    match object {
        Value::Object(_) => Ok(object),
        other => Err(PatchError::Unprocessable(format!("{other} is no object"))),
    }
}

type Fault = Box<dyn std::error::Error + Send + Sync>;

fn apply_one(mut object: Value, operation: &Value, copied: &mut usize) -> Result<Value, Fault> {
    let mut operation: PatchOperation = serde_json::from_value(liberal(operation, &object))?;
    bound(&operation, &object, copied)?;
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

/// Refuses to copy too much, and to put a value so deep that nothing could walk over the result.
fn bound(operation: &PatchOperation, object: &Value, copied: &mut usize) -> Result<(), Fault> {
    let (path, value) = match operation {
        PatchOperation::Add(add) => (&add.path, Some(&add.value)),
        PatchOperation::Replace(replace) => (&replace.path, Some(&replace.value)),
        PatchOperation::Move(MoveOperation { from, .. })
        | PatchOperation::Copy(CopyOperation { from, .. })
            if from.is_root() =>
        {
            return Err("the whole object cannot go into itself".into());
        }
        PatchOperation::Move(step) => (&step.path, step.from.resolve(object).ok()),
        PatchOperation::Copy(step) => {
            let value = step.from.resolve(object).ok();
            *copied += value.map_or(0, written_length);
            if *copied > MAX_COPIED {
                return Err(format!("the copies have {copied} bytes").into());
            }
            (&step.path, value)
        }
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return Ok(()),
    };
    let rest = MOST_NESTED.saturating_sub(path.count());
    match value.is_some_and(|value| is_deeper(value, rest)) {
        true => Err(format!("the result is nested deeper than {MOST_NESTED} levels").into()),
        false => Ok(()),
    }
}

/// The bytes of a value as JSON.
fn written_length(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // counting cannot fail
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// The operation with the server's liberties: a value that is left out is null, what is copied need not exist, and
/// elements of lists may be counted from the end.
fn liberal(operation: &Value, object: &Value) -> Value {
    let mut operation = operation.clone();
    let Some(fields) = operation.as_object_mut() else {
        return operation;
    };
    let name = fields.get("op").and_then(Value::as_str).unwrap_or_default();
    let puts = matches!(name, "add" | "copy" | "move");
    for key in ["path", "from"] {
        if let Some(Value::String(path)) = fields.get(key) {
            // what is put into a list may stand behind its end
            let behind = usize::from(key == "path" && puts);
            let path = counted_from_start(&escaped(path), object, behind);
            fields.insert(key.to_owned(), path.into());
        }
    }
    let name = fields.get("op").and_then(Value::as_str).unwrap_or_default();
    let missing = match name {
        "add" | "replace" | "test" => !fields.contains_key("value"),
        "copy" => {
            let from = fields.get("from").and_then(Value::as_str);
            from.is_some_and(|from| object.pointer(from).is_none() && parent_exists(from, object))
        }
        _ => false,
    };
    if missing {
        if name == "copy" {
            fields.insert("op".to_owned(), "add".into());
        }
        fields.insert("value".to_owned(), Value::Null);
    }
    operation
}

/// A tilde that escapes nothing stands for itself.
fn escaped(path: &str) -> Cow<'_, str> {
    let mut parts = path.split('~');
    let mut out = Cow::Borrowed(parts.next().unwrap_or_default());
    for part in parts {
        let mark = if part.starts_with(['0', '1']) {
            "~"
        } else {
            "~0"
        };
        out += mark;
        out += part;
    }
    out
}

fn parent_exists(path: &str, object: &Value) -> bool {
    let parent = path.rsplit_once('/').map(|(parent, _)| parent);
    parent.is_some_and(|parent| object.pointer(parent).is_some_and(Value::is_object))
}

fn counted_from_start(path: &str, object: &Value, behind: usize) -> String {
    let Some((parent, last)) = path.rsplit_once('/') else {
        return path.to_owned();
    };
    let Some(list) = object.pointer(parent).and_then(Value::as_array) else {
        return path.to_owned();
    };
    let index = match last.strip_prefix('-') {
        Some(back) => back
            .parse()
            .ok()
            .and_then(|back| (list.len() + behind).checked_sub(back)),
        // zeros may stand in front
        None => last.parse().ok(),
    };
    match index {
        Some(index) => format!("{parent}/{index}"),
        None => path.to_owned(),
    }
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

    #[test]
    fn copies_cannot_grow_without_end() {
        let double = json!({"op": "copy", "from": "/a", "path": "/a/-"});
        let error = apply(json!({"a": ["x"]}), &vec![double; 40].into()).unwrap_err();
        assert_eq!(error.code(), 422);
        let nest = json!({"op": "copy", "from": "/a", "path": "/a/a"});
        let error = apply(json!({"a": {"b": 1}}), &vec![nest; 120].into()).unwrap_err();
        assert_eq!(error.code(), 422);
    }
}

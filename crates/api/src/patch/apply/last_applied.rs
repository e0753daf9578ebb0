//! From `kubectl apply` of old, which remembers in an annotation, to server-side apply.

use serde_json::Value;

use super::{
    FieldSet, Kind,
    typed::{compare, field_set, validate},
};
use crate::patch::go;

/// The only manager for which the annotation is heeded: kubectl's server-side apply.
pub(super) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What all annotations of an object may take together.
const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;

/// The fields of the annotation that the live object still has as they were applied: kubectl may take
/// them from whoever owns them, since that was kubectl too.
pub(super) fn matching_fields(
    kind: &impl Kind,
    live: &Value,
    api_version: &str,
) -> Option<FieldSet> {
    let annotation = live["metadata"]["annotations"][ANNOTATION].as_str()?;
    let last: Value = serde_json::from_str(annotation).ok()?;
    let schema = kind.type_in(api_version)?;
    let fits = |object: &Value| validate(schema, object, false, None).is_empty();
    if last["apiVersion"] != api_version || !fits(live) || !fits(&last) {
        return None;
    }
    let differs = compare(schema, &last, live);
    Some(
        field_set(schema, &last)
            .difference(&differs.modified)
            .difference(&differs.added)
            .difference(&differs.removed),
    )
}

/// Keeps the annotation true, for tools that still read it; an object without it does not get one.
pub(super) fn sync(object: &mut Value, applied: &Value) {
    let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") else {
        return;
    };
    let has = annotations
        .get(ANNOTATION)
        .and_then(Value::as_str)
        .is_some_and(|text| !text.is_empty());
    if !has {
        return;
    }
    let mut applied = applied.clone();
    if let Some(Value::Object(own)) = applied.pointer_mut("/metadata/annotations") {
        own.remove(ANNOTATION);
    }
    let text = format!("{}\n", go::escape_html(&applied.to_string()));
    annotations.insert(ANNOTATION.to_owned(), text.into());
    let size: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > ANNOTATIONS_MAX_BYTES {
        annotations.remove(ANNOTATION);
    }
}

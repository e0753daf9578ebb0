//! Events are one resource with two faces: that of the core group, which is stored, and that of `events.k8s.io`.

use serde_json::{Value, json};

use super::resource::Resource;

pub(super) const GROUP: &str = "events.k8s.io";

/// The names of fields that differ: in the core group, in `events.k8s.io`.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// What the core group writes though it is empty.
const ALWAYS: &[&str] = &["reportingComponent", "reportingInstance"];

pub(super) fn to_stored(resource: &Resource, object: Value) -> Value {
    if resource.group != GROUP {
        return object;
    }
    let mut stored = renamed(object, "v1", |(core, own)| (own, core));
    if let Some(fields) = stored.as_object_mut() {
        for name in ALWAYS {
            fields.entry(*name).or_insert_with(|| json!(""));
        }
    }
    stored
}

pub(super) fn from_stored(resource: &Resource, object: Value) -> Value {
    match resource.group == GROUP {
        true => renamed(object, "events.k8s.io/v1", |(core, own)| (core, own)),
        false => object,
    }
}

fn renamed(
    mut object: Value,
    api_version: &str,
    direction: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) -> Value {
    object["apiVersion"] = json!(api_version);
    if let Some(fields) = object.as_object_mut() {
        for (from, to) in NAMES.iter().copied().map(direction) {
            if let Some(value) = fields.remove(from) {
                fields.insert(to.to_owned(), value);
            }
        }
    }
    object
}

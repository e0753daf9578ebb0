//! CustomResourceDefinitions: what is filled in, what is refused, which names are accepted, and what they let the API
//! serve. Everything here is pure.

mod approval;
mod conversion;
mod fields;
mod serve;
mod shown;
mod status;
mod validate;

use api::structural::unrecognized_formats;
use serde_json::{Map, Value, json};

pub use serve::{newest_first, resources};
pub use status::{Cleanup, FINALIZER, begin_deletion, next_status, set_cleanup};

use crate::kinds::{Part, Rules};

/// The rules of the kind.
pub const RULES: Rules = Rules {
    generation: true,
    default,
    prepare_create,
    validate: validate::create,
    prepare_update,
    validate_update: validate::update,
    warnings,
    ..Rules::PLAIN
};

fn default(definition: &mut Value) {
    let spec = object(&mut definition["spec"]);
    let kind = text(spec.get("names"), "kind").to_owned();
    let names = object(spec.entry("names").or_insert_with(|| json!({})));
    if !kind.is_empty() {
        for (name, value) in [
            ("singular", kind.to_lowercase()),
            ("listKind", format!("{kind}List")),
        ] {
            let unset = names.get(name).is_none_or(|value| value == "");
            if unset {
                names.insert(name.to_owned(), value.into());
            }
        }
    }
    spec.entry("conversion")
        .or_insert_with(|| json!({"strategy": "None"}));
    if let Some(service) = definition.pointer_mut("/spec/conversion/webhook/clientConfig/service") {
        object(service).entry("port").or_insert_with(|| json!(443));
    }
    let stored = definition.pointer("/status/storedVersions");
    if stored.and_then(Value::as_array).is_none_or(Vec::is_empty) {
        note_stored_version(definition);
    }
}

fn prepare_create(definition: &mut Value) {
    definition["status"] = json!({"acceptedNames": {"kind": "", "plural": ""}});
    definition["metadata"]["generation"] = json!(1);
    note_stored_version(definition);
}

fn prepare_update(new: &mut Value, old: &Value, part: Part) {
    match part {
        Part::Status => new["spec"] = old["spec"].clone(),
        _ => {
            new["status"] = old["status"].clone();
            note_stored_version(new);
        }
    }
}

/// What the server tells about a definition that it accepts: formats that it will not check, unless they were there
/// before.
pub fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let formats = |definition: &Value| -> Vec<String> {
        let schemas = versions(definition).iter();
        schemas
            .filter_map(|version| version.pointer("/schema/openAPIV3Schema"))
            .flat_map(unrecognized_formats)
            .collect()
    };
    let before = old.map(formats).unwrap_or_default();
    let mut said = Vec::new();
    for format in formats(new) {
        let warning = format!("unrecognized format {format:?}");
        if !before.contains(&format) && !said.contains(&warning) {
            said.push(warning);
        }
    }
    said
}

/// Objects may be stored in every version that ever was the one to store.
fn note_stored_version(definition: &mut Value) {
    let stores = |version: &&Value| version["storage"] == true;
    let Some(name) = versions(definition)
        .iter()
        .find(stores)
        .map(|version| version["name"].clone())
    else {
        return;
    };
    let status = object(&mut definition["status"]);
    let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
    if stored.is_null() {
        *stored = json!([]);
    }
    if let Value::Array(stored) = stored
        && !stored.contains(&name)
    {
        stored.push(name);
    }
}

/// The object that a value is, made if it is none.
fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(fields) => fields,
        other => unreachable!("was just made an object: {other}"),
    }
}

fn versions(definition: &Value) -> &[Value] {
    items(definition.pointer("/spec/versions"))
}

fn items(value: Option<&Value>) -> &[Value] {
    value
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn text<'a>(value: Option<&'a Value>, name: &str) -> &'a str {
    value
        .and_then(|value| value.get(name))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;

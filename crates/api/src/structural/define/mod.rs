//! Whether a schema may stand in a CRD at all: it must be structural, its defaults valid, its rules compile.

mod defaults;
mod expressions;
mod keywords;
mod structure;
mod types;

use serde_json::{Map, Value};

use super::{
    error::FieldError,
    golang,
    node::{Node, flag, text},
};
use crate::shared::Shared;

/// Where in a CRD a schema stands.
#[derive(Clone, Debug)]
pub struct Place {
    /// `spec.versions[0].schema.openAPIV3Schema`; the API server says `spec.validation.openAPIV3Schema` where all
    /// versions have the same schema.
    pub path: String,
    /// Whether the version has the status subresource.
    pub status_subresource: bool,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            path: "spec.validation.openAPIV3Schema".to_owned(),
            status_subresource: false,
        }
    }
}

/// Keywords that the root may have when the status has a schema of its own.
const ALLOWED_BESIDE_STATUS: &[&str] = &[
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

const ALLOWED_BESIDE_STATUS_SAID: &str = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum \
    ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties \
    ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the \
    status subresource is enabled";

/// The schema compiled, or what is wrong with it.
pub(super) fn check(schema: &Value, place: &Place) -> Result<Shared<Node>, Vec<FieldError>> {
    let path = place.path.as_str();
    let Value::Object(root) = schema else {
        return Err(vec![FieldError::required(path, "schemas are required")]);
    };
    let mut errors = Vec::new();
    if place.status_subresource {
        beside_status(root, path, &mut errors);
    }
    if flag(root, "nullable") {
        let field = format!("{path}.nullable");
        errors.push(FieldError::forbidden(
            field,
            "nullable cannot be true at the root",
        ));
    }
    // before anything looks at a pattern, so that each is compiled once: the nodes hold them
    let node = Node::of(root);
    let unsupported = structure::unsupported(root);
    let mut sound = false;
    if unsupported.is_none() {
        let mut found = structure::check(root, path);
        if found.is_empty() {
            found = defaults::check(schema, &node, path);
        }
        sound = found.is_empty();
        errors.extend(found);
    }
    errors.extend(keywords::check(root, path, sound));
    match unsupported {
        _ if !errors.is_empty() => Err(errors),
        Some(problem) => {
            let shown = golang::quote("");
            Err(vec![FieldError::with_shown(path, shown, &problem)])
        }
        None => Ok(node),
    }
}

fn beside_status(root: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(name) = text(root, "type").filter(|name| *name != "object") {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is \
             enabled";
        errors.push(FieldError::invalid(
            format!("{path}.type"),
            &name.into(),
            detail,
        ));
        return;
    }
    if root
        .keys()
        .any(|key| !ALLOWED_BESIDE_STATUS.contains(&key.as_str()))
    {
        let shown = golang::json(&Value::Object(root.clone()));
        errors.push(FieldError::with_shown(
            path,
            shown,
            ALLOWED_BESIDE_STATUS_SAID,
        ));
    }
}

/// The schema objects under a keyword that holds named schemas.
fn named<'a>(
    schema: &'a Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = (&'a String, &'a Map<String, Value>)> {
    schema
        .get(key)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(name, schema)| Some((name, schema.as_object()?)))
}

/// The schema objects under a keyword that holds a list.
fn listed<'a>(
    schema: &'a Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'a Map<String, Value>> {
    schema
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
}

/// The schema object under a keyword.
fn single<'a>(schema: &'a Map<String, Value>, key: &str) -> Option<&'a Map<String, Value>> {
    schema.get(key).and_then(Value::as_object)
}

/// Whether a keyword is there and says something.
fn said(schema: &Map<String, Value>, key: &str) -> bool {
    match schema.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(Value::Bool(true) | Value::Number(_)) => true,
    }
}

/// Whether a keyword is there, whatever it says.
fn present(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key).is_some_and(|value| !value.is_null())
}

//! Checks of what a version of a CRD has beside its schema: columns, subresources, fields for selectors.

use std::collections::BTreeSet;

use api::structural::{FieldError, Reason};
use serde_json::{Value, json};

use super::{items, text};

const COLUMN_TYPES: &str = "boolean,date,integer,number,string";
const COLUMN_FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";
const MOST_SELECTABLE: usize = 8;

pub(super) fn columns(columns: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, column) in items(Some(columns)).iter().enumerate() {
        let at = |name: &str| format!("{path}[{index}].{name}");
        let of = |name: &str| text(Some(column), name);
        let known = |list: &str, name: &str| list.split(',').any(|known| known == of(name));
        if of("name").is_empty() {
            errors.push(FieldError::required(at("name"), ""));
        }
        let detail = format!("must be one of {COLUMN_TYPES}");
        if of("type").is_empty() {
            errors.push(FieldError::required(at("type"), &detail));
        } else if !known(COLUMN_TYPES, "type") {
            errors.push(FieldError::invalid(at("type"), &column["type"], &detail));
        }
        if !of("format").is_empty() && !known(COLUMN_FORMATS, "format") {
            let detail = format!("must be one of {COLUMN_FORMATS}");
            errors.push(FieldError::invalid(
                at("format"),
                &column["format"],
                &detail,
            ));
        }
        match of("jsonPath") {
            "" => errors.push(FieldError::required(at("JSONPath"), "")),
            path => errors.extend(simple_path(path, at("JSONPath"))),
        }
    }
}

fn simple_path(path: &str, field: String) -> Option<FieldError> {
    let detail = "must be a simple json path starting with .";
    (!path.starts_with('.')).then(|| FieldError::invalid(field, &json!(path), detail))
}

pub(super) fn subresources(subresources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(scale) = subresources.get("scale") else {
        return;
    };
    let spec = (".spec.", "should be a json path under .spec");
    let status = (".status.", "should be a json path under .status");
    for (name, (prefix, detail)) in [("specReplicasPath", spec), ("statusReplicasPath", status)] {
        let field = format!("{path}.scale.{name}");
        match text(Some(scale), name) {
            "" => errors.push(FieldError::required(field, "")),
            path => match simple_path(path, field.clone()) {
                Some(error) => errors.push(error),
                None if !path.starts_with(prefix) => {
                    errors.push(FieldError::invalid(field, &json!(path), detail));
                }
                None => {}
            },
        }
    }
    let selector = text(Some(scale), "labelSelectorPath");
    if selector.is_empty() {
        return;
    }
    let field = format!("{path}.scale.labelSelectorPath");
    match simple_path(selector, field.clone()) {
        Some(error) => errors.push(error),
        None if !selector.starts_with(".spec.") && !selector.starts_with(".status.") => {
            let detail = "should be a json path under either .spec or .status";
            errors.push(FieldError::invalid(field, &json!(selector), detail));
        }
        None => {}
    }
}

/// Fields that selectors may name must be there, and be plain values.
pub(super) fn selectable(
    fields: &[Value],
    schema: &Value,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let mut known = BTreeSet::new();
    for (index, selectable) in fields.iter().enumerate() {
        let field = format!("{path}[{index}].jsonPath");
        let json_path = text(Some(selectable), "jsonPath");
        let mut wrong = |detail: &str| {
            errors.push(FieldError::invalid(
                field.clone(),
                &json!(json_path),
                detail,
            ));
        };
        if json_path.is_empty() {
            errors.push(FieldError::required(field, ""));
            continue;
        }
        let found = match resolve(json_path, schema) {
            Ok(found) => found,
            Err(problem) => {
                wrong(&format!("is an invalid path: {problem}"));
                continue;
            }
        };
        if json_path == ".metadata" || json_path.starts_with(".metadata.") {
            wrong("must not point to fields in metadata");
        }
        if !matches!(text(Some(found), "type"), "string" | "boolean" | "integer") {
            wrong(
                "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                 formats are allowed.",
            );
        }
        if !known.insert(json_path) {
            errors.push(FieldError::with_value(
                Reason::Duplicate,
                field,
                &json!(json_path),
                "",
            ));
        }
    }
    if known.len() > MOST_SELECTABLE {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let (found, most) = (number(known.len()), number(MOST_SELECTABLE));
        errors.push(FieldError::too_many(path, found, most));
    }
}

/// The schema of the field that a path leads to.
fn resolve<'a>(path: &str, schema: &'a Value) -> Result<&'a Value, String> {
    let mut schema = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let Some(tail) = rest.strip_prefix('.') else {
            let end = rest.find(['.', '[', ']']).unwrap_or(rest.len()).max(1);
            return Err(match &rest[..end] {
                "[" => "array notation is not allowed".to_owned(),
                token => format!("expected [ or . but got: {token}"),
            });
        };
        if tail.is_empty() {
            return Err("unexpected end of JSON path".to_owned());
        }
        let end = tail.find(['.', '[', ']']).unwrap_or(tail.len()).max(1);
        let (name, after) = tail.split_at(end);
        rest = after;
        let inner = match schema.get("properties") {
            Some(properties) => properties.get(name),
            None => schema
                .get("additionalProperties")
                .filter(|schema| schema.is_object()),
        };
        schema = inner.ok_or("does not refer to a valid field")?;
    }
    Ok(schema)
}

//! The fields behind the scale subresource are numbers of replicas.

use serde_json::{Value, json};

use super::{error::FieldError, golang::Num};

/// Where the scale subresource finds its numbers: JSON paths such as `.spec.replicas`.
#[derive(Clone, Debug)]
pub struct Scale {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

impl Scale {
    /// The names on the way to the fields that are checked.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let paths = [&self.spec_replicas, &self.status_replicas];
        let paths = paths.into_iter().chain(&self.label_selector);
        paths.flat_map(|path| path.split('.'))
    }

    pub(super) fn check_spec(&self, object: &Value, errors: &mut Vec<FieldError>) {
        replicas(&self.spec_replicas, object, errors);
    }

    pub(super) fn check_status(&self, object: &Value, errors: &mut Vec<FieldError>) {
        replicas(&self.status_replicas, object, errors);
        if let Some(path) = &self.label_selector
            && let Err(problem) = find(object, path, "string", Value::is_string)
        {
            errors.push(FieldError::invalid(path.as_str(), &json!(""), &problem));
        }
    }
}

fn replicas(path: &str, object: &Value, errors: &mut Vec<FieldError>) {
    let whole = |value: &Value| matches!(value, Value::Number(number) if number.is_i64());
    let mut add = |number: i64, detail: &str| {
        errors.push(FieldError::invalid(path, &json!(number), detail));
    };
    match find(object, path, "int64", whole) {
        Err(problem) => add(0, &problem),
        Ok(found) => match found.and_then(Value::as_i64) {
            Some(number) if number < 0 => add(number, "should be a non-negative integer"),
            Some(number) if number > i64::from(i32::MAX) => {
                add(
                    number,
                    &format!("should be less than or equal to {}", i32::MAX),
                );
            }
            _ => {}
        },
    }
}

/// The value at a path, or what is wrong with it.
fn find<'a>(
    object: &'a Value,
    path: &str,
    wanted: &str,
    fits: impl Fn(&Value) -> bool,
) -> Result<Option<&'a Value>, String> {
    let names: Vec<_> = path.trim_start_matches('.').split('.').collect();
    let mut value = object;
    for name in &names {
        if value.is_null() {
            return Ok(None);
        }
        let Value::Object(fields) = value else {
            let place = names.join(".");
            return Err(complaint(&place, value, "map[string]interface{}"));
        };
        match fields.get(*name) {
            Some(found) => value = found,
            None => return Ok(None),
        }
    }
    match fits(value) {
        true => Ok(Some(value)),
        false => Err(complaint(&names.join("."), value, wanted)),
    }
}

fn complaint(place: &str, value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) => match Num::of(number) {
            Num::Int(_) => "int64",
            Num::Float(_) => "float64",
        },
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    let shown = printed(value);
    format!(".{place} accessor error: {shown} is of the type {found}, expected {wanted}")
}

/// A value as Go prints it when nobody says how.
fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => Num::of(number).to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(printed).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let entry = |(name, value): (&String, &Value)| format!("{name}:{}", printed(value));
            let entries: Vec<_> = fields.iter().map(entry).collect();
            format!("map[{}]", entries.join(" "))
        }
    }
}

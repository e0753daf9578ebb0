//! Structural schemas: every field has its type outside of value validations, and those add no structure.

use serde_json::{Map, Value, json};

use super::{listed, named, present, said, single};
use crate::structural::{
    error::FieldError,
    node::{flag, text},
    pattern::Pattern,
};

type Object = Map<String, Value>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// What keeps a schema from being read as a structural one.
pub(super) fn unsupported(schema: &Object) -> Option<String> {
    const KEYS: &[(&str, &str)] = &[
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ];
    if let Some((_, name)) = KEYS.iter().find(|(key, _)| said(schema, key)) {
        return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
    }
    if schema.get("items").is_some_and(Value::is_array) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let problem =
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined";
        return Some(problem.to_owned());
    }
    let singles = ["items", "additionalProperties", "not"]
        .into_iter()
        .filter_map(|key| single(schema, key));
    let lists = ["anyOf", "allOf", "oneOf"]
        .into_iter()
        .flat_map(|key| listed(schema, key));
    singles
        .chain(lists)
        .chain(named(schema, "properties").map(|(_, schema)| schema))
        .find_map(unsupported)
}

/// All offences against structurality, sorted by their text.
pub(super) fn check(schema: &Object, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    invariants(schema, Level::Root, path, &mut errors);
    validation_complete(schema, Some(schema), path, path, &mut errors);
    errors.sort_by_key(ToString::to_string);
    errors
}

fn invariants(schema: &Object, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type").unwrap_or_default();
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let preserve = flag(schema, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = flag(schema, "x-kubernetes-int-or-string");
    if kind == "array" && !present(schema, "items") {
        errors.push(FieldError::required(
            format!("{path}.items"),
            "must be specified",
        ));
    }
    if let Some(items) = single(schema, "items") {
        invariants(items, Level::Item, &format!("{path}.items"), errors);
    }
    for (name, property) in named(schema, "properties") {
        invariants(
            property,
            Level::Field,
            &format!("{path}.properties[{name}]"),
            errors,
        );
    }
    let additional = format!("{path}.additionalProperties");
    if present(schema, "additionalProperties") {
        if level == Level::Root {
            errors.push(FieldError::forbidden(
                additional.as_str(),
                "must not be used at the root",
            ));
        }
        if let Some(each) = single(schema, "additionalProperties") {
            invariants(each, Level::Field, &additional, errors);
        }
        if embedded {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            errors.push(FieldError::forbidden(additional.as_str(), detail));
        }
    }
    for (wrong, key) in [
        (preserve, "x-kubernetes-preserve-unknown-fields"),
        (embedded, "x-kubernetes-embedded-resource"),
    ] {
        if int_or_string && wrong {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(
                format!("{path}.{key}"),
                &json!(true),
                detail,
            ));
        }
    }
    validations(
        schema,
        int_or_string_any_of(schema),
        int_or_string_all_of(schema),
        path,
        errors,
    );
    types(schema, level, path, errors);
    resource(schema, level, path, errors);
    if embedded && !preserve && !said(schema, "properties") {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
             x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{path}.properties"), detail));
    }
}

fn types(schema: &Object, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type").unwrap_or_default();
    let field = format!("{path}.type");
    if flag(schema, "x-kubernetes-embedded-resource") && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match kind {
            "" => FieldError::required(field.as_str(), detail),
            kind => FieldError::invalid(field.as_str(), &json!(kind), detail),
        });
    } else if kind.is_empty()
        && !flag(schema, "x-kubernetes-int-or-string")
        && !flag(schema, "x-kubernetes-preserve-unknown-fields")
    {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(field.as_str(), detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(
            field,
            &json!(kind),
            "must be object at the root",
        ));
    }
}

/// What a resource says of its own type and metadata.
fn resource(schema: &Object, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let is_resource = level == Level::Root || flag(schema, "x-kubernetes-embedded-resource");
    let properties = single(schema, "properties");
    let property = |name: &str| properties.and_then(|all| all.get(name)?.as_object());
    for name in ["kind", "apiVersion"] {
        if let Some(property) = property(name).filter(|_| is_resource) {
            let kind = text(property, "type").unwrap_or_default();
            if kind != "string" {
                let field = format!("{path}.properties[{name}].type");
                errors.push(FieldError::invalid(field, &json!(kind), "must be string"));
            }
        }
    }
    let Some(metadata) = property("metadata") else {
        return;
    };
    let field = format!("{path}.properties[metadata]");
    let kind = text(metadata, "type").unwrap_or_default();
    if is_resource && kind != "object" {
        errors.push(FieldError::invalid(
            format!("{field}.type"),
            &json!(kind),
            "must be object",
        ));
    }
    if level == Level::Root && !only_names(metadata) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly \
             specified";
        errors.push(FieldError::forbidden(field, detail));
    }
}

fn only_names(metadata: &Object) -> bool {
    let others = metadata
        .keys()
        .filter(|key| !matches!(key.as_str(), "type" | "default" | "properties"));
    let mut others = others.filter(|key| present(metadata, key));
    let known = |name: &str| matches!(name, "name" | "generateName");
    others.next().is_none() && named(metadata, "properties").all(|(name, _)| known(name))
}

fn int_or_string_any_of(schema: &Object) -> bool {
    schema.get("anyOf") == Some(&json!([{"type": "integer"}, {"type": "string"}]))
}

fn int_or_string_all_of(schema: &Object) -> bool {
    listed(schema, "allOf")
        .next()
        .is_some_and(int_or_string_any_of)
}

fn validations(
    schema: &Object,
    skip_any_of: bool,
    skip_first_any_of: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if !skip_any_of {
        for (index, branch) in listed(schema, "anyOf").enumerate() {
            nested(branch, false, &format!("{path}.anyOf[{index}]"), errors);
        }
    }
    for (index, branch) in listed(schema, "allOf").enumerate() {
        let skip = skip_first_any_of && index == 0;
        nested(branch, skip, &format!("{path}.allOf[{index}]"), errors);
    }
    for (index, branch) in listed(schema, "oneOf").enumerate() {
        nested(branch, false, &format!("{path}.oneOf[{index}]"), errors);
    }
    if let Some(not) = single(schema, "not") {
        nested(not, false, &format!("{path}.not"), errors);
    }
    if let Some(source) = text(schema, "pattern")
        && let Err(error) = Pattern::new(source).compiled()
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(
            format!("{path}.pattern"),
            &json!(source),
            &detail,
        ));
    }
}

/// Within a value validation nothing may add structure.
fn nested(schema: &Object, skip_any_of: bool, path: &str, errors: &mut Vec<FieldError>) {
    const FORBIDDEN: &[(&str, &str)] = &[
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        (
            "x-kubernetes-preserve-unknown-fields",
            "must be false to be structural",
        ),
        (
            "x-kubernetes-embedded-resource",
            "must be false to be structural",
        ),
        (
            "x-kubernetes-int-or-string",
            "must be false to be structural",
        ),
        (
            "x-kubernetes-list-map-keys",
            "must be empty to be structural",
        ),
        (
            "x-kubernetes-list-type",
            "must be undefined to be structural",
        ),
        (
            "x-kubernetes-map-type",
            "must be undefined to be structural",
        ),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];
    validations(schema, skip_any_of, false, path, errors);
    if let Some(items) = single(schema, "items") {
        nested(items, false, &format!("{path}.items"), errors);
    }
    for (name, property) in named(schema, "properties") {
        nested(
            property,
            false,
            &format!("{path}.properties[{name}]"),
            errors,
        );
    }
    for (key, detail) in FORBIDDEN {
        let there = match detail.contains("undefined") {
            true => present(schema, key),
            false => said(schema, key),
        };
        if there {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
        }
    }
    if single(schema, "properties").is_some_and(|all| all.contains_key("metadata")) {
        let field = format!("{path}.properties[metadata]");
        errors.push(FieldError::forbidden(
            field,
            "must not be specified in a nested context",
        ));
    }
}

/// What a value validation at the root speaks of must be there structurally.
fn validation_complete(
    validation: &Object,
    structure: Option<&Object>,
    path: &str,
    from: &str,
    errors: &mut Vec<FieldError>,
) {
    if let Some(not) = single(validation, "not") {
        complete(not, structure, path, &format!("{from}.not"), errors);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, branch) in listed(validation, key).enumerate() {
            complete(
                branch,
                structure,
                path,
                &format!("{from}.{key}[{index}]"),
                errors,
            );
        }
    }
}

fn complete(
    validation: &Object,
    structure: Option<&Object>,
    path: &str,
    from: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(structure) = structure else {
        errors.push(FieldError::required(
            path,
            &format!("because it is defined in {from}"),
        ));
        return;
    };
    validation_complete(validation, Some(structure), path, from, errors);
    if let Some(items) = single(validation, "items") {
        let of_items = single(structure, "items");
        complete(
            items,
            of_items,
            &format!("{path}.items"),
            &format!("{from}.items"),
            errors,
        );
    }
    for (name, property) in named(validation, "properties") {
        let path = format!("{path}.properties[{name}]");
        let from = format!("{from}.properties[{name}]");
        let there = single(structure, "properties").and_then(|all| all.get(name)?.as_object());
        match there {
            Some(there) => complete(property, Some(there), &path, &from, errors),
            None => errors.push(FieldError::required(
                path,
                &format!("because it is defined in {from}"),
            )),
        }
    }
}

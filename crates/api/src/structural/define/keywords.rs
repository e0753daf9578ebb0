//! The keywords of OpenAPI and of Kubernetes, one by one.

use serde_json::{Map, Value, json};

use super::{expressions, listed, named, present, said, single};
use crate::structural::{
    error::FieldError,
    node::{Node, Type, flag, text, texts},
};

type Object = Map<String, Value>;

/// What a schema inherits from those around it.
#[derive(Clone, Default)]
struct Around {
    defaults_forbidden: Option<String>,
    inside_metadata: bool,
    /// The first schema above whose parts cannot be told from the old ones.
    uncorrelatable: Option<String>,
    /// Whether rules are looked at.
    rules: bool,
    root: bool,
}

#[derive(Default)]
struct Found {
    schema: Vec<FieldError>,
    rules: Vec<FieldError>,
}

/// What is wrong with keywords; rules are looked at in a schema that is sound otherwise.
pub(super) fn check(schema: &Object, path: &str, sound: bool) -> Vec<FieldError> {
    let around = Around {
        rules: sound,
        root: true,
        ..Around::default()
    };
    let mut found = visit(schema, path, &around);
    found.schema.append(&mut found.rules);
    found.schema
}

fn visit(schema: &Object, path: &str, around: &Around) -> Found {
    let mut found = Found::default();
    standard(schema, path, around, &mut found.schema);
    if flag(schema, "uniqueItems") {
        let detail =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        found
            .schema
            .push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
    }
    children(schema, path, around, &mut found);
    maps(schema, path, &mut found.schema);
    lists(schema, path, &mut found.schema);
    if schema
        .get("x-kubernetes-validations")
        .is_some_and(Value::is_array)
    {
        expressions::form(schema, path, &mut found.schema);
        if found.schema.is_empty() && around.rules {
            let node = Node::of(schema);
            let uncorrelatable = around.uncorrelatable.as_deref();
            expressions::compile(
                schema,
                &node,
                around.root,
                path,
                uncorrelatable,
                &mut found.rules,
            );
        }
    }
    found
}

fn standard(schema: &Object, path: &str, around: &Around, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type").unwrap_or_default();
    let mut forbid = |key: &str, detail: &str| {
        errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
    };
    if let Some(reason) = &around.defaults_forbidden
        && present(schema, "default")
    {
        forbid("default", &format!("must not be set {reason}"));
    }
    for key in [
        "id",
        "additionalItems",
        "patternProperties",
        "definitions",
        "dependencies",
        "$ref",
    ] {
        if present(schema, key)
            && (key == "additionalItems" || key == "dependencies" || said(schema, key))
        {
            forbid(key, &format!("{key} is not supported"));
        }
    }
    if kind == "null" {
        forbid(
            "type",
            "type cannot be set to null, use nullable as an alternative",
        );
    }
    if schema
        .get("items")
        .and_then(Value::as_array)
        .is_some_and(|items| !items.is_empty())
    {
        forbid("items", "items must be a schema object and not an array");
    }
    if around.inside_metadata && flag(schema, "x-kubernetes-embedded-resource") {
        forbid(
            "x-kubernetes-embedded-resource",
            "must not be used inside of resource meta",
        );
    }
    if !kind.is_empty() && Type::parse(kind).is_none() {
        let names = Type::NAMES.map(str::to_owned);
        errors.push(FieldError::not_supported(
            format!("{path}.type"),
            &json!(kind),
            &names,
        ));
    }
}

fn children(schema: &Object, path: &str, around: &Around, found: &mut Found) {
    let mut go = |schema: &Object, path: &str, around: &Around| {
        let below = visit(schema, path, around);
        found.schema.extend(below.schema);
        found.rules.extend(below.rules);
    };
    let plain = Around {
        root: false,
        ..around.clone()
    };
    if let Some(each) = single(schema, "additionalProperties") {
        let mut below = plain.clone();
        if around.inside_metadata {
            let reason = "inside additionalProperties applying to object metadata";
            below.defaults_forbidden = Some(reason.to_owned());
        }
        go(each, &format!("{path}.additionalProperties"), &below);
    }
    let resource = around.root || flag(schema, "x-kubernetes-embedded-resource");
    for (name, property) in named(schema, "properties") {
        let mut below = plain.clone();
        if resource && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
            below.inside_metadata = true;
            if around.root {
                below.defaults_forbidden = Some(format!("in top-level {name}"));
            }
        }
        go(property, &format!("{path}.properties[{name}]"), &below);
    }
    let silent = Around {
        rules: false,
        ..plain.clone()
    };
    if let Some(not) = single(schema, "not") {
        go(not, &format!("{path}.not"), &silent);
    }
    for key in ["allOf", "oneOf", "anyOf"] {
        for (index, branch) in listed(schema, key).enumerate() {
            go(branch, &format!("{path}.{key}[{index}]"), &silent);
        }
    }
    for (name, definition) in named(schema, "definitions") {
        go(definition, &format!("{path}.definitions[{name}]"), &silent);
    }
    let mut below = plain;
    if text(schema, "x-kubernetes-list-type") != Some("map") {
        below.uncorrelatable.get_or_insert_with(|| path.to_owned());
    }
    if let Some(items) = single(schema, "items") {
        go(items, &format!("{path}.items"), &below);
    }
    for (index, items) in listed(schema, "items").enumerate() {
        go(items, &format!("{path}.items[{index}]"), &below);
    }
}

/// A type that a keyword needs.
fn needs(schema: &Object, wanted: &str, key: &str, path: &str, errors: &mut Vec<FieldError>) {
    let detail = format!("must be {wanted} if {key} is specified");
    let field = format!("{path}.type");
    match text(schema, "type") {
        None => errors.push(FieldError::required(field, &detail)),
        Some(kind) if kind != wanted => {
            errors.push(FieldError::invalid(field, &json!(kind), &detail));
        }
        Some(_) => {}
    }
}

fn maps(schema: &Object, path: &str, errors: &mut Vec<FieldError>) {
    const KEEP: &str = "x-kubernetes-preserve-unknown-fields";
    const MAP_TYPE: &str = "x-kubernetes-map-type";
    let additional = schema
        .get("additionalProperties")
        .filter(|value| !value.is_null());
    if additional.is_some_and(|value| *value != Value::Bool(true)) && said(schema, "properties") {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(
            format!("{path}.additionalProperties"),
            detail,
        ));
    }
    if schema.get(KEEP) == Some(&Value::Bool(false)) {
        let field = format!("{path}.{KEEP}");
        errors.push(FieldError::invalid(
            field,
            &json!(false),
            "must be true or undefined",
        ));
    }
    if let Some(map_type) = text(schema, MAP_TYPE) {
        needs(schema, "object", MAP_TYPE, path, errors);
        if !matches!(map_type, "atomic" | "granular") {
            let supported = ["atomic", "granular"].map(str::to_owned);
            let field = format!("{path}.{MAP_TYPE}");
            errors.push(FieldError::not_supported(
                field,
                &json!(map_type),
                &supported,
            ));
        }
    }
}

fn lists(schema: &Object, path: &str, errors: &mut Vec<FieldError>) {
    const LIST_TYPE: &str = "x-kubernetes-list-type";
    let list_type = text(schema, LIST_TYPE);
    let keys = texts(schema, "x-kubernetes-list-map-keys");
    let items = single(schema, "items");
    let place = format!("{path}.{LIST_TYPE}");
    if list_type.is_some() {
        needs(schema, "array", LIST_TYPE, path, errors);
    }
    if let (Some("set"), Some(items), Some("array")) = (list_type, items, text(schema, "type")) {
        set_of(items, path, errors);
    }
    if let Some(name) = list_type.filter(|name| !matches!(*name, "atomic" | "set" | "map")) {
        let supported = ["atomic", "set", "map"].map(str::to_owned);
        errors.push(FieldError::not_supported(
            place.as_str(),
            &json!(name),
            &supported,
        ));
    }
    if !keys.is_empty() {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => errors.push(FieldError::required(place, detail)),
            Some("map") => {}
            Some(name) => errors.push(FieldError::invalid(place, &json!(name), detail)),
        }
    }
    if list_type == Some("map") {
        keyed(schema, &keys, path, errors);
    }
    if let (Some(name @ ("set" | "map")), Some(items)) = (list_type, items) {
        if flag(items, "nullable") {
            let detail = format!("cannot be nullable when x-kubernetes-list-type is {name}");
            errors.push(FieldError::forbidden(
                format!("{path}.items.nullable"),
                &detail,
            ));
        }
        if name == "map" {
            keys_given(items, &keys, path, errors);
        }
    }
}

/// The items of a set are compared as a whole.
fn set_of(items: &Object, path: &str, errors: &mut Vec<FieldError>) {
    let (key, wrong) = match text(items, "type") {
        Some("array") => {
            let key = "x-kubernetes-list-type";
            (key, text(items, key).is_some_and(|name| name != "atomic"))
        }
        Some("object") => {
            let key = "x-kubernetes-map-type";
            (key, text(items, key) != Some("atomic"))
        }
        _ => return,
    };
    if wrong {
        // the list type is shown for objects too
        let shown = items
            .get("x-kubernetes-list-type")
            .cloned()
            .unwrap_or_default();
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        errors.push(FieldError::invalid(
            format!("{path}.items.{key}"),
            &shown,
            detail,
        ));
    }
}

fn keyed(schema: &Object, keys: &[String], path: &str, errors: &mut Vec<FieldError>) {
    let place = format!("{path}.x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(place.as_str(), detail));
    }
    if !present(schema, "items") {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.items"), detail));
    }
    let Some(items) = single(schema, "items") else {
        return;
    };
    let kind = text(items, "type").unwrap_or_default();
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(
            format!("{path}.items.type"),
            &json!(kind),
            detail,
        ));
        return;
    }
    for (index, key) in keys.iter().enumerate() {
        match single(items, "properties").and_then(|all| all.get(key)?.as_object()) {
            Some(property) => {
                if matches!(text(property, "type"), Some("array" | "object")) {
                    let field = format!("{path}.items.properties[{key}].type");
                    let detail =
                        "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    errors.push(FieldError::invalid(field, &json!(kind), detail));
                }
            }
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(place.as_str(), &json!(keys), detail));
            }
        }
        if keys[..index].contains(key) {
            let detail = "must not contain duplicate entries";
            errors.push(FieldError::invalid(place.as_str(), &json!(keys), detail));
        }
    }
}

/// Every item must have its keys.
fn keys_given(items: &Object, keys: &[String], path: &str, errors: &mut Vec<FieldError>) {
    let required = texts(items, "required");
    for key in keys {
        let Some(property) = single(items, "properties").and_then(|all| all.get(key)?.as_object())
        else {
            continue;
        };
        let place = format!("{path}.items.properties[{key}]");
        if !required.contains(key) && !present(property, "default") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                 property";
            errors.push(FieldError::required(format!("{place}.default"), detail));
        }
        if flag(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(format!("{place}.nullable"), detail));
        }
    }
}

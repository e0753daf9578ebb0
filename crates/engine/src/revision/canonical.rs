//! The canonical form of a template: two templates that mean the same pods have the same form.
//!
//! Nulls, empty lists and maps, zeros that Go cannot tell from absence and spelled-out defaults are dropped, and quantities
//! are written in one way. Fields that the table does not know are kept, so that a newer Kubernetes only ever makes two
//! templates look more different than they are.

use quantity::Quantity;
use serde_json::Value;

use super::types::{Field, Kind, fields};
use crate::{
    image::Reference,
    json::{Object, text},
};

/// The canonical form of a value of the named type. Doing it twice changes nothing.
pub(super) fn canonical(value: &Value, type_name: &'static str) -> Value {
    normal(value, &Kind::Struct(type_name))
}

/// The value in its one spelling.
fn normal(value: &Value, kind: &Kind) -> Value {
    match (kind, value) {
        (Kind::Pointer(inner), _) => normal(value, inner),
        (Kind::Quantity, _) => quantity(value),
        (Kind::List(inner), Value::Array(items)) => {
            items.iter().map(|item| normal(item, inner)).collect()
        }
        (Kind::Map(inner), Value::Object(entries)) => entries
            .iter()
            .map(|(key, entry)| (key.clone(), normal(entry, inner)))
            .collect(),
        (Kind::Struct(name), Value::Object(object)) => structure(object, name),
        _ => value.clone(),
    }
}

fn quantity(value: &Value) -> Value {
    let written = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return value.clone(),
    };
    Quantity::parse(&written).map_or_else(|_| value.clone(), |it| it.exact().into())
}

fn structure(object: &Object, name: &str) -> Value {
    let fields = fields(name);
    let mut out = Object::new();
    for (key, value) in object {
        if value.is_null() {
            continue;
        }
        let field = fields.iter().find(|field| field.name == key);
        let value = match field {
            Some(field) => normal(value, &field.kind),
            None => value.clone(),
        };
        if field.is_none_or(|field| says_something(&value, field)) {
            out.insert(key.clone(), value);
        }
    }
    finish(&mut out, name);
    Value::Object(out)
}

fn says_something(value: &Value, field: &Field) -> bool {
    if field.default.as_ref() == Some(value) {
        return false;
    }
    matches!(field.kind, Kind::Pointer(_)) || !is_zero(value, &field.kind)
}

/// Whether Go could not tell the value from none.
fn is_zero(value: &Value, kind: &Kind) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty() || (matches!(kind, Kind::Quantity) && text == "0e0"),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}

/// Defaults that depend on more than one field.
fn finish(object: &mut Object, name: &str) {
    match name {
        "PodSpec" => pod_spec(object),
        "Container" => container(object),
        "Volume" => volume(object),
        "ImageVolumeSource" => drop_pull_policy(object, "reference", "pullPolicy"),
        _ => {}
    }
}

fn pod_spec(spec: &mut Object) {
    // the old name of the field holds only where the new one is not set
    if let Some(account) = spec.remove("serviceAccount") {
        spec.entry("serviceAccountName").or_insert(account);
    }
    let on_host = spec.get("hostNetwork") == Some(&Value::Bool(true));
    if !on_host {
        return;
    }
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let ports = container.get_mut("ports").and_then(Value::as_array_mut);
            ports.into_iter().flatten().for_each(drop_host_port);
        }
    }
}

fn drop_host_port(port: &mut Value) {
    let same = port.get("hostPort") == port.get("containerPort");
    if let Some(port) = port.as_object_mut().filter(|_| same) {
        port.remove("hostPort");
    }
}

fn container(container: &mut Object) {
    drop_pull_policy(container, "image", "imagePullPolicy");
    if let Some(Value::Array(policies)) = container.get_mut("resizePolicy") {
        policies.retain(|policy| text(policy, "restartPolicy") != "NotRequired");
    }
    drop_if_empty(container, "resizePolicy");
    if let Some(Value::Object(resources)) = container.get_mut("resources") {
        drop_requests_like_limits(resources);
    }
    drop_if_empty(container, "resources");
}

/// What is limited and not requested is requested up to the limit.
fn drop_requests_like_limits(resources: &mut Object) {
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
        return;
    };
    if let Some(Value::Object(requests)) = resources.get_mut("requests") {
        requests.retain(|name, amount| limits.get(name) != Some(amount));
    }
    drop_if_empty(resources, "requests");
}

fn volume(volume: &mut Object) {
    let only_source = volume.keys().all(|key| key == "name" || key == "emptyDir");
    if only_source {
        drop_if_empty(volume, "emptyDir");
    }
}

fn drop_pull_policy(object: &mut Object, image: &str, policy: &str) {
    let image = object.get(image).and_then(Value::as_str);
    let default = Reference::of(image.unwrap_or_default()).default_pull_policy();
    if object.get(policy).and_then(Value::as_str) == Some(default) {
        object.remove(policy);
    }
}

fn drop_if_empty(object: &mut Object, field: &str) {
    let is_empty = match object.get(field) {
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(entries)) => entries.is_empty(),
        _ => false,
    };
    if is_empty {
        object.remove(field);
    }
}

//! Strategic merge patch: lists merge by the keys that the type declares, and the patch may hold
//! directives (`$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`).

mod lists;

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::patch::{
    PatchError, go,
    types::{Field, PatchMeta, TypeRef},
};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";

type Object = Map<String, Value>;

/// The object after the patch. The type is one of Kubernetes' own: custom kinds have no strategies,
/// and the server refuses this patch type for them.
pub fn apply(object: Value, patch: &Value, schema: TypeRef<'_>) -> Result<Value, PatchError> {
    let Value::Object(object) = object else {
        return Err(bad_request("invalid JSON document"));
    };
    let Value::Object(patch) = patch else {
        return Err(PatchError::BadRequest(go::cannot_unmarshal(patch, go::MAP)));
    };
    merge_maps(object, patch.clone(), schema).map(Value::Object)
}

fn merge_maps(
    mut original: Object,
    mut patch: Object,
    schema: TypeRef<'_>,
) -> Result<Object, PatchError> {
    if let Some(directive) = patch.get(PATCH) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(PATCH);
                Ok(bare_fields(patch))
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(unknown_directive(directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    let ordered: Vec<String> = patch
        .keys()
        .filter(|key| key.starts_with(SET_ELEMENT_ORDER))
        .cloned()
        .collect();
    for key in ordered {
        merge_ordered(&mut original, &mut patch, &key, schema)?;
    }
    // in the order of the keys: `$` sorts before letters, so deletions from a list come first
    let keys: Vec<String> = patch.keys().cloned().collect();
    for key in keys {
        let value = patch.remove(&key).unwrap_or_default();
        merge_field(&mut original, key, value, schema)?;
    }
    Ok(original)
}

fn merge_field(
    original: &mut Object,
    key: String,
    patch: Value,
    schema: TypeRef<'_>,
) -> Result<(), PatchError> {
    let (key, deletes) = match key.starts_with(DELETE_FROM_LIST) {
        true => (list_of(&key, DELETE_FROM_LIST)?, true),
        false => (key, false),
    };
    if patch.is_null() {
        original.remove(&key);
        return Ok(());
    }
    let merged = match (original.remove(&key), patch) {
        (Some(kept), patch) if deletes && !same_kind(&kept, &patch) => Some(kept),
        (None, _) if deletes => None,
        (Some(Value::Object(original)), Value::Object(patch)) => {
            let (meta, below) = lookup(schema, &key)?;
            Some(Value::Object(match meta.replace {
                true => bare_fields(patch),
                false => merge_maps(original, patch, below)?,
            }))
        }
        (Some(Value::Array(original)), Value::Array(patch)) => {
            let (meta, below) = lookup_list(schema, &key)?;
            Some(Value::Array(match (deletes, meta.merge) {
                (true, _) => lists::delete(original, &patch)?,
                (false, true) => lists::merge(original, patch, below, meta)?,
                (false, false) => patch.into_iter().map(bare).collect(),
            }))
        }
        (_, patch) => without_directives(without_nulls(patch)).map(bare),
    };
    if let Some(merged) = merged {
        original.insert(key, merged);
    }
    Ok(())
}

/// Drops from the original what the patch does not list, as a union needs when its kind changes.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let malformed = || bad_request("invalid patch format of retainKeys");
    let kept = directive.as_array().ok_or_else(malformed)?;
    let kept: HashSet<&str> = kept.iter().filter_map(Value::as_str).collect();
    let keeps = |key: &str| kept.contains(key);
    let is_directive =
        |key: &str| key.starts_with(DELETE_FROM_LIST) || key.starts_with(SET_ELEMENT_ORDER);
    let stray = patch
        .iter()
        .any(|(key, value)| !value.is_null() && !is_directive(key) && !keeps(key));
    if stray {
        return Err(malformed());
    }
    original.retain(|key, _| keeps(key));
    Ok(())
}

/// Merges a list whose order the patch gives by `$setElementOrder/<list>`.
fn merge_ordered(
    original: &mut Object,
    patch: &mut Object,
    directive: &str,
    schema: TypeRef<'_>,
) -> Result<(), PatchError> {
    let order = patch.remove(directive).unwrap_or_default();
    let order = as_list(order)?;
    let key = list_of(directive, SET_ELEMENT_ORDER)?;
    let live = original.get(&key).cloned().map(as_list).transpose()?;
    let patched = patch.get(&key).cloned().map(as_list).transpose()?;
    let (meta, below) = lookup_list(schema, &key)?;
    lists::check_order(patched.as_deref().unwrap_or_default(), &order, meta)?;
    let order_left = match (&live, &patched) {
        (Some(live), Some(patched)) if meta.merge => lists::order_left(live, patched, meta),
        _ => live.clone().unwrap_or_default(),
    };
    let merged = match (live.clone(), patched.clone()) {
        (None, None) => return Ok(()),
        (Some(live), None) => live,
        (None, Some(patched)) => {
            let kept = patched.into_iter().filter_map(without_directives);
            kept.map(bare).collect()
        }
        (Some(live), Some(patched)) if meta.merge => lists::merge(live, patched, below, meta)?,
        (Some(_), Some(patched)) => patched.into_iter().map(bare).collect(),
    };
    let live = live.unwrap_or_default();
    let element = lists::common_kind(&live, &patched.unwrap_or_default())?
        .ok_or_else(|| internal("no elements in any of the given slices"))?;
    let merged = lists::in_order(merged, &order, &order_left, element, meta)?;
    original.insert(key.clone(), Value::Array(merged));
    patch.remove(&key);
    Ok(())
}

/// What the type says of a field that is merged.
fn lookup<'s>(schema: TypeRef<'s>, key: &str) -> Result<(&'s PatchMeta, TypeRef<'s>), PatchError> {
    let field = find(schema, key)?;
    Ok((&field.patch, schema.follow(field.link)))
}

/// The same of a list, with the type of its elements.
fn lookup_list<'s>(
    schema: TypeRef<'s>,
    key: &str,
) -> Result<(&'s PatchMeta, TypeRef<'s>), PatchError> {
    let field = find(schema, key)?;
    let target = schema.follow(field.link);
    match &target.def().list {
        Some(list) => Ok((&field.patch, target.follow(list.element))),
        None => Err(internal("expected slice or array type, but got: struct")),
    }
}

fn find<'s>(schema: TypeRef<'s>, key: &str) -> Result<&'s Field, PatchError> {
    let def = schema.def();
    match &def.map {
        Some(map) if !map.fields.is_empty() || !def.name.is_empty() => {
            map.fields.get(key).ok_or_else(|| {
                PatchError::Internal(format!(
                    "unable to find api field in struct {} for the json field {}",
                    def.name,
                    go::quote(key)
                ))
            })
        }
        _ => Err(internal(
            "merging an object in json but data type is not struct, instead is: map",
        )),
    }
}

/// The list that a directive `<prefix>/<list>` speaks of.
fn list_of(directive: &str, prefix: &str) -> Result<String, PatchError> {
    match directive.split_once('/') {
        Some((before, list)) if before == prefix => Ok(list.to_owned()),
        _ => Err(bad_request(match prefix {
            DELETE_FROM_LIST => "invalid patch format of primitive list",
            _ => "invalid patch format of setElementOrder list",
        })),
    }
}

/// A value that is new to the object, without the fields that the patch would delete.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, without_nulls(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        scalar => scalar,
    }
}

/// The value without what carries a `$patch`; nothing where it carries one itself.
fn without_directives(value: Value) -> Option<Value> {
    Some(match value {
        Value::Object(fields) if fields.contains_key(PATCH) => return None,
        Value::Object(fields) => fields
            .into_iter()
            .filter_map(|(key, value)| Some((key, without_directives(value)?)))
            .collect(),
        Value::Array(items) => items.into_iter().filter_map(without_directives).collect(),
        scalar => scalar,
    })
}

/// A value that is taken over from the patch as it is. The server keeps directives and nulls in it
/// until it reads the result into its own types, which know neither.
fn bare(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(bare_fields(fields)),
        Value::Array(items) => items.into_iter().map(bare).collect(),
        scalar => scalar,
    }
}

fn bare_fields(fields: Object) -> Object {
    let is_directive = |key: &str| {
        let name = key.split('/').next().unwrap_or(key);
        [PATCH, RETAIN_KEYS, SET_ELEMENT_ORDER, DELETE_FROM_LIST].contains(&name)
    };
    fields
        .into_iter()
        .filter(|(key, value)| !value.is_null() && !is_directive(key))
        .map(|(key, value)| (key, bare(value)))
        .collect()
}

fn same_kind(left: &Value, right: &Value) -> bool {
    go::type_name(left) == go::type_name(right)
}

fn as_list(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(wrong_type(go::LIST, &other)),
    }
}

fn wrong_type(expected: &str, actual: &Value) -> PatchError {
    PatchError::Internal(format!(
        "expected a {expected}, but received a {}",
        go::type_name(actual)
    ))
}

fn unknown_directive(directive: &Value, patch: &Object) -> PatchError {
    PatchError::Internal(format!(
        "unknown patch type: {} in map: {}",
        go::display_as_text(directive),
        go::display(&Value::Object(patch.clone()))
    ))
}

fn bad_request(message: &str) -> PatchError {
    PatchError::BadRequest(message.to_owned())
}

fn internal(message: &str) -> PatchError {
    PatchError::Internal(message.to_owned())
}

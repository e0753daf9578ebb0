//! v1alpha1 ⇄ v1beta1, without loss in either direction.
//!
//! Objects are converted as raw JSON: only the fields that differ between the versions are touched,
//! so whatever else an object holds passes through, fields of later releases included.
//!
//! Two annotations carry what the other version has no field for:
//! - the *state* annotation of the existing installations, on v1beta1 objects: the v1alpha1 object
//!   as it was written, from which `replicas`, `warmpool` and `sandboxTemplateRef` are restored;
//! - [`RIDERS`], ours, on v1alpha1 objects: see [`riders`].

mod kinds;
mod riders;

use serde_json::{Map, Value, json};
use thiserror::Error;

use kinds::Kind;
pub use riders::RIDERS;

/// The versions of the sigs family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1alpha1,
    V1beta1,
}

impl Version {
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1alpha1 => "v1alpha1",
            Self::V1beta1 => "v1beta1",
        }
    }
}

#[derive(Debug, Error)]
pub enum ConversionError {
    #[error(
        "{api_version:?} {kind:?} cannot be converted: not a kind of agents.x-k8s.io or extensions.agents.x-k8s.io in v1alpha1 or v1beta1"
    )]
    UnknownKind { api_version: String, kind: String },
    #[error("{object}: {field} must be an object")]
    NotAnObject { object: String, field: &'static str },
    #[error(
        "{object}: annotation {annotation} is not what a conversion wrote ({source}); remove the annotation, or restore its value"
    )]
    MalformedAnnotation {
        object: String,
        annotation: &'static str,
        source: serde_json::Error,
    },
    #[error(
        "{object}: annotation {annotation} has the unknown value {value:?}; use one of Disallowed, Allowed, Overrides"
    )]
    UnknownPolicy {
        object: String,
        annotation: &'static str,
        value: String,
    },
}

/// Converts an object of one of the four kinds; one that has the version already is unchanged.
pub fn convert(mut object: Value, to: Version) -> Result<Value, ConversionError> {
    let (kind, from) = identify(&object)?;
    if from == to {
        return Ok(object);
    }
    let whole = is_whole(&object)?;
    if whole {
        object = match to {
            Version::V1alpha1 => to_v1alpha1(kind, object)?,
            Version::V1beta1 => to_v1beta1(kind, object)?,
        };
    }
    object["apiVersion"] = json!(format!("{}/{}", kind.group, to.name()));
    Ok(object)
}

/// Whether the object has a spec. While a manager moves its server-side apply from one version to the
/// other, the server converts what is left of an object without that manager's fields; there is
/// nothing in such a rest that differs between the versions.
fn is_whole(object: &Value) -> Result<bool, ConversionError> {
    let not_an_object = |field| {
        Err(ConversionError::NotAnObject {
            object: name_of(object),
            field,
        })
    };
    match (&object["metadata"], &object["spec"]) {
        (Value::Object(_), Value::Object(_)) => Ok(true),
        (Value::Object(_), Value::Null) => Ok(false),
        (Value::Object(_), _) => not_an_object("spec"),
        _ => not_an_object("metadata"),
    }
}

fn to_v1beta1(kind: &Kind, mut object: Value) -> Result<Value, ConversionError> {
    take_annotation(&mut object, kind.state);
    let riders = riders::take(&mut object)?;
    let state = state_of(&object);
    let restored = riders.valid_in(kind.may_ride, &object);
    (kind.to_v1beta1)(&mut object)?;
    restored.restore(&mut object);
    set_annotation(&mut object, kind.state, state);
    Ok(object)
}

fn to_v1alpha1(kind: &Kind, object: Value) -> Result<Value, ConversionError> {
    let mut converted = object.clone();
    let saved = take_state(kind, &mut converted)?;
    take_annotation(&mut converted, RIDERS);
    (kind.to_v1alpha1)(&mut converted, &saved);

    let mut back = converted.clone();
    (kind.to_v1beta1)(&mut back)?;
    let riders = riders::lost(kind.may_ride, &object, &back, &converted);
    riders.put_on(&mut converted);
    Ok(converted)
}

fn identify(object: &Value) -> Result<(&'static Kind, Version), ConversionError> {
    let text = |field: &str| {
        object
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or_default();
    let version = [Version::V1alpha1, Version::V1beta1]
        .into_iter()
        .find(|v| v.name() == version);
    kinds::find(group, kind)
        .zip(version)
        .ok_or_else(|| ConversionError::UnknownKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        })
}

/// How errors name an object: `SandboxClaim default/my-claim`.
fn name_of(object: &Value) -> String {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or("?")
    };
    format!(
        "{} {}/{}",
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name")
    )
}

/// Keys and values of all annotations may not exceed 256 KiB together; some room is left for others.
const ROOM_FOR_ANNOTATIONS: usize = 240 * 1024;

/// Bulk that v1beta1 holds as well, so that its loss from the state loses nothing.
const BULK: &[&str] = &["podTemplate", "volumeClaimTemplates", "networkPolicy"];

/// The v1alpha1 object as the state annotation keeps it: whole, but without what the server rewrites
/// on every request (a no-op write must stay one), and without bulk if there is no room for it.
fn state_of(object: &Value) -> String {
    let mut state = object.clone();
    if let Some(metadata) = state.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
    }
    let whole = state.to_string();
    if whole.len() + annotations_size(object) <= ROOM_FOR_ANNOTATIONS {
        return whole;
    }
    if let Some(metadata) = state.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("annotations");
    }
    if let Some(spec) = state.get_mut("spec").and_then(Value::as_object_mut) {
        BULK.iter().for_each(|field| _ = spec.remove(*field));
    }
    state.to_string()
}

fn annotations_size(object: &Value) -> usize {
    let annotations = object
        .pointer("/metadata/annotations")
        .and_then(Value::as_object);
    let size = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
    annotations.into_iter().flatten().map(size).sum()
}

/// The saved v1alpha1 object, or null.
fn take_state(kind: &Kind, object: &mut Value) -> Result<Value, ConversionError> {
    let Some(text) = take_annotation(object, kind.state) else {
        return Ok(Value::Null);
    };
    if !kind.reads_state {
        return Ok(Value::Null);
    }
    serde_json::from_str(&text).map_err(|source| ConversionError::MalformedAnnotation {
        object: name_of(object),
        annotation: kind.state,
        source,
    })
}

/// Removes an annotation, and with the last one the map: the server never stores an empty map.
fn take_annotation(object: &mut Value, key: &str) -> Option<String> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let value = annotations.remove(key)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    value.as_str().map(str::to_owned)
}

fn set_annotation(object: &mut Value, key: &str, value: String) {
    let annotations = &mut object["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = Value::Object(Map::new());
    }
    annotations[key] = Value::String(value);
}

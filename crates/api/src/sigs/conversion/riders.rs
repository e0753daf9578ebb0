//! What v1beta1 says and v1alpha1 cannot: it rides through the v1alpha1 view in an annotation.
//!
//! Lossless by construction: the v1alpha1 view is converted back at once, and each field that would
//! not come back as it was is recorded with its value. A rider also records what the v1alpha1 fields
//! looked like from which the field would otherwise be derived; if a v1alpha1 client changes one of
//! them, the client's word counts and the rider gets off. So does anything in the annotation that
//! the kind lets nobody ride.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ConversionError, name_of, set_annotation, take_annotation};

/// The annotation, on v1alpha1 objects only.
pub const RIDERS: &str = "sandbar.dev/v1beta1-state";

/// A v1beta1 field (a JSON pointer) that may ride.
pub(super) struct MayRide {
    pub(super) field: &'static str,
    /// Whether a value is of the field's type. The annotation is anybody's to write, and the server
    /// checks nothing after conversion.
    pub(super) fits: fn(&Value) -> bool,
    /// The v1alpha1 fields that must still be as they were for the rider to count. A status belongs
    /// to one object: the uid keeps it off copies and restored backups.
    pub(super) derived_from: &'static [&'static str],
}

/// By v1beta1 field.
#[derive(Serialize, Deserialize, Default)]
#[serde(transparent)]
pub(super) struct Riders(BTreeMap<String, Rider>);

/// Null stands for an absent field, as it does in a merge patch.
#[derive(Serialize, Deserialize)]
struct Rider {
    value: Value,
    #[serde(rename = "while", default, skip_serializing_if = "BTreeMap::is_empty")]
    unchanged: BTreeMap<String, Value>,
}

/// Takes the riders off a v1alpha1 object.
pub(super) fn take(object: &mut Value) -> Result<Riders, ConversionError> {
    let Some(text) = take_annotation(object, RIDERS) else {
        return Ok(Riders::default());
    };
    serde_json::from_str(&text).map_err(|source| ConversionError::MalformedAnnotation {
        object: name_of(object),
        annotation: RIDERS,
        source,
    })
}

/// The fields of `original` that `back`, made from `v1alpha1` without riders, does not restore.
pub(super) fn lost(
    may_ride: &[MayRide],
    original: &Value,
    back: &Value,
    v1alpha1: &Value,
) -> Riders {
    let lost = may_ride
        .iter()
        .filter(|ride| at(original, ride.field) != at(back, ride.field));
    let rider = |ride: &MayRide| {
        let unchanged = ride
            .derived_from
            .iter()
            .map(|field| (String::from(*field), at(v1alpha1, field)));
        Rider {
            value: at(original, ride.field),
            unchanged: unchanged.collect(),
        }
    };
    Riders(
        lost.map(|ride| (ride.field.to_owned(), rider(ride)))
            .collect(),
    )
}

impl Riders {
    /// Those that may ride and whose v1alpha1 fields nobody has changed.
    pub(super) fn valid_in(mut self, may_ride: &[MayRide], v1alpha1: &Value) -> Self {
        self.0.retain(|field, rider| {
            let ride = may_ride.iter().find(|ride| ride.field == field);
            ride.is_some_and(|ride| rider.counts(ride, v1alpha1))
        });
        self
    }

    pub(super) fn restore(self, v1beta1: &mut Value) {
        for (field, rider) in self.0 {
            set(v1beta1, &field, rider.value);
        }
    }

    pub(super) fn put_on(&self, v1alpha1: &mut Value) {
        if self.0.is_empty() {
            return;
        }
        let text = serde_json::to_string(self)
            .unwrap_or_else(|error| unreachable!("a map of JSON values: {error}"));
        set_annotation(v1alpha1, RIDERS, text);
    }
}

impl Rider {
    fn counts(&self, ride: &MayRide, v1alpha1: &Value) -> bool {
        let fits = self.value.is_null() || (ride.fits)(&self.value);
        let was = |field: &str| self.unchanged.get(field).cloned().unwrap_or_default();
        fits && ride
            .derived_from
            .iter()
            .all(|field| at(v1alpha1, field) == was(field))
    }
}

fn at(object: &Value, pointer: &str) -> Value {
    object.pointer(pointer).cloned().unwrap_or_default()
}

/// Sets a field, its parents included, or removes it for null. Pointers here have no escapes.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let Some((parents, name)) = pointer.rsplit_once('/') else {
        return;
    };
    let mut parent = object;
    for step in parents.split('/').skip(1) {
        if !parent[step].is_object() {
            if value.is_null() {
                return;
            }
            parent[step] = Value::Object(Map::new());
        }
        parent = &mut parent[step];
    }
    if value.is_null() {
        parent.as_object_mut().map(|parent| parent.remove(name));
    } else {
        parent[name] = value;
    }
}

//! What the tests of several modules need.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;

use crate::store::{Texts, View};

/// The view of an object that differs from `base` by a merge patch.
pub(crate) fn view<V: View>(mut base: Value, change: &Value) -> V {
    json_patch::merge(&mut base, change);
    let object = serde_json::from_value(base).unwrap();
    V::of(object, &mut Texts::default())
}

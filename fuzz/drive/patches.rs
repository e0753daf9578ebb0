//! Patches of all kinds on built-in and custom objects: none panics, and none makes much out of little.

use api::patch::apply::{self, Live, Managed, OneVersion, Writer};
use api::patch::types::TypeRef;
use api::patch::{json, merge, strategic};
use serde_json::{Value, json};

/// What the copies of one patch may add, with room for the rest.
const MOST: usize = 8 << 20;

/// The first byte chooses the kind of patch; a zero byte stands between the object and the patch.
pub(crate) fn drive(input: &[u8]) {
    let Some((choice, rest)) = input.split_first() else {
        return;
    };
    let mut parts = rest.splitn(2, |byte| *byte == 0);
    let mut part = || serde_json::from_slice(parts.next().unwrap_or_default()).ok();
    let (Some(patch), object): (Option<Value>, Option<Value>) = (part(), part()) else {
        return;
    };
    let mut object = object.filter(Value::is_object).unwrap_or_else(pod);
    let owners = match choice % 6 {
        4.. => Managed::take(&mut object).unwrap_or_default(),
        _ => Managed::default(),
    };
    let applied = |kind: &OneVersion<'_>, name: &str, force: bool| {
        let live = Live {
            object: &object,
            owners: &owners,
            fits: false,
        };
        let (mut object, owners) = apply::apply(kind, Some(live), &patch, writer(name), force)?;
        owners.put(&mut object);
        Ok(object)
    };
    let result = match choice % 6 {
        0 => json::apply(object.clone(), &patch),
        1 => merge::apply(object.clone(), &patch),
        2 => strategic::apply(object.clone(), &patch, TypeRef::deduced()),
        3 => match TypeRef::of_kind("v1", "Pod") {
            Some(schema) => strategic::apply(object.clone(), &patch, schema),
            None => return,
        },
        4 => match OneVersion::core("v1", "Pod") {
            Some(kind) => applied(&kind, "Pod", true),
            None => return,
        },
        _ => {
            let kind = OneVersion::custom("v1", TypeRef::deduced());
            applied(&kind, "Widget", false)
        }
    };
    match result {
        Ok(object) => assert!(object.to_string().len() < MOST + 64 * input.len()),
        Err(error) => assert!((400..=500).contains(&error.code())),
    }
}

fn writer(kind: &str) -> Writer<'_> {
    Writer {
        manager: "fuzz",
        api_version: "v1",
        kind,
        subresource: "",
        now: "2026-01-31T12:00:00Z",
    }
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "labels": {"x": "y"}, "finalizers": ["example.com/x"]},
        "spec": {
            "containers": [
                {"name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}]},
                {"name": "d", "image": "j", "env": [{"name": "E", "value": "1"}]},
            ],
            "tolerations": [{"key": "k", "operator": "Exists"}],
        },
    })
}

//! Conversion between v1alpha1 and v1beta1: lossless over generated objects, and the cases by name.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cases;
mod generator;

use api::{
    kruise,
    sigs::{
        conversion::{RIDERS, Version, convert},
        v1alpha1, v1beta1,
    },
};
use generator::{Objects, Random};
use proptest::{
    prelude::{ProptestConfig, any},
    test_runner::{TestCaseError, TestRunner},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

const KINDS: [&str; 4] = [
    "Sandbox",
    "SandboxClaim",
    "SandboxTemplate",
    "SandboxWarmPool",
];

/// Objects per kind and direction.
const CASES: u32 = 10_000;

fn for_all(check: impl Fn(&mut Random) -> Result<(), TestCaseError>) {
    let config = ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..Default::default()
    };
    TestRunner::new(config)
        .run(&any::<u64>(), |seed| check(&mut Random(seed)))
        .unwrap_or_else(|failure| panic!("{failure}"));
}

fn same(what: &str, before: &Value, after: &Value) -> Result<(), TestCaseError> {
    if before == after {
        return Ok(());
    }
    Err(TestCaseError::fail(format!(
        "{what}:\nbefore {before:#}\nafter {after:#}"
    )))
}

fn fits(objects: &Objects, object: &Value) -> Result<(), TestCaseError> {
    match objects.misfits(object).as_slice() {
        [] => Ok(()),
        misfits => Err(TestCaseError::fail(format!(
            "{}: {misfits:?}",
            objects.name()
        ))),
    }
}

/// The object without the annotations that conversion keeps for itself.
fn without_our_annotations(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    if let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.retain(|key, _| key != RIDERS && !key.ends_with("-state"));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    object
}

fn annotate(object: &mut Value, key: &str, value: &str) {
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = serde_json::json!({});
    }
    object["metadata"]["annotations"][key] = value.into();
}

#[test]
fn v1alpha1_to_v1beta1_and_back_is_the_identity() {
    for kind in KINDS {
        let (alpha, beta) = (Objects::of("v1alpha1", kind), Objects::of("v1beta1", kind));
        for_all(|random| {
            let mut before = alpha.draw(random);
            if kind == "SandboxTemplate" && random.one_in(2) {
                let policy = random.pick(&["Allowed", "Disallowed", "Overrides"]);
                let key = "api.agents.x-k8s.io/v1beta1-volume-claim-templates-policy";
                annotate(&mut before, key, policy);
            }
            let stored = convert(before.clone(), Version::V1beta1).unwrap();
            fits(&beta, &stored)?;
            same(kind, &before, &convert(stored, Version::V1alpha1).unwrap())
        });
    }
}

/// v1beta1 objects as they are stored: written as v1beta1, or once written as v1alpha1 and edited
/// since, so that they carry the state of another object.
fn stored(kind: &str, random: &mut Random, alpha: &Objects, beta: &Objects) -> Value {
    let mut object = beta.draw(random);
    if random.one_in(2) {
        let earlier = convert(alpha.draw(random), Version::V1beta1).unwrap();
        let key = format!("api.agents.x-k8s.io/v1alpha1-{}-state", kind.to_lowercase());
        let state = earlier["metadata"]["annotations"][&key]
            .as_str()
            .unwrap()
            .to_owned();
        annotate(&mut object, &key, &state);
    }
    object
}

#[test]
fn v1beta1_to_v1alpha1_and_back_is_the_identity_but_for_our_annotations() {
    for kind in KINDS {
        let (alpha, beta) = (Objects::of("v1alpha1", kind), Objects::of("v1beta1", kind));
        for_all(|random| {
            let before = stored(kind, random, &alpha, &beta);
            let view = convert(before.clone(), Version::V1alpha1).unwrap();
            fits(&alpha, &view)?;
            let after = convert(view.clone(), Version::V1beta1).unwrap();
            same(
                kind,
                &without_our_annotations(before),
                &without_our_annotations(after.clone()),
            )?;
            same(
                "seen again",
                &view,
                &convert(after, Version::V1alpha1).unwrap(),
            )
        });
    }
}

fn reads_and_writes<T: Serialize + DeserializeOwned>(object: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(object.clone()).unwrap()).unwrap()
}

#[test]
fn types_keep_every_field_their_schema_has() {
    let retyped = |api_version: &str, kind: &str| -> fn(&Value) -> Value {
        match (api_version, kind) {
            ("agents.x-k8s.io/v1alpha1", _) => reads_and_writes::<v1alpha1::Sandbox>,
            ("agents.x-k8s.io/v1beta1", _) => reads_and_writes::<v1beta1::Sandbox>,
            ("extensions.agents.x-k8s.io/v1alpha1", "SandboxClaim") => {
                reads_and_writes::<v1alpha1::SandboxClaim>
            }
            ("extensions.agents.x-k8s.io/v1alpha1", "SandboxTemplate") => {
                reads_and_writes::<v1alpha1::SandboxTemplate>
            }
            ("extensions.agents.x-k8s.io/v1alpha1", _) => {
                reads_and_writes::<v1alpha1::SandboxWarmPool>
            }
            ("extensions.agents.x-k8s.io/v1beta1", "SandboxClaim") => {
                reads_and_writes::<v1beta1::SandboxClaim>
            }
            ("extensions.agents.x-k8s.io/v1beta1", "SandboxTemplate") => {
                reads_and_writes::<v1beta1::SandboxTemplate>
            }
            ("extensions.agents.x-k8s.io/v1beta1", _) => {
                reads_and_writes::<v1beta1::SandboxWarmPool>
            }
            (_, "Checkpoint") => reads_and_writes::<kruise::Checkpoint>,
            (_, "Sandbox") => reads_and_writes::<kruise::Sandbox>,
            (_, "SandboxClaim") => reads_and_writes::<kruise::SandboxClaim>,
            (_, "SandboxSet") => reads_and_writes::<kruise::SandboxSet>,
            (_, "SandboxTemplate") => reads_and_writes::<kruise::SandboxTemplate>,
            (_, "SandboxUpdateOps") => reads_and_writes::<kruise::SandboxUpdateOps>,
            other => panic!("no type for {other:?}"),
        }
    };
    for objects in Objects::all() {
        let name = objects.name();
        let (api_version, kind) = name.split_once(' ').unwrap();
        let retyped = retyped(api_version, kind);
        for seed in 0..500 {
            let mut object = objects.draw(&mut Random(seed));
            // metadata is the client library's own type
            object["metadata"] = serde_json::json!({"name": "x"});
            assert_eq!(retyped(&object), object, "{name}");
        }
    }
}

//! The lean rendering: what it leaves out, and what it does not.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use api::{
    crds::{Conversion, Family, Schemas, Versions, render},
    structural::Schema,
};
use serde_json::{Value, json};

const SANDBOXES: &str = "sandboxes.agents.x-k8s.io";
const TEMPLATES: &str = "sandboxtemplates.extensions.agents.x-k8s.io";
const POD_SPEC: &str =
    "/schema/openAPIV3Schema/properties/spec/properties/podTemplate/properties/spec";

fn rendered(schemas: Schemas) -> Vec<Value> {
    let families = [Family::Sigs, Family::Kruise];
    let crds = schemas.of(render(&families, Versions::Both, Conversion::Webhook).unwrap());
    crds.iter()
        .map(|crd| serde_json::to_value(crd).unwrap())
        .collect()
}

fn versions(crd: &mut Value) -> &mut Vec<Value> {
    crd["spec"]["versions"].as_array_mut().unwrap()
}

fn sandbox_schema(schemas: Schemas) -> Schema {
    let crds = render(&[Family::Sigs], Versions::V1beta1, Conversion::None);
    let crds = schemas.of(crds.unwrap());
    let sandbox = crds.iter().find(|crd| crd.spec.names.kind == "Sandbox");
    let schema = serde_json::to_value(&sandbox.unwrap().spec.versions[0].schema).unwrap();
    Schema::compile(&schema["openAPIV3Schema"]).unwrap()
}

fn sandbox(pod_spec: Value) -> Value {
    json!({
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": "box"},
        "spec": {"podTemplate": {"spec": pod_spec}},
    })
}

#[test]
fn only_pod_specs_differ_and_in_both_versions_of_two_kinds() {
    let mut differ = Vec::new();
    for (mut full, mut lean) in rendered(Schemas::Full)
        .into_iter()
        .zip(rendered(Schemas::Lean))
    {
        let name = full["metadata"]["name"].as_str().unwrap().to_owned();
        for (full, lean) in versions(&mut full).iter_mut().zip(versions(&mut lean)) {
            if let (Some(full), Some(lean)) =
                (full.pointer_mut(POD_SPEC), lean.pointer_mut(POD_SPEC))
            {
                assert_ne!(full, lean);
                (*full, *lean) = (Value::Null, Value::Null);
                differ.push(name.clone());
            }
        }
        assert_eq!(full, lean);
    }
    assert_eq!(differ, [SANDBOXES, SANDBOXES, TEMPLATES, TEMPLATES]);
}

#[test]
fn the_lean_definition_of_sandboxes_is_smaller_than_a_tenth_of_the_full_one() {
    let size = |schemas| {
        let crds = rendered(schemas);
        let mut all = crds
            .iter()
            .filter(|crd| crd["metadata"]["name"] == SANDBOXES);
        all.next().unwrap().to_string().len()
    };
    let (full, lean) = (size(Schemas::Full), size(Schemas::Lean));
    assert!(lean * 10 < full, "{lean} of {full} bytes");
}

#[test]
fn lean_schemas_are_structural() {
    for mut crd in rendered(Schemas::Lean) {
        for version in versions(&mut crd) {
            let compiled = Schema::compile(&version["schema"]["openAPIV3Schema"]);
            assert_eq!(compiled.err(), None, "{version}");
        }
    }
}

#[test]
fn what_is_wrong_with_the_containers_is_refused_in_the_same_words() {
    let [full, lean] = [Schemas::Full, Schemas::Lean].map(sandbox_schema);
    for pod_spec in [
        json!(null),
        json!({}),
        json!({"containers": null}),
        json!({"containers": "main"}),
        json!({"containers": ["main"]}),
        json!({"containers": [{"image": "app:1"}]}),
        json!({"containers": [{"name": 5}]}),
        json!({"containers": [{"name": "main"}, {"name": "main"}]}),
        json!({"containers": [{"name": "main"}], "initContainers": [{}]}),
    ] {
        let [full, lean] = [&full, &lean].map(|schema| {
            let mut object = sandbox(pod_spec.clone());
            schema.admit(&mut object).unwrap();
            schema.validate(&object)
        });
        assert_ne!(full, [], "{pod_spec}");
        assert_eq!(full, lean, "{pod_spec}");
    }
}

#[test]
fn what_only_the_pod_knows_is_kept_as_it_came() {
    let pod_spec = json!({
        "containers": [{"name": "main", "ports": [{"containerPort": 80}], "novelty": {"deep": [1]}}],
        "volumes": [{"name": "data", "emptyDir": null}],
        "notion": 5,
        "restartPolicy": 7,
    });
    let [full, lean] = [Schemas::Full, Schemas::Lean].map(sandbox_schema);
    let mut object = sandbox(pod_spec.clone());
    assert_eq!(lean.admit(&mut object).unwrap(), [""; 0]);
    assert_eq!(object["spec"]["podTemplate"]["spec"], pod_spec);
    assert_eq!(lean.validate(&object), []);
    // so it is the leanness that keeps them
    let unknown = full.admit(&mut object).unwrap();
    let dropped = [
        "spec.podTemplate.spec.containers[0].novelty",
        "spec.podTemplate.spec.notion",
    ];
    assert_eq!(unknown, dropped);
}

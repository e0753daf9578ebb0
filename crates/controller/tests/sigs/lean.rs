//! What the API server does not look at with lean schemas, and what becomes of it.

use api::{
    crds::Schemas,
    sigs::v1beta1::{Sandbox, SandboxTemplate, SandboxWarmPool},
};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use local::fault::Faults;
use serde_json::{Value, json};

use crate::{
    scenarios::{
        pools::until_full,
        rollouts::{set_image, until_rolled},
    },
    stage::{Scenario, Stage, Theatre, pool, sandbox, template},
};

async fn play(name: &str, schemas: Schemas, scenario: Scenario) {
    let theatre = Theatre::with(schemas).await;
    let stage = Stage::new(&theatre, name, Faults::none()).await;
    stage.play(scenario).await;
}

fn pod_spec(spec: Value) -> Value {
    json!({"podTemplate": {"spec": spec}})
}

async fn identities(stage: &Stage) -> Vec<(Option<String>, Option<String>)> {
    let pods: Vec<Pod> = stage.list().await;
    pods.iter()
        .map(|pod| (pod.metadata.name.clone(), pod.uid()))
        .collect()
}

async fn a_pool_whose_definitions_become_lean(stage: &Stage) {
    let ports = |port: Value| {
        pod_spec(json!({"containers": [{"name": "main", "image": "app:1", "ports": [port]}]}))
    };
    let written = ports(json!({"containerPort": 80}));
    stage
        .create::<SandboxTemplate>(template("one", "app:1", written.clone()))
        .await;
    stage
        .create::<SandboxWarmPool>(pool(2, json!({"updateStrategy": {"type": "Recreate"}})))
        .await;
    until_full(stage, 2).await;
    stage.settle().await;
    let before = identities(stage).await;

    stage.define(Schemas::Lean).await;
    let write = async || {
        let template: SandboxTemplate = stage.patch("one", json!({"spec": written})).await;
        template.spec.blueprint.pod_template.spec.json().clone()
    };
    let has_no_default =
        |spec: &Value| spec["containers"][0]["ports"] == json!([{"containerPort": 80}]);
    stage
        .until("nothing is filled in any more", write, has_no_default)
        .await;
    stage.is_quiet().await;
    assert_eq!(identities(stage).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_replaced_because_schemas_become_lean() {
    let scenario: Scenario = |stage| a_pool_whose_definitions_become_lean(stage).boxed_local();
    play("become lean", Schemas::Full, scenario).await;
}

async fn a_pool_of_what_no_server_knows(stage: &Stage) {
    let containers =
        json!([{"name": "main", "image": "app:1", "env": null, "novelty": {"deep": [1, null]}}]);
    let odd = pod_spec(json!({"containers": containers, "volumes": null, "notion": 5}));
    let mut object = template("one", "app:1", json!({}));
    object["spec"] = odd;
    stage.create::<SandboxTemplate>(object).await;
    stage
        .create::<SandboxWarmPool>(pool(
            2,
            json!({"updateStrategy": {"type": "RollingUpdate"}}),
        ))
        .await;
    let before = until_full(stage, 2).await;
    for member in &before {
        let spec = member.spec.blueprint.pod_template.spec.json();
        assert_eq!(spec["notion"], 5);
        assert_eq!(spec["containers"][0]["novelty"], json!({"deep": [1, null]}));
    }
    stage.is_quiet().await;
    // the pods have no notion, and cannot be given one
    set_image(stage, "app:2").await;
    let after = until_rolled(stage, 2, "app:2", 0).await;
    let is_new = |new: &Sandbox| before.iter().all(|old| old.uid() != new.uid());
    assert!(after.iter().all(is_new));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_what_no_server_knows_fills_up_goes_quiet_and_rolls() {
    let scenario: Scenario = |stage| a_pool_of_what_no_server_knows(stage).boxed_local();
    play("odd", Schemas::Lean, scenario).await;
}

async fn a_sandbox_that_cannot_be_a_pod(stage: &Stage) {
    let wrong = pod_spec(json!({"containers": [{"name": "main", "image": "app:1", "env": 5}]}));
    stage.create::<Sandbox>(sandbox(wrong)).await;
    let observe = async || stage.status().await;
    let status = stage
        .until("the refusal", observe, |status| {
            crate::stage::reason(status, "Ready") == Some("ReconcilerError")
        })
        .await;
    let ready = crate::stage::condition(&status, "Ready").unwrap();
    assert!(ready.message.contains("env"), "{}", ready.message);
    let mended = pod_spec(json!({"containers": [{"name": "main", "image": "app:1"}]}));
    stage.patch::<Sandbox>("box", json!({"spec": mended})).await;
    stage.until_ready().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_pods_schema_refuses_is_told_on_the_sandbox_and_can_be_mended() {
    let scenario: Scenario = |stage| a_sandbox_that_cannot_be_a_pod(stage).boxed_local();
    play("refused", Schemas::Lean, scenario).await;
}

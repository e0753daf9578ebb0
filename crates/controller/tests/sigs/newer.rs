//! Objects of definitions that are newer than the controller.

use api::{
    crds::Schemas,
    sigs::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool},
};
use futures::FutureExt as _;
use k8s_openapi::{
    NamespaceResourceScope, api::networking::v1::NetworkPolicy,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use local::fault::Faults;
use serde_json::{Value, json};

use crate::{
    scenarios::{
        pools::is_ready,
        rollouts::{image, set_image},
    },
    stage::{Scenario, Stage, Theatre, definitions, pool, sandbox, template},
};

/// The definitions with schemas that take everything.
fn open() -> Vec<CustomResourceDefinition> {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": anything, "status": anything}});
    let opened = definitions(Schemas::Full).into_iter().map(|crd| {
        let mut crd = json!(crd);
        for version in crd["spec"]["versions"].as_array_mut().unwrap() {
            version["schema"]["openAPIV3Schema"] = schema.clone();
        }
        serde_json::from_value(crd).unwrap()
    });
    opened.collect()
}

async fn play(name: &str, scenario: Scenario) {
    let theatre = Theatre::defined_by(open()).await;
    let stage = Stage::new(&theatre, name, Faults::none()).await;
    stage.play(scenario).await;
}

fn claim(name: &str, pool: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim",
        "metadata": {"name": name}, "spec": {"warmPoolRef": {"name": pool}},
    });
    json_patch::merge(&mut object["spec"], &spec);
    object
}

fn called(name: &str, mut object: Value) -> Value {
    object["metadata"]["name"] = json!(name);
    object
}

async fn until_stocked(stage: &Stage, pool: &str, members: i32) {
    let ready = async || {
        let pool: SandboxWarmPool = stage.api().get(pool).await.unwrap();
        pool.status.unwrap_or_default().ready_replicas
    };
    let is_full = |ready: &Option<i32>| *ready == Some(members);
    stage.until("the pool is full", ready, is_full).await;
}

async fn until_running(stage: &Stage, name: &str) {
    let sandbox = async || stage.api::<Sandbox>().get(name).await.unwrap();
    stage.until("the sandbox runs", sandbox, is_ready).await;
}

/// The reason and the message of the claim's readiness.
async fn said(stage: &Stage, name: &str) -> (String, String) {
    let claim: SandboxClaim = stage.api().get(name).await.unwrap();
    let status = json!(claim.status.unwrap_or_default());
    let text = |field: &str| {
        let text = status["conditions"][0][field].as_str();
        text.unwrap_or_default().to_owned()
    };
    (text("reason"), text("message"))
}

async fn until_served(stage: &Stage, name: &str) {
    let said = async || said(stage, name).await;
    let is_served = |(reason, _): &(String, String)| reason == "DependenciesReady";
    stage
        .until(&format!("{name} is served"), said, is_served)
        .await;
}

async fn words_of_a_newer_definition(stage: &Stage) {
    let policies = json!({
        "networkPolicyManagement": "Sometimes", "envVarsInjectionPolicy": "Perhaps",
        "volumeClaimTemplatesPolicy": "Perhaps",
    });
    let strategy = json!({"type": "Canary", "rollingUpdate": {"inPlace": "Rarely"}});
    let odd = json!({"updateStrategy": strategy, "claimPolicy": "Dearest"});
    stage
        .create::<SandboxTemplate>(template("one", "app:1", policies))
        .await;
    stage
        .create::<SandboxWarmPool>(called("odd", pool(1, odd)))
        .await;
    stage
        .create::<Sandbox>(sandbox(
            json!({"operatingMode": "Drowsy", "shutdownPolicy": "Burn"}),
        ))
        .await;
    stage.create::<SandboxWarmPool>(pool(2, json!({}))).await;
    let ends = json!({"lifecycle": {"shutdownPolicy": "Burn"}});
    stage
        .create::<SandboxClaim>(claim("odd", "pool", ends))
        .await;
    // those that the controller lists are as good as those that it is told of
    stage.restart();
    until_stocked(stage, "pool", 2).await;
    until_stocked(stage, "odd", 1).await;
    until_served(stage, "odd").await;
    until_running(stage, "box").await;
    let policies = stage.list::<NetworkPolicy>().await;
    assert_eq!(policies.len(), 1, "one that is managed: {policies:?}");

    set_image(stage, "app:2").await;
    stage.is_quiet().await;
    let of_odd = |one: &Sandbox| one.name_any().starts_with("odd-");
    let mut members = stage.list::<Sandbox>().await;
    members.retain(of_odd);
    let images: Vec<_> = members.iter().map(image).collect();
    assert_eq!(
        images,
        ["app:1"],
        "nobody is replaced before a claim has it"
    );
    let env = json!({"env": [{"name": "A", "value": "b"}]});
    stage
        .create::<SandboxClaim>(claim("asking", "odd", env))
        .await;
    let told = async || said(stage, "asking").await;
    let is_refused = |(reason, _): &(String, String)| reason == "EnvVarsInjectionRejected";
    stage.until("what is not allowed", told, is_refused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn words_that_nobody_here_knows_count_as_left_out() {
    let scenario: Scenario = |stage| words_of_a_newer_definition(stage).boxed_local();
    play("words", scenario).await;
}

fn untyped<K>(stage: &Stage) -> Api<DynamicObject>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let kind = ApiResource::erase::<K>(&());
    Api::namespaced_with(stage.client.clone(), &stage.namespace, &kind)
}

async fn put<K>(stage: &Stage, object: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let object = serde_json::from_value(object).unwrap();
    let params = PostParams::default();
    untyped::<K>(stage).create(&params, &object).await.unwrap();
}

async fn set<K>(stage: &Stage, name: &str, spec: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let patch = Patch::Merge(json!({"spec": spec}));
    let params = PatchParams::default();
    untyped::<K>(stage)
        .patch(name, &params, &patch)
        .await
        .unwrap();
}

async fn objects_that_cannot_be_read(stage: &Stage) {
    let bad = |name: &str, mut object: Value, field: &str, value: Value| {
        object["spec"][field] = value;
        called(name, object)
    };
    let good = template("one", "app:1", json!({}));
    let unreadable = bad("odd", good.clone(), "service", json!("perhaps"));
    put::<SandboxTemplate>(stage, unreadable).await;
    let mut unreadable = bad("odd", pool(1, json!({})), "claimPolicy", json!(5));
    unreadable["spec"]["sandboxTemplateRef"]["name"] = json!("odd");
    put::<SandboxWarmPool>(stage, unreadable).await;
    let unreadable = bad("box", sandbox(json!({})), "operatingMode", json!(5));
    put::<Sandbox>(stage, unreadable).await;
    let unreadable = bad(
        "odd",
        claim("odd", "pool", json!({})),
        "warmPoolRef",
        json!("pool"),
    );
    put::<SandboxClaim>(stage, unreadable).await;
    stage.restart();
    stage.create::<SandboxTemplate>(good).await;
    stage.create::<SandboxWarmPool>(pool(2, json!({}))).await;
    until_stocked(stage, "pool", 2).await;
    stage
        .create::<SandboxClaim>(claim("good", "pool", json!({})))
        .await;
    until_served(stage, "good").await;
    stage.is_quiet().await;

    // each is taken up when it is mended
    set::<SandboxTemplate>(stage, "odd", json!({"service": null})).await;
    set::<SandboxWarmPool>(stage, "odd", json!({"claimPolicy": null})).await;
    set::<Sandbox>(stage, "box", json!({"operatingMode": "Running"})).await;
    set::<SandboxClaim>(stage, "odd", json!({"warmPoolRef": {"name": "pool"}})).await;
    until_stocked(stage, "odd", 1).await;
    until_served(stage, "odd").await;
    until_running(stage, "box").await;
    until_stocked(stage, "pool", 2).await;

    // and left alone when it is spoiled
    set::<SandboxWarmPool>(stage, "pool", json!({"claimPolicy": 5})).await;
    let mut number = 0;
    let late = loop {
        stage.settle().await;
        let before = stage.list::<Sandbox>().await.len();
        number += 1;
        let name = format!("late-{number}");
        stage
            .create::<SandboxClaim>(claim(&name, "pool", json!({})))
            .await;
        let told = async || said(stage, &name).await;
        let is_told = |(reason, _): &(String, String)| !reason.is_empty();
        let (reason, _) = stage.until("the trouble is told", told, is_told).await;
        // that it is there, and not that it is missing: then clients would give up
        if reason == "ReconcilerError" {
            assert_eq!(stage.list::<Sandbox>().await.len(), before);
            break name;
        }
        // what was spoiled has not been heard of yet
        until_served(stage, &name).await;
    };
    stage
        .create::<SandboxClaim>(claim("other", "odd", json!({})))
        .await;
    until_served(stage, "other").await;
    set::<SandboxWarmPool>(stage, "pool", json!({"claimPolicy": null})).await;
    until_served(stage, &late).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_cannot_be_read_stop_nobody_and_are_taken_up_when_they_can() {
    let scenario: Scenario = |stage| objects_that_cannot_be_read(stage).boxed_local();
    play("unreadable", scenario).await;
}

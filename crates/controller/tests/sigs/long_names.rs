//! Names as long as the API takes them, and longer than what is made from them may be called.

use api::sigs::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool};
use futures::FutureExt as _;
use kube::ResourceExt;
use local::fault::Faults;
use serde_json::{Value, json};

use crate::stage::{Stage, Theatre, condition, pool, sandbox, template};

const LONGEST: usize = 253;

fn long(letter: char, length: usize) -> String {
    letter.to_string().repeat(length)
}

fn claim(name: &str, pool: &str) -> Value {
    json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim",
        "metadata": {"name": name}, "spec": {"warmPoolRef": {"name": pool}},
    })
}

/// What the claim says of its readiness: status, reason and message.
async fn said(stage: &Stage, name: &str) -> [String; 3] {
    let claim: SandboxClaim = stage.api().get(name).await.unwrap();
    let conditions = json!(claim.status.unwrap_or_default().conditions);
    ["status", "reason", "message"].map(|field| {
        let text = conditions[0][field].as_str();
        text.unwrap_or_default().to_owned()
    })
}

async fn of_everything(stage: &Stage) {
    let template_name = long('t', LONGEST);
    stage
        .create::<SandboxTemplate>(template(&template_name, "app:1", json!({})))
        .await;
    stage
        .until_warned("NetworkPolicyRefused", 1, "no more than 253")
        .await;
    for (letter, members, claim_letter) in [('p', 1, 'w'), ('q', 0, 'c')] {
        let (pool_name, claim_name) = (long(letter, LONGEST), long(claim_letter, LONGEST));
        let from = json!({"sandboxTemplateRef": {"name": template_name}});
        let mut object = pool(members, from);
        object["metadata"]["name"] = json!(pool_name);
        stage.create::<SandboxWarmPool>(object).await;
        let ready = async || {
            let pool: SandboxWarmPool = stage.api().get(&pool_name).await.unwrap();
            pool.status.unwrap_or_default().ready_replicas
        };
        let is_full = |ready: &Option<i32>| *ready == i32::try_from(members).ok();
        stage.until("the pool is full", ready, is_full).await;
        stage
            .create::<SandboxClaim>(claim(&claim_name, &pool_name))
            .await;
        let told = async || said(stage, &claim_name).await;
        let is_ready = |said: &[String; 3]| said[0] == "True";
        stage.until("the claim is Ready", told, is_ready).await;
    }
    stage.until_told("SandboxAdopted", 1).await;
    stage.until_told("SandboxProvisioned", 1).await;
    let mended = json!({"spec": {"networkPolicyManagement": "Unmanaged"}});
    stage.patch::<SandboxTemplate>(&template_name, mended).await;
}

async fn of_what_is_made(stage: &Stage) {
    stage
        .create::<SandboxTemplate>(template("one", "app:1", json!({"service": true})))
        .await;
    stage.create::<SandboxWarmPool>(pool(0, json!({}))).await;
    let name = long('c', 64);
    stage.create::<SandboxClaim>(claim(&name, "pool")).await;
    let told = async || said(stage, &name).await;
    let is_told = |said: &[String; 3]| said[1] == "ReconcilerError";
    let [status, _, message] = stage.until("too long for a service", told, is_told).await;
    assert_eq!(status, "False");
    assert!(message.contains("no more than 63"), "{message}");
    stage
        .until_warned("ReconcilerError", 1, "no more than 63")
        .await;
    let mended = json!({"spec": {"service": null}});
    stage.patch::<Sandbox>(&name, mended).await;
    let is_ready = |said: &[String; 3]| said[0] == "True";
    stage.until("the claim is Ready", told, is_ready).await;

    let volume = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    let mut object = sandbox(json!({"volumeClaimTemplates": [volume]}));
    let name = long('b', LONGEST);
    object["metadata"]["name"] = json!(name);
    stage.create::<Sandbox>(object).await;
    let told = async || {
        let sandbox: Sandbox = stage.api().get(&name).await.unwrap();
        let status = sandbox.status.unwrap_or_default();
        let ready = condition(&status, "Ready").cloned();
        ready.map(|ready| (ready.reason, ready.message))
    };
    let is_told = |said: &Option<(String, String)>| {
        said.as_ref().is_some_and(|(reason, message)| {
            reason == "ReconcilerError" && message.contains("no more than 253")
        })
    };
    stage.until("too long for a volume", told, is_told).await;
    stage.delete::<Sandbox>(&name).await;
    let names = async || {
        let all = stage.list::<Sandbox>().await;
        all.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    };
    let is_gone = |names: &Vec<String>| !names.contains(&name);
    stage.until("it is gone", names, is_gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_as_long_as_the_api_takes_them_are_served_and_told_of() {
    let theatre = Theatre::open().await;
    let stage = Stage::new(&theatre, "longest", Faults::none()).await;
    stage.play(|stage| of_everything(stage).boxed_local()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_too_long_for_what_is_made_from_them_are_told_and_can_be_mended() {
    let theatre = Theatre::open().await;
    let stage = Stage::new(&theatre, "too long", Faults::none()).await;
    stage
        .play(|stage| of_what_is_made(stage).boxed_local())
        .await;
}

//! A cluster that the reference controller ran until now.

use api::sigs::v1beta1::{Sandbox, SandboxTemplate, SandboxWarmPool, SandboxWarmPoolStatus};
use engine::revision::{
    name_hash,
    reference::{blueprint_hash, pod_template_hash},
};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::pools::{members, status, until_full};
use crate::stage::{Stage, pool, template};

/// A member as the reference makes it: its hashes, its labels, the secure defaults, and nothing of ours.
fn member(name: &str, pool: &SandboxWarmPool, template: &Value) -> Value {
    let written = json!({"podTemplate": template["spec"]["podTemplate"]});
    let labels = json!({
        "agents.x-k8s.io/warm-pool-sandbox": name_hash("pool"),
        "agents.x-k8s.io/sandbox-template-ref-hash": name_hash("one"),
        "agents.x-k8s.io/sandbox-template-hash": blueprint_hash(&written).unwrap(),
        "agents.x-k8s.io/sandbox-pod-template-hash": pod_template_hash(&written["podTemplate"]).unwrap(),
    });
    let mut own = labels.clone();
    own["agents.x-k8s.io/launch-type"] = json!("warm");
    own["agents.x-k8s.io/created-by"] = json!("controller");
    let mut spec = template["spec"]["podTemplate"]["spec"].clone();
    spec["automountServiceAccountToken"] = json!(false);
    spec["dnsPolicy"] = json!("None");
    spec["dnsConfig"] = json!({"nameservers": ["8.8.8.8", "1.1.1.1"]});
    let evictable = json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"});
    json!({
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {
            "name": name,
            "labels": own,
            "annotations": {"agents.x-k8s.io/sandbox-template-ref": "one"},
            "ownerReferences": [{
                "apiVersion": "extensions.agents.x-k8s.io/v1alpha1", "kind": "SandboxWarmPool",
                "name": "pool", "uid": pool.uid(), "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"podTemplate": {
            "metadata": {"labels": labels, "annotations": evictable},
            "spec": spec,
        }},
    })
}

pub(crate) async fn members_of_the_reference_are_kept_under_every_strategy(stage: &Stage) {
    let made: SandboxWarmPool = stage.create(pool(2, json!({}))).await;
    let template = template("one", "app:1", json!({}));
    for name in ["pool-aaaaa", "pool-bbbbb"] {
        stage
            .create::<Sandbox>(member(name, &made, &template))
            .await;
    }
    let observe = async || status(stage).await;
    let are_known = |status: &SandboxWarmPoolStatus| status.ready_replicas == Some(2);
    stage.until("both are known", observe, are_known).await;
    // only now does the pool know what it wants
    stage.create::<SandboxTemplate>(template).await;
    until_full(stage, 2).await;
    let is_updated = |status: &SandboxWarmPoolStatus| status.updated_replicas == Some(2);
    let pods = async || {
        let pods: Vec<Pod> = stage.list().await;
        pods.iter()
            .map(|pod| (pod.name_any(), pod.uid()))
            .collect::<Vec<_>>()
    };
    let before = pods().await;
    for strategy in ["OnReplenish", "Recreate", "RollingUpdate"] {
        let patch = json!({"spec": {"updateStrategy": {"type": strategy}}});
        let changed: SandboxWarmPool = stage.patch("pool", patch).await;
        let generation = changed.metadata.generation;
        stage
            .until("all members are as they should be", observe, is_updated)
            .await;
        let is_seen = |status: &SandboxWarmPoolStatus| status.observed_generation == generation;
        stage.until("the strategy is known", observe, is_seen).await;
    }
    stage.is_quiet().await;
    let names: Vec<String> = members(stage)
        .await
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(names, ["pool-aaaaa", "pool-bbbbb"]);
    assert_eq!(pods().await, before);
}

//! From creation to the end.

use std::time::Duration;

use api::sigs::v1beta1::{Sandbox, SandboxStatus};
use k8s_openapi::api::{core::v1::Pod, events::v1::Event};
use kube::ResourceExt as _;
use local::clock::after;
use serde_json::{Value, json};

use crate::stage::{Stage, condition, reason, sandbox};

const HASH: &str = "70c67e32";

pub(crate) async fn a_sandbox_gets_a_pod_and_becomes_ready(stage: &Stage) {
    stage.create::<Sandbox>(sandbox(json!({}))).await;
    let status = stage.until_ready().await;
    let pods = stage.pods().await;
    let pod = &pods[0];
    assert_eq!((pods.len(), pod.name_any().as_str()), (1, "box"));
    let labels = json!({"agents.x-k8s.io/sandbox-name-hash": HASH, "app": "agent"});
    assert_eq!(json!(pod.labels()), labels);
    let annotations = json!({
        "agents.x-k8s.io/propagated-annotations": "team",
        "agents.x-k8s.io/propagated-labels": "app",
        "team": "one",
    });
    assert_eq!(json!(pod.annotations()), annotations);
    let object = stage.sandbox().await;
    let owner = json!([{
        "apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "name": "box",
        "uid": object.uid(), "controller": true, "blockOwnerDeletion": true,
    }]);
    assert_eq!(json!(pod.owner_references()), owner);
    assert_eq!(object.annotations()["agents.x-k8s.io/pod-name"], "box");
    let selector = format!("agents.x-k8s.io/sandbox-name-hash={HASH}");
    assert_eq!(status.selector, Some(selector));
    assert_eq!(status.node_name.as_deref(), Some("hollow"));
    let ip = pod.status.as_ref().unwrap().pod_ip.clone();
    assert_eq!(status.pod_ips, ip.map(|ip| vec![ip]));
    assert_eq!((&status.service, &status.service_fqdn), (&None, &None));
    assert_eq!(reason(&status, "Suspended"), Some("NotSuspended"));
    assert_eq!(reason(&status, "PodScheduled"), Some("PodScheduled"));
    assert_eq!(reason(&status, "Finished"), None);
    let generations = status.conditions.unwrap();
    assert!(
        generations
            .iter()
            .all(|one| one.observed_generation == Some(1))
    );
}

async fn set_mode(stage: &Stage, mode: &str) {
    let patch = json!({"spec": {"operatingMode": mode}});
    stage.patch::<Sandbox>("box", patch).await;
}

pub(crate) async fn a_suspended_sandbox_has_no_pod_and_gets_a_new_one(stage: &Stage) {
    stage.create::<Sandbox>(sandbox(json!({}))).await;
    stage.until_ready().await;
    let first = stage.pods().await[0].uid();
    set_mode(stage, "Suspended").await;
    let status = stage
        .until_ready_is("False", "SandboxSuspended", "Sandbox is suspended")
        .await;
    assert!(stage.pods().await.is_empty());
    assert_eq!(condition(&status, "Suspended").unwrap().status, "True");
    assert_eq!(reason(&status, "Suspended"), Some("PodTerminated"));
    assert_eq!(reason(&status, "PodScheduled"), None);
    assert_eq!((&status.pod_ips, &status.node_name), (&None, &None));
    assert!(status.selector.is_some());
    let annotations = stage.sandbox().await.annotations().clone();
    assert_eq!(annotations.get("agents.x-k8s.io/pod-name"), None);

    set_mode(stage, "Running").await;
    let status = stage.until_ready().await;
    assert_ne!(stage.pods().await[0].uid(), first);
    assert_eq!(reason(&status, "Suspended"), Some("NotSuspended"));
    let annotations = stage.sandbox().await.annotations().clone();
    assert_eq!(annotations["agents.x-k8s.io/pod-name"], "box");
}

fn in_an_hour(stage: &Stage, policy: &str) -> Value {
    let end = after(stage.clock.now(), Duration::from_secs(3600));
    json!({"shutdownTime": local::clock::rfc3339_seconds(end), "shutdownPolicy": policy})
}

async fn pass_an_hour(stage: &Stage) {
    stage.clock.advance(Duration::from_secs(3600)).await;
}

pub(crate) async fn an_expired_sandbox_is_retained_and_can_come_back(stage: &Stage) {
    let mut spec = in_an_hour(stage, "Retain");
    spec["service"] = json!(true);
    stage.create::<Sandbox>(sandbox(spec)).await;
    let ready = "Pod is Ready; Service Exists";
    stage
        .until_ready_is("True", "DependenciesReady", ready)
        .await;
    pass_an_hour(stage).await;
    stage
        .until_ready_is("False", "SandboxExpired", "Sandbox has expired")
        .await;
    let is_over = |(pods, services): &(usize, usize)| (*pods, *services) == (0, 0);
    stage
        .until("over", async || belongings(stage).await, is_over)
        .await;
    let is_bare = |status: &SandboxStatus| status.selector.is_none();
    let status = stage
        .until("bare", async || stage.status().await, is_bare)
        .await;
    assert_eq!(
        (status.pod_ips.as_ref(), &status.node_name, &status.service),
        (None, &None, &None)
    );
    assert_eq!(reason(&status, "Suspended"), Some("NotSuspended"));
    assert_eq!(reason(&status, "PodScheduled"), None);

    let patch = json!({"spec": {"shutdownTime": null}});
    stage.patch::<Sandbox>("box", patch).await;
    stage
        .until_ready_is("True", "DependenciesReady", ready)
        .await;
}

async fn belongings(stage: &Stage) -> (usize, usize) {
    let services: Vec<k8s_openapi::api::core::v1::Service> = stage.list().await;
    (stage.pods().await.len(), services.len())
}

pub(crate) async fn an_expired_sandbox_is_deleted_if_it_says_so(stage: &Stage) {
    let spec = in_an_hour(stage, "Delete");
    stage.create::<Sandbox>(sandbox(spec)).await;
    stage.until_ready().await;
    pass_an_hour(stage).await;
    until_gone(stage).await;
}

async fn until_gone(stage: &Stage) {
    let left = async || {
        (
            stage.list::<Sandbox>().await.len(),
            stage.pods().await.len(),
        )
    };
    stage.until("gone", left, |left| *left == (0, 0)).await;
}

pub(crate) async fn a_pod_that_somebody_deletes_is_replaced(stage: &Stage) {
    stage.create::<Sandbox>(sandbox(json!({}))).await;
    stage.until_ready().await;
    let first = stage.pods().await[0].uid();
    stage.delete::<Pod>("box").await;
    let is_new = |pods: &Vec<Pod>| pods.len() == 1 && pods[0].uid() != first;
    let pods = stage
        .until("replaced", async || stage.pods().await, is_new)
        .await;
    let both = async || (stage.status().await, stage.pods().await.remove(0));
    let has_its_address = |(status, pod): &(SandboxStatus, Pod)| {
        let ready = condition(status, "Ready").is_some_and(|ready| ready.status == "True");
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        ready && address.is_some() && status.pod_ips == address.map(|ip| vec![ip])
    };
    let (_, pod) = stage.until("ready again", both, has_its_address).await;
    assert_eq!(pod.uid(), pods[0].uid());
}

pub(crate) async fn a_failed_pod_is_not_replaced(stage: &Stage) {
    let template = json!({"podTemplate": {
        "metadata": {"annotations": {"hollow.sandbar.dev/exit-code": "3"}},
        "spec": {"restartPolicy": "Never"},
    }});
    stage.create::<Sandbox>(sandbox(template)).await;
    let status = stage
        .until_ready_is("False", "PodFailed", "Pod failed")
        .await;
    let finished = condition(&status, "Finished").unwrap();
    assert_eq!(
        (&*finished.status, &*finished.reason, &*finished.message),
        ("True", "PodFailed", "Pod failed")
    );
    assert_eq!(stage.pods().await.len(), 1);
}

pub(crate) async fn a_deleted_sandbox_takes_its_pod_along(stage: &Stage) {
    stage
        .create::<Sandbox>(sandbox(json!({"service": true})))
        .await;
    stage
        .until_ready_is("True", "DependenciesReady", "Pod is Ready; Service Exists")
        .await;
    stage.delete::<Sandbox>("box").await;
    until_gone(stage).await;
    let is_over = |left: &(usize, usize)| *left == (0, 0);
    stage
        .until("over", async || belongings(stage).await, is_over)
        .await;
}

pub(crate) async fn several_pods_are_refused_until_one_is_left(stage: &Stage) {
    stage.create::<Sandbox>(sandbox(json!({}))).await;
    stage.until_ready().await;
    let first = stage.pods().await.remove(0);
    let second = json!({
        "metadata": {
            "name": "second", "labels": first.labels(),
            "ownerReferences": first.owner_references(),
        },
        "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    });
    stage.create::<Pod>(second).await;
    let message =
        "multiple Pods (2) are controlled by this Sandbox; refusing to choose or create a Pod";
    let is_refused = |status: &SandboxStatus| {
        condition(status, "Ready").is_some_and(|ready| ready.message == message)
    };
    let status = stage
        .until("refused", async || stage.status().await, is_refused)
        .await;
    assert_eq!(reason(&status, "Ready"), Some("MultiplePods"));
    assert_eq!(stage.list::<Pod>().await.len(), 2);

    stage.delete::<Pod>("box").await;
    let is_ready = |status: &SandboxStatus| {
        condition(status, "Ready").is_some_and(|ready| ready.status == "True")
    };
    stage
        .until("one left", async || stage.status().await, is_ready)
        .await;
    let annotations = stage.sandbox().await.annotations().clone();
    assert_eq!(annotations["agents.x-k8s.io/pod-name"], "second");
    stage.until_warned("MultiplePods", 1, message).await;
    for event in stage.list::<Event>().await {
        assert_eq!(
            event.reporting_controller.as_deref(),
            Some("sandbox-controller")
        );
    }
}

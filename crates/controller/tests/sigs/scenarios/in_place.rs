//! Running pods that are changed under a fence.

use std::time::Duration;

use api::sigs::v1beta1::{Sandbox, SandboxStatus};
use controller::sigs::sandbox::gate::GATE;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt as _,
    api::{WatchEvent, WatchParams},
};
use local::clock::after;
use serde_json::{Value, json};

use crate::stage::{Stage, condition, sandbox};

const FENCE: &str = "sandbar.dev/update";

fn fence(stage: &Stage, time: Duration) -> Value {
    let now = stage.clock.now();
    let text = json!({"target": "x", "since": now, "deadline": after(now, time)}).to_string();
    json!({FENCE: text})
}

fn in_a_month(stage: &Stage) -> Value {
    fence(stage, Duration::from_secs(30 * 86_400))
}

fn main(image: &str, resources: &Value) -> Value {
    json!({"spec": {"containers": [{
        "name": "main", "image": image, "resources": resources, "ports": [{"containerPort": 8080}],
    }]}})
}

fn sizes(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": "1", "memory": "1Gi"}})
}

/// A sandbox that is ready, and its pod.
async fn ready(stage: &Stage, template: Value) -> Pod {
    let spec = json!({"podTemplate": template});
    stage.create::<Sandbox>(sandbox(spec)).await;
    stage.until_ready().await;
    stage.pods().await.remove(0)
}

async fn edit(stage: &Stage, annotations: &Value, template: Value) {
    let patch =
        json!({"metadata": {"annotations": annotations}, "spec": {"podTemplate": template}});
    stage.patch::<Sandbox>("box", patch).await;
}

/// Waits until the sandbox is ready as it is asked for now, and looks whether its pod is the same.
async fn until_updated(stage: &Stage, before: &Pod) -> Pod {
    let is_updated = |sandbox: &Sandbox| {
        let status = sandbox.status.clone().unwrap_or_default();
        let ready = condition(&status, "Ready").cloned().unwrap();
        ready.status == "True" && ready.observed_generation == sandbox.metadata.generation
    };
    let look = async || stage.sandbox().await;
    stage.until("updated", look, is_updated).await;
    let pod = stage.pods().await.remove(0);
    assert_eq!(pod.uid(), before.uid());
    let ip = |pod: &Pod| pod.status.as_ref().unwrap().pod_ip.clone();
    assert_eq!(ip(&pod), ip(before));
    pod
}

fn at(pod: &Pod, pointer: &str) -> Value {
    json!(pod).pointer(pointer).cloned().unwrap_or_default()
}

fn images(pod: &Pod) -> [Value; 2] {
    [
        "/spec/containers/0/image",
        "/status/containerStatuses/0/image",
    ]
    .map(|path| at(pod, path))
}

fn cpus(pod: &Pod) -> [Value; 2] {
    ["/spec/containers/0", "/status/containerStatuses/0"]
        .map(|path| at(pod, &format!("{path}/resources/requests/cpu")))
}

async fn until_told(stage: &Stage, end: &str) -> SandboxStatus {
    let is_told = |status: &SandboxStatus| {
        let ready = condition(status, "Ready").unwrap();
        (&*ready.status, &*ready.reason) == ("False", "InPlaceUpdateImpossible")
            && ready
                .message
                .starts_with("Pod cannot be updated in place: ")
            && ready.message.contains(end)
    };
    let look = async || stage.status().await;
    stage.until(end, look, is_told).await
}

pub(crate) async fn a_new_image_comes_into_the_running_pod(stage: &Stage) {
    let before = ready(stage, json!({})).await;
    let mut template = main("app:2", &json!({}));
    template["metadata"]["labels"] = json!({"app": "newer"});
    edit(stage, &in_a_month(stage), template).await;
    let pod = until_updated(stage, &before).await;
    assert_eq!(images(&pod), ["app:2", "app:2"]);
    assert_eq!(pod.labels()["app"], "newer");
    let id = |pod| at(pod, "/status/containerStatuses/0/containerID");
    assert_ne!(id(&pod), id(&before));
    edit(stage, &json!({FENCE: null}), json!({})).await;
}

/// Every state that the pod has had since.
async fn states_since(stage: &Stage, before: &Pod, last: &Pod) -> Vec<Pod> {
    let (pods, since) = (stage.api::<Pod>(), before.resource_version().unwrap());
    let events = pods.watch(&WatchParams::default(), &since).await.unwrap();
    let (mut events, mut states) = (events.boxed(), Vec::<Pod>::new());
    let end = last.resource_version();
    while states.last().and_then(Pod::resource_version) != end {
        if let Some(WatchEvent::Modified(pod)) = events.try_next().await.unwrap() {
            states.push(pod);
        }
    }
    states
}

fn has(pod: &Pod, kind: &str) -> bool {
    let conditions = pod.status.iter().flat_map(|status| &status.conditions);
    let mut conditions = conditions.flatten();
    conditions.any(|condition| condition.type_ == kind && condition.status == "True")
}

pub(crate) async fn a_pod_behind_a_gate_is_not_ready_while_it_changes(stage: &Stage) {
    let gated = |image: &str| {
        let mut template = main(image, &json!({}));
        template["spec"]["readinessGates"] = json!([{"conditionType": GATE}]);
        template
    };
    let before = ready(stage, gated("app:1")).await;
    assert!(has(&before, GATE));
    edit(stage, &in_a_month(stage), gated("app:2")).await;
    let after = until_updated(stage, &before).await;
    assert_eq!(images(&after), ["app:2", "app:2"]);
    assert!(has(&after, GATE) && has(&after, "Ready"));
    let states = states_since(stage, &before, &after).await;
    let is_half_done = |pod: &&Pod| {
        let [wanted, runs] = images(pod);
        wanted == "app:2" && runs != "app:2"
    };
    let half_done: Vec<_> = states.iter().filter(is_half_done).collect();
    assert!(!half_done.is_empty());
    for pod in half_done {
        assert!(!has(pod, GATE) && !has(pod, "Ready"), "{:?}", pod.status);
    }
    edit(stage, &json!({FENCE: null}), json!({})).await;
}

pub(crate) async fn new_sizes_come_into_the_running_pod(stage: &Stage) {
    let before = ready(stage, main("app:1", &sizes("100m", "64Mi"))).await;
    edit(
        stage,
        &in_a_month(stage),
        main("app:1", &sizes("200m", "64Mi")),
    )
    .await;
    let pod = until_updated(stage, &before).await;
    assert_eq!(cpus(&pod), ["200m", "200m"]);
    let id = |pod| at(pod, "/status/containerStatuses/0/containerID");
    assert_eq!(id(&pod), id(&before));
}

pub(crate) async fn an_image_and_sizes_change_together(stage: &Stage) {
    let before = ready(stage, main("app:1", &sizes("100m", "128Mi"))).await;
    edit(
        stage,
        &in_a_month(stage),
        main("app:2", &sizes("200m", "64Mi")),
    )
    .await;
    let pod = until_updated(stage, &before).await;
    assert_eq!(images(&pod), ["app:2", "app:2"]);
    assert_eq!(cpus(&pod), ["200m", "200m"]);
    let memory = "/status/containerStatuses/0/resources/requests/memory";
    assert_eq!(at(&pod, memory), "64Mi");
}

pub(crate) async fn new_metadata_is_an_update_too(stage: &Stage) {
    let before = ready(stage, json!({})).await;
    let metadata = json!({"metadata": {"labels": {"app": "newer"}}});
    edit(stage, &in_a_month(stage), metadata).await;
    let pod = until_updated(stage, &before).await;
    assert_eq!(pod.labels()["app"], "newer");
    assert_eq!(pod.metadata.generation, before.metadata.generation);
}

pub(crate) async fn the_last_of_two_edits_counts(stage: &Stage) {
    let before = ready(stage, json!({})).await;
    for image in ["app:2", "app:3"] {
        edit(stage, &in_a_month(stage), main(image, &json!({}))).await;
    }
    let pod = until_updated(stage, &before).await;
    assert_eq!(images(&pod), ["app:3", "app:3"]);
}

pub(crate) async fn a_pod_is_left_alone_without_a_fence(stage: &Stage) {
    let before = ready(stage, json!({})).await;
    let mut template = main("app:2", &json!({}));
    template["metadata"]["labels"] = json!({"app": "newer"});
    edit(stage, &json!({}), template).await;
    let pods = async || stage.pods().await;
    let is_labelled = |pods: &Vec<Pod>| pods[0].labels()["app"] == "newer";
    let pod = stage.until("labelled", pods, is_labelled).await.remove(0);
    assert_eq!(pod.uid(), before.uid());
    assert_eq!(images(&pod), ["app:1", "app:1"]);
    assert_eq!(pod.metadata.generation, before.metadata.generation);
}

pub(crate) async fn what_a_running_pod_cannot_take_is_told(stage: &Stage) {
    let before = ready(stage, json!({})).await;
    let mut template = main("app:2", &json!({}));
    template["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "b"}]);
    template["metadata"]["labels"] = json!({"app": "newer"});
    edit(stage, &in_a_month(stage), template).await;
    let end = "spec.containers[main].env cannot change in a running pod";
    until_told(stage, end).await;
    let pod = stage.pods().await.remove(0);
    assert_eq!(pod.metadata.generation, before.metadata.generation);
    assert_eq!(pod.labels(), before.labels());

    edit(stage, &in_a_month(stage), main("app:2", &json!({}))).await;
    let pod = until_updated(stage, &before).await;
    assert_eq!(images(&pod), ["app:2", "app:2"]);
}

/// With a node that does this to resizes.
fn failing(image: &str, cpu: &str, failure: &str) -> Value {
    let mut template = main(image, &sizes(cpu, "64Mi"));
    template["metadata"]["annotations"] = json!({"hollow.sandbar.dev/fail": failure});
    template
}

pub(crate) async fn what_the_server_refuses_is_told(stage: &Stage) {
    let before = ready(stage, main("app:1", &sizes("100m", "64Mi"))).await;
    let fence = in_a_month(stage);
    // more than its limit
    edit(stage, &fence, main("app:1", &sizes("2", "64Mi"))).await;
    until_told(stage, "must be less than or equal to cpu limit").await;
    edit(stage, &fence, main("app:1", &sizes("200m", "64Mi"))).await;
    let pod = until_updated(stage, &before).await;
    assert_eq!(cpus(&pod), ["200m", "200m"]);
}

pub(crate) async fn a_size_that_the_node_refuses_is_told(stage: &Stage) {
    let failure = "resize-infeasible";
    ready(stage, failing("app:1", "100m", failure)).await;
    let fence = in_a_month(stage);
    edit(stage, &fence, failing("app:1", "200m", failure)).await;
    until_told(stage, "").await;
    let pod = stage.pods().await.remove(0);
    assert_eq!(cpus(&pod), ["200m", "100m"]);
}

pub(crate) async fn a_size_that_comes_too_late_is_taken_back(stage: &Stage) {
    let failure = "resize-deferred";
    ready(stage, failing("app:1", "100m", failure)).await;
    let fence = fence(stage, Duration::from_secs(50));
    edit(stage, &fence, failing("app:1", "200m", failure)).await;
    until_told(stage, "it was not done by").await;
    let pods = async || stage.pods().await;
    let is_back = |pods: &Vec<Pod>| cpus(&pods[0]) == ["100m", "100m"];
    stage.until("taken back", pods, is_back).await;
}

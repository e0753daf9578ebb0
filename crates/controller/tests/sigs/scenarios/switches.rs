//! Pools that are rolled from one template to another.

use std::collections::BTreeSet;

use api::sigs::v1beta1::{Sandbox, SandboxTemplate, SandboxWarmPool, SandboxWarmPoolStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use super::{
    pools::{is_ready, members, status, until_full},
    rollouts::{fill, rolling, until_rolled},
};
use crate::stage::{Stage, template};

const REFERENCE: &str = "agents.x-k8s.io/sandbox-template-ref";
const HASH: &str = "agents.x-k8s.io/sandbox-template-ref-hash";
/// FNV-1a of `two`.
const TWO: &str = "be248829";

async fn switch_to_two(stage: &Stage, image: &str) {
    let two = template("two", image, json!({}));
    stage.create::<SandboxTemplate>(two).await;
    let switched = json!({"spec": {"sandboxTemplateRef": {"name": "two"}}});
    stage.patch::<SandboxWarmPool>("pool", switched).await;
}

fn is_of_two(member: &Sandbox) -> bool {
    member.annotations()[REFERENCE] == "two" && member.labels()[HASH] == TWO
}

async fn pods(stage: &Stage) -> BTreeSet<(String, Option<String>)> {
    let pods: Vec<Pod> = stage.list().await;
    pods.iter().map(|pod| (pod.name_any(), pod.uid())).collect()
}

pub(crate) async fn an_equal_template_comes_to_members_in_place(stage: &Stage) {
    let in_place = json!({"inPlace": "IfPossible", "maxSurge": 0});
    fill(stage, 3, rolling(in_place)).await;
    let before = pods(stage).await;
    switch_to_two(stage, "app:1").await;
    let observe = async || (members(stage).await, status(stage).await);
    let are_switched = |(members, status): &(Vec<Sandbox>, SandboxWarmPoolStatus)| {
        members.len() == 3
            && members.iter().all(|one| is_of_two(one) && is_ready(one))
            && status.updated_replicas == Some(3)
            && status.current_revision == status.update_revision
    };
    let what = "all members are of the other template";
    // where time passes by leaps, as after a fault, an update may be too late and its member replaced
    if stage.is_disturbed() {
        stage.until(what, observe, are_switched).await;
    } else {
        stage.until_slowly(what, observe, are_switched).await;
        assert_eq!(pods(stage).await, before);
    }
    until_full(stage, 3).await;
    let look = async || stage.list::<Pod>().await;
    let follow = |pods: &Vec<Pod>| pods.iter().all(|pod| pod.labels()[HASH] == TWO);
    stage.until("the pods follow", look, follow).await;
}

pub(crate) async fn another_template_is_rolled_out(stage: &Stage) {
    fill(stage, 3, rolling(json!({}))).await;
    let before = pods(stage).await;
    switch_to_two(stage, "app:2").await;
    let after = until_rolled(stage, 3, "app:2", 2).await;
    assert!(after.iter().all(is_of_two), "{after:#?}");
    // those of members that are gone are collected a little later
    let look = async || pods(stage).await;
    let are_others = |pods: &BTreeSet<_>| pods.is_disjoint(&before);
    stage.until("all pods are others", look, are_others).await;
}

//! Pools and their members.

use api::sigs::v1beta1::{Sandbox, SandboxTemplate, SandboxWarmPool, SandboxWarmPoolStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use super::broken::is_told_once;
use crate::stage::{Stage, pool, template};

pub(crate) const POOL_HASH: &str = "91dd7983";

/// The members that are not going.
pub(crate) async fn members(stage: &Stage) -> Vec<Sandbox> {
    let mut all: Vec<Sandbox> = stage.list().await;
    all.retain(|one| one.metadata.deletion_timestamp.is_none());
    all
}

pub(crate) fn is_ready(sandbox: &Sandbox) -> bool {
    let status = sandbox.status.clone().unwrap_or_default();
    crate::stage::condition(&status, "Ready").is_some_and(|ready| ready.status == "True")
}

pub(crate) async fn status(stage: &Stage) -> SandboxWarmPoolStatus {
    let pool: SandboxWarmPool = stage.api().get("pool").await.unwrap();
    pool.status.unwrap_or_default()
}

/// Waits until the pool has exactly so many members, all of them Ready, and says so.
pub(crate) async fn until_full(stage: &Stage, count: i32) -> Vec<Sandbox> {
    let observe = async || (members(stage).await, status(stage).await);
    let is_full = |(members, status): &(Vec<Sandbox>, SandboxWarmPoolStatus)| {
        members.len() == usize::try_from(count).unwrap()
            && members.iter().all(is_ready)
            && (status.replicas, status.ready_replicas) == (Some(count), Some(count))
    };
    let (members, _) = stage
        .until(&format!("{count} members"), observe, is_full)
        .await;
    members
}

pub(crate) fn reason(status: &SandboxWarmPoolStatus, kind: &str) -> (String, String) {
    let conditions = status.conditions.iter().flatten();
    let mut found = conditions.filter(|condition| condition.type_ == kind);
    found.next().map_or_else(Default::default, |it| {
        (it.status.clone(), it.reason.clone())
    })
}

pub(crate) fn message(status: &SandboxWarmPoolStatus, kind: &str) -> String {
    let mut conditions = status.conditions.iter().flatten();
    let found = conditions.find(|condition| condition.type_ == kind);
    found.map(|it| it.message.clone()).unwrap_or_default()
}

pub(crate) async fn scale(stage: &Stage, replicas: u32) {
    stage
        .patch::<SandboxWarmPool>("pool", json!({"spec": {"replicas": replicas}}))
        .await;
}

pub(crate) async fn a_pool_is_filled_and_follows_its_size(stage: &Stage) {
    stage
        .create::<SandboxTemplate>(template("one", "app:1", json!({})))
        .await;
    let made: SandboxWarmPool = stage.create(pool(3, json!({}))).await;
    let all = until_full(stage, 3).await;
    let one = &all[0];
    assert!(one.name_any().starts_with("pool-") && one.name_any().len() == 10);
    let labels = one.labels();
    assert_eq!(labels["agents.x-k8s.io/warm-pool-sandbox"], POOL_HASH);
    assert_eq!(labels["agents.x-k8s.io/launch-type"], "warm");
    assert_eq!(labels["agents.x-k8s.io/created-by"], "controller");
    let annotations = one.annotations();
    assert_eq!(annotations["agents.x-k8s.io/sandbox-template-ref"], "one");
    assert_eq!(annotations["agents.x-k8s.io/pod-name"], one.name_any());
    let owner = json!([{
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool", "name": "pool",
        "uid": made.uid(), "controller": true, "blockOwnerDeletion": true,
    }]);
    assert_eq!(json!(one.owner_references()), owner);
    let template = &one.spec.blueprint.pod_template;
    let spec = template.spec.json();
    assert_eq!(spec["automountServiceAccountToken"], json!(false));
    assert_eq!(spec["dnsPolicy"], json!("None"));
    let metadata = template.metadata.as_ref().unwrap();
    for label in [
        "warm-pool-sandbox",
        "sandbox-template-ref-hash",
        "sandbox-template-hash",
    ] {
        let label = format!("agents.x-k8s.io/{label}");
        assert_eq!(metadata.labels.as_ref().unwrap()[&label], labels[&label]);
    }
    let evictable = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    assert_eq!(metadata.annotations.as_ref().unwrap()[evictable], "true");
    let pod: Pod = stage.api().get(&one.name_any()).await.unwrap();
    assert_eq!(pod.labels()["agents.x-k8s.io/warm-pool-sandbox"], POOL_HASH);
    scale(stage, 5).await;
    until_full(stage, 5).await;
    scale(stage, 2).await;
    until_full(stage, 2).await;
    let status = status(stage).await;
    let selector = format!("agents.x-k8s.io/warm-pool-sandbox={POOL_HASH}");
    assert_eq!(status.selector, Some(selector));
    assert_eq!(status.observed_generation, Some(3));
    assert_eq!(
        (status.updated_replicas, status.updated_available_replicas),
        (Some(2), Some(2))
    );
    assert_eq!(status.current_revision, status.update_revision);
    assert_eq!(
        reason(&status, "Stalled"),
        ("False".to_owned(), "AsExpected".to_owned())
    );
}

pub(crate) async fn a_pool_without_a_template_waits_for_it(stage: &Stage) {
    stage.create::<SandboxWarmPool>(pool(2, json!({}))).await;
    let missing = ("True".to_owned(), "TemplateNotFound".to_owned());
    let observe = async || status(stage).await;
    let is_told = |status: &SandboxWarmPoolStatus| reason(status, "Stalled") == missing;
    stage
        .until("the template is missed", observe, is_told)
        .await;
    assert!(members(stage).await.is_empty());
    is_told_once(
        stage,
        "TemplateNotFound",
        "SandboxTemplate \"one\" not found",
    )
    .await;
    stage
        .create::<SandboxTemplate>(template("one", "app:1", json!({})))
        .await;
    until_full(stage, 2).await;
    // and those that are there outlive it
    stage.delete::<SandboxTemplate>("one").await;
    stage
        .until("the template is missed again", observe, is_told)
        .await;
    assert_eq!(members(stage).await.len(), 2);
}

pub(crate) async fn a_deleted_pool_takes_its_members_along(stage: &Stage) {
    stage
        .create::<SandboxTemplate>(template("one", "app:1", json!({})))
        .await;
    stage.create::<SandboxWarmPool>(pool(2, json!({}))).await;
    until_full(stage, 2).await;
    stage.delete::<SandboxWarmPool>("pool").await;
    let observe = async || {
        (
            stage.list::<Sandbox>().await.len(),
            stage.list::<Pod>().await.len(),
        )
    };
    stage
        .until("nothing is left", observe, |left| *left == (0, 0))
        .await;
}

pub(crate) async fn a_member_that_is_over_is_replaced(stage: &Stage) {
    stage
        .create::<SandboxTemplate>(template("one", "app:1", json!({})))
        .await;
    stage.create::<SandboxWarmPool>(pool(2, json!({}))).await;
    let all = until_full(stage, 2).await;
    let name = all[0].name_any();
    let over = json!({"status": {"phase": "Failed", "containerStatuses": []}});
    let pods: kube::Api<Pod> = stage.api();
    let patch = kube::api::Patch::Merge(over);
    pods.patch_status(&name, &kube::api::PatchParams::default(), &patch)
        .await
        .unwrap();
    let observe = async || {
        members(stage)
            .await
            .iter()
            .any(|one| one.name_any() == name)
    };
    stage
        .until("the member that is over is gone", observe, |is_there| {
            !is_there
        })
        .await;
    until_full(stage, 2).await;
}

/// As somebody does who wants to look at one in peace.
pub(crate) async fn a_member_without_the_label_of_its_pool_is_made_up_for_and_left_alone(
    stage: &Stage,
) {
    stage
        .create::<SandboxTemplate>(template("one", "app:1", json!({})))
        .await;
    stage.create::<SandboxWarmPool>(pool(1, json!({}))).await;
    let before = until_full(stage, 1).await.remove(0);
    let label = json!({"agents.x-k8s.io/warm-pool-sandbox": null});
    let patch = json!({"metadata": {"labels": label}});
    stage.patch::<Sandbox>(&before.name_any(), patch).await;
    let observe = async || members(stage).await;
    let are_two = |members: &Vec<Sandbox>| members.len() == 2 && members.iter().all(is_ready);
    stage.until("another is made", observe, are_two).await;
    scale(stage, 0).await;
    let is_one = |members: &Vec<Sandbox>| members.len() == 1;
    let left = stage.until("it is gone again", observe, is_one).await;
    assert_eq!(left[0].uid(), before.uid());
}

pub(crate) async fn members_without_an_owner_are_taken_in_or_removed(stage: &Stage) {
    stage
        .create::<SandboxTemplate>(template("one", "app:1", json!({})))
        .await;
    stage.create::<SandboxWarmPool>(pool(2, json!({}))).await;
    let all = until_full(stage, 2).await;
    let [one, two] = [0, 1].map(|index: usize| all[index].name_any());
    let alone = json!({"metadata": {"ownerReferences": null}});
    stage.patch::<Sandbox>(&one, alone.clone()).await;
    let other = json!([{"name": "main", "image": "app:9"}]);
    let mut changed = alone;
    changed["spec"] = json!({"podTemplate": {"spec": {"containers": other}}});
    // its labels still say that it is as it should be
    stage.patch::<Sandbox>(&two, changed).await;
    let observe = async || members(stage).await;
    let is_settled = |members: &Vec<Sandbox>| {
        members.len() == 2
            && members
                .iter()
                .all(|one| is_ready(one) && one.owner_references().len() == 1)
            && members.iter().all(|one| one.name_any() != two)
    };
    let after = stage.until("both have an owner", observe, is_settled).await;
    // the one that is as it should be was taken in, unless its place was filled before
    assert!(after.iter().any(|member| member.name_any() == one) || after.len() == 2);
    until_full(stage, 2).await;
}

pub(crate) async fn a_spec_that_cannot_be_followed_is_told_and_claims_are_still_served(
    stage: &Stage,
) {
    stage
        .create::<SandboxTemplate>(template("one", "app:1", json!({})))
        .await;
    let rolling = json!({"updateStrategy": {
        "type": "RollingUpdate",
        "rollingUpdate": {"inPlace": "Never", "priorityStrategy": {
            "orderPriority": [{"orderedKey": "rank"}],
            "weightPriority": [{"weight": 1, "matchSelector": {"matchLabels": {"a": "b"}}}],
        }},
    }});
    stage.create::<SandboxWarmPool>(pool(2, rolling)).await;
    let observe = async || status(stage).await;
    let invalid = ("True".to_owned(), "InvalidSpec".to_owned());
    let is_told = |status: &SandboxWarmPoolStatus| reason(status, "Stalled") == invalid;
    let told = stage.until("the spec is refused", observe, is_told).await;
    let message = message(&told, "Stalled");
    assert!(
        message.contains("rollingUpdate.priorityStrategy") && message.contains("remove one"),
        "{message}"
    );
    until_full(stage, 2).await;
    is_told_once(stage, "InvalidSpec", "remove one").await;
    stage.patch::<SandboxTemplate>(
        "one",
        json!({"spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "app:2"}]}}}}),
    )
    .await;
    let mended = json!({"spec": {"updateStrategy": {"rollingUpdate": {"priorityStrategy": null}}}});
    stage.patch::<SandboxWarmPool>("pool", mended).await;
    super::rollouts::until_rolled(stage, 2, "app:2", 1).await;
}

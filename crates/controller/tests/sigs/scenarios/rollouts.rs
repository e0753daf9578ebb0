//! Pools whose template changes.

use std::collections::BTreeSet;

use api::sigs::v1beta1::{Sandbox, SandboxTemplate, SandboxWarmPool, SandboxWarmPoolStatus};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    policies::until_given,
    pools::{is_ready, members, reason, scale, status, until_full},
    together::{claim_with, until_stocked},
};
use crate::stage::{Stage, pool, template};

const RETIRED: &str = "sandbar.dev/retired-revisions";

pub(crate) fn image(sandbox: &Sandbox) -> String {
    let spec = sandbox.spec.blueprint.pod_template.spec.json();
    spec["containers"][0]["image"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

pub(crate) async fn set_image(stage: &Stage, image: &str) {
    let containers = json!([{"name": "main", "image": image}]);
    let patch = json!({"spec": {"podTemplate": {"spec": {"containers": containers}}}});
    stage.patch::<SandboxTemplate>("one", patch).await;
}

fn strategy(kind: &str) -> Value {
    json!({"updateStrategy": {"type": kind}})
}

/// Members are replaced, not changed in place.
pub(crate) fn rolling(fields: Value) -> Value {
    let mut rolling = json!({"inPlace": "Never", "maxUnavailable": 1, "maxSurge": 1});
    rolling
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}})
}

pub(crate) async fn fill(stage: &Stage, replicas: u32, spec: Value) -> Vec<Sandbox> {
    stage
        .create::<SandboxTemplate>(template("one", "app:1", json!({})))
        .await;
    stage.create::<SandboxWarmPool>(pool(replicas, spec)).await;
    until_full(stage, i32::try_from(replicas).unwrap()).await
}

/// Waits until all members are of this image, and Ready, and the pool says that it is done. At no time are fewer
/// claimable than so many.
pub(crate) async fn until_rolled(
    stage: &Stage,
    count: i32,
    wanted: &str,
    floor: usize,
) -> Vec<Sandbox> {
    let observe = async || {
        let members = members(stage).await;
        let claimable = members.iter().filter(|member| is_ready(member)).count();
        let told = || stage.story(&format!("{claimable} are claimable, and {floor} must be"));
        assert!(claimable >= floor, "{}", told());
        (members, status(stage).await)
    };
    let is_rolled = |(members, status): &(Vec<Sandbox>, SandboxWarmPoolStatus)| {
        members.iter().all(|member| image(member) == wanted)
            && status.updated_replicas == Some(count)
            && status.current_revision == status.update_revision
    };
    stage
        .until(&format!("all are {wanted}"), observe, is_rolled)
        .await;
    until_full(stage, count).await
}

pub(crate) async fn recreate_replaces_every_member(stage: &Stage) {
    let before = fill(stage, 3, strategy("Recreate")).await;
    set_image(stage, "app:2").await;
    let after = until_rolled(stage, 3, "app:2", 0).await;
    assert!(
        after
            .iter()
            .all(|new| before.iter().all(|old| old.name_any() != new.name_any()))
    );
    let old = status(stage).await.update_revision;
    let labels = json!({"spec": {"podTemplate": {"metadata": {"labels": {"team": "two"}}}}});
    stage.patch::<SandboxTemplate>("one", labels).await;
    // metadata alone replaces nothing
    let observe = async || status(stage).await.update_revision;
    stage
        .until("the new revision is known", observe, |new| *new != old)
        .await;
    let same = until_full(stage, 3).await;
    assert_eq!(names(&same), names(&after));
}

fn names(members: &[Sandbox]) -> Vec<String> {
    members.iter().map(ResourceExt::name_any).collect()
}

pub(crate) async fn on_replenish_leaves_members_to_the_claims(stage: &Stage) {
    let before = fill(stage, 3, json!({})).await;
    set_image(stage, "app:2").await;
    let observe = async || status(stage).await;
    let is_told = |status: &SandboxWarmPoolStatus| status.updated_replicas == Some(0);
    stage.until("old members are told", observe, is_told).await;
    assert_eq!(names(&members(stage).await), names(&before));
    // what goes is replaced by what is new
    stage.delete::<Sandbox>(&before[0].name_any()).await;
    let observe = async || members(stage).await;
    let is_mixed = |members: &Vec<Sandbox>| {
        let new = members.iter().filter(|member| image(member) == "app:2");
        (members.len(), new.count()) == (3, 1) && members.iter().all(is_ready)
    };
    stage.until("one is new", observe, is_mixed).await;
    let observe = async || status(stage).await;
    let is_told = |status: &SandboxWarmPoolStatus| {
        (status.updated_replicas, status.ready_replicas) == (Some(1), Some(3))
    };
    stage.until("one is told to be new", observe, is_told).await;
}

pub(crate) async fn another_template_of_equal_content_replaces_members_under_recreate_only(
    stage: &Stage,
) {
    let before = fill(stage, 2, json!({})).await;
    stage
        .create::<SandboxTemplate>(template("two", "app:1", json!({})))
        .await;
    let switched = json!({"spec": {"sandboxTemplateRef": {"name": "two"}}});
    stage.patch::<SandboxWarmPool>("pool", switched).await;
    let observe = async || status(stage).await;
    let is_told = |status: &SandboxWarmPoolStatus| status.updated_replicas == Some(0);
    stage
        .until("all members are of the other template", observe, is_told)
        .await;
    assert_eq!(names(&members(stage).await), names(&before));
    stage
        .patch::<SandboxWarmPool>("pool", json!({"spec": strategy("Recreate")}))
        .await;
    let after = until_rolled(stage, 2, "app:1", 0).await;
    assert!(
        after
            .iter()
            .all(|new| before.iter().all(|old| old.name_any() != new.name_any()))
    );
    let reference = "agents.x-k8s.io/sandbox-template-ref";
    assert!(
        after
            .iter()
            .all(|member| member.annotations()[reference] == "two")
    );
}

pub(crate) async fn a_rolling_update_never_takes_out_more_than_it_may(stage: &Stage) {
    fill(stage, 4, rolling(json!({}))).await;
    set_image(stage, "app:2").await;
    until_rolled(stage, 4, "app:2", 3).await;
    let status = status(stage).await;
    assert_eq!(reason(&status, "Progressing").1, "Complete");
    assert_eq!(reason(&status, "Stalled").0, "False");
}

pub(crate) async fn a_template_that_is_edited_twice_ends_at_the_second_edit(stage: &Stage) {
    fill(stage, 3, rolling(json!({}))).await;
    set_image(stage, "app:2").await;
    let observe = async || members(stage).await;
    let has_begun = |members: &Vec<Sandbox>| members.iter().any(|one| image(one) == "app:2");
    stage
        .until("the first edit is followed", observe, has_begun)
        .await;
    set_image(stage, "app:3").await;
    until_rolled(stage, 3, "app:3", 2).await;
}

pub(crate) async fn a_pool_that_shrinks_while_it_rolls_ends_new_and_small(stage: &Stage) {
    fill(stage, 4, rolling(json!({}))).await;
    set_image(stage, "app:2").await;
    scale(stage, 2).await;
    until_rolled(stage, 2, "app:2", 1).await;
}

pub(crate) async fn a_paused_rollout_goes_on_when_it_is_resumed(stage: &Stage) {
    let before = fill(stage, 3, rolling(json!({"paused": true}))).await;
    set_image(stage, "app:2").await;
    let observe = async || status(stage).await;
    let is_paused = |status: &SandboxWarmPoolStatus| {
        status.updated_replicas == Some(0) && reason(status, "Progressing").1 == "Paused"
    };
    stage.until("the pause is told", observe, is_paused).await;
    assert_eq!(names(&members(stage).await), names(&before));
    let resumed = json!({"spec": {"updateStrategy": {"rollingUpdate": {"paused": false}}}});
    stage.patch::<SandboxWarmPool>("pool", resumed).await;
    until_rolled(stage, 3, "app:2", 2).await;
}

pub(crate) async fn a_broken_template_stops_the_rollout_until_it_is_mended(stage: &Stage) {
    fill(stage, 4, rolling(json!({}))).await;
    set_image(stage, "missing:2").await;
    let observe = async || (status(stage).await, members(stage).await);
    let is_stopped = |(status, members): &(SandboxWarmPoolStatus, Vec<Sandbox>)| {
        let claimable = members.iter().filter(|member| is_ready(member)).count();
        assert!(claimable >= 3, "{claimable} are claimable");
        reason(status, "Stalled") == ("True".to_owned(), "ImagePull".to_owned())
    };
    stage
        .until("the broken image is told", observe, is_stopped)
        .await;
    set_image(stage, "app:3").await;
    until_rolled(stage, 4, "app:3", 3).await;
}

pub(crate) async fn a_partition_keeps_members_back(stage: &Stage) {
    fill(stage, 4, rolling(json!({"partition": 3}))).await;
    set_image(stage, "app:2").await;
    let observe = async || status(stage).await;
    let is_kept = |status: &SandboxWarmPoolStatus| {
        status.updated_replicas == Some(1) && reason(status, "Progressing").1 == "PartitionReached"
    };
    stage
        .until("the partition is reached", observe, is_kept)
        .await;
    until_full(stage, 4).await;
    let open = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}});
    stage.patch::<SandboxWarmPool>("pool", open).await;
    until_rolled(stage, 4, "app:2", 3).await;
}

async fn retired(stage: &Stage) -> Option<String> {
    let pool: SandboxWarmPool = stage.api().get("pool").await.unwrap();
    pool.annotations().get(RETIRED).cloned()
}

/// Retired while it is the target, as `rollout undo --retire` does it, and wanted again later.
pub(crate) async fn a_retired_revision_that_is_wanted_again_is_one_like_any_other(stage: &Stage) {
    fill(stage, 3, strategy("Recreate")).await;
    set_image(stage, "app:2").await;
    until_rolled(stage, 3, "app:2", 0).await;
    let bad = status(stage).await.update_revision.unwrap();
    // who goes back does so by the history
    let stored = async || stage.list::<ControllerRevision>().await;
    let is_stored = |stored: &Vec<ControllerRevision>| {
        let mut names = stored.iter().map(ResourceExt::name_any);
        names.any(|name| name.ends_with(&bad))
    };
    stage.until("it is stored", stored, is_stored).await;
    let mark = json!({"metadata": {"annotations": {RETIRED: format!("others,{bad}")}}});
    stage.patch::<SandboxWarmPool>("pool", mark).await;
    set_image(stage, "app:1").await;
    until_rolled(stage, 3, "app:1", 0).await;
    assert_eq!(retired(stage).await, Some(format!("others,{bad}")));
    set_image(stage, "app:2").await;
    until_rolled(stage, 3, "app:2", 0).await;
    let look = async || retired(stage).await;
    let is_free = |retired: &Option<String>| retired.as_deref() == Some("others");
    stage.until("it is not bad any more", look, is_free).await;
    let mut slowly = rolling(json!({}));
    // who has grown has heard of the strategy too
    slowly["replicas"] = json!(4);
    let slowly = json!({"spec": slowly});
    stage.patch::<SandboxWarmPool>("pool", slowly).await;
    until_full(stage, 4).await;
    set_image(stage, "app:3").await;
    until_rolled(stage, 4, "app:3", 3).await;
}

pub(crate) async fn going_back_raises_the_old_revision(stage: &Stage) {
    fill(stage, 2, rolling(json!({}))).await;
    set_image(stage, "app:2").await;
    until_rolled(stage, 2, "app:2", 1).await;
    set_image(stage, "app:1").await;
    until_rolled(stage, 2, "app:1", 1).await;
    let stored = async || {
        let revisions: Vec<ControllerRevision> = stage.list().await;
        let stored = revisions.into_iter().map(|one| {
            let data = one.data.unwrap().0;
            let image = &data["spec"]["podTemplate"]["spec"]["containers"][0]["image"];
            (one.revision, image.as_str().unwrap().to_owned())
        });
        stored.collect::<BTreeSet<_>>()
    };
    let wanted = [(2, "app:2".to_owned()), (3, "app:1".to_owned())];
    let is_raised = |stored: &BTreeSet<(i64, String)>| *stored == BTreeSet::from(wanted.clone());
    stage.until("it is raised", stored, is_raised).await;
}

pub(crate) async fn the_history_keeps_what_is_used_and_ten_others(stage: &Stage) {
    const EDITS: i64 = 15;
    fill(stage, 1, strategy("OnReplenish")).await;
    let brings = json!({"spec": {"envVarsInjectionPolicy": "Allowed"}});
    stage.patch::<SandboxTemplate>("one", brings).await;
    claim_with(stage, "warm", json!({})).await;
    assert_eq!(image(&until_given(stage, "warm").await), "app:1");
    let stock = until_stocked(stage, 1, "app:1").await;
    let stored = async || {
        let revisions: Vec<ControllerRevision> = stage.list().await;
        let numbers = revisions.iter().map(|one| one.revision);
        numbers.collect::<BTreeSet<_>>()
    };
    for number in 2..=EDITS {
        set_image(stage, &format!("app:{number}")).await;
        let is_stored = |stored: &BTreeSet<i64>| stored.contains(&number);
        stage.until("the edit is stored", stored, is_stored).await;
        if number == 2 {
            // from now on only a claim has the first
            stage.delete::<Sandbox>(&stock[0].name_any()).await;
            until_stocked(stage, 1, "app:2").await;
        }
        if number == 3 {
            let variable = json!([{"name": "A", "value": "b"}]);
            claim_with(stage, "cold", json!({"env": variable})).await;
            assert_eq!(image(&until_given(stage, "cold").await), "app:3");
        }
    }
    // a claim has the first, the member is of the second, another claim has the third, and the last is wanted
    let kept: BTreeSet<i64> = (1..=3).chain(EDITS - 10..=EDITS).collect();
    let is_kept = |stored: &BTreeSet<i64>| *stored == kept;
    stage.until("the others are gone", stored, is_kept).await;
}

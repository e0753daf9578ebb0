//! Pools and claims at the same time.

use std::collections::BTreeSet;

use api::sigs::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    pools::{is_ready, status},
    rollouts::{image, set_image},
};
use crate::stage::{Stage, pool, template};

pub(super) async fn fill(stage: &Stage, replicas: usize, strategy: Value) {
    stage
        .create::<SandboxTemplate>(template("one", "app:1", json!({})))
        .await;
    let count = u32::try_from(replicas).unwrap();
    stage
        .create::<SandboxWarmPool>(pool(count, json!({"updateStrategy": strategy})))
        .await;
    until_stocked(stage, replicas, "app:1").await;
}

/// Members that nobody has claimed, and that are not going.
async fn stock(stage: &Stage) -> Vec<Sandbox> {
    let mut all: Vec<Sandbox> = stage.list().await;
    all.retain(|one| {
        let owner = one
            .owner_references()
            .first()
            .map(|owner| owner.kind.as_str());
        owner == Some("SandboxWarmPool") && one.metadata.deletion_timestamp.is_none()
    });
    all
}

pub(super) async fn until_stocked(stage: &Stage, count: usize, wanted: &str) -> Vec<Sandbox> {
    let observe = async || (stock(stage).await, status(stage).await);
    let number = i32::try_from(count).unwrap();
    let (stock, _) = stage
        .until(
            &format!("{count} are {wanted}"),
            observe,
            |(stock, status)| {
                stock.len() == count
                    && stock
                        .iter()
                        .all(|one| is_ready(one) && image(one) == wanted)
                    && (status.ready_replicas, status.updated_replicas)
                        == (Some(number), Some(number))
            },
        )
        .await;
    stock
}

pub(super) async fn claim(stage: &Stage, name: &str) {
    claim_with(stage, name, json!({})).await;
}

/// A claim that asks for this, too.
pub(super) async fn claim_with(stage: &Stage, name: &str, mut spec: Value) {
    spec["warmPoolRef"] = json!({"name": "pool"});
    let object = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxClaim",
        "metadata": {"name": name},
        "spec": spec,
    });
    stage.create::<SandboxClaim>(object).await;
}

/// Waits until each claim has a sandbox of its own that is Ready, and no claim has two. Names the sandboxes.
pub(super) async fn until_served(stage: &Stage, count: usize) -> BTreeSet<String> {
    let observe = async || {
        let claims: Vec<SandboxClaim> = stage.list().await;
        let given = claims.iter().filter_map(|claim| {
            let status = claim.status.as_ref()?;
            let conditions = status.conditions.as_ref()?;
            let is_ready = conditions
                .iter()
                .any(|one| one.type_ == "Ready" && one.status == "True");
            status.sandbox.as_ref()?.name.clone().filter(|_| is_ready)
        });
        let owned: Vec<Sandbox> = stage.list().await;
        let owned = owned.iter().filter(|one| {
            let owner = one
                .owner_references()
                .first()
                .map(|owner| owner.kind.as_str());
            owner == Some("SandboxClaim")
        });
        (given.collect::<BTreeSet<_>>(), owned.count())
    };
    let are_served =
        |(given, owned): &(BTreeSet<String>, usize)| (given.len(), *owned) == (count, count);
    let (given, _) = stage
        .until(&format!("{count} claims are served"), observe, are_served)
        .await;
    given
}

pub(crate) async fn a_pool_fills_up_again_after_claims(stage: &Stage) {
    fill(stage, 2, json!({})).await;
    let before: BTreeSet<String> = stock(stage)
        .await
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    claim(stage, "one").await;
    claim(stage, "two").await;
    let given = until_served(stage, 2).await;
    let after = until_stocked(stage, 2, "app:1").await;
    assert!(after.iter().all(|one| !given.contains(&one.name_any())));
    assert!(!given.is_disjoint(&before), "{given:?} {before:?}");
    // what a claim had goes with it, and comes back to no pool
    stage.delete::<SandboxClaim>("one").await;
    stage.delete::<SandboxClaim>("two").await;
    let observe = async || {
        (
            stage.list::<Sandbox>().await.len(),
            stage.list::<Pod>().await.len(),
        )
    };
    stage
        .until("only the stock is left", observe, |left| *left == (2, 2))
        .await;
}

pub(crate) async fn a_burst_that_is_larger_than_the_pool_is_served(stage: &Stage) {
    fill(stage, 2, json!({})).await;
    for name in ["one", "two", "three", "four"] {
        claim(stage, name).await;
    }
    until_served(stage, 4).await;
    until_stocked(stage, 2, "app:1").await;
}

pub(crate) async fn a_rolling_update_goes_through_while_claims_come(stage: &Stage) {
    let rolling = json!({"maxUnavailable": 1, "maxSurge": 1, "inPlace": "Never"});
    fill(
        stage,
        3,
        json!({"type": "RollingUpdate", "rollingUpdate": rolling}),
    )
    .await;
    claim(stage, "before").await;
    let before = until_served(stage, 1).await;
    set_image(stage, "app:2").await;
    claim(stage, "during").await;
    claim(stage, "later").await;
    let given = until_served(stage, 3).await;
    until_stocked(stage, 3, "app:2").await;
    // claimed ones are nobody's to replace
    assert_eq!(until_served(stage, 3).await, given);
    let first = before.first().unwrap();
    let kept: Sandbox = stage.api().get(first).await.unwrap();
    assert_eq!(image(&kept), "app:1");
}

pub(crate) async fn idle_members_change_in_place_and_claimed_ones_do_not(stage: &Stage) {
    let rolling = json!({"maxUnavailable": 1, "maxSurge": 0});
    fill(
        stage,
        3,
        json!({"type": "RollingUpdate", "rollingUpdate": rolling}),
    )
    .await;
    claim(stage, "mine").await;
    let given = until_served(stage, 1).await;
    until_stocked(stage, 3, "app:1").await;
    let pods = async || {
        let pods: Vec<Pod> = stage.list().await;
        pods.iter()
            .map(|pod| (pod.name_any(), pod.uid()))
            .collect::<BTreeSet<_>>()
    };
    let before = pods().await;
    set_image(stage, "app:2").await;
    let observe = async || stock(stage).await;
    let is_open = |one: &Sandbox| !one.annotations().contains_key("sandbar.dev/update");
    let are_done = |stock: &Vec<Sandbox>| {
        let is_done = |one: &Sandbox| image(one) == "app:2" && is_ready(one) && is_open(one);
        stock.len() == 3 && stock.iter().all(is_done)
    };
    // where time passes by leaps, as after a fault, an update may be too late and its member replaced
    if !stage.is_disturbed() {
        let what = "all have changed in place";
        stage.until_slowly(what, observe, are_done).await;
        assert_eq!(pods().await, before);
    }
    until_stocked(stage, 3, "app:2").await;
    stage.until("all fences are gone", observe, are_done).await;
    for pod in stage.list::<Pod>().await {
        let is_claimed = given.contains(&pod.name_any());
        let image = pod.spec.unwrap().containers.remove(0).image.unwrap();
        assert_eq!(image, if is_claimed { "app:1" } else { "app:2" });
    }
}

pub(crate) async fn a_new_controller_finds_everything_as_the_old_one_left_it(stage: &Stage) {
    fill(stage, 2, json!({"type": "RollingUpdate"})).await;
    claim(stage, "mine").await;
    let given = until_served(stage, 1).await;
    let before = until_stocked(stage, 2, "app:1").await;
    stage.is_quiet().await;
    let writes = stage.writes();
    stage.restart();
    stage.is_quiet().await;
    assert_eq!(stage.writes(), writes, "the new one writes");
    assert_eq!(until_served(stage, 1).await, given);
    let after = until_stocked(stage, 2, "app:1").await;
    let names = |stock: &[Sandbox]| stock.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    assert_eq!(names(&after), names(&before));
}

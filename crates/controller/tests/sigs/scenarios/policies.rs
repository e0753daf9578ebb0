//! Which members claims get while a pool is rolled.

use api::sigs::v1beta1::{Sandbox, SandboxClaim, SandboxWarmPool, SandboxWarmPoolStatus};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{
    pools::{is_ready, members, status},
    rollouts::{fill, image, rolling, set_image},
    together::until_stocked,
};
use crate::stage::Stage;

const POLICY: &str = "sandbar.dev/claim-policy";

/// A pool of three with this policy and this way of rolling.
async fn fill_under(stage: &Stage, policy: &str, fields: Value) {
    let mut spec = rolling(fields);
    spec["claimPolicy"] = json!(policy);
    fill(stage, 3, spec).await;
}

async fn claim(stage: &Stage, name: &str, wish: Option<&str>) {
    let annotations = wish.map(|wish| json!({POLICY: wish}));
    let object = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxClaim",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"warmPoolRef": {"name": "pool"}},
    });
    stage.create::<SandboxClaim>(object).await;
}

/// Waits until the claim is Ready; gives the sandbox that it names.
pub(super) async fn until_given(stage: &Stage, name: &str) -> Sandbox {
    let look = async || json!(stage.api::<SandboxClaim>().get(name).await.unwrap());
    let is_ready = |claim: &Value| {
        let mut conditions = claim["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten();
        conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    let claim = stage.until("the claim is served", look, is_ready).await;
    let sandbox = claim["status"]["sandbox"]["name"].as_str().unwrap();
    stage.api().get(sandbox).await.unwrap()
}

async fn given(stage: &Stage, name: &str, wish: Option<&str>) -> Sandbox {
    claim(stage, name, wish).await;
    until_given(stage, name).await
}

/// The revision that a claim says it got, and whether it says that the pool wanted another, once it has been stamped.
async fn stamps(stage: &Stage, name: &str) -> [Option<String>; 2] {
    let look = async || stage.api::<SandboxClaim>().get(name).await.unwrap();
    let is_stamped = |claim: &SandboxClaim| {
        let ready = "agents.x-k8s.io/claim-first-ready-at";
        claim.annotations().contains_key(ready)
    };
    let claim = stage.until("it is stamped", look, is_stamped).await;
    ["sandbar.dev/revision", "sandbar.dev/stale"].map(|key| claim.annotations().get(key).cloned())
}

async fn until_refused(stage: &Stage, name: &str, expected: &str) {
    let look = async || json!(stage.api::<SandboxClaim>().get(name).await.unwrap());
    let is_refused = |claim: &Value| {
        let mut conditions = claim["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten();
        conditions.any(|one| one["type"] == "Ready" && one["reason"] == expected)
    };
    let claim = stage.until(expected, look, is_refused).await;
    assert_eq!(claim["status"].get("sandbox"), None);
}

/// Edits the template, and waits until the pool says that it knows. What the revision was before.
async fn edit(stage: &Stage, image: &str) -> String {
    let before = status(stage).await.update_revision.unwrap();
    set_image(stage, image).await;
    let look = async || status(stage).await.update_revision.unwrap();
    let is_answered = |revision: &String| *revision != before;
    stage.until("the edit is answered", look, is_answered).await;
    before
}

/// One member is new and two are old, and all are in stock.
async fn until_mixed(stage: &Stage) {
    let look = async || (members(stage).await, status(stage).await);
    let is_mixed = |(members, status): &(Vec<Sandbox>, SandboxWarmPoolStatus)| {
        let new = members.iter().filter(|one| image(one) == "app:2").count();
        let are_ready = members.iter().all(is_ready);
        (members.len(), new, are_ready) == (3, 1, true)
            && status.updated_available_replicas == Some(1)
    };
    stage.until("one is new", look, is_mixed).await;
    stage.settle().await;
}

pub(crate) async fn who_requires_the_newest_never_gets_an_old_member(stage: &Stage) {
    fill_under(stage, "RequireNewest", json!({"paused": true})).await;
    let old = edit(stage, "app:2").await;
    // only old members are in stock, and stay there
    let first = given(stage, "first", None).await;
    let launch = &first.labels()["agents.x-k8s.io/launch-type"];
    assert_eq!((image(&first).as_str(), launch.as_str()), ("app:2", "cold"));
    // a claim does not widen what its pool allows
    let wide = given(stage, "wide", Some("DrainOld")).await;
    assert_eq!(image(&wide), "app:2");
    claim(stage, "pinned", Some(&format!("Pinned:{old}"))).await;
    until_refused(stage, "pinned", "ClaimPolicyRefused").await;
    stage.delete::<SandboxClaim>("pinned").await;

    let resumed = json!({"spec": {"updateStrategy": {"rollingUpdate": {"paused": false}}}});
    stage.patch::<SandboxWarmPool>("pool", resumed).await;
    for name in ["second", "third", "fourth"] {
        let sandbox = given(stage, name, None).await;
        assert_eq!(image(&sandbox), "app:2", "{}", stage.story("old"));
    }
    until_stocked(stage, 3, "app:2").await;
}

pub(crate) async fn who_drains_the_old_gets_them_first(stage: &Stage) {
    fill_under(stage, "DrainOld", json!({"partition": 2})).await;
    edit(stage, "app:2").await;
    until_mixed(stage).await;
    let first = given(stage, "first", None).await;
    assert_eq!(image(&first), "app:1", "{}", stage.story("new"));
    // a claim may want less
    let narrow = given(stage, "narrow", Some("RequireNewest")).await;
    assert_eq!(image(&narrow), "app:2", "{}", stage.story("old"));
    claim(stage, "vague", Some("Newest")).await;
    until_refused(stage, "vague", "InvalidClaimPolicy").await;
    let mended = json!({"metadata": {"annotations": {POLICY: "PreferNewest"}}});
    stage.patch::<SandboxClaim>("vague", mended).await;
    until_given(stage, "vague").await;
}

pub(crate) async fn who_prefers_the_newest_gets_it_first(stage: &Stage) {
    fill_under(stage, "PreferNewest", json!({"partition": 2})).await;
    let old = edit(stage, "app:2").await;
    until_mixed(stage).await;
    let newest = given(stage, "newest", None).await;
    let narrow = given(stage, "narrow", Some("DrainOld")).await;
    let pinned = given(stage, "pinned", Some(&format!("Pinned:{old}"))).await;
    let images = [newest, narrow, pinned].map(|sandbox| image(&sandbox));
    assert_eq!(
        images,
        ["app:2", "app:1", "app:1"],
        "{}",
        stage.story("wrong")
    );
    let new = status(stage).await.update_revision.unwrap();
    for (name, revision, is_stale) in [
        ("newest", &new, false),
        ("narrow", &old, true),
        ("pinned", &old, true),
    ] {
        let told = [Some(revision.clone()), is_stale.then(|| "true".to_owned())];
        let stamps = stamps(stage, name).await;
        // what was given is remembered only until it is written
        assert!(stamps == told || stage.is_disturbed(), "{name}: {stamps:?}");
    }
}

pub(crate) async fn nobody_gets_an_old_member_under_recreate(stage: &Stage) {
    fill(stage, 3, json!({"updateStrategy": {"type": "Recreate"}})).await;
    edit(stage, "app:2").await;
    for name in ["first", "second"] {
        claim(stage, name, Some("DrainOld")).await;
    }
    for name in ["first", "second"] {
        let sandbox = until_given(stage, name).await;
        assert_eq!(image(&sandbox), "app:2", "{}", stage.story("old"));
    }
    until_stocked(stage, 3, "app:2").await;
}

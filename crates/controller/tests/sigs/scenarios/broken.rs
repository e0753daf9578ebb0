//! Templates whose pods do not come up, for each of the reasons there are. What works goes on being claimable, the pool says
//! what is wrong, and everything goes on when the template is mended.

use api::sigs::v1beta1::{Sandbox, SandboxTemplate, SandboxWarmPool, SandboxWarmPoolStatus};
use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};
use std::time::Duration;

use super::{
    pools::{is_ready, members, message, reason, status, until_full},
    rollouts::{fill, rolling, set_image, until_rolled},
};
use crate::stage::{Stage, pool, template};

const EXIT: &str = "hollow.sandbar.dev/exit-code";
const FAIL: &str = "hollow.sandbar.dev/fail";

/// Containers that end as soon as they run, and are not started again.
fn ending() -> Value {
    json!({"podTemplate": {
        "metadata": {"annotations": {EXIT: "0"}},
        "spec": {"restartPolicy": "Never"},
    }})
}

/// The template as it should have been.
async fn mend(stage: &Stage) {
    let metadata = json!({"annotations": {EXIT: null, FAIL: null}});
    let container = json!({"name": "main", "image": "app:3"});
    let spec = json!({"restartPolicy": null, "containers": [container]});
    let patch = json!({"spec": {"podTemplate": {"metadata": metadata, "spec": spec}}});
    stage.patch::<SandboxTemplate>("one", patch).await;
}

/// Waits until the pool says that it is stalled for this reason. At no time are fewer claimable than so many.
async fn until_stalled(stage: &Stage, why: &str, floor: usize) -> SandboxWarmPoolStatus {
    let observe = async || (status(stage).await, members(stage).await);
    let is_told = |(status, members): &(SandboxWarmPoolStatus, Vec<Sandbox>)| {
        let claimable = members.iter().filter(|member| is_ready(member)).count();
        assert!(claimable >= floor, "{claimable} are claimable");
        reason(status, "Stalled") == ("True".to_owned(), why.to_owned())
    };
    let what = format!("the pool is stalled by {why}");
    stage.until(&what, observe, is_told).await.0
}

/// How often the pool was said to have this.
pub(crate) async fn told(stage: &Stage, reason: &str) -> Vec<Event> {
    let mut events: Vec<Event> = stage.list().await;
    events.retain(|event| {
        let about = event.regarding.as_ref().and_then(|it| it.kind.as_deref());
        about == Some("SandboxWarmPool") && event.reason.as_deref() == Some(reason)
    });
    events
}

/// Nothing depends on an event, so that one is lost with the request that brings it.
pub(crate) async fn is_told_once(stage: &Stage, reason: &str, words: &str) {
    let events = told(stage, reason).await;
    let notes: Vec<_> = events.into_iter().filter_map(|event| event.note).collect();
    let is_told = notes.len() == 1 || (notes.is_empty() && stage.is_disturbed());
    assert!(is_told, "{reason}: {notes:#?}");
    assert!(notes.iter().all(|note| note.contains(words)), "{notes:#?}");
}

/// Lets minutes pass, and everybody do what is to be done meanwhile.
async fn wait(stage: &Stage, minutes: u32) {
    for _ in 0..minutes * 6 {
        stage.clock.advance(Duration::from_secs(10)).await;
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
}

pub(crate) async fn a_rollout_to_pods_that_end_stops_and_tries_seldom(stage: &Stage) {
    fill(stage, 4, rolling(json!({}))).await;
    stage
        .patch::<SandboxTemplate>("one", json!({"spec": ending()}))
        .await;
    let told = until_stalled(stage, "PodEnded", 3).await;
    assert!(message(&told, "Stalled").contains("pod ends by itself"));
    let before = stage.posts("sandboxes");
    wait(stage, 10).await;
    let made = stage.posts("sandboxes") - before;
    // another controller begins with short waits
    let most = if stage.is_disturbed() { 16 } else { 8 };
    assert!(
        made <= most,
        "{}",
        stage.story(&format!("{made} were made"))
    );
    until_stalled(stage, "PodEnded", 3).await;
    is_told_once(stage, "PodEnded", "pod ends by itself").await;
    mend(stage).await;
    until_rolled(stage, 4, "app:3", 3).await;
}

pub(crate) async fn a_pool_of_pods_that_end_says_so_and_fills_up_when_it_is_mended(stage: &Stage) {
    stage
        .create::<SandboxTemplate>(template("one", "app:1", ending()))
        .await;
    stage.create::<SandboxWarmPool>(pool(3, json!({}))).await;
    until_stalled(stage, "PodEnded", 0).await;
    wait(stage, 10).await;
    let made = stage.posts("sandboxes");
    // three and three in their places, and then one at a time; all of it once more by another controller
    let most = if stage.is_disturbed() { 26 } else { 13 };
    assert!(
        made <= most,
        "{}",
        stage.story(&format!("{made} were made"))
    );
    mend(stage).await;
    until_full(stage, 3).await;
}

pub(crate) async fn pods_that_the_server_refuses_stop_the_rollout_in_its_words(stage: &Stage) {
    fill(stage, 4, rolling(json!({}))).await;
    let containers = json!([{"name": "Not a name", "image": "app:2"}]);
    let patch = json!({"spec": {"podTemplate": {"spec": {"containers": containers}}}});
    stage.patch::<SandboxTemplate>("one", patch).await;
    let told = until_stalled(stage, "PodRefused", 3).await;
    let words = "spec.containers[0].name";
    assert!(message(&told, "Stalled").contains(words), "{told:#?}");
    wait(stage, 10).await;
    until_stalled(stage, "PodRefused", 3).await;
    is_told_once(stage, "PodRefused", words).await;
    set_image(stage, "app:3").await;
    until_rolled(stage, 4, "app:3", 3).await;
}

pub(crate) async fn containers_that_crash_stop_the_rollout(stage: &Stage) {
    fill(stage, 4, rolling(json!({}))).await;
    set_image(stage, "crashing:2").await;
    let told = until_stalled(stage, "CrashLoop", 3).await;
    assert!(message(&told, "Stalled").contains("container crashes"));
    stage.settle().await;
    until_stalled(stage, "CrashLoop", 3).await;
    is_told_once(stage, "CrashLoop", "container crashes").await;
    set_image(stage, "app:3").await;
    until_rolled(stage, 4, "app:3", 3).await;
}

/// Perhaps the old members are what takes the room, so that the rollout goes as far as it may.
pub(crate) async fn pods_without_room_are_told_and_the_rollout_takes_out_what_it_may(
    stage: &Stage,
) {
    fill(stage, 4, rolling(json!({}))).await;
    let annotated = json!({"podTemplate": {"metadata": {"annotations": {FAIL: "unschedulable"}}}});
    stage
        .patch::<SandboxTemplate>("one", json!({"spec": annotated}))
        .await;
    let told = until_stalled(stage, "Unschedulable", 3).await;
    let message = message(&told, "Stalled");
    assert!(message.contains("maxUnavailable is 1"), "{message}");
    let ready = async || {
        members(stage)
            .await
            .iter()
            .filter(|it| is_ready(it))
            .count()
    };
    stage
        .until("one made way", ready, |ready| *ready == 3)
        .await;
    wait(stage, 10).await;
    assert_eq!(ready().await, 3);
    // who comes after may count others as the first that found no room
    let is_sure = !stage.is_disturbed();
    if is_sure {
        is_told_once(stage, "WarmPoolNotProgressing", "find no node with room").await;
    }
    assert!(self::told(stage, "Unschedulable").await.is_empty());
    mend(stage).await;
    until_rolled(stage, 4, "app:3", 3).await;
    if is_sure && !stage.is_disturbed() {
        is_told_once(stage, "WarmPoolProgressing", "have found a node").await;
    }
}

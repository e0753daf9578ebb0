//! What a rolling update is asked for, field by field, and what becomes of members that never come up.

use std::{collections::BTreeSet, time::Duration};

use api::sigs::v1beta1::{
    Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool, SandboxWarmPoolStatus,
};
use kube::ResourceExt as _;
use local::{
    fault::Faults,
    hollow::{Failure, Target},
};
use serde_json::{Value, json};

use crate::{
    scenarios::{
        broken::is_told_once,
        pools::{is_ready, members, message, reason, status, until_full},
        rollouts::{fill, image, rolling, set_image, until_rolled},
    },
    stage::{Stage, Theatre, condition, pool, template},
};

const GRACE: Duration = Duration::from_secs(300);

async fn begun(theatre: &Theatre) -> Stage {
    let stage = Stage::new(theatre, "rolling", Faults::none()).await;
    stage.restart();
    stage
}

async fn change(stage: &Stage, fields: Value) {
    let patch = json!({"spec": {"updateStrategy": {"rollingUpdate": fields}}});
    stage.patch::<SandboxWarmPool>("pool", patch).await;
}

async fn until_told(stage: &Stage, kind: &str, wanted: (&str, &str)) -> SandboxWarmPoolStatus {
    let observe = async || status(stage).await;
    let is_told = |status: &SandboxWarmPoolStatus| {
        let (is, why) = reason(status, kind);
        (is.as_str(), why.as_str()) == wanted
    };
    stage
        .until(&format!("{kind} {wanted:?}"), observe, is_told)
        .await
}

fn uids(members: &[Sandbox]) -> BTreeSet<String> {
    members.iter().filter_map(kube::ResourceExt::uid).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_never_comes_up_misses_its_deadline_and_goes_on_when_members_do() {
    let theatre = Theatre::open().await;
    let slow = theatre
        .hollow
        .fail(Target::Image("slow*".to_owned()), Failure::NeverReady);
    let stage = begun(&theatre).await;
    fill(&stage, 4, rolling(json!({}))).await;
    // nothing is rolled, and no time is too long for that
    stage.clock.advance(Duration::from_secs(86_400)).await;
    stage.settle().await;
    until_told(&stage, "Stalled", ("False", "AsExpected")).await;
    set_image(&stage, "slow:2").await;
    let observe = async || status(&stage).await;
    let is_under_way = |status: &SandboxWarmPoolStatus| status.updated_replicas >= Some(1);
    stage.until("it has begun", observe, is_under_way).await;
    stage.settle().await;
    stage.clock.advance(Duration::from_secs(300)).await;
    stage.settle().await;
    until_told(&stage, "Stalled", ("False", "AsExpected")).await;
    stage.clock.advance(Duration::from_secs(300)).await;
    let late = until_told(&stage, "Stalled", ("True", "DeadlineExceeded")).await;
    let words = message(&late, "Stalled");
    assert!(
        words.contains("of 4 members updated, 0 available"),
        "{words}"
    );
    let claimable = members(&stage).await;
    assert!(claimable.iter().filter(|one| is_ready(one)).count() >= 3);
    is_told_once(&stage, "DeadlineExceeded", "0 available").await;
    // another process knows it too
    stage.restart();
    stage.settle().await;
    until_told(&stage, "Stalled", ("True", "DeadlineExceeded")).await;
    is_told_once(&stage, "DeadlineExceeded", "0 available").await;
    theatre.hollow.heal(slow);
    until_rolled(&stage, 4, "slow:2", 3).await;
    until_told(&stage, "Stalled", ("False", "AsExpected")).await;
}

/// Whether it is known that its pod has found a node, or none.
fn is_placed_or_not(sandbox: &Sandbox) -> bool {
    let status = sandbox.status.clone().unwrap_or_default();
    condition(&status, "PodScheduled").is_some_and(|scheduled| scheduled.status != "Unknown")
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_do_not_become_ready_in_time_are_replaced_and_those_without_room_are_not() {
    let theatre = Theatre::open().await;
    for (failure, are_replaced) in [
        ("never-ready", true),
        ("pull", true),
        ("unschedulable", false),
    ] {
        let stage = Stage::new(&theatre, "stuck", Faults::none()).await;
        let stage = stage.with_ready_grace(GRACE);
        stage.restart();
        let annotations = json!({"hollow.sandbar.dev/fail": failure});
        let failing = json!({"podTemplate": {"metadata": {"annotations": annotations}}});
        stage
            .create::<SandboxTemplate>(template("one", "app:1", failing))
            .await;
        stage.create::<SandboxWarmPool>(pool(2, json!({}))).await;
        let observe = async || members(&stage).await;
        let are_placed =
            |members: &Vec<Sandbox>| members.len() == 2 && members.iter().all(is_placed_or_not);
        let first = stage.until_slowly("two members", observe, are_placed);
        let first = uids(&first.await);
        stage.clock.advance(GRACE / 2).await;
        stage.settle().await;
        assert_eq!(uids(&members(&stage).await), first, "{failure}");
        stage.clock.advance(GRACE).await;
        if are_replaced {
            let are_others =
                |members: &Vec<Sandbox>| members.len() == 2 && uids(members).is_disjoint(&first);
            stage.until("others are made", observe, are_others).await;
        } else {
            stage.settle().await;
            assert_eq!(uids(&members(&stage).await), first, "{failure}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_floor_that_was_set_holds_and_says_if_it_cannot() {
    let theatre = Theatre::open().await;
    let stage = begun(&theatre).await;
    let strict = json!({"floor": 4, "maxUnavailable": 2, "maxSurge": 0});
    let before = fill(&stage, 4, rolling(strict)).await;
    set_image(&stage, "app:2").await;
    let told = until_told(&stage, "Stalled", ("True", "FloorUnsatisfiable")).await;
    let words = message(&told, "Stalled");
    assert!(
        words.contains("the floor is 4") && words.contains("raise maxSurge"),
        "{words}"
    );
    stage.settle().await;
    assert_eq!(uids(&members(&stage).await), uids(&before));
    change(&stage, json!({"maxSurge": 1})).await;
    until_rolled(&stage, 4, "app:2", 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_stock_when_it_has_been_ready_for_long_enough() {
    let theatre = Theatre::open().await;
    let stage = begun(&theatre).await;
    let fields = json!({"minReadySeconds": 30, "maxUnavailable": 1, "maxSurge": 0});
    fill(&stage, 2, rolling(fields)).await;
    stage.clock.advance(Duration::from_secs(40)).await;
    set_image(&stage, "app:2").await;
    let observe = async || members(&stage).await;
    let fresh = |members: &Vec<Sandbox>| {
        let fresh = |one: &&Sandbox| image(one) == "app:2" && is_ready(one);
        members.iter().filter(fresh).count()
    };
    // who has just begun to look after the pool waits for a second
    stage.clock.advance(Duration::from_secs(2)).await;
    stage
        .until_slowly("one is new", observe, |members| fresh(members) == 1)
        .await;
    let claim = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim",
        "metadata": {"name": "mine"}, "spec": {"warmPoolRef": {"name": "pool"}},
    });
    stage.create::<SandboxClaim>(claim).await;
    let given = async || {
        let claim: SandboxClaim = stage.api().get("mine").await.unwrap();
        claim.status?.sandbox?.name
    };
    let given = stage
        .until_slowly("the claim is served", given, |given| given.is_some())
        .await;
    let given: Sandbox = stage.api().get(&given.unwrap()).await.unwrap();
    assert_eq!(image(&given), "app:1", "the newest is too young");
    let told = async || status(&stage).await;
    let is_available = |status: &SandboxWarmPoolStatus| {
        status.updated_available_replicas == Some(2) && status.updated_replicas == Some(2)
    };
    let young = told().await;
    assert!(young.updated_available_replicas < Some(1), "{young:#?}");
    stage.until("both are available", told, is_available).await;
}

async fn until_progressing_says(stage: &Stage, what: &str, is: impl Fn(&str) -> bool) {
    let observe = async || message(&status(stage).await, "Progressing");
    stage.until(what, observe, |words: &String| is(words)).await;
}

const UNMATCHED: &str = "no member has labels that match";

/// Gives members their labels, one after the other, and waits until the controller has seen the last of them: a term of the
/// strategy matches that one alone.
async fn label_all(stage: &Stage, labels: &[(&Sandbox, Value)]) {
    until_progressing_says(stage, "terms match nobody", |words| {
        words.contains(UNMATCHED)
    })
    .await;
    for (member, labels) in labels {
        let patch = json!({"metadata": {"labels": labels}});
        stage.patch::<Sandbox>(&member.name_any(), patch).await;
    }
    until_progressing_says(stage, "all terms match", |words| !words.contains(UNMATCHED)).await;
}

/// A broken image leaves the rollout where its first batch has brought it.
async fn until_one_batch_is_out(stage: &Stage, before: &[Sandbox], batch: usize) -> Vec<String> {
    set_image(stage, "missing:2").await;
    until_told(stage, "Stalled", ("True", "ImagePull")).await;
    stage.settle().await;
    let left = uids(&members(stage).await);
    let mut gone: Vec<&Sandbox> = before.iter().collect();
    gone.retain(|one| !left.contains(&one.uid().unwrap()));
    assert_eq!(gone.len(), batch, "{left:?}");
    gone.iter().map(|one| one.name_any()).collect()
}

fn weight(weight: i32, labels: Value) -> Value {
    json!({"weight": weight, "matchSelector": {"matchLabels": labels}})
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_the_greatest_weight_go_first() {
    let theatre = Theatre::open().await;
    for chosen in 0..3 {
        let stage = begun(&theatre).await;
        let weights = [
            weight(5, json!({"turn": "first"})),
            weight(1, json!({"turn": "last"})),
        ];
        let fields = json!({
            "maxSurge": 0, "priorityStrategy": {"weightPriority": weights},
        });
        let before = fill(&stage, 3, rolling(fields)).await;
        let others = before.iter().enumerate();
        let others = others.filter(|(index, _)| *index != chosen);
        let mut labels: Vec<_> = others
            .map(|(_, other)| (other, json!({"turn": "last"})))
            .collect();
        labels.push((&before[chosen], json!({"turn": "first"})));
        label_all(&stage, &labels).await;
        let gone = until_one_batch_is_out(&stage, &before, 1).await;
        assert_eq!(gone, [before[chosen].name_any()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_are_to_be_kept_apart_do_not_go_together() {
    let theatre = Theatre::open().await;
    for (scatter, together) in [
        (json!([]), 2),
        (json!([{"key": "role", "value": "leader"}]), 1),
    ] {
        let stage = begun(&theatre).await;
        let fields = json!({
            "maxSurge": 0, "maxUnavailable": 3, "scatterStrategy": scatter,
            "priorityStrategy": {"weightPriority": [
                weight(5, json!({"role": "leader"})), weight(1, json!({"labelled": "last"})),
            ]},
        });
        let before = fill(&stage, 6, rolling(fields)).await;
        let leaders = [&before[1], &before[4]];
        let labels = [
            (leaders[0], json!({"role": "leader"})),
            (leaders[1], json!({"role": "leader", "labelled": "last"})),
        ];
        label_all(&stage, &labels).await;
        let gone = until_one_batch_is_out(&stage, &before, 3).await;
        let leaders = leaders.map(kube::ResourceExt::name_any);
        let went = gone.iter().filter(|name| leaders.contains(name));
        assert_eq!(went.count(), together, "{scatter}");
    }
}

/// The labels of pods count, which is where a template has them; and what matches nobody is said.
#[tokio::test(flavor = "multi_thread")]
async fn terms_match_the_labels_of_pods_and_those_that_match_nobody_are_told() {
    let theatre = Theatre::open().await;
    let stage = begun(&theatre).await;
    let labelled = json!({"podTemplate": {"metadata": {"labels": {"tier": "low"}}}});
    stage
        .create::<SandboxTemplate>(template("one", "app:1", labelled))
        .await;
    let weights = [
        weight(5, json!({"tier": "low"})),
        weight(1, json!({"tier": "high"})),
    ];
    let fields = json!({
        "priorityStrategy": {"weightPriority": weights},
        "scatterStrategy": [{"key": "tier", "value": "low"}, {"key": "tier", "value": "none"}],
    });
    stage
        .create::<SandboxWarmPool>(pool(2, rolling(fields)))
        .await;
    until_full(&stage, 2).await;
    stage.settle().await;
    let words = message(&status(&stage).await, "Progressing");
    let unmatched = "no member has labels that match \
                     priorityStrategy.weightPriority[1], scatterStrategy[1]";
    assert!(words.ends_with(unmatched), "{words}");
    let mended = json!({"priorityStrategy": null, "scatterStrategy": null});
    change(&stage, mended).await;
    until_progressing_says(&stage, "nothing is amiss", |words| {
        !words.contains(UNMATCHED)
    })
    .await;
}

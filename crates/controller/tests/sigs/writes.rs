//! What a member of a pool costs, and a claim.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
};

use api::sigs::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool};
use controller::{
    sigs::claim::Options,
    trace::{Headers, Tracer, Traces},
};
use futures::FutureExt as _;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use local::fault::Faults;
use serde_json::{Value, json};

use crate::stage::{self, Stage, Theatre, condition, sandbox, template};

fn owner(pool: &SandboxWarmPool) -> Value {
    json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool",
        "name": "pool", "uid": pool.uid(), "controller": true,
    })
}

/// A member of a pool as its controller makes it.
fn member(pool: &SandboxWarmPool, template: Value) -> Value {
    let mut object = sandbox(json!({"podTemplate": template}));
    object["metadata"] = json!({
        "name": "box",
        "labels": {
            "agents.x-k8s.io/warm-pool-sandbox": "pool",
            "agents.x-k8s.io/sandbox-template-ref-hash": "template",
        },
        "annotations": {"agents.x-k8s.io/pod-name": "box"},
        "ownerReferences": [owner(pool)],
    });
    object
}

async fn pool(stage: &Stage) -> SandboxWarmPool {
    let spec = json!({"replicas": 1, "sandboxTemplateRef": {"name": "missing"}});
    let object = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool",
        "metadata": {"name": "pool"}, "spec": spec,
    });
    stage.create(object).await
}

fn says(sandbox: &Sandbox, status: &str) -> bool {
    let told = sandbox.status.clone().unwrap_or_default();
    condition(&told, "Ready").is_some_and(|ready| ready.status == status)
}

async fn from_creation_to_claim(stage: &Stage) {
    let pool = pool(stage).await;
    stage.create::<Sandbox>(member(&pool, json!({}))).await;
    let look = async || stage.sandbox().await;
    stage
        .until_at_once("ready", look, |sandbox| says(sandbox, "True"))
        .await;
    stage.is_quiet().await;
    // the pod and the status
    assert_eq!(stage.writes(), 2);

    let bound = json!({
        "metadata": {
            "ownerReferences": null,
            "labels": {
                "agents.x-k8s.io/warm-pool-sandbox": null,
                "agents.x-k8s.io/claim-uid": "claim",
            },
        },
        "spec": {"podTemplate": {"metadata": {"labels": {"agents.x-k8s.io/claim-uid": "claim", "who": "me"}}}},
    });
    stage.patch::<Sandbox>("box", bound).await;
    let label = async || stage.pods().await[0].labels().get("who").cloned();
    stage
        .until_at_once("labelled", label, |label| label.is_some())
        .await;
    stage.is_quiet().await;
    assert_eq!(stage.writes(), 3);
}

async fn told_after_a_while(stage: &Stage) {
    let pool = pool(stage).await;
    let slow = json!({"metadata": {"annotations": {"hollow.sandbar.dev/fail": "never-ready"}}});
    stage.create::<Sandbox>(member(&pool, slow)).await;
    let pods = async || json!(stage.pods().await)[0]["status"]["phase"] == "Running";
    stage.until_at_once("running", pods, |is| *is).await;
    assert_eq!(stage.writes(), 1);
    assert_eq!(stage.sandbox().await.status, None);
    let look = async || stage.sandbox().await;
    stage
        .until("told", look, |sandbox| says(sandbox, "False"))
        .await;
    stage.is_quiet().await;
    // the time may come before the controller has heard that the pod runs, and then it has two things to tell
    assert!(matches!(stage.writes(), 2 | 3), "{}", stage.writes());
}

/// What a claim and the refill of its pool cost.
async fn from_stock_to_stock(stage: &Stage) -> usize {
    stage
        .create::<SandboxTemplate>(template("one", "app:1", json!({})))
        .await;
    stage
        .create::<SandboxWarmPool>(stage::pool(2, json!({})))
        .await;
    let in_stock = async || {
        let sandboxes = stage.list::<Sandbox>().await;
        let is_claimed = |one: &&Sandbox| one.labels().contains_key("agents.x-k8s.io/claim-uid");
        let claimed = sandboxes.iter().filter(is_claimed).count();
        let ready = sandboxes.iter().filter(|one| says(one, "True")).count();
        (ready, claimed)
    };
    stage
        .until_at_once("in stock", in_stock, |found| *found == (2, 0))
        .await;
    let before = stage.settle().await;
    let claim = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim",
        "metadata": {"name": "claim"}, "spec": {"warmPoolRef": {"name": "pool"}},
    });
    stage.create::<SandboxClaim>(claim).await;
    stage
        .until_at_once("refilled", in_stock, |found| *found == (3, 1))
        .await;
    let after = stage.settle().await;
    after - before
}

async fn eight_writes(stage: &Stage) {
    // bind, status and stamps of the claim, labels of the pod, event; sandbox, pod, status of the refill; and of the pool none
    let writes = from_stock_to_stock(stage).await;
    assert_eq!(writes, 8, "{}", stage.story("too many writes"));
}

async fn six_writes(stage: &Stage) {
    // bind, status of the claim, labels of the pod; sandbox, pod, status of the refill
    let writes = from_stock_to_stock(stage).await;
    assert_eq!(writes, 6, "{}", stage.story("too many writes"));
    let claim = stage.list::<SandboxClaim>().await.remove(0);
    assert_eq!(claim.annotations().len(), 0, "{:?}", claim.annotations());
    assert_eq!(stage.list::<Event>().await, []);
    assert!(claim.status.unwrap().sandbox.is_some());
}

/// Every pass is a trace of its own, unless it is told of another.
struct Numbered(AtomicUsize);

impl Tracer for Numbered {
    fn join(&self, _: &tracing::Span, _: &Headers) {}

    fn headers(&self, _: &tracing::Span) -> Headers {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let parent = format!("00-{number:032x}-00f067aa0ba902b7-01");
        Headers::from([("traceparent".to_owned(), parent)])
    }
}

fn trace<K: kube::Resource>(object: &K) -> Option<&String> {
    object.annotations().get("opentelemetry.io/trace-context")
}

async fn nine_writes_and_one_trace(stage: &Stage) {
    // the member that the refill makes says to which trace it belongs
    let writes = from_stock_to_stock(stage).await;
    assert_eq!(writes, 9, "{}", stage.story("too many writes"));
    let claim = stage.list::<SandboxClaim>().await.remove(0);
    let sandboxes = stage.list::<Sandbox>().await;
    let traces: BTreeSet<_> = sandboxes.iter().map(|one| trace(one).unwrap()).collect();
    assert_eq!(traces.len(), 3, "{traces:#?}");
    let name = claim.status.as_ref().unwrap().sandbox.as_ref().unwrap();
    let bound = sandboxes
        .iter()
        .find(|one| Some(one.name_any()) == name.name);
    assert!(trace(&claim).is_some());
    assert_eq!(trace(bound.unwrap()), trace(&claim));
    let of_others = stage.list::<SandboxWarmPool>().await;
    assert_eq!(of_others.iter().find_map(trace), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_and_its_refill_cost_eight_writes() {
    let theatre = Theatre::open().await;
    let stage = Stage::new(&theatre, "claimed", Faults::none()).await;
    stage.play(|stage| eight_writes(stage).boxed_local()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_events_and_stamps_a_claim_and_its_refill_cost_six_writes() {
    let theatre = Theatre::open().await;
    let stage = Stage::new(&theatre, "bare", Faults::none()).await;
    let stage = stage.with_claims(Options {
        without_events: true,
        without_stamps: true,
        ..Options::default()
    });
    stage.play(|stage| six_writes(stage).boxed_local()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tracing_a_sandbox_costs_one_write_more_and_a_claim_none() {
    let theatre = Theatre::open().await;
    let stage = Stage::new(&theatre, "traced", Faults::none()).await;
    let stage = stage.with_traces(Traces::with(Numbered(AtomicUsize::new(1))));
    stage
        .play(|stage| nine_writes_and_one_trace(stage).boxed_local())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_costs_two_writes_and_its_claim_one() {
    let theatre = Theatre::open().await;
    let stage = Stage::new(&theatre, "writes", Faults::none()).await;
    let stage = stage.without_extensions();
    stage
        .play(|stage| from_creation_to_claim(stage).boxed_local())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_long_on_its_way_is_told() {
    let theatre = Theatre::open().await;
    let stage = Stage::new(&theatre, "late", Faults::none()).await;
    let stage = stage.without_extensions();
    stage
        .play(|stage| told_after_a_while(stage).boxed_local())
        .await;
}

//! Claims: from stock, newly made, refused, and over.

use std::{collections::BTreeSet, time::Duration};

use api::sigs::{
    shared::SandboxClaimStatus,
    v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool},
};
use engine::revision::name_hash;
use json_patch::merge;
use k8s_openapi::{
    api::{core::v1::Pod, events::v1::Event, networking::v1::NetworkPolicy},
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
};
use kube::ResourceExt as _;
use local::clock::after;
use serde_json::{Value, json};

use crate::stage::Stage;

const OWNER: &str = "extensions.agents.x-k8s.io/v1beta1";

async fn template(stage: &Stage, change: Value) -> SandboxTemplate {
    let mut object = json!({
        "apiVersion": OWNER,
        "kind": "SandboxTemplate",
        "metadata": {"name": "small"},
        "spec": {
            "networkPolicyManagement": "Unmanaged",
            "podTemplate": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {
                    "automountServiceAccountToken": false,
                    "containers": [{"name": "main", "image": "app:1"}],
                },
            },
        },
    });
    merge(&mut object["spec"], &change);
    stage.create(object).await
}

async fn pool(stage: &Stage, replicas: usize) -> SandboxWarmPool {
    let object = json!({
        "apiVersion": OWNER,
        "kind": "SandboxWarmPool",
        "metadata": {"name": "pool"},
        "spec": {"replicas": replicas, "sandboxTemplateRef": {"name": "small"}},
    });
    stage.create(object).await
}

/// A member of the pool, as its controller makes one.
async fn member(stage: &Stage, pool: &SandboxWarmPool, name: &str, annotations: Value) -> Sandbox {
    let mut labels = json!({
        "agents.x-k8s.io/warm-pool-sandbox": name_hash("pool"),
        "agents.x-k8s.io/sandbox-template-ref-hash": name_hash("small"),
        "agents.x-k8s.io/sandbox-template-hash": "by-hand",
        "agents.x-k8s.io/sandbox-pod-template-hash": "by-hand",
    });
    let mut pod_labels = labels.clone();
    pod_labels["app"] = json!("agent");
    labels["agents.x-k8s.io/launch-type"] = json!("warm");
    labels["agents.x-k8s.io/created-by"] = json!("controller");
    let mut pod_annotations = json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"});
    merge(&mut pod_annotations, &annotations);
    let object = json!({
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"agents.x-k8s.io/sandbox-template-ref": "small"},
            "ownerReferences": [{
                "apiVersion": OWNER, "kind": "SandboxWarmPool", "name": "pool", "uid": pool.uid(),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"podTemplate": {
            "metadata": {"labels": pod_labels, "annotations": pod_annotations},
            "spec": {
                "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "app:1"}],
            },
        }},
    });
    stage.create(object).await
}

/// A template, and a pool of it that has this many members that are Ready.
async fn stock(stage: &Stage, members: usize) -> SandboxWarmPool {
    template(stage, json!({})).await;
    let pool = pool(stage, members).await;
    for number in 0..members {
        member(stage, &pool, &format!("pool-{number}"), json!({})).await;
    }
    let has_ips = |one: &Sandbox| one.status.as_ref().is_some_and(|it| it.pod_ips.is_some());
    let is_claimable = |one: &Sandbox| is_ready(one) && has_ips(one);
    let are_ready = |all: &Vec<Sandbox>| all.len() == members && all.iter().all(is_claimable);
    let list = async || stage.list::<Sandbox>().await;
    stage.until("in stock", list, are_ready).await;
    // the controller may hear of a claim before it hears of this, and would rightly make a sandbox for it
    stage.settle().await;
    pool
}

fn is_ready(sandbox: &Sandbox) -> bool {
    let status = sandbox.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|one| one.type_ == "Ready");
    ready.is_some_and(|ready| ready.status == "True")
}

async fn claim(stage: &Stage, name: &str, spec: Value, metadata: Value) -> SandboxClaim {
    let mut object = json!({
        "apiVersion": OWNER,
        "kind": "SandboxClaim",
        "metadata": {"name": name},
        "spec": {"warmPoolRef": {"name": "pool"}},
    });
    merge(&mut object["spec"], &spec);
    merge(&mut object["metadata"], &metadata);
    stage.create(object).await
}

async fn status(stage: &Stage, name: &str) -> SandboxClaimStatus {
    let claim: SandboxClaim = stage.api().get(name).await.unwrap();
    claim.status.unwrap_or_default()
}

fn condition<'a>(status: &'a SandboxClaimStatus, kind: &str) -> Option<&'a Condition> {
    let mut all = status.conditions.iter().flatten();
    all.find(|condition| condition.type_ == kind)
}

fn reason(status: &SandboxClaimStatus) -> &str {
    condition(status, "Ready").map_or("", |ready| &ready.reason)
}

fn name_of(status: &SandboxClaimStatus) -> Option<String> {
    status.sandbox.as_ref()?.name.clone()
}

/// Waits until the claim is Ready and its books are kept, and gives the sandbox that it has.
async fn until_ready(stage: &Stage, name: &str) -> Sandbox {
    let is_done = |claim: &SandboxClaim| {
        let seen = claim.status.clone().unwrap_or_default();
        let annotations = claim.annotations();
        let named = annotations.get("agents.x-k8s.io/sandbox-name");
        let is_ready = condition(&seen, "Ready").is_some_and(|ready| ready.status == "True");
        let is_stamped = annotations.contains_key("agents.x-k8s.io/claim-first-ready-at");
        is_ready && is_stamped && named == name_of(&seen).as_ref()
    };
    let get = async || stage.api::<SandboxClaim>().get(name).await.unwrap();
    let claim = stage.until("claim Ready", get, is_done).await;
    let seen = claim.status.clone().unwrap();
    let sandbox: Sandbox = stage.api().get(&name_of(&seen).unwrap()).await.unwrap();
    let ips = sandbox.status.as_ref().unwrap().pod_ips.clone();
    assert_eq!(seen.sandbox.unwrap().pod_ips, ips);
    let owner = json!([{
        "apiVersion": OWNER, "kind": "SandboxClaim", "name": name, "uid": claim.uid(),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    assert_eq!(json!(sandbox.owner_references()), owner);
    assert_eq!(
        sandbox.labels()["agents.x-k8s.io/claim-uid"],
        claim.uid().unwrap()
    );
    sandbox
}

async fn until_reason(stage: &Stage, name: &str, expected: &str) -> SandboxClaimStatus {
    let look = async || status(stage, name).await;
    let says = |seen: &SandboxClaimStatus| reason(seen) == expected;
    stage.until(expected, look, says).await
}

fn launch(sandbox: &Sandbox) -> &str {
    &sandbox.labels()["agents.x-k8s.io/launch-type"]
}

async fn stored(stage: &Stage, name: &str) -> SandboxClaim {
    stage.api().get(name).await.unwrap()
}

pub(crate) async fn a_claim_takes_a_member(stage: &Stage) {
    stock(stage, 1).await;
    let metadata = json!({"labels": {"agents.x-k8s.io/created-by": "python-client"}});
    let additional = json!({"additionalPodMetadata": {
        "labels": {"sandbox.users.io/team": "one"}, "annotations": {"note": "mine"},
    }});
    let claimed = claim(stage, "claim", additional, metadata).await;
    let sandbox = until_ready(stage, "claim").await;
    assert_eq!(sandbox.name_any(), "pool-0");
    let uid = claimed.uid().unwrap();
    let labels = json!({
        "agents.x-k8s.io/claim-uid": uid,
        "agents.x-k8s.io/created-by": "python-client",
        "agents.x-k8s.io/launch-type": "warm",
        "agents.x-k8s.io/sandbox-template-ref-hash": name_hash("small"),
    });
    assert_eq!(json!(sandbox.labels()), labels);
    let annotations = json!({
        "agents.x-k8s.io/pod-name": "pool-0",
        "agents.x-k8s.io/sandbox-template-ref": "small",
        "sandbar.dev/revision": format!("{}-by-hand", name_hash("small")),
    });
    assert_eq!(json!(sandbox.annotations()), annotations);
    let pod = json!({
        "labels": {
            "app": "agent",
            "agents.x-k8s.io/claim-uid": uid,
            "agents.x-k8s.io/created-by": "python-client",
            "agents.x-k8s.io/sandbox-template-ref-hash": name_hash("small"),
            "sandbox.users.io/team": "one",
        },
        "annotations": {"note": "mine"},
    });
    assert_eq!(json!(sandbox.spec.blueprint.pod_template.metadata), pod);
    let labels = json!({
        "app": "agent",
        "agents.x-k8s.io/created-by": "python-client",
        "agents.x-k8s.io/sandbox-name-hash": name_hash("pool-0"),
        "agents.x-k8s.io/sandbox-template-ref-hash": name_hash("small"),
        "sandbox.users.io/team": "one",
    });
    let get = async || stage.api::<Pod>().get("pool-0").await.unwrap();
    let follows = |pod: &Pod| json!(pod.labels()) == labels;
    stage.until("pod in step", get, follows).await;

    let claimed = stored(stage, "claim").await;
    let annotations = claimed.annotations();
    assert_eq!(annotations["agents.x-k8s.io/sandbox-name"], "pool-0");
    assert!(annotations.contains_key("agents.x-k8s.io/controller-first-observed-at"));
    assert_eq!(reason(&claimed.status.unwrap()), "DependenciesReady");
    stage.is_quiet().await;
    let events: Vec<Event> = stage.list().await;
    let told: Vec<_> = events
        .iter()
        .map(|event| event.note.as_deref().unwrap())
        .collect();
    let all = [r#"Adopted warm pool Sandbox "pool-0""#];
    assert!(
        told == all || (told.is_empty() && stage.is_disturbed()),
        "{told:?}"
    );
    for event in events {
        assert_eq!(event.reason.as_deref(), Some("SandboxAdopted"));
    }
}

pub(crate) async fn a_claim_on_an_empty_pool_starts_a_sandbox(stage: &Stage) {
    stock(stage, 0).await;
    claim(stage, "claim", json!({}), json!({})).await;
    let sandbox = until_ready(stage, "claim").await;
    assert_eq!(
        (sandbox.name_any().as_str(), launch(&sandbox)),
        ("claim", "cold")
    );
    let mut annotations = sandbox.annotations().clone();
    let revision = annotations.remove("sandbar.dev/revision").unwrap();
    let of_template = format!("{}-", name_hash("small"));
    assert!(revision.starts_with(&of_template), "{revision}");
    let others = json!({
        "agents.x-k8s.io/pod-name": "claim",
        "agents.x-k8s.io/sandbox-template-ref": "small",
    });
    assert_eq!(json!(annotations), others);
    let claimed = stored(stage, "claim").await;
    assert_eq!(
        claimed.annotations()["agents.x-k8s.io/sandbox-name"],
        "claim"
    );
    let pod: Pod = stage.api().get("claim").await.unwrap();
    assert_eq!(pod.labels()["app"], "agent");
}

pub(crate) async fn a_claim_with_variables_starts_a_sandbox(stage: &Stage) {
    let pool = stock(stage, 1).await;
    let env = json!([{"name": "MODE", "value": "fast"}]);
    claim(stage, "claim", json!({"env": env}), json!({})).await;
    until_reason(stage, "claim", "EnvVarsInjectionRejected").await;
    let why = "does not let claims set variables";
    stage.until_warned("EnvVarsInjectionRejected", 1, why).await;
    let patch = json!({"spec": {"envVarsInjectionPolicy": "Allowed"}});
    stage.patch::<SandboxTemplate>("small", patch).await;
    let sandbox = until_ready(stage, "claim").await;
    assert_eq!(
        (sandbox.name_any().as_str(), launch(&sandbox)),
        ("claim", "cold")
    );
    let pod: Pod = stage.api().get("claim").await.unwrap();
    let containers = json!(pod.spec.unwrap().containers);
    assert_eq!(containers[0]["env"], env);
    let idle: Sandbox = stage.api().get("pool-0").await.unwrap();
    assert_eq!(idle.owner_references()[0].uid, pool.uid().unwrap());
}

pub(crate) async fn a_claim_with_volumes_starts_a_sandbox(stage: &Stage) {
    let volume = |size: &str| {
        json!({"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}},
        }})
    };
    let volumes = json!({
        "volumeClaimTemplates": [volume("1Gi")], "volumeClaimTemplatesPolicy": "Overrides",
    });
    template(stage, volumes).await;
    pool(stage, 0).await;
    let wanted = json!({"volumeClaimTemplates": [volume("2Gi")]});
    claim(stage, "claim", wanted, json!({})).await;
    let sandbox = until_ready(stage, "claim").await;
    assert_eq!(launch(&sandbox), "cold");
    let volumes = json!(sandbox.spec.blueprint.volume_claim_templates);
    assert_eq!(volumes, json!([volume("2Gi")]));
}

pub(crate) async fn claims_get_different_members(stage: &Stage) {
    stock(stage, 2).await;
    for name in ["one", "two", "three"] {
        claim(stage, name, json!({}), json!({})).await;
    }
    let mut got = BTreeSet::new();
    let mut launches = Vec::new();
    for name in ["one", "two", "three"] {
        let sandbox = until_ready(stage, name).await;
        launches.push(launch(&sandbox).to_owned());
        got.insert(sandbox.name_any());
    }
    assert_eq!(got.len(), 3);
    launches.sort();
    // what an old leader had on the wire may bind one claim a second time, just before the new one gives that member to another
    let is_outrun = stage.was_held() && launches == ["cold", "cold", "warm"];
    assert!(
        is_outrun || launches == ["cold", "warm", "warm"],
        "{launches:?}"
    );
}

pub(crate) async fn a_claim_waits_for_its_pool_and_its_template(stage: &Stage) {
    claim(stage, "claim", json!({}), json!({})).await;
    let seen = until_reason(stage, "claim", "WarmPoolNotFound").await;
    let message = r#"SandboxWarmPool "pool" not found"#;
    assert_eq!(condition(&seen, "Ready").unwrap().message, message);
    stage.until_warned("WarmPoolNotFound", 1, message).await;
    stage.is_quiet().await;
    pool(stage, 0).await;
    let seen = until_reason(stage, "claim", "TemplateNotFound").await;
    let message = r#"SandboxTemplate "small" not found"#;
    assert_eq!(condition(&seen, "Ready").unwrap().message, message);
    assert_eq!(name_of(&seen), None);
    stage.until_warned("TemplateNotFound", 1, message).await;
    template(stage, json!({})).await;
    until_ready(stage, "claim").await;
    stage.until_warned("WarmPoolNotFound", 1, "").await;
}

pub(crate) async fn bad_metadata_is_refused_until_it_is_mended(stage: &Stage) {
    stock(stage, 1).await;
    let bad = json!({"additionalPodMetadata": {"labels": {"app": "mine"}}});
    claim(stage, "claim", bad, json!({})).await;
    let seen = until_reason(stage, "claim", "InvalidMetadata").await;
    assert_eq!(name_of(&seen), None);
    let why = r#"additionalPodMetadata.labels["app"]"#;
    stage.until_warned("InvalidMetadata", 1, why).await;
    let worse = json!({"spec": {"additionalPodMetadata": {"labels": {"app": "yours"}}}});
    stage.patch::<SandboxClaim>("claim", worse).await;
    stage.settle().await;
    stage.until_warned("InvalidMetadata", 1, why).await;
    let good = json!({"spec": {"additionalPodMetadata": {
        "labels": {"app": null, "sandbox.users.io/app": "mine"},
    }}});
    stage.patch::<SandboxClaim>("claim", good).await;
    let sandbox = until_ready(stage, "claim").await;
    assert_eq!(launch(&sandbox), "warm");
    let better = json!({"spec": {"additionalPodMetadata": {
        "labels": {"sandbox.users.io/app": "yours"},
    }}});
    stage.patch::<SandboxClaim>("claim", better).await;
    let get = async || stage.api::<Pod>().get("pool-0").await.unwrap();
    let follows = |pod: &Pod| {
        pod.labels()
            .get("sandbox.users.io/app")
            .is_some_and(|it| it == "yours")
    };
    stage.until("pod in step", get, follows).await;
}

pub(crate) async fn metadata_that_cannot_be_kept_in_step_is_told_until_it_can(stage: &Stage) {
    stock(stage, 1).await;
    let team =
        |name: &str| json!({"additionalPodMetadata": {"labels": {"sandbox.users.io/team": name}}});
    claim(stage, "claim", team("one"), json!({})).await;
    let sandbox = until_ready(stage, "claim").await;
    stage.delete::<SandboxTemplate>("small").await;
    let get = async || stage.api::<Pod>().get(&sandbox.name_any()).await.unwrap();
    let is_of = |pod: &Pod, team: &str| {
        let label = pod.labels().get("sandbox.users.io/team");
        label.is_some_and(|label| label == team)
    };
    // until it is heard of that the template is gone, pods are kept in step
    let is_told = |seen: &SandboxClaimStatus| reason(seen) == "ReconcilerError";
    let mut number = 0;
    let (last, seen) = loop {
        stage.settle().await;
        number += 1;
        let name = format!("team-{number}");
        let patch = json!({"spec": team(&name)});
        stage.patch::<SandboxClaim>("claim", patch).await;
        let both = async || (get().await, status(stage, "claim").await);
        let is_done = |(pod, seen): &(Pod, SandboxClaimStatus)| is_told(seen) || is_of(pod, &name);
        let (_, seen) = stage.until("told or in step", both, is_done).await;
        if is_told(&seen) {
            break (name, seen);
        }
    };
    let message = &condition(&seen, "Ready").unwrap().message;
    let why = r#"additionalPodMetadata cannot be kept in step: SandboxTemplate "small" not found"#;
    assert!(message.ends_with(why), "{message}");
    assert_eq!(name_of(&seen), Some(sandbox.name_any()));
    stage.until_warned("ReconcilerError", 1, why).await;
    stage.is_quiet().await;
    template(stage, json!({})).await;
    stage
        .until("pod in step", get, |pod| is_of(pod, &last))
        .await;
    until_ready(stage, "claim").await;
}

/// The reference names the sandbox on a claim only if it was adopted.
pub(crate) async fn a_claim_that_the_reference_started_cold_costs_nothing(stage: &Stage) {
    const NAMED: &str = "agents.x-k8s.io/sandbox-name";
    stock(stage, 0).await;
    claim(stage, "claim", json!({}), json!({})).await;
    until_ready(stage, "claim").await;
    stage.is_quiet().await;
    let writes = stage.writes();
    let unnamed = json!({"metadata": {"annotations": {NAMED: null}}});
    stage.patch::<SandboxClaim>("claim", unnamed).await;
    stage.settle().await;
    if !stage.is_disturbed() {
        stage.restart();
        stage.is_quiet().await;
        assert_eq!(stage.writes(), writes, "{}", stage.story("a write"));
        let annotations = stored(stage, "claim").await.annotations().clone();
        assert!(!annotations.contains_key(NAMED), "{annotations:?}");
    }
}

fn in_an_hour(stage: &Stage, policy: &str) -> Value {
    let end = after(stage.clock.now(), Duration::from_secs(3600));
    json!({"lifecycle": {
        "shutdownTime": local::clock::rfc3339_seconds(end), "shutdownPolicy": policy,
    }})
}

async fn pass_an_hour(stage: &Stage) {
    stage.clock.advance(Duration::from_secs(3600)).await;
}

/// How many sandboxes and pods there are that are not in stock: a fault may have kept the claim from getting that.
async fn taken(stage: &Stage) -> (usize, usize) {
    let is_taken = |meta: &ObjectMeta| {
        let mut labels = meta.labels.iter().flatten();
        !labels.any(|(key, _)| key == "agents.x-k8s.io/warm-pool-sandbox")
    };
    let (sandboxes, pods) = (stage.list::<Sandbox>().await, stage.list::<Pod>().await);
    let sandboxes = sandboxes.iter().filter(|one| is_taken(&one.metadata));
    let pods = pods.iter().filter(|one| is_taken(&one.metadata));
    (sandboxes.count(), pods.count())
}

async fn until_no_sandboxes(stage: &Stage) {
    let left = async || taken(stage).await;
    stage
        .until("no sandboxes", left, |left| *left == (0, 0))
        .await;
}

pub(crate) async fn an_expired_claim_is_retained_and_can_come_back(stage: &Stage) {
    stock(stage, 1).await;
    claim(stage, "claim", in_an_hour(stage, "Retain"), json!({})).await;
    until_ready(stage, "claim").await;
    pass_an_hour(stage).await;
    until_reason(stage, "claim", "ClaimExpired").await;
    until_no_sandboxes(stage).await;
    let look = async || status(stage, "claim").await;
    let is_bare = |seen: &SandboxClaimStatus| seen.sandbox.is_none();
    let seen = stage.until("bare", look, is_bare).await;
    let message = "Claim expired. Sandbox cleanup initiated.";
    assert_eq!(condition(&seen, "Ready").unwrap().message, message);
    stage.is_quiet().await;
    stage.until_told("ClaimExpired", 1).await;
    let patch = json!({"spec": {"lifecycle": null}});
    stage.patch::<SandboxClaim>("claim", patch).await;
    let sandbox = until_ready(stage, "claim").await;
    assert_eq!(launch(&sandbox), "cold");
    let again = json!({"spec": in_an_hour(stage, "Retain")});
    stage.patch::<SandboxClaim>("claim", again).await;
    stage.settle().await;
    pass_an_hour(stage).await;
    until_reason(stage, "claim", "ClaimExpired").await;
    until_no_sandboxes(stage).await;
    stage.until("bare again", look, is_bare).await;
    stage.until_told("ClaimExpired", 2).await;
}

async fn is_deleted_after(stage: &Stage, policy: &str) {
    stock(stage, 1).await;
    claim(stage, "claim", in_an_hour(stage, policy), json!({})).await;
    until_ready(stage, "claim").await;
    pass_an_hour(stage).await;
    let left = async || stage.list::<SandboxClaim>().await.len();
    stage.until("no claims", left, |left| *left == 0).await;
    if policy == "DeleteForeground" {
        assert_eq!(taken(stage).await.0, 0);
    }
    until_no_sandboxes(stage).await;
    // that it is over, and that it goes
    stage.until_told("ClaimExpired", 2).await;
}

pub(crate) async fn an_expired_claim_is_deleted(stage: &Stage) {
    is_deleted_after(stage, "Delete").await;
}

pub(crate) async fn an_expired_claim_is_deleted_last(stage: &Stage) {
    is_deleted_after(stage, "DeleteForeground").await;
}

pub(crate) async fn a_claim_ends_some_time_after_its_sandbox_has_finished(stage: &Stage) {
    let pod = json!({"podTemplate": {
        "metadata": {"annotations": {"hollow.sandbar.dev/exit-code": "0"}},
        "spec": {"restartPolicy": "Never"},
    }});
    template(stage, pod).await;
    pool(stage, 0).await;
    let ttl = json!({"lifecycle": {"ttlSecondsAfterFinished": 600}});
    claim(stage, "claim", ttl, json!({})).await;
    let seen = until_reason(stage, "claim", "PodSucceeded").await;
    assert_eq!(condition(&seen, "Finished").unwrap().status, "True");
    assert_eq!(name_of(&seen).as_deref(), Some("claim"));
    stage.clock.advance(Duration::from_secs(600)).await;
    until_reason(stage, "claim", "ClaimExpired").await;
    until_no_sandboxes(stage).await;
    let look = async || status(stage, "claim").await;
    let is_bare = |seen: &SandboxClaimStatus| seen.sandbox.is_none();
    let seen = stage.until("bare", look, is_bare).await;
    assert_eq!(condition(&seen, "Finished").unwrap().reason, "PodSucceeded");
}

pub(crate) async fn a_claim_whose_sandbox_is_deleted_gets_another(stage: &Stage) {
    stock(stage, 2).await;
    claim(stage, "claim", json!({}), json!({})).await;
    let first = until_ready(stage, "claim").await;
    stage.delete::<Sandbox>(&first.name_any()).await;
    let look = async || status(stage, "claim").await;
    let has_another =
        |seen: &SandboxClaimStatus| name_of(seen).is_some_and(|name| name != first.name_any());
    stage.until("another", look, has_another).await;
    let second = until_ready(stage, "claim").await;
    assert_eq!(launch(&second), "warm");
}

pub(crate) async fn an_adoption_that_another_controller_began_is_completed(stage: &Stage) {
    stock(stage, 3).await;
    let named = json!({"agents.x-k8s.io/sandbox-name": "pool-2"});
    claim(stage, "claim", json!({}), json!({"annotations": named})).await;
    let sandbox = until_ready(stage, "claim").await;
    assert_eq!(
        (sandbox.name_any().as_str(), launch(&sandbox)),
        ("pool-2", "warm")
    );
    let named = json!({"agents.x-k8s.io/sandbox-name": "pool-2"});
    claim(stage, "late", json!({}), json!({"annotations": named})).await;
    let other = until_ready(stage, "late").await;
    assert_ne!(other.name_any(), "pool-2");
    let claimed = stored(stage, "late").await;
    assert_eq!(
        claimed.annotations()["agents.x-k8s.io/sandbox-name"],
        other.name_any()
    );
}

pub(crate) async fn what_older_controllers_left_on_a_claim_is_put_right(stage: &Stage) {
    stock(stage, 2).await;
    let named = json!({"agents.x-k8s.io/sandbox-name": "pool-1"});
    let claimed = claim(stage, "claim", json!({}), json!({"labels": named})).await;
    let policy = json!({
        "metadata": {"name": "claim-network-policy", "ownerReferences": [{
            "apiVersion": OWNER, "kind": "SandboxClaim", "name": "claim", "uid": claimed.uid(),
            "controller": true,
        }]},
        "spec": {"podSelector": {}},
    });
    stage.create::<NetworkPolicy>(policy).await;
    let sandbox = until_ready(stage, "claim").await;
    assert_eq!(sandbox.name_any(), "pool-1");
    let claimed = stored(stage, "claim").await;
    assert!(
        !claimed
            .labels()
            .contains_key("agents.x-k8s.io/sandbox-name")
    );
    assert_eq!(
        claimed.annotations()["agents.x-k8s.io/sandbox-name"],
        "pool-1"
    );
    let left = async || stage.list::<NetworkPolicy>().await.len();
    stage.until("no policy", left, |left| *left == 0).await;
}

/// Time stands still, so that the claim is served because it is told or not at all.
pub(crate) async fn a_waiting_claim_is_served_when_a_member_becomes_ready(stage: &Stage) {
    template(stage, json!({})).await;
    let pool = pool(stage, 1).await;
    let slow = json!({"hollow.sandbar.dev/start-delay": "150ms"});
    member(stage, &pool, "pool-0", slow).await;
    let look = async || stage.list::<Pod>().await.len();
    stage.until("on its way", look, |pods| *pods == 1).await;
    claim(stage, "claim", json!({}), json!({})).await;
    let is_served = async || name_of(&status(stage, "claim").await).is_some();
    let is_enough = |is_served: &bool| *is_served || stage.is_disturbed();
    stage
        .until_at_once("somebody tells it", is_served, is_enough)
        .await;
    let sandbox = until_ready(stage, "claim").await;
    assert!(launch(&sandbox) == "warm" || stage.is_disturbed());
}

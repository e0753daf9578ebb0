//! From a claim to its end.

use api::sigs::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool};
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod},
    jiff::{SignedDuration, Timestamp},
};
use kube::ResourceExt;
use serde_json::json;

use crate::fleet::{Fleet, claim, pod_spec, pool, template};

#[tokio::test]
async fn a_claim_is_given_a_running_pod() {
    let fleet = Fleet::new("claim").await;
    fleet
        .create::<SandboxTemplate>(template("one", "busybox:v1"))
        .await;
    fleet
        .create::<SandboxWarmPool>(pool("one", 1, json!({})))
        .await;
    let members = fleet.until_stocked(1, "busybox:v1").await;
    let before = fleet.pod_of(&members[0]).await;
    let labels = json!({"additionalPodMetadata": {"labels": {"sandbox.users.io/team": "one"}}});
    let given = fleet.claim("mine", labels).await;
    assert_eq!(given.uid(), members[0].uid());
    let probe = async || {
        let pod = fleet.pod_of(&given).await;
        let is_labelled = pod.labels().get("sandbox.users.io/team").is_some();
        (is_labelled && pod.uid() == before.uid()).then_some(())
    };
    fleet.until("the pod has the claim's labels", probe).await;
    fleet.until_stocked(1, "busybox:v1").await;
    fleet.delete::<SandboxClaim>("mine").await;
    let gone = async || {
        let found = fleet.api::<Pod>().get_opt(&given.name_any()).await.unwrap();
        found.is_none().then_some(())
    };
    fleet.until("the pod is gone with its claim", gone).await;
}

#[tokio::test]
async fn a_claim_ends_at_its_time_and_takes_with_it_what_it_says() {
    let fleet = Fleet::new("expiry").await;
    fleet
        .create::<SandboxTemplate>(template("one", "busybox:v1"))
        .await;
    fleet
        .create::<SandboxWarmPool>(pool("one", 0, json!({})))
        .await;
    for (name, policy) in [
        ("deleted", "Delete"),
        ("foreground", "DeleteForeground"),
        ("kept", "Retain"),
    ] {
        fleet
            .create::<SandboxClaim>(claim(
                name,
                json!({"lifecycle": {"shutdownPolicy": policy}}),
            ))
            .await;
    }
    let names = ["deleted", "foreground", "kept"];
    for name in names {
        fleet.until_claimed(name).await;
    }
    let soon = Timestamp::now() + SignedDuration::from_secs(5);
    for name in names {
        let end = json!({"spec": {"lifecycle": {"shutdownTime": soon.to_string()}}});
        fleet.patch::<SandboxClaim>(name, end).await;
    }
    let probe = async || {
        let sandboxes: Vec<Sandbox> = fleet.list().await;
        // last of all: what it says comes before the rest is gone
        let claims: Vec<SandboxClaim> = fleet.list().await;
        let names: Vec<String> = claims.iter().map(ResourceExt::name_any).collect();
        (names == ["kept"] && sandboxes.is_empty()).then(|| claims[0].clone())
    };
    let kept = fleet.until("only the retained claim is left", probe).await;
    let conditions = kept.status.unwrap().conditions.unwrap();
    assert_eq!(conditions.last().unwrap().reason, "ClaimExpired");
}

#[tokio::test]
async fn a_finished_sandbox_ends_its_claim_after_the_given_time() {
    let fleet = Fleet::new("finished").await;
    let mut short = template("one", "busybox:v1");
    let spec = &mut short["spec"]["podTemplate"]["spec"];
    spec["restartPolicy"] = json!("Never");
    spec["containers"][0]["command"] = json!(["sh", "-c", "sleep 2"]);
    fleet.create::<SandboxTemplate>(short).await;
    fleet
        .create::<SandboxWarmPool>(pool("one", 0, json!({})))
        .await;
    let lifecycle = json!({"ttlSecondsAfterFinished": 1, "shutdownPolicy": "Delete"});
    fleet
        .create::<SandboxClaim>(claim("mine", json!({"lifecycle": lifecycle})))
        .await;
    let probe = async || {
        let left: Vec<Sandbox> = fleet.list().await;
        let claims: Vec<SandboxClaim> = fleet.list().await;
        (left.is_empty() && claims.is_empty()).then_some(())
    };
    // it is there first
    let there = async || (!fleet.list::<Sandbox>().await.is_empty()).then_some(());
    fleet.until("the sandbox is there", there).await;
    fleet.until("the claim is over", probe).await;
}

#[tokio::test]
async fn a_claim_brings_volumes_of_its_own() {
    let fleet = Fleet::new("volumes").await;
    let mut open = template("one", "busybox:v1");
    open["spec"]["volumeClaimTemplatesPolicy"] = json!("Allowed");
    let mut spec = pod_spec("busybox:v1");
    spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    open["spec"]["podTemplate"]["spec"] = spec;
    fleet.create::<SandboxTemplate>(open).await;
    fleet
        .create::<SandboxWarmPool>(pool("one", 0, json!({})))
        .await;
    let volume = json!({
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
        },
    });
    let given = fleet
        .claim("mine", json!({"volumeClaimTemplates": [volume]}))
        .await;
    assert_eq!(given.labels()["agents.x-k8s.io/launch-type"], "cold");
    let claims: Vec<PersistentVolumeClaim> = fleet.list().await;
    let names: Vec<String> = claims.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["data-mine"]);
    let phase = claims[0].status.clone().unwrap().phase;
    assert_eq!(phase.as_deref(), Some("Bound"));
}

//! Sandboxes by themselves: when they end, and what they keep.

use api::sigs::v1beta1::Sandbox;
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod, Service},
    jiff::{SignedDuration, Timestamp},
};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::fleet::{Fleet, is_ready, pod_spec};

async fn create(fleet: &Fleet, name: &str, spec: Value) {
    let mut object = json!({
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": name},
        "spec": {"podTemplate": {"spec": pod_spec("busybox:v1")}},
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    fleet.create::<Sandbox>(object).await;
}

async fn until_ready(fleet: &Fleet, name: &str) -> Sandbox {
    let probe = async || {
        let sandbox: Sandbox = fleet.api().get(name).await.unwrap();
        is_ready(&sandbox).then_some(sandbox)
    };
    fleet.until(&format!("{name} is Ready"), probe).await
}

fn reason(sandbox: &Sandbox) -> String {
    let status = sandbox.status.clone().unwrap_or_default();
    let mut conditions = status.conditions.into_iter().flatten();
    let ready = conditions.find(|one| one.type_ == "Ready");
    ready.map(|ready| ready.reason).unwrap_or_default()
}

/// The names of what there is of a kind.
async fn names<K>(fleet: &Fleet) -> Vec<String>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let all: Vec<K> = fleet.list().await;
    all.iter().map(kube::ResourceExt::name_any).collect()
}

#[tokio::test]
async fn a_sandbox_ends_at_its_time_and_is_kept_or_deleted_as_it_says() {
    let fleet = Fleet::new("ending").await;
    for name in ["deleted", "kept"] {
        create(&fleet, name, json!({"service": true})).await;
    }
    let ready = until_ready(&fleet, "kept").await;
    assert_eq!(ready.status.unwrap().service.as_deref(), Some("kept"));
    until_ready(&fleet, "deleted").await;
    let soon = Timestamp::now() + SignedDuration::from_secs(5);
    for (name, policy) in [("deleted", "Delete"), ("kept", "Retain")] {
        let end = json!({"shutdownTime": soon.to_string(), "shutdownPolicy": policy});
        fleet.patch::<Sandbox>(name, json!({"spec": end})).await;
    }
    let probe = async || {
        let pods: Vec<String> = names::<Pod>(&fleet).await;
        let services: Vec<String> = names::<Service>(&fleet).await;
        // last of all: what it says comes before the rest is gone
        let left: Vec<Sandbox> = fleet.list().await;
        let is_over = left.len() == 1 && pods.is_empty() && services.is_empty();
        is_over.then(|| left[0].clone())
    };
    let kept = fleet.until("only the retained one is left", probe).await;
    assert_eq!(
        (kept.name_any().as_str(), reason(&kept).as_str()),
        ("kept", "SandboxExpired")
    );
    let bare = async || {
        let kept: Sandbox = fleet.api().get("kept").await.unwrap();
        let status = kept.status.unwrap();
        let is_bare = status.pod_ips.is_none() && status.service.is_none();
        (is_bare && status.node_name.is_none()).then_some(())
    };
    fleet.until("its status is bare", bare).await;

    // it comes back to life if its end is taken back
    let endless = json!({"spec": {"shutdownTime": null}});
    fleet.patch::<Sandbox>("kept", endless).await;
    until_ready(&fleet, "kept").await;
    assert_eq!(names::<Pod>(&fleet).await, ["kept"]);
}

fn once_there(file: &str) -> Value {
    json!({"exec": {"command": ["test", "-e", file]}, "periodSeconds": 1})
}

#[tokio::test]
async fn a_sandbox_has_its_volumes_until_it_is_deleted() {
    let fleet = Fleet::new("own-volumes").await;
    let mut container = pod_spec("busybox:v1")["containers"][0].clone();
    container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    container["command"] = json!([
        "sh",
        "-c",
        "[ -e /data/first ] && touch /data/again; touch /data/first; exec sleep 100000",
    ]);
    let spec = |container: &Value| {
        json!({"podTemplate": {"spec": {
            "terminationGracePeriodSeconds": 0, "containers": [container],
        }}})
    };
    let volume = json!({
        "metadata": {"name": "data", "labels": {"kind": "scratch"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
        },
    });
    // it is not suspended before it has left something behind
    container["readinessProbe"] = once_there("/data/first");
    let mut whole = spec(&container);
    whole["volumeClaimTemplates"] = json!([volume]);
    create(&fleet, "box", whole).await;
    let sandbox = until_ready(&fleet, "box").await;
    let claim: PersistentVolumeClaim = fleet.api().get("data-box").await.unwrap();
    assert_eq!(claim.labels()["kind"], "scratch");
    assert_eq!(claim.owner_references()[0].uid, sandbox.uid().unwrap());
    let phase = claim.status.clone().unwrap().phase;
    assert_eq!(phase.as_deref(), Some("Bound"));

    let first: Pod = fleet.api().get("box").await.unwrap();
    let suspended = json!({"spec": {"operatingMode": "Suspended"}});
    fleet.patch::<Sandbox>("box", suspended).await;
    let no_pod = async || names::<Pod>(&fleet).await.is_empty().then_some(());
    fleet.until("it is suspended", no_pod).await;
    // only what the pod before has left behind makes the next one ready
    container["readinessProbe"] = once_there("/data/again");
    let mut resumed = spec(&container);
    resumed["operatingMode"] = json!("Running");
    fleet
        .patch::<Sandbox>("box", json!({"spec": resumed}))
        .await;
    let back = async || {
        let pod: Option<Pod> = fleet.api().get_opt("box").await.unwrap();
        pod.filter(|pod| pod.uid() != first.uid())
    };
    fleet.until("it has another pod", back).await;
    until_ready(&fleet, "box").await;
    let same: PersistentVolumeClaim = fleet.api().get("data-box").await.unwrap();
    assert_eq!(same.uid(), claim.uid());
    fleet.delete::<Sandbox>("box").await;
    let probe = async || {
        let claims = names::<PersistentVolumeClaim>(&fleet).await;
        claims.is_empty().then_some(())
    };
    fleet.until("the volume is gone with it", probe).await;
}

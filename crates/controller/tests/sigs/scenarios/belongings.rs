//! Pods, services and volume claims that were there before, or are asked for differently later.

use api::sigs::v1beta1::Sandbox;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::stage::{Stage, sandbox};

fn pod(metadata: Value) -> Value {
    json!({
        "metadata": metadata,
        "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    })
}

pub(crate) async fn an_adoptable_pod_is_adopted(stage: &Stage) {
    let labels = json!({"agents.x-k8s.io/adoptable": "true", "mine": "yes"});
    let metadata = json!({"name": "box", "labels": labels});
    let old = stage.create::<Pod>(pod(metadata)).await;
    let object = stage.create::<Sandbox>(sandbox(json!({}))).await;
    stage.until_ready().await;
    let pods = stage.pods().await;
    assert_eq!(pods[0].uid(), old.uid());
    assert_eq!(pods[0].owner_references()[0].uid, object.uid().unwrap());
    assert_eq!(
        (&*pods[0].labels()["app"], &*pods[0].labels()["mine"]),
        ("agent", "yes")
    );
}

pub(crate) async fn a_foreign_pod_is_an_error_until_it_is_gone(stage: &Stage) {
    let foreign = stage.create::<Pod>(pod(json!({"name": "box"}))).await;
    stage.create::<Sandbox>(sandbox(json!({}))).await;
    let message = r#"Error seen: pod "box" exists and is not marked as adoptable"#;
    let status = stage
        .until_ready_is("False", "ReconcilerError", message)
        .await;
    assert_eq!(status.pod_ips, None);
    stage.until_warned("ReconcilerError", 1, message).await;
    let same: Pod = stage.api().get("box").await.unwrap();
    assert_eq!(
        (same.uid(), same.owner_references()),
        (foreign.uid(), &[] as &[_])
    );
    stage.delete::<Pod>("box").await;
    stage.until_ready().await;
}

async fn want_service(stage: &Stage, wanted: Value) {
    let patch = json!({"spec": {"service": wanted}});
    stage.patch::<Sandbox>("box", patch).await;
}

pub(crate) async fn a_service_is_made_kept_and_removed_as_asked(stage: &Stage) {
    let object = stage
        .create::<Sandbox>(sandbox(json!({"service": true})))
        .await;
    let with = "Pod is Ready; Service Exists";
    let status = stage
        .until_ready_is("True", "DependenciesReady", with)
        .await;
    assert_eq!(status.service.as_deref(), Some("box"));
    let fqdn = format!("box.{}.svc.cluster.local", stage.namespace);
    assert_eq!(status.service_fqdn, Some(fqdn));
    let service: Service = stage.api().get("box").await.unwrap();
    let uid = service.uid();
    assert_eq!(service.owner_references()[0].uid, object.uid().unwrap());
    let spec = service.spec.unwrap();
    assert_eq!(spec.cluster_ip.as_deref(), Some("None"));
    let port = json!({"name": "p-8080-tcp", "port": 8080, "protocol": "TCP", "targetPort": 8080});
    assert_eq!(json!(spec.ports), json!([port]));
    assert_eq!(json!(spec.selector), json!(service.metadata.labels));

    want_service(stage, Value::Null).await;
    let spoiled = json!({"spec": {"selector": {"agents.x-k8s.io/sandbox-name-hash": "spoiled"}}});
    stage.patch::<Service>("box", spoiled).await;
    let is_repaired = |service: &Service| {
        let selector = service
            .spec
            .as_ref()
            .and_then(|spec| spec.selector.as_ref());
        selector.is_some() && selector == service.metadata.labels.as_ref()
    };
    let get = async || stage.api::<Service>().get("box").await.unwrap();
    let kept = stage.until("repaired", get, is_repaired).await;
    assert_eq!(kept.uid(), uid);

    want_service(stage, json!(false)).await;
    let status = stage.until_ready().await;
    assert_eq!((status.service, status.service_fqdn), (None, None));
    assert!(stage.list::<Service>().await.is_empty());

    want_service(stage, json!(true)).await;
    stage
        .until_ready_is("True", "DependenciesReady", with)
        .await;
}

pub(crate) async fn volume_claims_are_made_adopted_and_mounted(stage: &Stage) {
    let claim = json!({
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    });
    let labels = json!({"agents.x-k8s.io/adoptable": "true"});
    let old = json!({"metadata": {"name": "old-box", "labels": labels}, "spec": claim});
    stage.create::<PersistentVolumeClaim>(old).await;
    let spec = json!({
        "volumeClaimTemplates": [
            {"metadata": {"name": "data", "labels": {"kind": "disk"}}, "spec": claim},
            {"metadata": {"name": "old"}, "spec": claim},
        ],
        "podTemplate": {"spec": {"volumes": [
            {"name": "old", "emptyDir": {}}, {"name": "other", "emptyDir": {}},
        ]}},
    });
    let object = stage.create::<Sandbox>(sandbox(spec)).await;
    stage.until_ready().await;
    for name in ["data-box", "old-box"] {
        let claim: PersistentVolumeClaim = stage.api().get(name).await.unwrap();
        assert_eq!(
            claim.owner_references()[0].uid,
            object.uid().unwrap(),
            "{name}"
        );
        assert_eq!(
            claim.labels()["agents.x-k8s.io/sandbox-name-hash"],
            "70c67e32"
        );
    }
    let pod = stage.pods().await.remove(0);
    let volumes = json!(pod.spec.unwrap().volumes);
    let mounted: Vec<_> = volumes
        .as_array()
        .unwrap()
        .iter()
        .map(|volume| {
            (
                &volume["name"],
                &volume["persistentVolumeClaim"]["claimName"],
            )
        })
        .filter(|(name, _)| !name.as_str().unwrap().starts_with("kube-api-access"))
        .collect();
    assert_eq!(
        json!(mounted),
        json!([["old", "old-box"], ["other", null], ["data", "data-box"]])
    );
}

pub(crate) async fn pod_metadata_follows_the_template(stage: &Stage) {
    stage.create::<Sandbox>(sandbox(json!({}))).await;
    stage.until_ready().await;
    let metadata = json!({
        "labels": {"app": null, "role": "worker", "agents.x-k8s.io/claim-uid": "reserved"},
        "annotations": null,
    });
    let patch = json!({
        "metadata": {"labels": {"agents.x-k8s.io/created-by": "somebody"}},
        "spec": {"podTemplate": {"metadata": metadata}},
    });
    stage.patch::<Sandbox>("box", patch).await;
    let labels = json!({
        "agents.x-k8s.io/created-by": "unknown",
        "agents.x-k8s.io/sandbox-name-hash": "70c67e32",
        "role": "worker",
    });
    let follows = |pods: &Vec<Pod>| json!(pods[0].labels()) == labels;
    let pods = stage
        .until("followed", async || stage.pods().await, follows)
        .await;
    let annotations = json!({"agents.x-k8s.io/propagated-labels": "role"});
    assert_eq!(json!(pods[0].annotations()), annotations);
    stage.until_ready().await;
}

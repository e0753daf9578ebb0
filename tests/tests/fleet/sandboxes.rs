//! Sandboxes by themselves.

use api::sigs::v1beta1::Sandbox;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use crate::fleet::{Fleet, is_ready, pod_spec};

#[tokio::test]
async fn a_sandbox_is_suspended_and_comes_back() {
    let fleet = Fleet::new("suspend").await;
    let sandbox = json!({
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": "box"},
        "spec": {"service": true, "podTemplate": {"spec": pod_spec("busybox:v1")}},
    });
    fleet.create::<Sandbox>(sandbox).await;
    let ready = async || {
        let sandbox: Sandbox = fleet.api().get("box").await.unwrap();
        is_ready(&sandbox).then_some(sandbox)
    };
    fleet.until("it is Ready", ready).await;
    let first: Pod = fleet.api().get("box").await.unwrap();
    fleet
        .patch::<Sandbox>("box", json!({"spec": {"operatingMode": "Suspended"}}))
        .await;
    let suspended = async || {
        let sandbox: Sandbox = fleet.api().get("box").await.unwrap();
        let status = sandbox.status.unwrap_or_default();
        let mut conditions = status.conditions.iter().flatten();
        let is_so = conditions.any(|one| one.type_ == "Suspended" && one.status == "True");
        (is_so && fleet.list::<Pod>().await.is_empty()).then_some(())
    };
    fleet.until("it is suspended", suspended).await;
    fleet
        .patch::<Sandbox>("box", json!({"spec": {"operatingMode": "Running"}}))
        .await;
    let back = fleet.until("it is Ready again", ready).await;
    let second: Pod = fleet.api().get("box").await.unwrap();
    assert_ne!(first.uid(), second.uid());
    let address = second.status.unwrap().pod_ip.unwrap();
    assert_eq!(back.status.unwrap().pod_ips, Some(vec![address]));
}

//! Pools whose template changes.

use std::collections::BTreeMap;

use api::sigs::v1beta1::{SandboxClaim, SandboxTemplate, SandboxWarmPool};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use crate::fleet::{Fleet, image, is_ready, template};

#[tokio::test]
async fn recreate_replaces_idle_members_and_leaves_claimed_ones_alone() {
    let fleet = Fleet::filled("recreate", 2, json!({"type": "Recreate"})).await;
    let claimed = fleet.claim("mine", json!({})).await;
    let running = fleet.pod_of(&claimed).await;
    fleet.until_stocked(2, "busybox:v1").await;
    fleet.set_image("one", "busybox:v2").await;
    // whoever comes now gets the new one, at once or after a moment
    let next = fleet.claim("next", json!({})).await;
    assert_eq!(image(&next), "busybox:v2");
    fleet.until_stocked(2, "busybox:v2").await;
    fleet
        .create::<SandboxTemplate>(template("two", "busybox:v2"))
        .await;
    let before = fleet.members().await;
    let switched = json!({"spec": {"sandboxTemplateRef": {"name": "two"}}});
    fleet.patch::<SandboxWarmPool>("pool", switched).await;
    let probe = async || {
        let members = fleet.members().await;
        let is_new = members
            .iter()
            .all(|new| before.iter().all(|old| old.uid() != new.uid()));
        (members.len() == 2 && is_new && members.iter().all(is_ready)).then_some(())
    };
    fleet
        .until("all members are of the other template", probe)
        .await;
    let still = fleet.pod_of(&claimed).await;
    assert_eq!(
        (still.uid(), image(&claimed)),
        (running.uid(), "busybox:v1".to_owned())
    );
}

#[tokio::test]
async fn on_replenish_hands_out_old_members_and_makes_new_ones() {
    let fleet = Fleet::filled("replenish", 2, json!({"type": "OnReplenish"})).await;
    let target = async || {
        let pool: SandboxWarmPool = fleet.api().get("pool").await.unwrap();
        pool.status.and_then(|status| status.update_revision)
    };
    let before = target().await;
    fleet.set_image("one", "busybox:v2").await;
    let is_seen = async || (target().await != before).then_some(());
    fleet.until("the new template is seen", is_seen).await;
    let first = fleet.claim("first", json!({})).await;
    assert_eq!(image(&first), "busybox:v1");
    let probe = async || {
        let members = fleet.members().await;
        let new = members
            .iter()
            .filter(|one| image(one) == "busybox:v2")
            .count();
        (members.len() == 2 && members.iter().all(is_ready)).then_some(new)
    };
    assert_eq!(fleet.until("the stock is full again", probe).await, 1);
}

#[tokio::test]
async fn a_rolling_update_goes_through_while_claims_come() {
    let rolling = json!({
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1, "inPlace": "Never"},
    });
    let fleet = Fleet::filled("rolling", 3, rolling).await;
    fleet.set_image("one", "busybox:v2").await;
    let mut images = Vec::new();
    for number in 0..4 {
        fleet.until_two_are_claimable().await;
        images.push(image(
            &fleet.claim(&format!("claim-{number}"), json!({})).await,
        ));
    }
    fleet.until_stocked(3, "busybox:v2").await;
    let claims: Vec<SandboxClaim> = fleet.list().await;
    let given: std::collections::BTreeSet<_> = claims
        .iter()
        .map(|one| one.status.clone().unwrap().sandbox.unwrap().name)
        .collect();
    assert_eq!(given.len(), 4, "{images:?}");
    // none of them started cold
    for sandbox in fleet.list::<api::sigs::v1beta1::Sandbox>().await {
        assert_eq!(sandbox.labels()["agents.x-k8s.io/launch-type"], "warm");
    }
}

#[tokio::test]
async fn old_members_go_first_when_a_pool_shrinks() {
    let rolling = json!({
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0, "partition": 2, "inPlace": "Never"},
    });
    let fleet = Fleet::filled("shrink", 3, rolling).await;
    fleet.set_image("one", "busybox:v2").await;
    let probe = async || {
        let members = fleet.members().await;
        let new = members
            .iter()
            .filter(|one| image(one) == "busybox:v2" && is_ready(one));
        (members.len() == 3 && new.count() == 1).then_some(())
    };
    fleet.until("one member is new", probe).await;
    let smaller =
        json!({"spec": {"replicas": 1, "updateStrategy": {"rollingUpdate": {"partition": 0}}}});
    fleet.patch::<SandboxWarmPool>("pool", smaller).await;
    fleet.until_stocked(1, "busybox:v2").await;
}

#[tokio::test]
async fn idle_members_change_their_image_in_place_and_keep_their_address() {
    let fleet = Fleet::filled(
        "in-place",
        2,
        json!({
            "type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
        }),
    )
    .await;
    let pods = async || -> BTreeMap<String, (Option<String>, Option<String>)> {
        let pods: Vec<Pod> = fleet.list().await;
        let address = |pod: &Pod| pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        pods.iter()
            .map(|pod| (pod.name_any(), (pod.uid(), address(pod))))
            .collect()
    };
    let before = pods().await;
    fleet.set_image("one", "busybox:v2").await;
    fleet.until_stocked(2, "busybox:v2").await;
    let probe = async || {
        let pool: SandboxWarmPool = fleet.api().get("pool").await.unwrap();
        let status = pool.status.unwrap_or_default();
        let is_done = status.updated_available_replicas == Some(2)
            && status.current_revision == status.update_revision;
        is_done.then_some(())
    };
    fleet.until("the rollout is complete", probe).await;
    assert_eq!(pods().await, before);
    for pod in fleet.list::<Pod>().await {
        let status = pod.status.unwrap().container_statuses.unwrap().remove(0);
        assert!(status.image.ends_with("busybox:v2"), "{}", status.image);
        assert_eq!(status.restart_count, 1);
    }
}

//! Pools in a namespace whose ResourceQuota is used up.

use api::sigs::v1beta1::{SandboxTemplate, SandboxWarmPool};
use k8s_openapi::{api::core::v1::ResourceQuota, apimachinery::pkg::apis::meta::v1::Condition};
use serde_json::json;

use crate::fleet::{Fleet, is_ready, pool, template};

/// Nothing is made under a quota before the controller-manager has counted what there is.
async fn limit_pods(fleet: &Fleet, most: u32) {
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "tight"}, "spec": {"hard": {"pods": most.to_string()}},
    });
    fleet.create::<ResourceQuota>(quota).await;
    let counted = async || {
        let quota: ResourceQuota = fleet.api().get("tight").await.unwrap();
        quota.status?.used?.contains_key("pods").then_some(())
    };
    fleet.until("what there is has been counted", counted).await;
}

async fn stalled(fleet: &Fleet) -> Option<Condition> {
    let pool: SandboxWarmPool = fleet.api().get("pool").await.unwrap();
    let mut conditions = pool.status?.conditions?.into_iter();
    conditions.find(|one| one.type_ == "Stalled")
}

async fn until_stalled_is(fleet: &Fleet, status: &str, reason: &str) -> Condition {
    let probe = async || {
        let is_so = |told: &Condition| (&*told.status, &*told.reason) == (status, reason);
        stalled(fleet).await.filter(is_so)
    };
    let what = format!("Stalled is {status} {reason}");
    fleet.until(&what, probe).await
}

#[tokio::test]
async fn a_pool_says_which_quota_keeps_it_small_and_grows_when_that_is_lifted() {
    let fleet = Fleet::new("quota").await;
    limit_pods(&fleet, 1).await;
    fleet
        .create::<SandboxTemplate>(template("one", "busybox:v1"))
        .await;
    let rolling = json!({"type": "RollingUpdate"});
    fleet
        .create::<SandboxWarmPool>(pool("one", 2, rolling))
        .await;
    let told = until_stalled_is(&fleet, "True", "QuotaExceeded").await;
    let words = "exceeded quota: tight, requested: pods=1, used: pods=1, limited: pods=1";
    assert!(told.message.contains(words), "{}", told.message);
    let one_of_two = async || {
        let members = fleet.members().await;
        let ready = members.iter().filter(|one| is_ready(one));
        ((members.len(), ready.count()) == (2, 1)).then_some(())
    };
    fleet.until("one of two is Ready", one_of_two).await;

    let more = json!({"spec": {"hard": {"pods": "2"}}});
    fleet.patch::<ResourceQuota>("tight", more).await;
    fleet.until_stocked(2, "busybox:v1").await;
    until_stalled_is(&fleet, "False", "AsExpected").await;
}

//! Updates in place that fail.

use std::collections::BTreeSet;

use api::sigs::v1beta1::{Sandbox, SandboxTemplate, SandboxWarmPool};
use kube::ResourceExt as _;
use local::fault::Faults;
use serde_json::{Value, json};

use crate::{
    scenarios::pools::{is_ready, members, until_full},
    stage::{Stage, Theatre, pool, template},
    wire::{Fate, Progress, Sent, Wire},
};

/// A pod of this size, and a node that never gives it another.
fn sized(cpu: &str) -> Value {
    let resources = json!({"requests": {"cpu": cpu}, "limits": {"cpu": "1"}});
    let container = json!({"name": "main", "image": "app:1", "resources": resources});
    let annotations = json!({"hollow.sandbar.dev/fail": "resize-infeasible"});
    json!({"podTemplate": {
        "metadata": {"annotations": annotations}, "spec": {"containers": [container]},
    }})
}

#[tokio::test(flavor = "multi_thread")]
async fn where_three_updates_in_a_row_have_failed_members_are_replaced_without_another_try() {
    let theatre = Theatre::open().await;
    let wire = Wire::new(Fate::Late, Sent::fences_a_sandbox);
    let stage = Stage::new(&theatre, "fallbacks", Faults::none()).await;
    let stage = stage.with_wire(|server| wire.to(server));
    stage.restart();
    stage
        .create::<SandboxTemplate>(template("one", "app:1", sized("100m")))
        .await;
    let rolling = json!({"maxUnavailable": 1, "maxSurge": 0});
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
    stage
        .create::<SandboxWarmPool>(pool(5, json!({"updateStrategy": strategy})))
        .await;
    let before = until_full(&stage, 5).await;
    let resized = json!({"spec": sized("200m")});
    stage.patch::<SandboxTemplate>("one", resized).await;
    wire.until(Progress::OnTheWire).await;
    wire.let_go().await;
    let is_old = |member: &Sandbox| before.iter().any(|old| old.uid() == member.uid());
    let are_new = |members: &Vec<Sandbox>| {
        let is_new = |member: &Sandbox| !is_old(member) && is_ready(member);
        members.len() == 5 && members.iter().all(is_new)
    };
    let observe = async || members(&stage).await;
    stage.until("all are replaced", observe, are_new).await;
    let tried: BTreeSet<_> = wire.meant().into_iter().collect();
    assert_eq!(tried.len(), 3, "{tried:?}");
}

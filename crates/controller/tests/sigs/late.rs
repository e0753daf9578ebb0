//! What others have done and a controller does not know yet: deletions that arrive late, answers that are lost, and watches
//! that fall silent.

use api::sigs::v1beta1::{Sandbox, SandboxClaim, SandboxWarmPoolStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use local::fault::Faults;
use serde_json::{Value, json};

use crate::{
    scenarios::{
        pools::{is_ready, members, reason, scale, status},
        rollouts::{fill, image, rolling, set_image},
    },
    stage::{Stage, Theatre},
    wire::{Fate, Progress, Sent, Wire},
};

pub(crate) async fn stage_on(wire: &Wire, theatre: &Theatre) -> Stage {
    let stage = Stage::new(theatre, "late", Faults::none()).await;
    let stage = stage.with_wire(|server| wire.to(server));
    stage.restart();
    stage
}

async fn claimable(stage: &Stage) -> usize {
    let members = members(stage).await;
    members.iter().filter(|member| is_ready(member)).count()
}

async fn claim(stage: &Stage) -> SandboxClaim {
    claim_from(stage, "mine", "pool").await
}

pub(crate) async fn claim_from(stage: &Stage, name: &str, pool: &str) -> SandboxClaim {
    let claim = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim",
        "metadata": {"name": name}, "spec": {"warmPoolRef": {"name": pool}},
    });
    stage.create(claim).await
}

/// The name of the sandbox that the claim says it has.
async fn given(stage: &Stage) -> Option<String> {
    given_to(stage, "mine").await
}

pub(crate) async fn given_to(stage: &Stage, name: &str) -> Option<String> {
    let claim: SandboxClaim = stage.api().get(name).await.unwrap();
    claim.status?.sandbox?.name
}

async fn until_given(stage: &Stage) -> String {
    let given = async || given(stage).await;
    let is_given = |given: &Option<String>| given.is_some();
    let given = stage.until("the claim is served", given, is_given).await;
    given.unwrap()
}

/// The names of the sandboxes of the claim.
async fn of_claim(stage: &Stage) -> Vec<String> {
    let mut all = members(stage).await;
    all.retain(|one| one.owner_references()[0].kind == "SandboxClaim");
    all.iter().map(ResourceExt::name_any).collect()
}

/// The next leader has found the pool whole, and neither a claim nor itself takes a member out of it then.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_a_former_leader_deletes_late_is_among_those_that_the_rollout_has_out() {
    let theatre = Theatre::open().await;
    // without pods nothing makes up for what is taken out
    let wire = Wire::new(Fate::Late, Sent::deletes_a_sandbox).hanging_then(Sent::makes_a_pod);
    let stage = stage_on(&wire, &theatre).await;
    fill(&stage, 4, rolling(json!({}))).await;
    set_image(&stage, "missing:2").await;
    wire.until(Progress::OnTheWire).await;
    let pods = async || json!(stage.list::<Pod>().await).to_string();
    let is_pulled_in_vain = |pods: &String| pods.contains("ErrImagePull");
    stage.until("the pull fails", pods, is_pulled_in_vain).await;
    stage.restart();
    let told = async || status(&stage).await;
    let is_stopped = |status: &SandboxWarmPoolStatus| {
        reason(status, "Stalled") == ("True".to_owned(), "ImagePull".to_owned())
    };
    stage.until("the rollout stops", told, is_stopped).await;
    assert_eq!(claimable(&stage).await, 4);

    wire.let_go().await;
    stage.settle().await;
    assert_eq!(claimable(&stage).await, 3);
    set_image(&stage, "app:3").await;
    let observe = async || members(&stage).await;
    let goes_on = |members: &Vec<Sandbox>| members.iter().any(|one| image(one) == "app:3");
    stage.until("the rollout goes on", observe, goes_on).await;
    stage.settle().await;
    assert_eq!(claimable(&stage).await, 3, "{:#?}", members(&stage).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_leaves_a_member_alone_that_is_promised_to_a_claim() {
    let theatre = Theatre::open().await;
    let at_once = json!({"updateStrategy": {"type": "Recreate"}});
    let all = json!({"maxUnavailable": 2, "maxSurge": 0});
    for strategy in [rolling(all), at_once] {
        let wire = Wire::new(Fate::Late, Sent::binds_a_sandbox);
        let stage = stage_on(&wire, &theatre).await;
        let before = fill(&stage, 2, strategy.clone()).await;
        claim(&stage).await;
        wire.until(Progress::OnTheWire).await;
        set_image(&stage, "app:2").await;
        let observe = async || members(&stage).await;
        let is_changed = |members: &Vec<Sandbox>| {
            let is_new = |member: &&Sandbox| image(member) == "app:2" && is_ready(member);
            members.iter().any(|member| is_new(&member))
        };
        stage
            .until("the other is replaced", observe, is_changed)
            .await;
        stage.settle().await;
        wire.let_go().await;
        let given = until_given(&stage).await;
        let is_old = before.iter().any(|old| old.name_any() == given);
        assert!(is_old, "{given} of {before:#?} under {strategy}");
        let sandbox: Sandbox = stage.api().get(&given).await.unwrap();
        assert_eq!(image(&sandbox), "app:1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bind_whose_answer_was_lost_is_looked_at_before_anything_else_is_tried() {
    let theatre = Theatre::open().await;
    let wire = Wire::new(Fate::Unanswered("sandboxes"), Sent::binds_a_sandbox);
    let stage = stage_on(&wire, &theatre).await;
    fill(&stage, 2, json!({})).await;
    claim(&stage).await;
    let given = until_given(&stage).await;
    assert_eq!(of_claim(&stage).await, [given]);
    assert_eq!(wire.meant().len(), 1, "binds were tried");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bind_that_comes_too_late_is_looked_at_before_anything_else_is_tried() {
    let theatre = Theatre::open().await;
    let wire = Wire::new(Fate::Late, Sent::binds_a_sandbox);
    let stage = stage_on(&wire, &theatre).await;
    fill(&stage, 3, json!({})).await;
    let claim = claim(&stage).await;
    wire.until(Progress::OnTheWire).await;
    wire.silence("sandboxes");
    let member = wire.meant().remove(0);
    stage.patch::<Sandbox>(&member, bound_to(&claim)).await;
    wire.let_go().await;
    assert_eq!(until_given(&stage).await, member);
    assert_eq!(wire.meant().len(), 1, "binds were tried");
    assert_eq!(of_claim(&stage).await, [member]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_whose_answer_was_lost_is_looked_at_before_anything_else_is_tried() {
    let theatre = Theatre::open().await;
    let wire = Wire::new(Fate::Unanswered("sandboxes"), Sent::makes_a_sandbox);
    let stage = stage_on(&wire, &theatre).await;
    fill(&stage, 0, json!({})).await;
    claim(&stage).await;
    assert_eq!(until_given(&stage).await, "mine");
    assert_eq!(wire.meant().len(), 1, "starts were tried");
    assert_eq!(of_claim(&stage).await, ["mine"]);
}

/// Time stands still, so that nobody looks at it again before the other claim comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_may_be_a_claims_is_not_offered_to_another() {
    let theatre = Theatre::open().await;
    let wire = Wire::new(Fate::Unanswered("sandboxes"), Sent::binds_a_sandbox);
    let stage = stage_on(&wire, &theatre).await;
    fill(&stage, 2, json!({})).await;
    claim(&stage).await;
    wire.until(Progress::Arrived).await;
    claim_from(&stage, "other", "pool").await;
    let given_to_other = async || given_to(&stage, "other").await;
    let is_given = |given: &Option<String>| given.is_some();
    let other = stage
        .until_at_once("the other is served", given_to_other, is_given)
        .await;
    assert_eq!(wire.meant().len(), 2, "binds were tried");
    assert_ne!(Some(until_given(&stage).await), other);
}

/// Another leader has given a claim the member, which is not known here when the pool is to have none any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_claimed_by_now_is_not_among_those_that_a_smaller_pool_loses() {
    let theatre = Theatre::open().await;
    for strategy in [json!({}), rolling(json!({}))] {
        let wire = Wire::new(Fate::Late, Sent::deletes_a_sandbox);
        let stage = stage_on(&wire, &theatre).await;
        let member = fill(&stage, 1, strategy).await[0].name_any();
        let claim = claim_from(&stage, "mine", "elsewhere").await;
        stage.settle().await;
        wire.silence("sandboxes");
        stage.patch::<Sandbox>(&member, bound_to(&claim)).await;
        scale(&stage, 0).await;
        let sent = async || wire.meant().len();
        stage.until("it is to go", sent, |sent| *sent > 0).await;
        wire.let_go().await;
        wire.speak();
        assert_eq!(until_given(&stage).await, member);
        stage.settle().await;
        assert_eq!(of_claim(&stage).await, [member]);
    }
}

/// Another leader has given the claim another sandbox, and of that only the sandbox is known here.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_the_claim_names_by_now_is_not_taken_for_a_surplus() {
    let theatre = Theatre::open().await;
    let wire = Wire::new(Fate::Late, |_| false);
    let stage = stage_on(&wire, &theatre).await;
    fill(&stage, 2, json!({})).await;
    let claim = claim(&stage).await;
    let first = until_given(&stage).await;
    stage.settle().await;
    wire.silence("sandboxclaims");
    let mut stock = members(&stage).await;
    stock.retain(|member| member.name_any() != first);
    let second = stock[0].name_any();
    let params = PatchParams::default();
    let named = Patch::Merge(json!({"status": {"sandbox": {"name": second}}}));
    let claims = stage.api::<SandboxClaim>();
    claims.patch_status("mine", &params, &named).await.unwrap();
    stage.patch::<Sandbox>(&second, bound_to(&claim)).await;
    let observe = async || of_claim(&stage).await;
    let is_one = |names: &Vec<String>| names.len() == 1;
    stage.until("one is left", observe, is_one).await;
    wire.speak();
    stage.settle().await;
    assert_eq!(given(&stage).await.as_ref(), Some(&second));
    assert_eq!(of_claim(&stage).await, [second]);
}

fn bound_to(claim: &SandboxClaim) -> Value {
    let owner = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim",
        "name": "mine", "uid": claim.uid(), "controller": true, "blockOwnerDeletion": true,
    });
    let labels = json!({
        "agents.x-k8s.io/warm-pool-sandbox": null, "agents.x-k8s.io/claim-uid": claim.uid(),
    });
    json!({"metadata": {"ownerReferences": [owner], "labels": labels}})
}

//! Who gets a member that is old and still there.

use api::sigs::v1beta1::{Sandbox, SandboxTemplate, SandboxWarmPool};
use serde_json::json;

use crate::{
    late::{claim_from, given_to, stage_on},
    scenarios::rollouts::{fill, image, set_image},
    stage::{Theatre, template},
    wire::{Fate, Progress, Sent, Wire},
};

/// The edit was answered before the claim was made, and the controller has not heard of it.
#[tokio::test(flavor = "multi_thread")]
async fn who_claims_after_an_edit_gets_nothing_older_where_that_is_forbidden_though_watches_lag() {
    let recreate = json!({"updateStrategy": {"type": "Recreate"}});
    let newest = json!({"claimPolicy": "RequireNewest"});
    for (lagging, spec) in [
        ("sandboxtemplates", &recreate),
        ("sandboxwarmpools", &recreate),
        ("sandboxtemplates", &newest),
    ] {
        let theatre = Theatre::open().await;
        let wire = Wire::new(Fate::Late, |_| false);
        let stage = stage_on(&wire, &theatre).await;
        fill(&stage, 2, spec.clone()).await;
        let two = template("two", "app:2", json!({}));
        stage.create::<SandboxTemplate>(two).await;
        stage.settle().await;
        wire.silence(lagging);
        match lagging {
            "sandboxtemplates" => set_image(&stage, "app:2").await,
            _ => {
                let switched = json!({"spec": {"sandboxTemplateRef": {"name": "two"}}});
                drop(stage.patch::<SandboxWarmPool>("pool", switched).await);
            }
        }
        for name in ["mine", "yours"] {
            claim_from(&stage, name, "pool").await;
        }
        for name in ["mine", "yours"] {
            let given = async || given_to(&stage, name).await;
            let is_given = |given: &Option<String>| given.is_some();
            let given = stage.until("the claim is served", given, is_given).await;
            let sandbox: Sandbox = stage.api().get(&given.unwrap()).await.unwrap();
            assert_eq!(image(&sandbox), "app:2", "{lagging}, {spec}: {name}");
        }
        wire.speak();
        stage.settle().await;
    }
}

/// The pool has begun to replace its members, and the deletion of one is on the wire.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_a_member_under_recreate_that_is_about_to_be_deleted() {
    let theatre = Theatre::open().await;
    let wire = Wire::new(Fate::Late, Sent::deletes_a_sandbox);
    let stage = stage_on(&wire, &theatre).await;
    fill(&stage, 1, json!({"updateStrategy": {"type": "Recreate"}})).await;
    set_image(&stage, "app:2").await;
    wire.until(Progress::OnTheWire).await;
    claim_from(&stage, "mine", "pool").await;
    let given = async || given_to(&stage, "mine").await;
    let is_given = |given: &Option<String>| given.is_some();
    let given = stage.until("the claim is served", given, is_given).await;
    let sandbox: Sandbox = stage.api().get(&given.unwrap()).await.unwrap();
    assert_eq!(image(&sandbox), "app:2");
    wire.let_go().await;
    stage.settle().await;
}

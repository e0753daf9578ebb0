use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use engine::{
    claim::Refusal,
    in_place::Platform,
    member::{Difference, Policy, Time},
    revision::name_hash,
    rollout::{Settings, Strategy},
};
use serde_json::{Value, json};

use super::{Find, Stock};
use crate::{
    meta::Key,
    sigs::{
        pool::member::revision, pool::view::Pool, sandbox::view::Sandbox, template::view::Template,
    },
    store::{By, Change},
    testing::view,
};

const EXTENSIONS: &str = "extensions.agents.x-k8s.io/v1beta1";

fn pool() -> Pool {
    pool_with(&json!({}))
}

fn pool_with(annotations: &Value) -> Pool {
    let base = json!({
        "apiVersion": EXTENSIONS,
        "kind": "SandboxWarmPool",
        "metadata": {"name": "pool", "namespace": "n", "uid": "pool"},
        "spec": {"sandboxTemplateRef": {"name": "one"}},
    });
    view(base, &json!({"metadata": {"annotations": annotations}}))
}

fn template(change: &Value) -> Template {
    let base = json!({
        "apiVersion": EXTENSIONS,
        "kind": "SandboxTemplate",
        "metadata": {"name": "one", "namespace": "n", "uid": "template"},
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "app:1"}]}}},
    });
    view(base, &json!({"spec": change}))
}

fn pod(container: &Value) -> Value {
    let mut main = json!({"name": "main", "image": "app:1"});
    json_patch::merge(&mut main, container);
    json!({"podTemplate": {"spec": {"containers": [main]}}})
}

/// A member that is Ready, made from the template as it was.
fn member(change: &Value) -> Sandbox {
    let template = template(&json!({}));
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "DependenciesReady", "message": "",
        "lastTransitionTime": "2026-01-31T11:00:00Z",
    });
    let member = json!({
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {
            "name": "pool-1", "namespace": "n", "uid": "member", "resourceVersion": "5",
            "creationTimestamp": "2026-01-31T10:00:00Z",
            "labels": {
                "agents.x-k8s.io/warm-pool-sandbox": name_hash("pool"),
                "agents.x-k8s.io/sandbox-template-ref-hash": &*template.name_hash,
                "agents.x-k8s.io/sandbox-template-hash": template.wanted.revision().to_string(),
            },
            "ownerReferences": [{
                "apiVersion": EXTENSIONS, "kind": "SandboxWarmPool", "name": "pool", "uid": "pool",
                "controller": true,
            }],
        },
        "spec": template.blueprint,
        "status": {"podIPs": ["10.0.0.1"], "conditions": [ready]},
    });
    view(member, change)
}

/// The stock of a pool that has the member.
fn stock() -> Stock {
    let member = Arc::new(member(&json!({})));
    let stock = Stock::new(Platform::of(36, true));
    stock.observe(&Change {
        before: None,
        after: Some(&member),
        by: By::Watch,
    });
    stock
}

#[test]
fn a_member_changes_in_place_only_if_its_pod_is_all_that_changes_and_can_take_it() {
    let volume = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    let labels = json!({"podTemplate": {"metadata": {"labels": {"team": "two"}}}});
    let mut image_and_service = pod(&json!({"image": "app:2"}));
    image_and_service["service"] = json!(true);
    let mut image_and_volume = pod(&json!({"image": "app:2"}));
    image_and_volume["volumeClaimTemplates"] = json!([volume]);
    let cases = [
        (pod(&json!({"image": "app:2"})), Difference::Image),
        (labels, Difference::Metadata),
        (pod(&json!({"command": ["sleep"]})), Difference::Replace),
        (
            pod(&json!({"image": "app:2", "command": ["sleep"]})),
            Difference::Replace,
        ),
        (image_and_service, Difference::Replace),
        (image_and_volume, Difference::Replace),
    ];
    for (change, expected) in cases {
        let older = stock()
            .describe(&pool(), &template(&change))
            .revisions
            .older;
        let differences: Vec<_> = older.iter().map(|older| older.difference).collect();
        assert_eq!(differences, [expected], "{change}");
    }
}

#[test]
fn a_claim_gets_an_old_member_unless_the_strategy_is_about_to_delete_it() {
    let now = Time(u64::MAX);
    let edited = template(&pod(&json!({"image": "app:2"})));
    let found = |strategy| {
        let settings = Settings::new(strategy);
        stock().choose(&pool(), &edited, &settings, "claim", None, now)
    };
    let is_member = |find: &Find| matches!(find, Find::Member(promise) if promise.is_stale);
    assert!(found(Strategy::OnReplenish).is_ok_and(|find| is_member(&find)));
    let nothing = Find::Nothing {
        coming: 0,
        matures: None,
    };
    assert_eq!(found(Strategy::Recreate), Ok(nothing));
}

#[test]
fn a_member_without_an_owner_is_known_by_its_content_and_not_by_its_labels() {
    let (stock, template) = (stock(), template(&json!({})));
    let differs = |change: &Value| stock.content_differs(&member(change), &template);
    let labels = json!({"agents.x-k8s.io/sandbox-template-hash": "somebody's"});
    let labels = json!({"metadata": {"labels": labels}});
    assert_eq!(differs(&labels), Difference::Same);
    let other = json!({"spec": pod(&json!({"command": ["sleep"]}))});
    assert_eq!(differs(&other), Difference::Replace);
}

#[test]
fn a_pool_may_name_revisions_that_nobody_gets_and_forbid_claims_to_choose() {
    let (now, settings) = (Time(u64::MAX), Settings::new(Strategy::OnReplenish));
    let edited = template(&pod(&json!({"image": "app:2"})));
    let find = |annotations: Value, template: &Template, wish: Option<Policy>| {
        let pool = pool_with(&annotations);
        let found = stock().choose(&pool, template, &settings, "claim", wish, now);
        found.map(|find| matches!(find, Find::Member(_)))
    };
    let bad = format!("other, {}", revision(&member(&json!({}))));
    let bad = json!({"sandbar.dev/retired-revisions": bad});
    assert_eq!(find(bad.clone(), &edited, None), Ok(false));
    // what a pool wants now is never bad
    assert_eq!(find(bad, &template(&json!({})), None), Ok(true));
    let other = json!({"sandbar.dev/retired-revisions": "other"});
    assert_eq!(find(other, &edited, None), Ok(true));
    let fixed = json!({"sandbar.dev/claim-overrides": "false"});
    let wish = || Some(Policy::DrainOld);
    let refused = Err(Refusal::OverrideForbidden);
    assert_eq!(find(fixed.clone(), &edited, wish()), refused);
    assert_eq!(find(fixed, &edited, None), Ok(true));
    assert_eq!(find(json!({}), &edited, wish()), Ok(true));
}

#[test]
fn a_pool_that_waits_for_a_claim_is_told_when_that_goes_without_its_member() {
    let (now, settings) = (Time(u64::MAX), Settings::new(Strategy::OnReplenish));
    let told = |is_settled: bool, is_taken: bool| {
        let (stock, told) = (stock(), Arc::new(AtomicUsize::new(0)));
        let ear = Arc::clone(&told);
        stock.tell(move |member| {
            assert_eq!(*member, Key::new("n", "pool-1"));
            ear.fetch_add(1, Ordering::Relaxed);
        });
        let (pool, template) = (pool(), template(&json!({})));
        let found = stock.choose(&pool, &template, &settings, "claim", None, now);
        assert!(matches!(found, Ok(Find::Member(_))));
        stock.settle("pool", is_settled);
        if is_taken {
            let taken = json!({"metadata": {"ownerReferences": null}});
            stock.observe(&Change {
                before: Some(&Arc::new(member(&json!({})))),
                after: Some(&Arc::new(member(&taken))),
                by: By::Watch,
            });
        }
        stock.release("claim");
        stock.release("claim");
        told.load(Ordering::Relaxed)
    };
    assert_eq!(told(false, false), 1);
    assert_eq!(told(true, false), 0, "there is nothing to do");
    assert_eq!(told(false, true), 0, "the claim has it");
}

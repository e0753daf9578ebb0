//! What is done next, and what is told.

use std::{sync::Arc, time::Duration};

use engine::{claim::Refusal, member::Time};
use serde_json::{Value, json};

use super::{Scene, bound, condition, member, noon};
use crate::{
    clock::after,
    events::News,
    queue::Next,
    sigs::{
        claim::decide::{Act, Offer},
        sandbox::{decide::Look, view::Sandbox},
    },
};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn nothing(coming: usize, matures: Option<Time>) -> Offer {
    Offer::Nothing { coming, matures }
}

/// What a claim says that has the sandbox `pool-1`.
fn answered(change: &Value) -> Value {
    let mut claim = json!({
        "metadata": {"annotations": {
            "agents.x-k8s.io/sandbox-name": "pool-1",
            "agents.x-k8s.io/controller-first-observed-at": "x",
            "agents.x-k8s.io/claim-first-ready-at": "y",
        }},
        "status": {
            "sandbox": {"name": "pool-1", "podIPs": ["10.0.0.1"]},
            "conditions": [condition("Ready", "True", "DependenciesReady")],
        },
    });
    json_patch::merge(&mut claim, change);
    claim
}

#[test]
fn a_claim_is_bound_before_anything_else_is_written() {
    let mut scene = Scene::new(&json!({}));
    assert!(matches!(scene.act(), Act::Choose(None)));
    scene.offer = Some(Ok(Offer::Member(Arc::new(member(&json!({}))))));
    let Act::Bind(sandbox, _) = scene.act() else {
        panic!("not bound");
    };
    assert_eq!(sandbox.name(), "pool-1");
}

#[test]
fn a_sandbox_is_told_of_the_trace_of_its_claim() {
    let annotated = json!({"metadata": {"annotations": {"opentelemetry.io/trace-context": "own"}}});
    let empty = json!({"metadata": {"annotations": {"opentelemetry.io/trace-context": ""}}});
    for (claim, begun, told) in [
        (json!({}), None, None),
        (json!({}), Some("begun"), Some("begun")),
        (annotated.clone(), None, Some("own")),
        (annotated, Some("begun"), Some("own")),
        (empty, Some("begun"), Some("begun")),
    ] {
        let mut scene = Scene::new(&claim);
        scene.memory.trace = begun.map(ToOwned::to_owned);
        for offer in [
            Offer::Member(Arc::new(member(&json!({})))),
            nothing(0, None),
        ] {
            scene.offer = Some(Ok(offer));
            let body = match scene.act() {
                Act::Bind(_, body) | Act::Create(body) => body,
                act => panic!("neither bound nor made: {act:?}"),
            };
            let trace = &body["metadata"]["annotations"]["opentelemetry.io/trace-context"];
            assert_eq!(trace.as_str(), told, "{claim} {begun:?}");
        }
    }
}

#[test]
fn the_answer_names_the_sandbox_and_forwards_what_it_says() {
    let finished = condition("Finished", "True", "PodSucceeded");
    let sandbox = json!({"status": {"conditions": [
        condition("Ready", "False", "PodSucceeded"), finished, condition("Suspended", "False", "x"),
    ]}});
    let Act::Status(patch) = Scene::with(&json!({}), [bound(&sandbox)]).act() else {
        panic!("no status");
    };
    let mut wanted = [
        condition("Finished", "True", "PodSucceeded"),
        condition("Ready", "False", "PodSucceeded"),
    ];
    wanted
        .iter_mut()
        .for_each(|one| one["observedGeneration"] = json!(2));
    let sandbox = json!({"name": "pool-1", "podIPs": ["10.0.0.1"]});
    assert_eq!(patch, json!({"conditions": wanted, "sandbox": sandbox}));
}

#[test]
fn addresses_that_are_gone_are_taken_back() {
    let sandbox = bound(&json!({"status": {"podIPs": null}}));
    let Act::Status(patch) = Scene::with(&answered(&json!({})), [sandbox]).act() else {
        panic!("no status");
    };
    assert_eq!(patch["sandbox"], json!({"podIPs": null}));
}

#[test]
fn readiness_is_told_in_the_claims_own_words_where_it_must() {
    let says = |sandbox: &Value| Scene::with(&json!({}), [bound(sandbox)]).ready();
    let (reason, message) = says(&json!({"status": {"conditions": []}}));
    assert_eq!(
        (&*reason, &*message),
        ("SandboxNotReady", "Sandbox is not ready")
    );
    let expired = condition("Ready", "False", "SandboxExpired");
    let (reason, message) = says(&json!({"status": {"conditions": [expired]}}));
    let own = "Underlying Sandbox resource has expired independently of the Claim.";
    assert_eq!((&*reason, &*message), ("SandboxExpired", own));
}

#[test]
fn a_change_of_generation_alone_is_not_told() {
    let claim = answered(&json!({"metadata": {"generation": 9}}));
    assert_eq!(Scene::with(&claim, [bound(&json!({}))]).rest(), Next::Never);
}

#[test]
fn one_of_several_is_kept_and_the_others_go_after_it_is_named() {
    let at = |name: &str, created: &str| {
        bound(&json!({"metadata": {"name": name, "uid": name, "creationTimestamp": created}}))
    };
    let both = || {
        [
            at("pool-1", "2026-01-31T11:00:00Z"),
            at("pool-2", "2026-01-31T10:00:00Z"),
        ]
    };
    let named = |scene: &Scene| match scene.act() {
        Act::Status(patch) => patch["sandbox"]["name"].as_str().map(str::to_owned),
        act => panic!("{act:?}"),
    };
    // nobody is named: the oldest
    let scene = Scene::with(&json!({}), both());
    assert_eq!(named(&scene).as_deref(), Some("pool-2"));
    // the claim's metadata names one
    let annotations = json!({"agents.x-k8s.io/sandbox-name": "pool-1"});
    let scene = Scene::with(&json!({"metadata": {"annotations": annotations}}), both());
    assert_eq!(named(&scene).as_deref(), Some("pool-1"));
    // its status has the last word, and only then the other goes
    let Act::Drop(surplus) = Scene::with(&answered(&json!({})), both()).act() else {
        panic!("nothing is dropped");
    };
    assert_eq!(&*surplus.key.name, "pool-2");
}

#[test]
fn what_the_status_names_is_looked_at_before_another_takes_its_place() {
    let mut scene = Scene::with(
        &answered(&json!({})),
        [bound(
            &json!({"metadata": {"name": "pool-2", "uid": "other"}}),
        )],
    );
    assert!(matches!(scene.act(), Act::ReadSandbox(name) if name == "pool-1"));
    scene
        .sandboxes
        .looked
        .insert("pool-1".to_owned(), Look::Missing);
    let Act::Status(patch) = scene.act() else {
        panic!("no status");
    };
    assert_eq!(patch["sandbox"]["name"], "pool-2");
}

#[test]
fn a_reference_is_followed_where_it_leads_to_a_member() {
    let annotations = json!({"agents.x-k8s.io/sandbox-name": "pool-1"});
    let labels = annotations.clone();
    for metadata in [
        json!({"annotations": annotations}),
        json!({"labels": labels}),
    ] {
        let mut scene = Scene::new(&json!({"metadata": metadata}));
        assert!(matches!(scene.act(), Act::ReadSandbox(name) if name == "pool-1"));
        let mut look = |found: Look<Sandbox>| {
            scene.sandboxes.looked.insert("pool-1".to_owned(), found);
            scene.act()
        };
        let found = |change: &Value| Look::Found(Arc::new(member(change)));
        assert!(matches!(look(found(&json!({}))), Act::Bind(..)));
        assert!(matches!(look(Look::Missing), Act::Choose(_)));
        let others = super::owner("SandboxClaim", "other", "other");
        let others = json!({"metadata": {"ownerReferences": others}});
        assert!(matches!(look(found(&others)), Act::Choose(_)));
        let of_another_pool = json!({"agents.x-k8s.io/warm-pool-sandbox": "another"});
        let of_another_pool = json!({"metadata": {"labels": of_another_pool}});
        assert!(matches!(look(found(&of_another_pool)), Act::Choose(_)));
        let fence = json!({"target": "x", "since": super::NOON, "deadline": super::NOON});
        let changing = json!({"sandbar.dev/update": fence.to_string()});
        let changing = json!({"metadata": {"annotations": changing}});
        assert!(matches!(look(found(&changing)), Act::Choose(_)));
    }
}

#[test]
fn a_sandbox_of_somebody_else_with_the_claims_name_is_in_the_way() {
    let mut scene = Scene::new(&json!({}));
    let namesake = member(&json!({"metadata": {"name": "mine"}}));
    scene.sandboxes.namesake = Some(Arc::new(namesake));
    let (reason, message) = scene.ready();
    assert_eq!(reason, "ReconcilerError");
    assert!(message.contains("another name"), "{message}");
}

#[test]
fn nothing_is_called_missing_on_the_word_of_a_cache() {
    let mut scene = Scene::new(&json!({}));
    scene.pool = Look::Unknown;
    assert!(matches!(scene.act(), Act::ReadPool));
    scene.pool = Look::Missing;
    let (reason, message) = scene.ready();
    assert_eq!(reason, "WarmPoolNotFound");
    assert_eq!(message, r#"SandboxWarmPool "pool" not found"#);
    let mut scene = Scene::new(&json!({}));
    scene.template = Look::Unknown;
    assert!(matches!(scene.act(), Act::ReadTemplate));
    scene.template = Look::Missing;
    let (reason, message) = scene.ready();
    assert_eq!(reason, "TemplateNotFound");
    assert_eq!(message, r#"SandboxTemplate "test-template" not found"#);
    // what was found out once is not asked again
    let mut told = condition("Ready", "False", "TemplateNotFound");
    told["message"] = json!(message);
    let mut scene = Scene::new(&json!({"status": {"conditions": [told]}}));
    scene.template = Look::Unknown;
    assert_eq!(scene.rest(), Next::In(seconds(60)));
}

#[test]
fn a_young_claim_waits_for_members_that_are_coming() {
    let at = |millis: u64, offer: Offer| {
        let mut scene = Scene::new(&json!({}));
        scene.now = after(noon(), Duration::from_millis(millis));
        scene.offer = Some(Ok(offer));
        scene
    };
    let wait = |millis: u64| Next::In(Duration::from_millis(millis));
    assert_eq!(at(0, nothing(1, None)).rest(), wait(500));
    assert_eq!(at(1800, nothing(1, None)).rest(), wait(200));
    assert!(matches!(at(2000, nothing(1, None)).act(), Act::Create(_)));
    assert!(matches!(at(0, nothing(0, None)).act(), Act::Create(_)));
    let noon = crate::sigs::pool::member::time(noon());
    let soon = Some(noon + Duration::from_millis(300));
    assert_eq!(at(0, nothing(0, soon)).rest(), wait(300));
    let late = Some(noon + seconds(9));
    assert!(matches!(at(0, nothing(0, late)).act(), Act::Create(_)));
    // one that a new process sees late has waited all the same
    let mut scene = at(5000, nothing(1, None));
    scene.memory.observed = Some(scene.now);
    assert!(matches!(scene.act(), Act::Create(_)));
}

#[test]
fn the_wish_for_a_revision_is_granted_or_refused() {
    let wishing = |text: &str| {
        Scene::new(&json!({"metadata": {"annotations": {"sandbar.dev/claim-policy": text}}}))
    };
    assert_eq!(wishing("Whatever").ready().0, "InvalidClaimPolicy");
    assert!(matches!(wishing("DrainOld").act(), Act::Choose(Some(_))));
    let mut scene = wishing("DrainOld");
    scene.offer = Some(Err(Refusal::Excluded));
    assert_eq!(scene.ready().0, "ClaimPolicyRefused");
    let mut scene = wishing("Pinned:old");
    scene.offer = Some(Ok(nothing(0, None)));
    assert_eq!(scene.ready().0, "RevisionUnavailable");
    let mut scene = wishing("RequireNewest");
    scene.offer = Some(Ok(nothing(0, None)));
    assert!(matches!(scene.act(), Act::Create(_)));
}

#[test]
fn under_recreate_nothing_is_chosen_or_made_by_a_template_that_may_be_older_than_the_claim() {
    let env = json!({"spec": {"env": [{"name": "A", "value": "1"}]}});
    for asks in [json!({}), env] {
        for (kind, is_behind, waits) in [
            ("Recreate", true, true),
            ("Recreate", false, false),
            ("OnReplenish", true, false),
            ("RollingUpdate", true, false),
        ] {
            let mut scene = Scene::new(&asks);
            let pool = super::pool_with(&json!({"updateStrategy": {"type": kind}}));
            scene.pool = Look::Found(Arc::new(pool));
            scene.is_behind = is_behind;
            let is_caught_up = !matches!(scene.act(), Act::CatchUp);
            assert_eq!(is_caught_up, !waits, "{kind} {is_behind}");
        }
    }
}

#[test]
fn who_requires_the_newest_is_not_answered_by_a_template_that_may_be_older_than_the_claim() {
    let wish = json!({"metadata": {"annotations": {"sandbar.dev/claim-policy": "RequireNewest"}}});
    for (asks, policy, waits) in [
        (json!({}), "RequireNewest", true),
        (wish, "PreferNewest", true),
        (json!({}), "PreferNewest", false),
        (json!({}), "DrainOld", false),
    ] {
        let mut scene = Scene::new(&asks);
        let pool = super::pool_with(&json!({"claimPolicy": policy}));
        scene.pool = Look::Found(Arc::new(pool));
        scene.is_behind = true;
        let is_caught_up = !matches!(scene.act(), Act::CatchUp);
        assert_eq!(is_caught_up, !waits, "{policy} {asks}");
    }
}

#[test]
fn what_cannot_be_had_of_a_running_pod_is_started() {
    let env = json!({"spec": {"env": [{"name": "A", "value": "1"}]}});
    let mut scene = Scene::new(&env);
    scene.is_template_fresh = false;
    assert!(matches!(scene.act(), Act::ReadTemplate));
    scene.is_template_fresh = true;
    assert_eq!(scene.ready().0, "EnvVarsInjectionRejected");
    let allowed = super::template(&json!({"envVarsInjectionPolicy": "Allowed"}));
    scene.template = Look::Found(Arc::new(allowed));
    assert!(matches!(scene.act(), Act::Create(_)));
}

#[test]
fn trouble_is_told_and_tried_again_and_takes_nothing_from_a_claim_that_has_its_sandbox() {
    let mut scene = Scene::new(&json!({}));
    scene.trouble = Some("quota".to_owned());
    assert_eq!(
        scene.ready(),
        ("ReconcilerError".to_owned(), "Error seen: quota".to_owned())
    );
    let mut scene = Scene::with(&answered(&json!({})), [bound(&json!({}))]);
    scene.trouble = Some("quota".to_owned());
    assert_eq!(scene.rest(), Next::Never);
}

#[test]
fn a_sandbox_that_is_known_to_be_gone_is_not_named_any_more() {
    let mut scene = Scene::new(&answered(&json!({})));
    scene.pool = Look::Missing;
    scene
        .sandboxes
        .looked
        .insert("pool-1".to_owned(), Look::Missing);
    let Act::Announce(patch, _) = scene.act() else {
        panic!("no status");
    };
    assert_eq!(patch["sandbox"], Value::Null);
}

/// What a claim is told of, and what it says then, in the words of both.
fn refusal(scene: &Scene) -> (News, Value) {
    match scene.act() {
        Act::Announce(patch, news) => (news, patch),
        act => panic!("nothing is announced: {act:?}"),
    }
}

#[test]
fn a_refusal_is_an_event_once_for_each_reason_and_generation() {
    let bad = |generation: i64, conditions: Value| {
        Scene::new(&json!({
            "metadata": {"generation": generation},
            "spec": {"additionalPodMetadata": {"labels": {"app": "mine"}}},
            "status": {"conditions": conditions},
        }))
    };
    let (first, patch) = refusal(&bad(2, json!([])));
    assert!(first.is_warning);
    assert_eq!(first.reason, "InvalidMetadata");
    assert_eq!(patch["conditions"][0]["message"], first.message);
    assert_eq!(bad(2, patch["conditions"].clone()).rest(), Next::Never);
    let mut other = patch["conditions"].clone();
    other[0]["message"] = json!("in other words");
    assert!(matches!(bad(2, other).act(), Act::Status(_)));
    let mut other = patch["conditions"].clone();
    other[0]["reason"] = json!("WarmPoolNotFound");
    assert_eq!(refusal(&bad(2, other.clone())).0, first);
    let (third, _) = refusal(&bad(3, other));
    assert_ne!(third.occasion, first.occasion);
}

#[test]
fn a_claim_that_asks_for_metadata_says_what_keeps_it_from_having_it_in_step() {
    let asks = json!({"spec": {"additionalPodMetadata": {"annotations": {"note": "mine"}}}});
    let mut scene = Scene::with(&answered(&asks), [bound(&json!({}))]);
    scene.template = Look::Unknown;
    assert!(matches!(scene.act(), Act::ReadTemplate));
    scene.pool = Look::Unknown;
    assert!(matches!(scene.act(), Act::ReadPool));
    scene.pool = Look::Missing;
    let (news, patch) = refusal(&scene);
    let message = r#"Error seen: additionalPodMetadata cannot be kept in step: SandboxWarmPool "pool" not found"#;
    assert_eq!((news.reason, &*news.message), ("ReconcilerError", message));
    assert_eq!(patch.get("sandbox"), None, "it has what it had");
    let mut told = answered(&asks);
    told["status"]["conditions"] = patch["conditions"].clone();
    scene.claim = super::claim(&told);
    scene.pool = Look::Unknown;
    // nobody looks for it in haste
    assert_eq!(scene.rest(), Next::In(seconds(60)));
    let plain = Scene {
        pool: Look::Unknown,
        template: Look::Unknown,
        ..Scene::with(&answered(&json!({})), [bound(&json!({}))])
    };
    assert_eq!(plain.rest(), Next::Never);
}

fn ending(policy: &str, reason: &str) -> Value {
    answered(&json!({
        "spec": {"lifecycle": {"shutdownTime": "2026-01-31T12:00:00Z", "shutdownPolicy": policy}},
        "status": {"conditions": [condition("Ready", "False", reason)]},
    }))
}

#[test]
fn an_end_is_first_told_and_then_made() {
    for policy in ["Retain", "Delete", "DeleteForeground"] {
        let scene = Scene::with(&ending(policy, "DependenciesReady"), [bound(&json!({}))]);
        assert!(matches!(scene.act(), Act::Announce(..)));
        let words = "Claim expired. Sandbox cleanup initiated.";
        assert_eq!(scene.ready(), ("ClaimExpired".to_owned(), words.to_owned()));
    }
    let marked = |policy: &str| Scene::with(&ending(policy, "ClaimExpired"), [bound(&json!({}))]);
    assert!(matches!(
        marked("Delete").act(),
        Act::DeleteClaim { is_last: false }
    ));
    assert!(matches!(
        marked("DeleteForeground").act(),
        Act::DeleteClaim { is_last: true }
    ));
    assert!(matches!(marked("Retain").act(), Act::DeleteSandbox(_)));
    let mut scene = Scene::new(&ending("Retain", "ClaimExpired"));
    assert!(matches!(scene.act(), Act::ReadSandbox(_)));
    let mut look = |found: Look<Sandbox>| {
        scene.sandboxes.looked.insert("pool-1".to_owned(), found);
        let Act::Status(patch) = scene.act() else {
            panic!("no status");
        };
        assert_eq!(patch["sandbox"], Value::Null);
        scene.ready().1
    };
    assert!(look(Look::Missing).ends_with("initiated."));
    let others = look(Look::Found(Arc::new(member(&json!({})))));
    assert!(others.starts_with("Claim expired. ") && others.ends_with("; deletion skipped."));
}

#[test]
fn an_end_that_is_to_come_is_waited_for() {
    let mut claim = ending("Retain", "DependenciesReady");
    claim["spec"]["lifecycle"]["shutdownTime"] = json!("2026-01-31T12:01:00Z");
    claim["status"]["conditions"] = json!([condition("Ready", "True", "DependenciesReady")]);
    assert_eq!(
        Scene::with(&claim, [bound(&json!({}))]).rest(),
        Next::In(seconds(60))
    );
    // an hour ago its sandbox finished
    let finished = condition("Finished", "True", "PodSucceeded");
    let ready = condition("Ready", "False", "PodSucceeded");
    let conditions = json!([finished, ready]);
    let sandbox = || bound(&json!({"status": {"conditions": conditions}}));
    let claim = |ttl: u64| {
        let lifecycle = json!({"ttlSecondsAfterFinished": ttl});
        answered(&json!({"spec": {"lifecycle": lifecycle}, "status": {"conditions": conditions}}))
    };
    assert_eq!(
        Scene::with(&claim(3700), [sandbox()]).rest(),
        Next::In(seconds(100))
    );
    assert!(matches!(
        Scene::with(&claim(3600), [sandbox()]).act(),
        Act::Announce(..)
    ));
    // and has come back since
    let mut revived = claim(3600);
    revived["status"]["conditions"][0]["status"] = json!("False");
    let conditions = revived["status"]["conditions"].clone();
    let sandbox = bound(&json!({"status": {"conditions": conditions}}));
    assert_eq!(Scene::with(&revived, [sandbox]).rest(), Next::Never);
}

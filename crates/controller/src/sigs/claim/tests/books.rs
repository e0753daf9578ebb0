//! What is written on a claim that has its answer, and what is remembered.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{bound, claim, condition, member, noon};
use crate::{
    meta::Key,
    sigs::{
        claim::{
            concerns,
            ledger::{Given, Ledger, Memory},
            metadata::bookkeeping,
        },
        sandbox::view::Sandbox,
    },
    store::{By, Change},
};

fn books(change: &Value, memory: &Memory, without_stamps: bool) -> Option<Value> {
    bookkeeping(&claim(change), "pool-1", memory, without_stamps)
}

fn ready(change: &Value) -> Value {
    let conditions = [condition("Ready", "True", "DependenciesReady")];
    let mut claim = json!({"status": {"conditions": conditions}});
    json_patch::merge(&mut claim, change);
    claim
}

#[test]
fn everything_is_written_at_once_when_the_claim_is_ready() {
    let memory = Memory {
        observed: Some(noon()),
        ready: Some(noon()),
        ..Memory::default()
    };
    assert_eq!(books(&json!({}), &memory, false), None);
    let all = json!({"metadata": {"annotations": {
        "agents.x-k8s.io/sandbox-name": "pool-1",
        "agents.x-k8s.io/controller-first-observed-at": "2026-01-31T12:00:00Z",
        "agents.x-k8s.io/claim-first-ready-at": "2026-01-31T12:00:00Z",
    }}});
    assert_eq!(books(&ready(&json!({})), &memory, false), Some(all));
    assert_eq!(books(&ready(&json!({})), &memory, true), None);
    let unknown = books(&ready(&json!({})), &Memory::default(), false).unwrap();
    let stamp = &unknown["metadata"]["annotations"]["agents.x-k8s.io/claim-first-ready-at"];
    assert_eq!(stamp, "unknown");
}

#[test]
fn a_sandbox_that_was_made_for_its_claim_is_named_with_the_stamps_or_not_at_all() {
    let books = |annotations: Value| {
        let claim = claim(&ready(&json!({"metadata": {"annotations": annotations}})));
        bookkeeping(&claim, "mine", &Memory::default(), false)
    };
    let all = json!({"metadata": {"annotations": {
        "agents.x-k8s.io/sandbox-name": "mine",
        "agents.x-k8s.io/claim-first-ready-at": "unknown",
    }}});
    assert_eq!(books(json!({})), Some(all));
    // as the reference leaves a claim that it has started cold
    let stamped = json!({
        "agents.x-k8s.io/controller-first-observed-at": "x",
        "agents.x-k8s.io/claim-first-ready-at": "y",
    });
    assert_eq!(books(stamped), None);
}

#[test]
fn which_revision_was_given_is_written_with_the_other_stamps_or_not_at_all() {
    let given = |is_stale| Memory {
        given: Some(Given {
            revision: "one-2".to_owned(),
            is_stale,
        }),
        ..Memory::default()
    };
    let told = |change: &Value, is_stale| {
        let books = books(&ready(change), &given(is_stale), false)?;
        let annotation = |key: &str| books["metadata"]["annotations"].get(key).cloned();
        Some(["sandbar.dev/revision", "sandbar.dev/stale"].map(annotation))
    };
    let (one, yes) = (Some(json!("one-2")), Some(json!("true")));
    assert_eq!(told(&json!({}), false), Some([one.clone(), None]));
    assert_eq!(told(&json!({}), true), Some([one, yes]));
    let stamped = json!({"metadata": {"annotations": {
        "agents.x-k8s.io/sandbox-name": "pool-1",
        "agents.x-k8s.io/claim-first-ready-at": "y",
    }}});
    assert_eq!(told(&stamped, true), None);
}

#[test]
fn a_trace_is_written_with_the_other_stamps_or_not_at_all() {
    const TRACE: &str = "opentelemetry.io/trace-context";
    let memory = Memory {
        observed: Some(noon()),
        trace: Some("begun".to_owned()),
        ..Memory::default()
    };
    let trace = |annotations: Value, without_stamps| {
        let claim = ready(&json!({"metadata": {"annotations": annotations}}));
        let written = books(&claim, &memory, without_stamps)?;
        written["metadata"]["annotations"]
            .get(TRACE)
            .map(Value::to_string)
    };
    let begun = Some(r#""begun""#.to_owned());
    assert_eq!(trace(json!({}), false), begun);
    assert_eq!(trace(json!({}), true), None);
    assert_eq!(trace(json!({TRACE: "its own"}), false), None);
    let observed = json!({
        "agents.x-k8s.io/sandbox-name": "pool-1",
        "agents.x-k8s.io/controller-first-observed-at": "x",
        "agents.x-k8s.io/claim-first-ready-at": "y",
    });
    let observed = ready(&json!({"metadata": {"annotations": observed}}));
    assert_eq!(books(&observed, &memory, false), None);
}

#[test]
fn a_claim_belongs_to_the_trace_that_is_known_best() {
    const PARENT: &str = r#"{"traceparent":"x"}"#;
    let annotated = |value: &str| json!({"metadata": {"annotations": {"opentelemetry.io/trace-context": value}}});
    let (plain, own) = (claim(&json!({})).meta, claim(&annotated("own")).meta);
    let sandboxes = [
        Arc::new(bound(&annotated("malformed"))),
        Arc::new(bound(&annotated(PARENT))),
    ];
    let ledger = Ledger::default();
    assert_eq!(ledger.trace(&plain, &[]), None);
    assert_eq!(ledger.trace(&plain, &sandboxes).as_deref(), Some(PARENT));
    ledger.note("claim", |memory| memory.trace = Some("begun".to_owned()));
    assert_eq!(ledger.trace(&plain, &sandboxes).as_deref(), Some("begun"));
    assert_eq!(ledger.trace(&own, &sandboxes).as_deref(), Some("own"));
}

#[test]
fn what_is_wrong_is_corrected_at_once() {
    let corrected = json!({"annotations": {"agents.x-k8s.io/sandbox-name": "pool-1"}});
    let wrong = json!({"agents.x-k8s.io/sandbox-name": "pool-9"});
    let annotated = json!({"metadata": {"annotations": wrong}});
    let labelled = json!({"metadata": {"labels": wrong}});
    for without_stamps in [false, true] {
        let books = |change: &Value| books(change, &Memory::default(), without_stamps);
        assert_eq!(books(&annotated), Some(json!({"metadata": corrected})));
        let mut all = corrected.clone();
        all["labels"] = json!({"agents.x-k8s.io/sandbox-name": null});
        assert_eq!(books(&labelled), Some(json!({"metadata": all})));
    }
}

fn change<'a>(
    before: Option<&'a Arc<Sandbox>>,
    after: Option<&'a Arc<Sandbox>>,
) -> Change<'a, Sandbox> {
    let by = By::Watch;
    Change { before, after, by }
}

#[test]
fn a_claim_is_told_of_what_it_tells() {
    let before = Arc::new(bound(&json!({})));
    let cases = [
        (json!({"metadata": {"resourceVersion": "6"}}), false),
        (json!({"metadata": {"labels": {"a": "b"}}}), false),
        (json!({"status": {"nodeName": "one"}}), false),
        (json!({"status": {"podIPs": ["10.0.0.2"]}}), true),
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-31T12:00:00Z"}}),
            true,
        ),
        (json!({"metadata": {"ownerReferences": []}}), true),
        (
            json!({"status": {"conditions": [condition("Ready", "False", "x")]}}),
            true,
        ),
        (
            json!({"status": {"conditions": [
                condition("Ready", "True", "DependenciesReady"), condition("Finished", "True", "x"),
            ]}}),
            true,
        ),
    ];
    for (difference, does) in cases {
        let after = Arc::new(bound(&difference));
        assert_eq!(
            concerns(&change(Some(&before), Some(&after))),
            does,
            "{difference}"
        );
    }
    assert!(concerns(&change(None, Some(&before))) && concerns(&change(Some(&before), None)));
}

#[test]
fn who_waits_longest_is_woken_by_a_member_that_becomes_ready() {
    let ledger = Ledger::default();
    let pool = Key::new("n", "pool");
    let named = |name: &str| claim(&json!({"metadata": {"name": name, "uid": name}})).meta;
    let (one, two) = (named("one"), named("two"));
    for claim in [&one, &two, &one] {
        ledger.wait(&pool, claim);
    }
    let pending = Arc::new(member(&json!({"status": {"podIPs": null}})));
    let ready = Arc::new(member(&json!({})));
    let woken = || ledger.served_by(&change(Some(&pending), Some(&ready)));
    assert_eq!(ledger.served_by(&change(None, Some(&pending))), None);
    assert_eq!(ledger.served_by(&change(Some(&ready), Some(&ready))), None);
    assert_eq!(woken().as_ref(), Some(&one.key));
    // somebody else was quicker
    ledger.wait(&pool, &one);
    assert_eq!(woken(), Some(one.key));
    ledger.leave(&pool, &two.key);
    assert_eq!(woken(), None);
}

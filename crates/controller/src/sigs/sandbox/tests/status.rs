//! What is told, and when it is worth a write.

use api::sigs::v1beta1::SandboxStatus;
use serde_json::{Value, json};

use super::{
    super::{
        decide::{Act, Part, Step},
        status::{condition, patch},
    },
    Known, known, looked, pod, service,
};

const LATER: &str = "2026-01-31T13:00:00Z";

fn tracked(mut change: Value) -> Known {
    change["metadata"]["annotations"] = json!({"agents.x-k8s.io/pod-name": "box"});
    known(change)
}

/// The status that is written.
fn told(known: &Known) -> SandboxStatus {
    match known.decide() {
        Step::Act(Act::Status(patch) | Act::Announce(patch, _)) => {
            serde_json::from_value(patch).unwrap()
        }
        other => panic!("no status is written: {other:?}"),
    }
}

fn says(status: &SandboxStatus, kind: &str) -> String {
    match condition(status, kind) {
        None => String::new(),
        Some(it) => format!("{} {}: {}", it.status, it.reason, it.message),
    }
}

#[test]
fn readiness_is_told_in_known_words() {
    let unready = json!([{"type": "Ready", "status": "False"}]);
    let cases = [
        (json!({}), None, "True DependenciesReady: Pod is Ready"),
        (
            json!({}),
            Some(true),
            "True DependenciesReady: Pod is Ready; Service Exists",
        ),
        (
            json!({"phase": "Pending"}),
            None,
            "False DependenciesNotReady: Pod exists with phase: Pending",
        ),
        (
            json!({"phase": "Pending"}),
            Some(true),
            "False DependenciesNotReady: Pod exists with phase: Pending; Service Exists",
        ),
        (
            json!({"conditions": unready}),
            None,
            "False DependenciesNotReady: Pod is Running but not Ready",
        ),
        (
            json!({"podIPs": []}),
            None,
            "False DependenciesNotReady: Pod is Ready but has no podIPs yet",
        ),
        (
            json!({"phase": "Succeeded"}),
            Some(true),
            "False PodSucceeded: Pod completed successfully",
        ),
        (
            json!({"phase": "Failed"}),
            None,
            "False PodFailed: Pod failed",
        ),
    ];
    for (status, wanted, ready) in cases {
        let known = tracked(json!({"spec": {"service": wanted}}))
            .with_pod(&json!({"status": status}))
            .with(|it| it.service = looked(service(&json!({}))));
        let known = match wanted {
            None => known.with(|it| it.service = super::Look::Missing),
            Some(_) => known,
        };
        assert_eq!(says(&told(&known), "Ready"), ready);
    }
}

#[test]
fn what_is_in_the_way_of_readiness_has_an_order() {
    let suspended = json!({"spec": {"operatingMode": "Suspended"}});
    let trouble = |known: Known| {
        known.with(|it| {
            it.trouble.insert(Part::Pod, "no quota".to_owned());
            it.trouble.insert(Part::Service, "no name".to_owned());
        })
    };
    let going = json!({"metadata": {"deletionTimestamp": LATER}, "status": {"phase": "Failed"}});
    let second = json!({"metadata": {"name": "second", "uid": "second"}});
    let told_before = json!({"status": {"conditions": [{
        "type": "Ready", "status": "False", "reason": "MultiplePods", "message": "",
        "lastTransitionTime": LATER,
    }]}});
    let cases = [
        (
            trouble(tracked(told_before).with_pod(&json!({})).with_pod(&second)),
            "False MultiplePods: multiple Pods (2) are controlled by this Sandbox; refusing to choose or create a Pod",
        ),
        (
            trouble(tracked(suspended.clone()).with_pod(&json!({}))),
            "False ReconcilerError: Error seen: no quota\nno name",
        ),
        (
            tracked(suspended).with_pod(&going),
            "False SandboxSuspended: Sandbox is suspending",
        ),
        (
            tracked(json!({})).with_pod(&going),
            "False DependenciesNotReady: Pod exists with phase: Failed",
        ),
    ];
    for (known, ready) in cases {
        assert_eq!(says(&told(&known), "Ready"), ready);
    }
    let quota = trouble(known(json!({"spec": {"service": true}})));
    assert_eq!(says(&told(&quota), "PodScheduled"), "");
}

#[test]
fn suspension_is_told_from_the_pod() {
    let suspended = || known(json!({"spec": {"operatingMode": "Suspended"}}));
    let going = json!({"metadata": {"deletionTimestamp": LATER}});
    let foreign = pod(&json!({"metadata": {"ownerReferences": null}}));
    let cases = [
        (
            suspended().with(|it| it.namesake = super::Look::Missing),
            "True PodTerminated: Pod has been terminated. Sandbox is suspended",
        ),
        (
            suspended().with_pod(&going),
            "False PodTerminating: Pod is terminating. Sandbox is suspending",
        ),
        (
            suspended().with(|it| it.namesake = looked(foreign)),
            "False PodNotOwned: Refused to delete pod because it is not owned by this sandbox",
        ),
        (
            suspended().with(|it| {
                it.namesake = super::Look::Failed;
                it.trouble.insert(Part::Pod, "no answer".to_owned());
            }),
            "Unknown PodStateUnknown: Pod state is unknown. Sandbox suspension cannot be confirmed",
        ),
        (
            tracked(json!({})).with_pod(&json!({})),
            "False NotSuspended: Sandbox is not suspended",
        ),
    ];
    for (known, expected) in cases {
        assert_eq!(says(&told(&known), "Suspended"), expected);
    }
}

#[test]
fn scheduling_is_told_as_the_pod_tells_it() {
    let cases = [
        (
            json!([]),
            "Unknown PodSchedulingUnknown: Pod has not reported a PodScheduled condition yet",
        ),
        (json!([{"status": "True"}]), "True PodScheduled: "),
        (json!([{"status": "False"}]), "False PodSchedulingUnknown: "),
        (
            json!([{"status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]),
            "False Unschedulable: 0/1 nodes",
        ),
    ];
    for (mut conditions, expected) in cases {
        for condition in conditions.as_array_mut().unwrap() {
            condition["type"] = json!("PodScheduled");
        }
        let known = tracked(json!({})).with_pod(&json!({"status": {"conditions": conditions}}));
        assert_eq!(says(&told(&known), "PodScheduled"), expected);
    }
}

fn status(change: Value) -> SandboxStatus {
    let mut status = json!({
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "A", "message": "B",
            "lastTransitionTime": LATER, "observedGeneration": 1,
        }],
        "nodeName": "one", "podIPs": ["10.0.0.1"],
    });
    json_patch::merge(&mut status, &change);
    serde_json::from_value(status).unwrap()
}

#[test]
fn a_write_is_worth_it_when_something_is_new_to_a_reader() {
    let ready = |generation: i64, status: &str| {
        json!([{
            "type": "Ready", "status": status, "reason": "A", "message": "B",
            "lastTransitionTime": LATER, "observedGeneration": generation,
        }])
    };
    let old = status(json!({}));
    assert_eq!(patch(&old, &old, true), None);
    assert_eq!(
        patch(
            &old,
            &status(json!({"conditions": ready(2, "True")})),
            false
        ),
        None
    );
    let newer = status(json!({"conditions": ready(2, "True")}));
    assert!(patch(&old, &newer, true).is_some());
    let moved = status(json!({"nodeName": "two"}));
    assert_eq!(patch(&old, &moved, false), Some(json!({"nodeName": "two"})));
    let unready = status(json!({"conditions": ready(1, "False")}));
    let unready_moved = status(json!({"conditions": ready(1, "False"), "nodeName": "two"}));
    assert_eq!(patch(&unready, &unready_moved, false), None);
    let both = status(json!({"conditions": ready(2, "True"), "podIPs": null}));
    let written = patch(&old, &both, false).unwrap();
    assert_eq!(written["conditions"][0]["observedGeneration"], 2);
    assert_eq!(written["podIPs"], Value::Null);
    assert_eq!(written.as_object().unwrap().len(), 2);
}

#[test]
fn a_transition_is_a_change_of_status_and_not_of_reason() {
    let long_ago = "2020-01-01T00:00:00Z";
    let with = |status: &str| {
        let ready = json!({
            "type": "Ready", "status": status, "reason": "Old", "message": "",
            "lastTransitionTime": long_ago,
        });
        let foreign = json!({
            "type": "Foreign", "status": "True", "reason": "Kept", "message": "",
            "lastTransitionTime": long_ago,
        });
        tracked(json!({"status": {"conditions": [foreign, ready]}}))
            .with_pod(&json!({"status": {"phase": "Pending"}}))
    };
    for (before, since) in [("False", long_ago), ("True", super::NOON)] {
        let status = told(&with(before));
        let ready = condition(&status, "Ready").unwrap();
        assert_eq!(json!(ready.last_transition_time), since);
        assert_eq!(ready.observed_generation, Some(3));
        assert_eq!(says(&status, "Foreign"), "True Kept: ");
    }
}

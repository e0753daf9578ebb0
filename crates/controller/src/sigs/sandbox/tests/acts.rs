//! Which act comes next.

use serde_json::{Value, json};

use super::{
    super::decide::{Look, Part},
    Known, known, looked, pod, service, volume,
};

fn check(cases: impl IntoIterator<Item = (Known, &'static str)>) {
    for (index, (known, step)) in cases.into_iter().enumerate() {
        assert_eq!(known.step(), step, "case {index}");
    }
}

fn plain() -> Known {
    known(json!({}))
}

fn tracked() -> Value {
    json!({"metadata": {"annotations": {"agents.x-k8s.io/pod-name": "box"}}})
}

fn suspended(mut change: Value) -> Known {
    change["spec"]["operatingMode"] = json!("Suspended");
    known(change)
}

/// Without an owner and our label, and with these.
fn stray(mut labels: Value) -> Value {
    labels["agents.x-k8s.io/sandbox-name-hash"] = Value::Null;
    json!({"metadata": {"ownerReferences": null, "labels": labels}})
}

fn stray_pod(labels: Value) -> super::Pod {
    pod(&stray(labels))
}

fn foreign_pod() -> super::Pod {
    pod(&json!({"metadata": {"ownerReferences": [{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other", "uid": "other",
        "controller": true,
    }]}}))
}

#[test]
fn a_running_sandbox_wants_one_pod_of_its_own() {
    let elsewhere = json!({"metadata": {"annotations": {"agents.x-k8s.io/pod-name": "gone"}}});
    let second = json!({"metadata": {"name": "second", "uid": "second"}});
    let adopted = r#"patch Pod Unchanged {"metadata":{"labels":{"agents.x-k8s.io/sandbox-name-hash":"70c67e32"},"ownerReferences":[{"apiVersion":"agents.x-k8s.io/v1beta1","blockOwnerDeletion":true,"controller":true,"kind":"Sandbox","name":"box","uid":"sandbox"}]}}"#;
    check([
        (plain(), r#"create Pod "box""#),
        (
            plain().with(|it| it.namesake = Look::Missing),
            r#"create Pod "box""#,
        ),
        (known(elsewhere.clone()), "read pod gone"),
        (
            known(elsewhere.clone()).with(|it| it.annotated = Look::Missing),
            r#"create Pod "box""#,
        ),
        (
            plain().with_pod(&json!({})),
            r#"patch Sandbox SameObject {"metadata":{"annotations":{"agents.x-k8s.io/pod-name":"box"}}}"#,
        ),
        (
            known(elsewhere).with_pod(&json!({})),
            r#"patch Sandbox SameObject {"metadata":{"annotations":{"agents.x-k8s.io/pod-name":"box"}}}"#,
        ),
        (known(tracked()).with_pod(&json!({})), "status"),
        (
            known(tracked()).with_pod(&json!({"metadata": {"deletionTimestamp": super::NOON}})),
            "status",
        ),
        (
            known(tracked()).with_pod(&json!({"status": {"phase": "Failed"}})),
            "status",
        ),
        (
            plain().with(|it| {
                it.namesake = looked(stray_pod(json!({"agents.x-k8s.io/adoptable": "true"})))
            }),
            adopted,
        ),
        (
            plain().with(|it| it.namesake = looked(stray_pod(json!({})))),
            "status and tell ReconcilerError",
        ),
        (
            known(tracked()).with(|it| it.namesake = looked(foreign_pod())),
            r#"patch Sandbox SameObject {"metadata":{"annotations":{"agents.x-k8s.io/pod-name":null}}}"#,
        ),
        (
            plain().with_pod(&json!({})).with_pod(&second),
            "status and tell MultiplePods",
        ),
        (
            plain().with(|it| {
                it.trouble.insert(Part::Pod, "no quota".to_owned());
            }),
            "status and tell ReconcilerError",
        ),
        (
            in_trouble(json!(3)).with(|it| {
                it.trouble.insert(Part::Pod, "no quota".to_owned());
            }),
            "status",
        ),
        (
            in_trouble(json!(2)).with(|it| {
                it.trouble.insert(Part::Pod, "no quota".to_owned());
            }),
            "status and tell ReconcilerError",
        ),
    ]);
}

/// A sandbox of the third generation that has told of another trouble in this one.
fn in_trouble(generation: Value) -> Known {
    known(json!({
        "metadata": {"generation": 3},
        "status": {"conditions": [{
            "type": "Ready", "status": "False", "reason": "ReconcilerError", "message": "another",
            "lastTransitionTime": super::NOON, "observedGeneration": generation,
        }]},
    }))
}

#[test]
fn a_suspended_sandbox_wants_none() {
    let done = json!({"status": {"conditions": [
        {"type": "Suspended", "status": "True", "reason": "PodTerminated", "lastTransitionTime": super::NOON,
         "message": "Pod has been terminated. Sandbox is suspended", "observedGeneration": 3},
        {"type": "Ready", "status": "False", "reason": "SandboxSuspended", "lastTransitionTime": super::NOON,
         "message": "Sandbox is suspended", "observedGeneration": 3},
    ]}});
    check([
        (
            suspended(json!({})).with_pod(&json!({})),
            "delete Pod uid-of-box@7",
        ),
        (
            suspended(tracked()).with_pod(&json!({"metadata": {"deletionTimestamp": super::NOON}})),
            "status",
        ),
        (suspended(json!({})), "read pod box"),
        (
            suspended(tracked()).with(|it| it.namesake = Look::Missing),
            r#"patch Sandbox SameObject {"metadata":{"annotations":{"agents.x-k8s.io/pod-name":null}}}"#,
        ),
        (
            suspended(json!({})).with(|it| it.namesake = looked(foreign_pod())),
            "status",
        ),
        (suspended(done), "rest Never"),
    ]);
}

#[test]
fn a_service_is_what_the_sandbox_asks_for() {
    let asking = |wanted: Value| {
        let mut change = tracked();
        change["spec"]["service"] = wanted;
        known(change).with_pod(&json!({}))
    };
    let found = |change: &Value| {
        let service = service(change);
        move |it: &mut Known| it.service = looked(service)
    };
    let mut remembered = tracked();
    remembered["status"]["service"] = json!("box");
    let spoiled = json!({"spec": {"selector": {"other": "x"}}});
    let repaired = r#"patch Service SameObject {"spec":{"selector":{"agents.x-k8s.io/sandbox-name-hash":"70c67e32"}}}"#;
    let stray = |ip: &str| {
        let mut change = stray(json!({"agents.x-k8s.io/adoptable": "true"}));
        change["spec"]["clusterIP"] = json!(ip);
        change
    };
    check([
        (asking(Value::Null), "status"),
        (asking(json!(true)), r#"create Service "box""#),
        (asking(json!(true)).with(found(&json!({}))), "status"),
        (
            asking(json!(false)).with(found(&json!({}))),
            "delete Service uid-of-box@7",
        ),
        (asking(json!(false)).with(found(&stray("None"))), "status"),
        (asking(Value::Null).with(found(&stray("None"))), "status"),
        (
            asking(json!(true)).with(found(&stray("10.1.2.3"))),
            "status and tell ReconcilerError",
        ),
        (known(remembered).with_pod(&json!({})), "read service"),
    ]);
    for wanted in [Value::Null, json!(true)] {
        let step = asking(wanted).with(found(&spoiled)).step();
        let other = r#""other":null"#;
        assert!(step.contains(other), "{step}");
        assert_eq!(step.replace(&format!(",{other}"), ""), repaired);
    }
    let step = asking(json!(true)).with(found(&stray("None"))).step();
    assert!(step.starts_with("patch Service Unchanged"), "{step}");
    assert!(step.contains(r#""uid":"sandbox""#), "{step}");
}

#[test]
fn volume_claims_come_first() {
    let spec = json!({"spec": {"volumeClaimTemplates": [
        {"metadata": {"name": "data"}, "spec": {}}, {"metadata": {"name": "logs"}, "spec": {}},
    ]}});
    let with = |change: &Value| {
        let volume = volume(change);
        known(spec.clone()).with(move |it| it.volumes[0] = looked(volume))
    };
    let foreign = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "v1", "kind": "Other", "name": "other", "uid": "other", "controller": true,
    }]}});
    check([
        (known(spec.clone()), r#"create Volume(0) "data-box""#),
        (with(&json!({})), r#"create Volume(1) "logs-box""#),
        (
            with(&json!({"metadata": {"labels": null}})),
            r#"patch Volume(0) Unchanged {"metadata":{"labels":{"agents.x-k8s.io/sandbox-name-hash":"70c67e32"}}}"#,
        ),
        // what cannot be used stops the others, and not the pod
        (with(&foreign), r#"create Pod "box""#),
        (
            known(spec.clone()).with(|it| {
                it.trouble.insert(Part::Volume(0), "no quota".to_owned());
            }),
            r#"create Pod "box""#,
        ),
    ]);
    let adopted = with(&json!({"metadata": {"ownerReferences": null}})).step();
    assert!(
        adopted.starts_with("patch Volume(0) Unchanged"),
        "{adopted}"
    );
    assert!(adopted.contains("ownerReferences"), "{adopted}");
}

#[test]
fn an_end_is_told_before_it_is_made() {
    let ending = |end: &str, policy: &str, is_told: bool| {
        let reason = if is_told {
            "SandboxExpired"
        } else {
            "DependenciesReady"
        };
        let ready = json!({
            "type": "Ready", "status": "False", "reason": reason, "message": "Sandbox has expired",
            "lastTransitionTime": super::NOON, "observedGeneration": 3,
        });
        known(json!({
            "spec": {"shutdownTime": end, "shutdownPolicy": policy},
            "status": {"conditions": [ready]},
        }))
    };
    let past = super::NOON;
    let owned = service(&json!({}));
    let going = json!({"metadata": {"deletionTimestamp": past}});
    check([
        (ending(past, "Delete", false).with_pod(&json!({})), "status"),
        (
            ending(past, "Delete", true).with_pod(&json!({})),
            "delete Pod uid-of-box@7",
        ),
        (
            ending(past, "Retain", true)
                .with_pod(&going)
                .with(|it| it.service = looked(owned)),
            "delete Service uid-of-box@7",
        ),
        (
            ending(past, "Delete", true).with_pod(&going),
            "delete Sandbox sandbox@5",
        ),
        (ending(past, "Retain", true).with_pod(&going), "rest Never"),
        (
            ending(past, "Retain", true)
                .with(|it| it.sandbox.status.selector = Some("x".into()))
                .with(|it| it.namesake = looked(foreign_pod())),
            "status",
        ),
        (
            ending(past, "Retain", true).with(|it| it.sandbox.status.selector = Some("x".into())),
            "read pod box",
        ),
        (
            ending("2026-01-31T12:00:01Z", "Delete", true),
            r#"create Pod "box""#,
        ),
    ]);
}

#[test]
fn a_sandbox_says_which_trace_it_belongs_to_before_it_has_a_pod() {
    let traced = |known: Known| known.with(|it| it.trace = Some("{}".to_owned()));
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-31T11:00:00Z"}});
    check([
        (
            traced(plain()),
            r#"patch Sandbox Unchanged {"metadata":{"annotations":{"opentelemetry.io/trace-context":"{}"}}}"#,
        ),
        (
            traced(plain()).with(|it| drop(it.trouble.insert(Part::Sandbox, "refused".into()))),
            r#"create Pod "box""#,
        ),
        (traced(known(deleting)), "rest Never"),
    ]);
}

#[test]
fn a_sandbox_that_is_being_deleted_is_left_alone() {
    let going = json!({"metadata": {"deletionTimestamp": super::NOON}});
    check([
        (known(going.clone()), "rest Never"),
        (known(going).with_pod(&json!({})), "rest Never"),
    ]);
}

/// A member of a pool that was made so many seconds ago, and says this of its readiness.
fn member(age: i64, ready: Option<(&str, &str)>) -> Known {
    let created = super::NOON.parse::<k8s_openapi::jiff::Timestamp>().unwrap();
    let created = created - std::time::Duration::from_secs(3600)
        + std::time::Duration::from_secs((3600 - age).unsigned_abs());
    let conditions = ready.map(|(status, reason)| {
        json!([{
            "type": "Ready", "status": status, "reason": reason, "message": "old",
            "lastTransitionTime": super::NOON, "observedGeneration": 3,
        }])
    });
    let mut change = tracked();
    change["metadata"]["creationTimestamp"] = json!(created);
    change["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool",
        "name": "pool", "uid": "pool", "controller": true,
    }]);
    if let Some(conditions) = conditions {
        change["status"] = json!({"conditions": conditions});
    }
    known(change)
}

#[test]
fn nothing_is_told_of_a_young_member_that_is_on_its_way() {
    let pending = json!({"status": {"phase": "Pending", "conditions": []}});
    let coming = Some(("False", "DependenciesNotReady"));
    let fence = |it: &mut Known| {
        it.sandbox.meta.annotations = [
            ("sandbar.dev/update", "{}"),
            ("agents.x-k8s.io/pod-name", "box"),
        ]
        .into_iter()
        .collect();
    };
    check([
        (member(0, None), r#"create Pod "box""#),
        (member(0, None).with_pod(&pending), "rest In(10s)"),
        (member(7, coming).with_pod(&pending), "rest In(3s)"),
        (member(-4, None).with_pod(&pending), "rest In(14s)"),
        (member(-3000, None).with_pod(&pending), "status"),
        (member(10, None).with_pod(&pending), "status"),
        (member(0, None).with_pod(&json!({})), "status"),
        (
            member(0, Some(("True", "DependenciesReady"))).with_pod(&pending),
            "status",
        ),
        (
            member(0, Some(("False", "ReconcilerError"))).with_pod(&pending),
            "status",
        ),
        (
            member(0, None).with_pod(&json!({"status": {"phase": "Failed"}})),
            "status",
        ),
        (member(0, None).with_pod(&pending).with(fence), "status"),
        (
            member(0, None)
                .with_pod(&pending)
                .with(|it| it.sandbox.is_suspended = true),
            "delete Pod uid-of-box@7",
        ),
        (
            member(0, None)
                .with_pod(&pending)
                .with(|it| it.sandbox.meta.owner = None),
            "status",
        ),
    ]);
}

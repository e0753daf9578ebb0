//! What claims may give to pods, and what binds.

use serde_json::{Value, json};

use super::{bound, claim, member, template};
use crate::sigs::claim::metadata::{check, in_step, pod, transfer, wish};
use engine::member::{Policy, Revision};

fn checked(field: &str, key: &str, value: &str) -> Result<(), String> {
    let metadata = json!({"spec": {"additionalPodMetadata": {field: {key: value}}}});
    let domains = ["sandbox.users.io".to_owned(), "corp.example".to_owned()];
    check(&claim(&metadata), &domains).map_err(|problem| {
        assert_eq!(problem.reason, "InvalidMetadata");
        problem.message
    })
}

#[test]
fn labels_need_a_domain_that_is_allowed() {
    let long = "x".repeat(64);
    let cases = [
        ("sandbox.users.io/team", "one", true),
        ("deep.sandbox.users.io/team", "", true),
        ("corp.example/a", "b", true),
        ("notcorp.example/a", "b", false),
        ("team", "one", false),
        ("example.com/team", "one", false),
        ("agents.x-k8s.io/claim-uid", "one", false),
        ("App", "Sandbox-Router", false),
        ("sandbox.users.io/", "one", false),
        ("Sandbox.users.io/team", "one", false),
        ("sandbox.users.io/a/b", "one", false),
        ("sandbox.users.io/team", "-one", false),
        ("sandbox.users.io/team", &long, false),
    ];
    for (key, value, is_fine) in cases {
        let answer = checked("labels", key, value);
        assert_eq!(answer.is_ok(), is_fine, "{key}={value}: {answer:?}");
    }
}

#[test]
fn annotations_are_free_but_for_what_controls_something() {
    let cases = [
        ("note", true),
        ("example.com/note", true),
        ("cluster-autoscaler.kubernetes.io/safe-to-evict", true),
        ("x-k8s.io/note", true),
        ("kubernetes.io/note", false),
        ("cluster-autoscaler.kubernetes.io/other", false),
        ("k8s.io/note", false),
        ("agents.x-k8s.io/pod-name", false),
        ("extensions.agents.x-k8s.io/note", false),
        ("sandbar.dev/pod-update", false),
        ("/note", false),
        ("", false),
    ];
    for (key, is_fine) in cases {
        let answer = checked("annotations", key, "any text at all");
        assert_eq!(answer.is_ok(), is_fine, "{key}: {answer:?}");
    }
}

#[test]
fn what_the_template_sets_is_not_overridden() {
    let template = template(&json!({"podTemplate": {"metadata": {
        "labels": {"sandbox.users.io/team": "one"}, "annotations": {"note": "a"},
    }}}));
    for (metadata, is_fine) in [
        (json!({"labels": {"sandbox.users.io/team": "one"}}), true),
        (json!({"labels": {"sandbox.users.io/team": "two"}}), false),
        (json!({"annotations": {"note": "a", "other": "b"}}), true),
        (json!({"annotations": {"note": "b"}}), false),
    ] {
        let claim = claim(&json!({"spec": {"additionalPodMetadata": metadata}}));
        let answer = pod(&claim, &template).map_err(|problem| problem.reason);
        assert_eq!(answer.is_ok(), is_fine, "{metadata}");
        assert!(is_fine || answer == Err("ReconcilerError"));
    }
}

#[test]
fn the_wish_of_a_claim_is_read() {
    let read = |text: &str| {
        let annotations = json!({"sandbar.dev/claim-policy": text});
        wish(&claim(&json!({"metadata": {"annotations": annotations}}))).map_err(|it| it.reason)
    };
    let pinned = Policy::Pinned(Revision::from("a-1"));
    assert_eq!(wish(&claim(&json!({}))), Ok(None));
    assert_eq!(read("RequireNewest"), Ok(Some(Policy::RequireNewest)));
    assert_eq!(read("DrainOld"), Ok(Some(Policy::DrainOld)));
    assert_eq!(read("PreferNewest"), Ok(Some(Policy::PreferNewest)));
    assert_eq!(read("Pinned:a-1"), Ok(Some(pinned)));
    for wrong in ["", "Newest", "Pinned:", "drainold"] {
        assert_eq!(read(wrong), Err("InvalidClaimPolicy"), "{wrong}");
    }
}

#[test]
fn a_transfer_is_one_patch() {
    let claim = claim(&json!({
        "metadata": {"labels": {"agents.x-k8s.io/created-by": "go-client"}},
        "spec": {"additionalPodMetadata": {"annotations": {"note": "mine"}}},
    }));
    let annotations = json!({"sandbar.dev/for-rollout": "x", "sandbar.dev/update": "y"});
    let member = member(&json!({"metadata": {"annotations": annotations}}));
    let patch = transfer(&claim, &member, Some(&template(&json!({}))), Some("{}")).unwrap();
    let wanted = json!({
        "metadata": {
            "labels": {
                "agents.x-k8s.io/warm-pool-sandbox": null,
                "agents.x-k8s.io/sandbox-template-hash": null,
                "agents.x-k8s.io/sandbox-pod-template-hash": null,
                "agents.x-k8s.io/launch-type": "warm",
                "agents.x-k8s.io/claim-uid": "claim",
                "agents.x-k8s.io/created-by": "go-client",
                "agents.x-k8s.io/sandbox-template-ref-hash": "69155462",
            },
            "annotations": {
                "agents.x-k8s.io/pod-name": "pool-1",
                "opentelemetry.io/trace-context": "{}",
                "sandbar.dev/for-rollout": null,
                "sandbar.dev/revision": "69155462-one",
                "sandbar.dev/update": null,
            },
            "ownerReferences": [{
                "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim",
                "name": "mine", "uid": "claim", "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"podTemplate": {"metadata": {
            "labels": {
                "agents.x-k8s.io/warm-pool-sandbox": null,
                "agents.x-k8s.io/claim-uid": "claim",
                "agents.x-k8s.io/created-by": "go-client",
                "agents.x-k8s.io/sandbox-template-ref-hash": "69155462",
            },
            "annotations": {
                "cluster-autoscaler.kubernetes.io/safe-to-evict": null,
                "note": "mine",
            },
        }}},
    });
    assert_eq!(patch, wanted);

    let without = transfer(&claim, &member, None, None).unwrap();
    let annotations = &without["metadata"]["annotations"];
    assert_eq!(annotations.get("opentelemetry.io/trace-context"), None);
    let labels = &without["metadata"]["labels"];
    assert_eq!(
        labels.get("agents.x-k8s.io/sandbox-template-ref-hash"),
        None
    );
    let pod = &without["spec"]["podTemplate"]["metadata"];
    assert_eq!(
        pod["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"],
        Value::Null
    );
    assert_eq!(pod["labels"]["agents.x-k8s.io/claim-uid"], "claim");
}

#[test]
fn a_sandbox_is_kept_in_step_only_where_it_is_not() {
    let template = template(&json!({}));
    let patch = |claim_change: &Value, change: &Value| {
        in_step(&claim(claim_change), &bound(change), Some(&template)).unwrap()
    };
    assert_eq!(patch(&json!({}), &json!({})), None);
    let old = json!({"metadata": {"labels": {"agents.x-k8s.io/launch-type": null}}});
    let launch =
        |text: &str| json!({"metadata": {"labels": {"agents.x-k8s.io/launch-type": text}}});
    assert_eq!(patch(&json!({}), &old), Some(launch("warm")));
    let mut named = old.clone();
    named["metadata"]["name"] = json!("mine");
    assert_eq!(patch(&json!({}), &named), Some(launch("cold")));
    let client = json!({"metadata": {"labels": {"agents.x-k8s.io/created-by": "go-client"}}});
    let wanted = json!({
        "metadata": {"labels": {"agents.x-k8s.io/created-by": "go-client"}},
        "spec": {"podTemplate": {"metadata": {
            "labels": {"agents.x-k8s.io/created-by": "go-client"},
        }}},
    });
    assert_eq!(patch(&client, &json!({})), Some(wanted));
    let stale =
        json!({"spec": {"podTemplate": {"metadata": {"labels": {"app": "old", "gone": "x"}}}}});
    let wanted = json!({"spec": {"podTemplate": {"metadata": {
        "labels": {"app": "agent", "gone": null},
    }}}});
    assert_eq!(patch(&json!({}), &stale), Some(wanted));
    let unknown = in_step(&claim(&client), &bound(&json!({})), None);
    assert_eq!(unknown, Ok(None));
}

//! Conversion by name: the branches of a claim, the modes of a sandbox, what rides, what is refused.

use api::sigs::conversion::{RIDERS, Version, convert};
use serde_json::{Value, json};

fn to_v1beta1(object: &Value) -> Value {
    convert(object.clone(), Version::V1beta1).unwrap()
}

fn to_v1alpha1(object: &Value) -> Value {
    convert(object.clone(), Version::V1alpha1).unwrap()
}

fn claim_v1alpha1(warmpool: &str, bound: &str) -> Value {
    json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1alpha1",
        "kind": "SandboxClaim",
        "metadata": {"name": "my-claim", "namespace": "default"},
        "spec": {"sandboxTemplateRef": {"name": "python-template"}, "warmpool": warmpool},
        "status": {"sandbox": {"name": bound}},
    })
}

fn claim_v1beta1(pool: &str, bound: &str) -> Value {
    json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxClaim",
        "metadata": {"name": "my-claim", "namespace": "default"},
        "spec": {"warmPoolRef": {"name": pool}},
        "status": {"sandbox": {"name": bound}},
    })
}

fn pool_of(claim: &Value) -> &str {
    claim["spec"]["warmPoolRef"]["name"].as_str().unwrap()
}

#[test]
fn a_claim_finds_its_pool_by_name_by_its_sandbox_or_by_its_template() {
    let long_pool = "p".repeat(58);
    let cases = [
        ("python-pool", "", "python-pool"),
        ("no-such-pool", "other-x7k2p", "no-such-pool"),
        ("", "", "shadow-pool-python-template"),
        ("none", "", "shadow-pool-python-template"),
        ("default", "", "shadow-pool-python-template"),
        ("default", "my-claim", "shadow-pool-python-template"),
        ("default", "python-pool-x7k2p", "python-pool"),
        ("", "python-pool-x7k2p", "python-pool"),
        ("none", "python-pool-x7k2p", "python-pool"),
        ("default", "nodash", "nodash"),
        ("default", &format!("{long_pool}ab3de"), &long_pool),
    ];
    for (warmpool, bound, expected) in cases {
        let stored = to_v1beta1(&claim_v1alpha1(warmpool, bound));
        assert_eq!(
            pool_of(&stored),
            expected,
            "warmpool {warmpool:?}, bound to {bound:?}"
        );
        assert_eq!(stored["spec"].get("warmpool"), None);
        assert_eq!(stored["spec"].get("sandboxTemplateRef"), None);
    }
}

#[test]
fn a_claim_left_out_of_v1alpha1s_warmpool_means_default() {
    let mut claim = claim_v1alpha1("default", "");
    claim["spec"].as_object_mut().unwrap().remove("warmpool");
    assert_eq!(pool_of(&to_v1beta1(&claim)), "shadow-pool-python-template");
    assert_eq!(to_v1alpha1(&to_v1beta1(&claim)), claim);
}

#[test]
fn a_claim_written_as_v1beta1_reads_as_v1alpha1() {
    let cases = [
        ("shadow-pool-python-template", "python-template", "default"),
        ("python-pool", "python-pool", "python-pool"),
    ];
    for (pool, template, warmpool) in cases {
        let view = to_v1alpha1(&claim_v1beta1(pool, ""));
        assert_eq!(view["spec"]["sandboxTemplateRef"]["name"], template);
        assert_eq!(view["spec"]["warmpool"], warmpool);
        assert_eq!(
            view["metadata"].get("annotations"),
            None,
            "nothing needs to ride"
        );
    }
}

#[test]
fn references_that_v1alpha1_would_misread_survive_it() {
    for (pool, bound) in [
        ("default", ""),
        ("none", "my-claim"),
        ("", ""),
        ("shadow-pool-python-template", "foreign-x7k2p"),
        ("shadow-pool-", ""),
    ] {
        let claim = claim_v1beta1(pool, bound);
        let back = to_v1beta1(&to_v1alpha1(&claim));
        assert_eq!(pool_of(&back), pool, "bound to {bound:?}");
    }
}

#[test]
fn re_pointing_a_claim_in_v1beta1_shows_in_v1alpha1() {
    let mut stored = to_v1beta1(&claim_v1alpha1("default", "python-pool-x7k2p"));
    stored["spec"]["warmPoolRef"]["name"] = json!("other-pool");
    let view = to_v1alpha1(&stored);
    assert_eq!(view["spec"]["warmpool"], "other-pool");
    assert_eq!(
        view["spec"]["sandboxTemplateRef"]["name"],
        "python-template"
    );
}

#[test]
fn a_pool_called_as_the_template_reads_as_the_claim_was_written_and_survives() {
    let mut stored = to_v1beta1(&claim_v1alpha1("default", ""));
    stored["spec"]["warmPoolRef"]["name"] = json!("python-template");
    let view = to_v1alpha1(&stored);
    assert_eq!(view["spec"], claim_v1alpha1("default", "")["spec"]);
    assert_eq!(pool_of(&to_v1beta1(&view)), "python-template");
}

#[test]
fn a_change_made_in_v1alpha1_beats_what_rides() {
    let mut view = to_v1alpha1(&claim_v1beta1("default", ""));
    assert!(view["metadata"]["annotations"][RIDERS].is_string());
    view["spec"]["warmpool"] = json!("python-pool");
    assert_eq!(pool_of(&to_v1beta1(&view)), "python-pool");
}

#[test]
fn volume_claim_templates_of_a_claim_survive_v1alpha1() {
    let mut claim = claim_v1beta1("python-pool", "");
    claim["spec"]["volumeClaimTemplates"] =
        json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]);
    let view = to_v1alpha1(&claim);
    assert_eq!(view["spec"].get("volumeClaimTemplates"), None);
    let back = to_v1beta1(&view);
    assert_eq!(back["spec"], claim["spec"]);
    assert_eq!(back["metadata"]["annotations"].get(RIDERS), None);
}

fn sandbox_v1alpha1(spec: &Value, status: &Value) -> Value {
    let mut sandbox = json!({
        "apiVersion": "agents.x-k8s.io/v1alpha1",
        "kind": "Sandbox",
        "metadata": {"name": "box", "namespace": "default"},
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "runtime"}]}}},
        "status": status,
    });
    sandbox["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    sandbox
}

#[test]
fn replicas_of_a_sandbox_are_its_operating_mode() {
    for (spec, mode) in [
        (json!({"replicas": 0}), "Suspended"),
        (json!({"replicas": 1}), "Running"),
        (json!({}), "Running"),
    ] {
        let sandbox = sandbox_v1alpha1(&spec, &json!({"replicas": 1}));
        let stored = to_v1beta1(&sandbox);
        assert_eq!(stored["spec"]["operatingMode"], mode);
        assert_eq!(stored["spec"].get("replicas"), None);
        assert_eq!(stored["status"], json!({}));
        assert_eq!(to_v1alpha1(&stored), sandbox, "{spec}");
    }
}

#[test]
fn a_mode_changed_in_v1beta1_wins_over_the_saved_replicas() {
    let mut stored = to_v1beta1(&sandbox_v1alpha1(
        &json!({"replicas": 1}),
        &json!({"replicas": 1}),
    ));
    stored["spec"]["operatingMode"] = json!("Suspended");
    stored["status"]["conditions"] = json!([{"type": "Suspended", "status": "True"}]);
    let view = to_v1alpha1(&stored);
    assert_eq!(view["spec"]["replicas"], 0);
    assert_eq!(
        view["status"]["replicas"], 0,
        "the saved count belongs to an older status"
    );
}

#[test]
fn the_node_of_a_sandbox_survives_v1alpha1() {
    let stored = json!({
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": "box", "namespace": "default"},
        "spec": {"operatingMode": "Running", "podTemplate": {"spec": {"containers": []}}},
        "status": {"nodeName": "node-7", "podIPs": ["10.0.0.7"]},
    });
    let view = to_v1alpha1(&stored);
    assert_eq!(
        view["status"],
        json!({"podIPs": ["10.0.0.7"], "replicas": 1})
    );
    assert_eq!(to_v1beta1(&view)["status"], stored["status"]);
}

#[test]
fn the_observed_generation_of_a_pool_survives_v1alpha1() {
    let stored = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxWarmPool",
        "metadata": {"name": "pool", "namespace": "default"},
        "spec": {"sandboxTemplateRef": {"name": "python-template"}},
        "status": {"observedGeneration": 4, "replicas": 2},
    });
    let mut view = to_v1alpha1(&stored);
    assert_eq!(
        view["spec"]["replicas"], 1,
        "v1alpha1 requires the number that v1beta1 defaults"
    );
    assert_eq!(view["status"].get("observedGeneration"), None);
    assert_eq!(to_v1beta1(&view)["status"], stored["status"]);
    assert_eq!(to_v1beta1(&view)["spec"], stored["spec"]);
    view["spec"]["replicas"] = json!(5);
    assert_eq!(to_v1beta1(&view)["spec"]["replicas"], 5);
}

fn rolling_pool() -> Value {
    json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxWarmPool",
        "metadata": {"name": "pool", "namespace": "default", "uid": "1"},
        "spec": {
            "replicas": 4,
            "sandboxTemplateRef": {"name": "python-template"},
            "claimPolicy": "RequireNewest",
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": "25%", "paused": true},
            },
        },
        "status": {
            "replicas": 4,
            "updatedReplicas": 2,
            "updatedAvailableReplicas": 1,
            "currentRevision": "one",
            "updateRevision": "two",
            "conditions": [{"type": "Progressing", "status": "True", "reason": "Rolling",
                "message": "", "lastTransitionTime": "2026-11-16T12:00:00Z"}],
        },
    })
}

#[test]
fn a_pool_that_rolls_reads_as_one_that_replenishes_and_survives_v1alpha1() {
    let stored = rolling_pool();
    let mut view = to_v1alpha1(&stored);
    assert_eq!(
        view["spec"],
        json!({
            "replicas": 4,
            "sandboxTemplateRef": {"name": "python-template"},
            "updateStrategy": {"type": "OnReplenish"},
        })
    );
    assert_eq!(view["status"], json!({"replicas": 4}));
    view["spec"]["replicas"] = json!(9);
    let back = to_v1beta1(&view);
    let mut expected = stored.clone();
    expected["spec"]["replicas"] = json!(9);
    assert_eq!(
        (&back["spec"], &back["status"]),
        (&expected["spec"], &expected["status"])
    );
}

#[test]
fn a_v1alpha1_client_that_changes_the_strategy_of_a_pool_is_heard() {
    for strategy in [json!({"type": "Recreate"}), Value::Null] {
        let mut view = to_v1alpha1(&rolling_pool());
        view["spec"]["updateStrategy"] = strategy.clone();
        let back = to_v1beta1(&view);
        assert_eq!(back["spec"]["updateStrategy"], strategy);
        assert_eq!(
            back["spec"]["claimPolicy"], "RequireNewest",
            "said of claims, whatever the strategy"
        );
    }
}

fn template_v1alpha1(policy: &str) -> Value {
    json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1alpha1",
        "kind": "SandboxTemplate",
        "metadata": {
            "name": "python-template",
            "namespace": "default",
            "annotations": {"api.agents.x-k8s.io/v1beta1-volume-claim-templates-policy": policy},
        },
        "spec": {"podTemplate": {"spec": {"containers": []}}},
    })
}

#[test]
fn the_policy_of_a_template_stands_in_its_annotation_in_v1alpha1() {
    let template = template_v1alpha1("Overrides");
    let stored = to_v1beta1(&template);
    assert_eq!(stored["spec"]["volumeClaimTemplatesPolicy"], "Overrides");
    assert_eq!(
        stored["metadata"]["annotations"].as_object().unwrap().len(),
        1,
        "only the state"
    );
    assert_eq!(to_v1alpha1(&stored), template);
}

#[test]
fn an_unknown_policy_is_refused_with_the_ones_there_are() {
    let error = convert(template_v1alpha1("Maybe"), Version::V1beta1)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("SandboxTemplate default/python-template"),
        "{error}"
    );
    assert!(error.contains("Overrides"), "{error}");
}

#[test]
fn the_state_annotation_holds_the_v1alpha1_object_without_what_the_server_rewrites() {
    let mut claim = claim_v1alpha1("default", "");
    claim["metadata"]["resourceVersion"] = json!("7");
    claim["metadata"]["managedFields"] = json!([]);
    claim["metadata"]["annotations"] =
        json!({"api.agents.x-k8s.io/v1alpha1-sandboxclaim-state": "stale", "note": "kept"});
    let stored = to_v1beta1(&claim);
    let state =
        &stored["metadata"]["annotations"]["api.agents.x-k8s.io/v1alpha1-sandboxclaim-state"];
    let mut expected = claim_v1alpha1("default", "");
    expected["metadata"]["annotations"] = json!({"note": "kept"});
    let state: Value = serde_json::from_str(state.as_str().unwrap()).unwrap();
    assert_eq!(state, expected);
}

#[test]
fn an_object_too_large_for_its_state_annotation_keeps_all_that_matters() {
    let containers: Vec<_> = (0..4000)
        .map(
            |n| json!({"name": format!("c{n}"), "image": "busybox:1.36", "args": ["x".repeat(50)]}),
        )
        .collect();
    let mut sandbox = sandbox_v1alpha1(&json!({}), &json!({"replicas": 0, "selector": "a=b"}));
    sandbox["spec"]["podTemplate"]["spec"]["containers"] = json!(containers);
    let stored = to_v1beta1(&sandbox);
    let annotations = stored["metadata"]["annotations"].to_string().len();
    assert!(annotations < 256 * 1024, "{annotations} bytes");
    assert_eq!(to_v1alpha1(&stored), sandbox);
}

#[test]
fn a_malformed_state_is_an_error_where_it_is_read_and_no_concern_elsewhere() {
    let mut claim = claim_v1beta1("python-pool", "");
    claim["metadata"]["annotations"] =
        json!({"api.agents.x-k8s.io/v1alpha1-sandboxclaim-state": "{not json"});
    let error = convert(claim, Version::V1alpha1).unwrap_err().to_string();
    assert!(error.contains("SandboxClaim default/my-claim"), "{error}");
    assert!(error.contains("remove the annotation"), "{error}");

    let mut template = template_v1alpha1("Allowed");
    template["apiVersion"] = json!("extensions.agents.x-k8s.io/v1beta1");
    template["metadata"]["annotations"] =
        json!({"api.agents.x-k8s.io/v1alpha1-sandboxtemplate-state": "{not json"});
    assert!(convert(template, Version::V1alpha1).is_ok());
}

#[test]
fn malformed_riders_are_refused_by_name() {
    let mut claim = claim_v1alpha1("default", "");
    claim["metadata"]["annotations"] = json!({RIDERS: "[]"});
    let error = convert(claim, Version::V1beta1).unwrap_err().to_string();
    assert!(error.contains(RIDERS), "{error}");
}

#[test]
fn fields_of_later_releases_pass_through_both_ways() {
    let mut claim = claim_v1beta1("python-pool", "");
    claim["spec"]["notYetInvented"] = json!({"deep": [1, 2]});
    let view = to_v1alpha1(&claim);
    assert_eq!(
        view["spec"]["notYetInvented"],
        claim["spec"]["notYetInvented"]
    );
    assert_eq!(to_v1beta1(&view)["spec"], claim["spec"]);
}

#[test]
fn what_is_no_kind_of_ours_is_refused() {
    for (api_version, kind) in [
        ("v1", "Pod"),
        ("agents.x-k8s.io/v1", "Sandbox"),
        ("agents.x-k8s.io/v1beta1", "SandboxClaim"),
        ("agents.kruise.io/v1alpha1", "Sandbox"),
    ] {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {}, "spec": {}});
        let error = convert(object, Version::V1alpha1).unwrap_err().to_string();
        assert!(error.contains(kind), "{error}");
    }
    let mut bad = claim_v1beta1("python-pool", "");
    bad["spec"] = json!("x");
    let error = convert(bad, Version::V1alpha1).unwrap_err().to_string();
    assert_eq!(
        error,
        "SandboxClaim default/my-claim: spec must be an object"
    );
}

#[test]
fn what_server_side_apply_leaves_of_an_object_changes_its_version_only() {
    let mut rest = claim_v1beta1("python-pool", "");
    rest.as_object_mut().unwrap().remove("spec");
    let mut converted = to_v1alpha1(&rest);
    assert_eq!(
        converted["apiVersion"],
        "extensions.agents.x-k8s.io/v1alpha1"
    );
    converted["apiVersion"] = rest["apiVersion"].clone();
    assert_eq!(converted, rest);
}

#[test]
fn nothing_rides_that_the_kind_does_not_let_ride() {
    let claim = claim_v1alpha1("default", "");
    let clean = to_v1beta1(&claim);
    for forged in [
        json!({"/metadata": {"value": "x"}}),
        json!({"/status/sandbox/name": {"value": "mine"}}),
        json!({"/spec/volumeClaimTemplates": {"value": "not a list"}}),
        json!({"/spec/warmPoolRef": {"value": {"name": "mine"}}}),
    ] {
        let mut claim = claim.clone();
        claim["metadata"]["annotations"] = json!({RIDERS: forged.to_string()});
        assert_eq!(to_v1beta1(&claim), clean, "{forged}");
    }
}

#[test]
fn a_status_does_not_ride_onto_a_copy() {
    let stored = json!({
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": "box", "namespace": "default", "uid": "1"},
        "spec": {"operatingMode": "Running", "podTemplate": {"spec": {"containers": []}}},
        "status": {"nodeName": "node-7"},
    });
    let mut copy = to_v1alpha1(&stored);
    copy["metadata"]["uid"] = json!("2");
    copy.as_object_mut().unwrap().remove("status");
    assert_eq!(to_v1beta1(&copy).get("status"), None);
}

#[test]
fn an_object_that_has_the_version_already_is_unchanged() {
    let claim = claim_v1beta1("python-pool", "");
    assert_eq!(convert(claim.clone(), Version::V1beta1).unwrap(), claim);
}

//! Variables and volumes, by policy.

use serde_json::{Value, json};

use super::{claim, template};
use crate::sigs::{
    claim::provision::{is_needed, sandbox},
    pool::member::target,
};

type Answer = Result<Value, &'static str>;

fn env(policy: &str, containers: Value, wanted: Value) -> Answer {
    let mut spec = json!({"podTemplate": {"spec": containers}});
    if !policy.is_empty() {
        spec["envVarsInjectionPolicy"] = json!(policy);
    }
    let claim = claim(&json!({"spec": {"env": wanted}}));
    assert!(is_needed(&claim));
    let made = sandbox(&claim, &template(&spec), None).map_err(|problem| problem.reason)?;
    Ok(made["spec"]["podTemplate"]["spec"].clone())
}

#[test]
fn variables_are_set_as_the_template_allows() {
    const REJECTED: Answer = Err("EnvVarsInjectionRejected");
    const ERROR: Answer = Err("ReconcilerError");
    let one = || json!([{"name": "A", "value": "1"}]);
    let at = |container: &str| json!([{"name": "A", "value": "1", "containerName": container}]);
    for policy in ["", "Disallowed"] {
        assert_eq!(env(policy, json!({}), one()), REJECTED);
    }
    for policy in ["Allowed", "Overrides"] {
        let spec = env(policy, json!({}), one()).unwrap();
        assert_eq!(spec["containers"][0]["env"], one());
        assert_eq!(spec["containers"][1].get("env"), None);
        let spec = env(policy, json!({}), at("side")).unwrap();
        assert_eq!(spec["containers"][1]["env"], one());
        let init = json!({"initContainers": [{"name": "first", "image": "app:1"}]});
        let spec = env(policy, init, at("first")).unwrap();
        assert_eq!(spec["initContainers"][0]["env"], one());
        assert_eq!(env(policy, json!({}), at("none")), ERROR);
    }
    let has = |more: Value| {
        let mut container = json!({"name": "main", "image": "app:1"});
        json_patch::merge(&mut container, &more);
        json!({"containers": [container]})
    };
    let there =
        || has(json!({"env": [{"name": "A", "valueFrom": {"x": 1}}, {"name": "B", "value": "2"}]}));
    assert_eq!(env("Allowed", there(), one()), ERROR);
    let spec = env("Overrides", there(), one()).unwrap();
    let both = json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]);
    assert_eq!(spec["containers"][0]["env"], both);
    let sources = || has(json!({"envFrom": [{"configMapRef": {"name": "c"}}]}));
    assert_eq!(env("Allowed", sources(), one()), REJECTED);
    assert_eq!(
        env("Overrides", sources(), one()).unwrap()["containers"][0]["env"],
        one()
    );
}

fn volume(name: &str, size: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"resources": {"requests": {"storage": size}}}})
}

fn volumes(policy: &str, given: Value, wanted: Value) -> Answer {
    let mut spec = json!({"volumeClaimTemplates": given});
    if !policy.is_empty() {
        spec["volumeClaimTemplatesPolicy"] = json!(policy);
    }
    let claim = claim(&json!({"spec": {"volumeClaimTemplates": wanted}}));
    let made = sandbox(&claim, &template(&spec), None).map_err(|problem| problem.reason)?;
    Ok(made["spec"]["volumeClaimTemplates"].clone())
}

#[test]
fn volumes_are_merged_as_the_template_allows() {
    const REJECTED: Answer = Err("VolumeClaimTemplatesError");
    let (a, b, big) = (volume("a", "1Gi"), volume("b", "1Gi"), volume("a", "9Gi"));
    let cases = [
        ("", json!([a]), json!([b]), REJECTED),
        ("Disallowed", json!([a]), json!([b]), REJECTED),
        ("", json!([a]), json!([]), Ok(json!([a]))),
        ("Allowed", json!([a]), json!([b]), Ok(json!([a, b]))),
        ("Allowed", json!([a]), json!([big]), REJECTED),
        ("Allowed", Value::Null, json!([b]), Ok(json!([b]))),
        (
            "Overrides",
            json!([a, b]),
            json!([big]),
            Ok(json!([big, b])),
        ),
        ("Overrides", json!([a]), json!([b]), Ok(json!([a, b]))),
        ("Overrides", json!([a]), json!([b, b]), REJECTED),
        (
            "Overrides",
            json!([a]),
            json!([volume("", "1Gi")]),
            REJECTED,
        ),
        ("Overrides", json!([a, a]), json!([b]), REJECTED),
        ("", json!([a, a]), json!([]), REJECTED),
    ];
    for (policy, given, wanted, answer) in cases {
        let case = format!("{policy} {given} {wanted}");
        assert_eq!(volumes(policy, given, wanted), answer, "{case}");
    }
}

#[test]
fn a_sandbox_is_made_like_its_template_and_is_the_claims() {
    let labels = json!({"agents.x-k8s.io/created-by": "python-client"});
    let claim = claim(&json!({"metadata": {"labels": labels}}));
    assert!(!is_needed(&claim));
    let template = template(&json!({"service": true}));
    let made = sandbox(&claim, &template, Some("{}")).unwrap();
    assert_eq!(made["metadata"]["name"], "mine");
    let labels = json!({
        "agents.x-k8s.io/claim-uid": "claim",
        "agents.x-k8s.io/launch-type": "cold",
        "agents.x-k8s.io/sandbox-template-ref-hash": "69155462",
        "agents.x-k8s.io/created-by": "python-client",
    });
    assert_eq!(made["metadata"]["labels"], labels);
    let annotations = json!({
        "agents.x-k8s.io/sandbox-template-ref": "test-template",
        "agents.x-k8s.io/pod-name": "mine",
        "opentelemetry.io/trace-context": "{}",
        "sandbar.dev/revision": target(&template).as_str(),
    });
    assert_eq!(made["metadata"]["annotations"], annotations);
    assert_eq!(made["spec"]["service"], true);
    let spec = &made["spec"]["podTemplate"]["spec"];
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["dnsPolicy"], "None");
    let labels = json!({
        "app": "agent",
        "agents.x-k8s.io/claim-uid": "claim",
        "agents.x-k8s.io/sandbox-template-ref-hash": "69155462",
        "agents.x-k8s.io/created-by": "python-client",
    });
    assert_eq!(
        made["spec"]["podTemplate"]["metadata"],
        json!({"labels": labels})
    );
}

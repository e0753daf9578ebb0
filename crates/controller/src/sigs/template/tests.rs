use std::fmt::Write as _;

use api::patch::merge;
use serde_json::{Value, json};

use super::{
    decide::{Act, Step, decide, reserved},
    policy::{canonical, patch, wanted},
    template_of,
    view::{Policy, Template},
};
use crate::{
    meta::Key,
    store::{Texts, View},
};

/// The hash of `tools`.
const HASH: &str = "ef46255c";

fn template(spec: &Value) -> Template {
    let mut spec = spec.clone();
    spec["podTemplate"] = json!({"spec": {"containers": [{"name": "main", "image": "app:1"}]}});
    let labels = json!({"agents.x-k8s.io/sandbox-template-ref-hash": HASH});
    let object = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxTemplate",
        "metadata": {"name": "tools", "namespace": "n", "uid": "t", "labels": labels},
        "spec": spec,
    });
    Template::of(
        serde_json::from_value(object).unwrap(),
        &mut Texts::default(),
    )
}

fn policy(owner: Option<&str>, spec: Value) -> Policy {
    let owner = owner.map(|uid| {
        json!({
            "apiVersion": "x/v1", "kind": "SandboxTemplate", "name": "tools", "uid": uid,
            "controller": true,
        })
    });
    let object = json!({
        "metadata": {
            "name": "tools-network-policy", "namespace": "n", "uid": "p", "resourceVersion": "7",
            "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
        },
        "spec": spec,
    });
    Policy::of(
        serde_json::from_value(object).unwrap(),
        &mut Texts::default(),
    )
}

fn step(template: &Template, policy: Option<&Policy>) -> String {
    let mut out = String::new();
    let written = match decide(template, policy) {
        Step::Rest => write!(out, "rest"),
        Step::Barred { why, .. } => write!(out, "barred: {why}"),
        Step::Act(Act::Label(patch)) => write!(out, "label {patch}"),
        Step::Act(Act::Create(body)) => write!(out, "create {}", body["metadata"]["name"]),
        Step::Act(Act::Patch(meta, patch)) => write!(out, "patch @{} {patch}", meta.version),
        Step::Act(Act::Delete(meta)) => write!(out, "delete @{}", meta.version),
    };
    written.unwrap();
    out
}

#[test]
fn a_policy_is_kept_as_the_template_says() {
    let managed = template(&json!({}));
    let unmanaged = template(&json!({"networkPolicyManagement": "Unmanaged"}));
    let right = wanted(&managed).unwrap();
    let mut opened = right.clone();
    opened["ingress"] = json!([{}]);
    let ours = policy(Some("t"), right.clone());
    let drifted = policy(Some("t"), opened);
    let foreign = policy(None, right.clone());
    let anothers = policy(Some("another"), right);
    let mut going = ours.clone();
    going.meta.is_deleting = true;
    let barred = r#"barred: NetworkPolicy "tools-network-policy" exists and is not controlled by this SandboxTemplate"#;
    let repaired = r#"patch @7 {"spec":{"ingress":[{"from":[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"agent-sandbox-system"}},"podSelector":{"matchLabels":{"app":"sandbox-router"}}}]}]}}"#;
    let cases = [
        (&managed, None, r#"create "tools-network-policy""#),
        (&managed, Some(&ours), "rest"),
        (&managed, Some(&going), "rest"),
        (&managed, Some(&drifted), repaired),
        (&managed, Some(&foreign), barred),
        (&managed, Some(&anothers), barred),
        (&unmanaged, None, "rest"),
        (&unmanaged, Some(&ours), "delete @7"),
        (&unmanaged, Some(&going), "rest"),
        (&unmanaged, Some(&foreign), "rest"),
    ];
    for (index, (template, policy, expected)) in cases.into_iter().enumerate() {
        assert_eq!(step(template, policy), expected, "case {index}");
    }
    let mut unlabelled = managed.clone();
    unlabelled.meta.labels = crate::meta::Pairs::default();
    let label = format!(
        r#"label {{"metadata":{{"labels":{{"agents.x-k8s.io/sandbox-template-ref-hash":"{HASH}"}}}}}}"#
    );
    assert_eq!(step(&unlabelled, None), label);
    unlabelled.meta.is_deleting = true;
    assert_eq!(step(&unlabelled, None), "rest");
}

#[test]
fn no_rules_let_nothing_through() {
    for rules in [json!({}), json!({"ingress": [], "egress": []})] {
        let spec = wanted(&template(&json!({"networkPolicy": rules}))).unwrap();
        assert_eq!(
            (&spec["ingress"], &spec["egress"]),
            (&json!([]), &json!([]))
        );
        let kept = json!({
            "podSelector": {"matchLabels": {"agents.x-k8s.io/sandbox-template-ref-hash": HASH}},
            "policyTypes": ["Ingress", "Egress"],
        });
        assert_eq!(canonical(&spec), kept);
        assert_eq!(
            step(
                &template(&json!({"networkPolicy": rules})),
                Some(&policy(Some("t"), kept))
            ),
            "rest"
        );
    }
}

#[test]
fn what_the_server_fills_in_or_leaves_out_is_no_drift() {
    let written = json!({
        "podSelector": {"matchLabels": {}, "matchExpressions": []},
        "ingress": [{"from": [], "ports": [{"port": 80}, {"port": "web", "protocol": "UDP"}]}, {}],
        "egress": [{"to": [{"podSelector": {}}, {"namespaceSelector": null, "podSelector": {"matchLabels": null}}]}],
    });
    let kept = json!({
        "podSelector": {},
        "ingress": [{"ports": [{"port": 80, "protocol": "TCP"}, {"port": "web", "protocol": "UDP"}]}, {}],
        "egress": [{"to": [{"podSelector": {}}, {"podSelector": {}}]}],
    });
    assert_eq!(canonical(&written), kept);
    assert_eq!(canonical(&kept), kept);
    let closed = json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]});
    let open = json!({"podSelector": {}, "ingress": [{}]});
    assert_ne!(canonical(&closed), canonical(&open));
}

#[test]
fn a_patch_leads_from_one_spec_to_the_other() {
    let values = [
        json!({"podSelector": {"matchLabels": {"a": "1", "b": "2"}}, "egress": [{"ports": [{"port": 1}]}]}),
        json!({"podSelector": {"matchLabels": {"a": "2"}}, "policyTypes": ["Ingress"]}),
        json!({"podSelector": {"matchExpressions": [{"key": "x"}]}, "ingress": [{}], "egress": [{}]}),
    ];
    for from in &values {
        for to in &values {
            let patch = patch(from, to);
            assert_eq!(merge::apply(from.clone(), &patch).unwrap(), *to, "{patch}");
        }
    }
}

#[test]
fn a_policy_tells_by_its_name_whose_it_would_be() {
    let of = |name| template_of(&Key::new("n", name)).map(|key| key.to_string());
    assert_eq!(of("tools-network-policy").as_deref(), Some("n/tools"));
    assert_eq!(of("tools"), None);
}

#[test]
fn metadata_that_is_not_a_templates_to_give_is_named() {
    let given = |metadata: Value| {
        let mut object = template(&json!({}));
        object.blueprint.pod_template.metadata = serde_json::from_value(metadata).unwrap();
        reserved(&object)
    };
    let own = json!({
        "labels": {"app": "agent", "agents.x-k8s.io.example/a": "b"},
        "annotations": {"note": "mine"},
    });
    assert_eq!(given(own), None);
    assert_eq!(given(Value::Null), None);
    let one = given(json!({"labels": {"extensions.agents.x-k8s.io/a": "b", "app": "agent"}}));
    let message = r#"podTemplate.metadata: labels["extensions.agents.x-k8s.io/a"] is reserved"#;
    assert!(
        one.as_ref().is_some_and(|one| one.starts_with(message)),
        "{one:?}"
    );
    let two = given(json!({
        "labels": {"agents.x-k8s.io/claim-uid": "x"},
        "annotations": {"opentelemetry.io/trace-context": "x"},
    }));
    let message = r#"labels["agents.x-k8s.io/claim-uid"], annotations["opentelemetry.io/trace-context"] are reserved"#;
    assert!(
        two.as_ref().is_some_and(|two| two.contains(message)),
        "{two:?}"
    );
}

//! Ports, and the metadata of pods.

use serde_json::{Value, json};

use super::{
    super::parts::{PodMetadata, ports},
    pod, sandbox,
};

#[test]
fn every_port_that_lasts_is_served_once_and_has_a_name() {
    let cases = [
        (json!([]), json!([]), ""),
        (json!([{"containerPort": 80}]), json!([]), "p-80-tcp:80/TCP"),
        (
            json!([{"containerPort": 90, "name": "web"}, {"containerPort": 80, "protocol": "UDP"}]),
            json!([]),
            "p-80-udp:80/UDP web:90/TCP",
        ),
        (
            json!([{"containerPort": 80}, {"containerPort": 80, "name": "a"}, {"containerPort": 80, "name": "b"}]),
            json!([]),
            "a:80/TCP",
        ),
        // a name that another port has is replaced, and an invented one gives way to a given one
        (
            json!([{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}, {"containerPort": 82, "name": "p-81-tcp"}]),
            json!([]),
            "a:80/TCP p-81-tcp-2:81/TCP p-81-tcp:82/TCP",
        ),
        (
            json!([{"containerPort": 80}]),
            json!([
                {"name": "sidecar", "restartPolicy": "Always", "ports": [{"containerPort": 70}]},
                {"name": "init", "ports": [{"containerPort": 60}]},
            ]),
            "p-70-tcp:70/TCP p-80-tcp:80/TCP",
        ),
    ];
    for (given, inits, expected) in cases {
        let containers = json!([{"name": "main", "image": "app:1", "ports": given}]);
        let spec = json!({"containers": containers, "initContainers": inits});
        let sandbox = sandbox(&json!({"spec": {"podTemplate": {"spec": spec}}}));
        let ports: Vec<String> = ports(&sandbox.blueprint().unwrap())
            .into_iter()
            .inspect(|port| assert_eq!(port.target, port.port))
            .map(|port| format!("{}:{}/{}", port.name, port.port, port.protocol))
            .collect();
        assert_eq!(ports.join(" "), expected);
    }
}

/// The patch of a pod with these labels and annotations, for a sandbox like this.
fn patch(change: &Value, labels: Value, annotations: Value) -> Value {
    let sandbox = sandbox(change);
    let mut all = json!({"agents.x-k8s.io/sandbox-name-hash": super::HASH});
    json_patch::merge(&mut all, &labels);
    let pod = pod(&json!({"metadata": {"labels": all, "annotations": annotations}}));
    let blueprint = sandbox.blueprint().unwrap();
    let patch = PodMetadata::of(&sandbox, &blueprint).patch(&pod.meta);
    patch.map_or(Value::Null, |mut patch| patch["metadata"].take())
}

fn owned_by(kind: &str, labels: Value) -> Value {
    let owner = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": kind, "name": "o", "uid": "o",
        "controller": true,
    });
    json!({"metadata": {"ownerReferences": [owner], "labels": labels}})
}

#[test]
fn a_pod_has_the_metadata_of_its_template_and_no_more_than_it_had_from_it() {
    let template = |metadata: Value| json!({"spec": {"podTemplate": {"metadata": metadata}}});
    let none = json!({});
    assert_eq!(patch(&none, json!({}), json!({})), Value::Null);
    let labelled =
        template(json!({"labels": {"b": "2", "a": "1", "agents.x-k8s.io/claim-uid": "x"}}));
    let expected = json!({
        "labels": {"a": "1", "b": "2"},
        "annotations": {"agents.x-k8s.io/propagated-labels": "a,b"},
    });
    assert_eq!(patch(&labelled, json!({}), json!({})), expected);
    let listed = json!({"agents.x-k8s.io/propagated-labels": "a,b"});
    assert_eq!(
        patch(&labelled, json!({"a": "1", "b": "2", "own": "x"}), listed),
        Value::Null
    );
    let listed = json!({"agents.x-k8s.io/propagated-labels": "agents.x-k8s.io/claim-uid,old"});
    let there = json!({"old": "1", "own": "x", "agents.x-k8s.io/claim-uid": "x"});
    let expected = json!({
        "labels": {"agents.x-k8s.io/claim-uid": null, "old": null},
        "annotations": {"agents.x-k8s.io/propagated-labels": null},
    });
    assert_eq!(patch(&none, there, listed), expected);
    let traced =
        template(json!({"annotations": {"opentelemetry.io/trace-context": "x", "a": "1"}}));
    let expected =
        json!({"annotations": {"a": "1", "agents.x-k8s.io/propagated-annotations": "a"}});
    assert_eq!(patch(&traced, json!({}), json!({})), expected);
}

#[test]
fn labels_of_pools_and_templates_follow_the_owner() {
    let labels = json!({
        "agents.x-k8s.io/warm-pool-sandbox": "p", "agents.x-k8s.io/sandbox-template-ref-hash": "t",
        "agents.x-k8s.io/created-by": "go-client", "agents.x-k8s.io/launch-type": "warm",
    });
    let pooled = owned_by("SandboxWarmPool", labels.clone());
    let claimed = owned_by("SandboxClaim", labels.clone());
    let free = json!({"metadata": {"labels": labels}});
    let all = json!({
        "agents.x-k8s.io/warm-pool-sandbox": "p", "agents.x-k8s.io/sandbox-template-ref-hash": "t",
        "agents.x-k8s.io/created-by": "go-client",
    });
    assert_eq!(patch(&pooled, json!({}), json!({})), json!({"labels": all}));
    assert_eq!(patch(&pooled, all.clone(), json!({})), Value::Null);
    let expected = json!({"labels": {"agents.x-k8s.io/warm-pool-sandbox": null}});
    assert_eq!(patch(&claimed, all.clone(), json!({})), expected);
    let expected = json!({"labels": {
        "agents.x-k8s.io/warm-pool-sandbox": null, "agents.x-k8s.io/sandbox-template-ref-hash": null,
    }});
    assert_eq!(patch(&free, all, json!({})), expected);
}

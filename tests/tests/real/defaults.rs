//! Defaults land as specified.

use serde_json::{Value, json};

use crate::cluster::{cluster_of, minimal};

const SANDBOX: &str = "agents.x-k8s.io";
const EXTENSIONS: &str = "extensions.agents.x-k8s.io";
const KRUISE: &str = "agents.kruise.io/v1alpha1";

/// Creates `spec` over the minimal object of the kind and returns what is stored.
fn stored(api_version: &str, kind: &str, spec: Value) -> Value {
    let cluster = cluster_of(api_version);
    let namespace = cluster.namespace("defaults");
    let mut object = minimal(api_version, kind, &namespace);
    let fields = object["spec"].as_object_mut().unwrap();
    fields.extend(spec.as_object().unwrap().clone());
    let said = cluster.kubectl(&["create", "-f", "-"], Some(&object));
    assert!(said.ok, "{said:?}");
    cluster.stored(&object).unwrap()
}

#[track_caller]
fn assert_defaults(object: &Value, expected: &[(&str, Value)]) {
    for (pointer, value) in expected {
        assert_eq!(
            object.pointer(pointer),
            Some(value),
            "{pointer} of {}",
            object["kind"]
        );
    }
}

#[test]
fn a_partition_may_be_a_fraction_and_a_surge_more_than_all() {
    let amounts = json!({"partition": "33.3%", "maxSurge": "150%"});
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": amounts});
    let pool = stored(
        &format!("{EXTENSIONS}/v1beta1"),
        "SandboxWarmPool",
        json!({"updateStrategy": strategy}),
    );
    assert_defaults(&pool, &[("/spec/updateStrategy/rollingUpdate", amounts)]);
}

#[test]
fn of_a_sandbox() {
    let beta = stored(&format!("{SANDBOX}/v1beta1"), "Sandbox", json!({}));
    assert_defaults(
        &beta,
        &[
            ("/spec/operatingMode", json!("Running")),
            ("/spec/shutdownPolicy", json!("Retain")),
        ],
    );
    let alpha = stored(&format!("{SANDBOX}/v1alpha1"), "Sandbox", json!({}));
    assert_defaults(
        &alpha,
        &[
            ("/spec/replicas", json!(1)),
            ("/spec/shutdownPolicy", json!("Retain")),
        ],
    );
}

#[test]
fn inside_a_pod_spec() {
    let containers = json!([{
        "name": "runtime",
        "ports": [{"containerPort": 8888}],
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"key": "k"}}}],
        "livenessProbe": {"grpc": {"port": 1}},
    }]);
    let pod = json!({"podTemplate": {"spec": {"containers": containers}}});
    let sandbox = stored(&format!("{SANDBOX}/v1beta1"), "Sandbox", pod);
    let container = &sandbox["spec"]["podTemplate"]["spec"]["containers"][0];
    assert_defaults(
        container,
        &[
            ("/ports/0/protocol", json!("TCP")),
            ("/env/0/valueFrom/secretKeyRef/name", json!("")),
            ("/livenessProbe/grpc/service", json!("")),
        ],
    );
    assert_eq!(
        container.get("image"),
        None,
        "what has no default stays absent"
    );
}

#[test]
fn of_a_claim_and_only_where_its_lifecycle_is_given() {
    let api_version = format!("{EXTENSIONS}/v1beta1");
    let with = stored(&api_version, "SandboxClaim", json!({"lifecycle": {}}));
    assert_defaults(
        &with,
        &[("/spec/lifecycle/shutdownPolicy", json!("Retain"))],
    );
    let without = stored(&api_version, "SandboxClaim", json!({}));
    assert_eq!(
        without["spec"],
        json!({"warmPoolRef": {"name": "python-pool"}})
    );
    let alpha = stored(&format!("{EXTENSIONS}/v1alpha1"), "SandboxClaim", json!({}));
    assert_defaults(&alpha, &[("/spec/warmpool", json!("default"))]);
}

#[test]
fn of_a_template() {
    let template = stored(
        &format!("{EXTENSIONS}/v1beta1"),
        "SandboxTemplate",
        json!({}),
    );
    assert_defaults(
        &template,
        &[
            ("/spec/networkPolicyManagement", json!("Managed")),
            ("/spec/envVarsInjectionPolicy", json!("Disallowed")),
            ("/spec/volumeClaimTemplatesPolicy", json!("Disallowed")),
        ],
    );
}

#[test]
fn of_a_pool_and_only_where_its_strategy_is_given() {
    let api_version = format!("{EXTENSIONS}/v1beta1");
    let with = stored(
        &api_version,
        "SandboxWarmPool",
        json!({"updateStrategy": {}}),
    );
    assert_defaults(
        &with,
        &[
            ("/spec/replicas", json!(1)),
            ("/spec/updateStrategy/type", json!("OnReplenish")),
        ],
    );
    let without = stored(&api_version, "SandboxWarmPool", json!({}));
    assert_eq!(without["spec"].get("updateStrategy"), None);
}

#[test]
fn of_a_null_are_those_of_an_absent_field() {
    let nulls = json!({"operatingMode": null, "service": null, "volumeClaimTemplates": null});
    let sandbox = stored(&format!("{SANDBOX}/v1beta1"), "Sandbox", nulls);
    assert_defaults(&sandbox, &[("/spec/operatingMode", json!("Running"))]);
    assert_eq!(sandbox["spec"].get("service"), None);
    assert_eq!(sandbox["spec"].get("volumeClaimTemplates"), None);
}

#[test]
fn of_the_kruise_kinds() {
    let claim = stored(KRUISE, "SandboxClaim", json!({}));
    assert_defaults(
        &claim,
        &[
            ("/spec/replicas", json!(1)),
            ("/spec/claimTimeout", json!("1m")),
            ("/spec/ttlAfterCompleted", json!("60m")),
            ("/spec/waitReadyTimeout", json!("30s")),
            ("/spec/createOnNoStock", json!(true)),
            ("/spec/skipInitRuntime", json!(false)),
        ],
    );
    let hooks = json!({"lifecycle": {"preUpgrade": {"exec": {"command": ["true"]}}}});
    for kind in ["Sandbox", "SandboxUpdateOps"] {
        let object = stored(KRUISE, kind, hooks.clone());
        assert_defaults(
            &object,
            &[("/spec/lifecycle/preUpgrade/timeoutSeconds", json!(60))],
        );
    }
    let set = stored(KRUISE, "SandboxSet", json!({}));
    assert_eq!(
        set["spec"].get("updateStrategy"),
        None,
        "admission defaults it, not the schema"
    );
}

#[test]
fn a_selector_and_a_schemaless_template_are_stored_whole() {
    let selector = json!({
        "matchLabels": {"agents.kruise.io/sandbox-template": "pool"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
    });
    let patch = json!({"spec": {"containers": [{"name": "sandbox", "$patch": "delete"}]}});
    let wanted = json!({"selector": selector, "patch": patch});
    let ops = stored(KRUISE, "SandboxUpdateOps", wanted.clone());
    assert_eq!(ops["spec"], wanted);
}

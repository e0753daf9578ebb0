//! What is wrong with an object is said in the server's clear words, and the object is not stored.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::cluster::{Cluster, KRUISE, V1ALPHA1, V1BETA1, cluster_of, minimal};

const SANDBOX: &str = "agents.x-k8s.io/v1beta1 Sandbox";
const CLAIM: &str = "extensions.agents.x-k8s.io/v1beta1 SandboxClaim";
const TEMPLATE: &str = "extensions.agents.x-k8s.io/v1beta1 SandboxTemplate";
const POOL: &str = "extensions.agents.x-k8s.io/v1beta1 SandboxWarmPool";
const KRUISE_SANDBOX: &str = "agents.kruise.io/v1alpha1 Sandbox";
const KRUISE_SET: &str = "agents.kruise.io/v1alpha1 SandboxSet";
const KRUISE_CLAIM: &str = "agents.kruise.io/v1alpha1 SandboxClaim";
const KRUISE_TEMPLATE: &str = "agents.kruise.io/v1alpha1 SandboxTemplate";
const UPDATE_OPS: &str = "agents.kruise.io/v1alpha1 SandboxUpdateOps";
const CHECKPOINT: &str = "agents.kruise.io/v1alpha1 Checkpoint";

/// Kind, where the minimal object is changed (a JSON pointer), the bad value (null removes the
/// field), and what the error must name: the field and the remedy.
type Case = (&'static str, &'static str, Value, [&'static str; 2]);

fn sigs_cases() -> Vec<Case> {
    let container = "/spec/podTemplate/spec/containers/0";
    let containers = "/spec/podTemplate/spec/containers";
    vec![
        (SANDBOX, "/spec", json!(null), ["spec", "Required value"]),
        (
            SANDBOX,
            "/spec",
            json!("x"),
            ["spec", "must be of type object"],
        ),
        (
            SANDBOX,
            "/spec/service",
            json!("yes"),
            ["spec.service", "boolean"],
        ),
        (
            SANDBOX,
            "/spec/operatingMode",
            json!("Asleep"),
            ["spec.operatingMode", "\"Suspended\""],
        ),
        (
            SANDBOX,
            "/spec/operatingMode",
            json!(1),
            ["spec.operatingMode", "string"],
        ),
        (
            SANDBOX,
            "/spec/opratingMode",
            json!("Running"),
            ["spec.opratingMode", "unknown field"],
        ),
        (
            SANDBOX,
            "/spec/replicas",
            json!(0),
            ["spec.replicas", "unknown field"],
        ),
        (
            SANDBOX,
            "/spec/podTemplate",
            json!(null),
            ["spec.podTemplate", "Required value"],
        ),
        (
            SANDBOX,
            "/spec/podTemplate/spec",
            json!(null),
            ["spec.podTemplate.spec", "Required"],
        ),
        (
            SANDBOX,
            containers,
            json!(null),
            ["podTemplate.spec.containers", "Required value"],
        ),
        (
            SANDBOX,
            containers,
            json!({}),
            ["podTemplate.spec.containers", "array"],
        ),
        (
            SANDBOX,
            container,
            json!({"image": "x"}),
            ["containers[0].name", "Required value"],
        ),
        (
            SANDBOX,
            "/spec/podTemplate/spec/containers/0/imagge",
            json!("x"),
            ["containers[0].imagge", "unknown field"],
        ),
        (
            SANDBOX,
            "/spec/podTemplate/spec/containers/0/ports",
            json!([{"containerPort": "http"}]),
            ["ports[0].containerPort", "integer"],
        ),
        (
            SANDBOX,
            "/spec/podTemplate/spec/containers/0/resources",
            json!({"limits": {"cpu": "lots"}}),
            ["resources.limits.cpu", "should match"],
        ),
        (
            SANDBOX,
            containers,
            json!([{"name": "a"}, {"name": "a"}]),
            ["containers[1]", "Duplicate value"],
        ),
        (
            SANDBOX,
            "/spec/shutdownTime",
            json!("tomorrow"),
            ["spec.shutdownTime", "date-time"],
        ),
        (
            SANDBOX,
            "/spec/shutdownPolicy",
            json!("Keep"),
            ["spec.shutdownPolicy", "\"Retain\""],
        ),
        (
            SANDBOX,
            "/spec/volumeClaimTemplates",
            json!([{"metadata": {"name": "data"}}]),
            ["volumeClaimTemplates[0].spec", "Required value"],
        ),
        (
            SANDBOX,
            "/spec/volumeClaimTemplates",
            json!([{"spec": {"resources": {"requests": {"storage": "big"}}}}]),
            ["resources.requests.storage", "should match"],
        ),
        (
            CLAIM,
            "/spec/warmPoolRef",
            json!(null),
            ["spec.warmPoolRef", "Required value"],
        ),
        (
            CLAIM,
            "/spec/warmPoolRef",
            json!({}),
            ["spec.warmPoolRef.name", "Required value"],
        ),
        (
            CLAIM,
            "/spec/warmPoolRef/name",
            json!(5),
            ["spec.warmPoolRef.name", "string"],
        ),
        (
            CLAIM,
            "/spec/warmpool",
            json!("default"),
            ["spec.warmpool", "unknown field"],
        ),
        (
            CLAIM,
            "/spec/env",
            json!([{"name": "A"}]),
            ["spec.env[0].value", "Required value"],
        ),
        (
            CLAIM,
            "/spec/env",
            json!([{"value": "1"}]),
            ["spec.env[0].name", "Required value"],
        ),
        (
            CLAIM,
            "/spec/env",
            json!([{"name": "A", "value": 1}]),
            ["spec.env[0].value", "string"],
        ),
        (
            CLAIM,
            "/spec/lifecycle",
            json!({"ttlSecondsAfterFinished": -1}),
            ["ttlSecondsAfterFinished", "greater than or equal to 0"],
        ),
        (
            CLAIM,
            "/spec/lifecycle",
            json!({"ttlSecondsAfterFinished": "1h"}),
            ["ttlSecondsAfterFinished", "integer"],
        ),
        (
            CLAIM,
            "/spec/lifecycle",
            json!({"shutdownPolicy": "Drop"}),
            ["spec.lifecycle.shutdownPolicy", "\"DeleteForeground\""],
        ),
        (
            CLAIM,
            "/spec/lifecycle",
            json!({"shutdownTime": "5pm"}),
            ["spec.lifecycle.shutdownTime", "date-time"],
        ),
        (
            CLAIM,
            "/spec/additionalPodMetadata",
            json!({"labels": {"a": 1}}),
            ["additionalPodMetadata.labels.a", "string"],
        ),
        (
            TEMPLATE,
            "/spec/networkPolicyManagement",
            json!("Maybe"),
            ["spec.networkPolicyManagement", "\"Unmanaged\""],
        ),
        (
            TEMPLATE,
            "/spec/envVarsInjectionPolicy",
            json!("Yes"),
            ["spec.envVarsInjectionPolicy", "\"Overrides\""],
        ),
        (
            TEMPLATE,
            "/spec/volumeClaimTemplatesPolicy",
            json!(true),
            ["spec.volumeClaimTemplatesPolicy", "string"],
        ),
        (
            TEMPLATE,
            "/spec/networkPolicy",
            json!({"ingress": [{"from": [{"ipBlock": {}}]}]}),
            ["ingress[0].from[0].ipBlock.cidr", "Required value"],
        ),
        (
            TEMPLATE,
            "/spec/networkPolicy",
            json!({"egress": [{"to": [{"podSelector": {"matchExpressions": [{"key": "a"}]}}]}]}),
            ["podSelector.matchExpressions[0].operator", "Required value"],
        ),
        (
            TEMPLATE,
            "/spec/networkPolicy",
            json!({"egress": [{"ports": [{"endPort": "x"}]}]}),
            ["egress[0].ports[0].endPort", "integer"],
        ),
        (
            POOL,
            "/spec/replicas",
            json!(-1),
            ["spec.replicas", "greater than or equal to 0"],
        ),
        (
            POOL,
            "/spec/replicas",
            json!("two"),
            ["spec.replicas", "integer"],
        ),
        (
            POOL,
            "/spec/replicas",
            json!(1.5),
            ["spec.replicas", "integer"],
        ),
        (
            POOL,
            "/spec/sandboxTemplateRef",
            json!(null),
            ["spec.sandboxTemplateRef", "Required value"],
        ),
        (
            POOL,
            "/spec/updateStrategy",
            json!({"type": "Sometimes"}),
            ["spec.updateStrategy.type", "\"OnReplenish\""],
        ),
    ]
}

fn kruise_cases() -> Vec<Case> {
    vec![
        (
            KRUISE_SET,
            "/spec/replicas",
            json!(null),
            ["spec.replicas", "Required value"],
        ),
        (
            KRUISE_SET,
            "/spec/replicas",
            json!(-1),
            ["spec.replicas", "greater than or equal to 0"],
        ),
        (
            KRUISE_SET,
            "/spec/updateStrategy",
            json!({"maxUnavailable": "150%"}),
            ["spec.updateStrategy.maxUnavailable", "between 0% and 100%"],
        ),
        (
            KRUISE_SET,
            "/spec/updateStrategy",
            json!({"maxUnavailable": "two"}),
            ["spec.updateStrategy.maxUnavailable", "between 0% and 100%"],
        ),
        (
            KRUISE_SET,
            "/spec/updateStrategy",
            json!({"maxUnavailable": true}),
            ["spec.updateStrategy.maxUnavailable", "integer,string"],
        ),
        (
            KRUISE_SET,
            "/spec/scaleStrategy",
            json!({"maxUnavailable": "-5%"}),
            ["spec.scaleStrategy.maxUnavailable", "between 0% and 100%"],
        ),
        (
            KRUISE_SET,
            "/spec/templateRef",
            json!({"kind": "SandboxTemplate"}),
            ["spec.templateRef.name", "Required value"],
        ),
        (
            KRUISE_SET,
            "/spec/pauseStrategy",
            json!({"type": "Freeze"}),
            ["spec.pauseStrategy.type", "\"Hibernate\""],
        ),
        (
            KRUISE_SET,
            "/spec/runtimes",
            json!([{}]),
            ["spec.runtimes[0].name", "Required value"],
        ),
        (
            KRUISE_CLAIM,
            "/spec/templateName",
            json!(null),
            ["spec.templateName", "Required value"],
        ),
        (
            KRUISE_CLAIM,
            "/spec/replicas",
            json!(0),
            ["spec.replicas", "greater than or equal to 1"],
        ),
        (
            KRUISE_CLAIM,
            "/spec/claimTimeout",
            json!("500ms"),
            ["spec.claimTimeout", "at least 1 second"],
        ),
        (
            KRUISE_CLAIM,
            "/spec/claimTimeout",
            json!("soon"),
            ["spec.claimTimeout", "Duration"],
        ),
        (
            KRUISE_CLAIM,
            "/spec/waitReadyTimeout",
            json!("0s"),
            ["spec.waitReadyTimeout", "at least 1 second"],
        ),
        (
            KRUISE_CLAIM,
            "/spec/dynamicVolumesMount",
            json!([{"mountPath": "/mnt"}]),
            ["spec.dynamicVolumesMount[0].pvName", "Required value"],
        ),
        (
            KRUISE_CLAIM,
            "/spec/dynamicVolumesMount",
            json!([{"pvName": "a", "mountPath": "/mnt"}, {"pvName": "b", "mountPath": "/mnt"}]),
            ["spec.dynamicVolumesMount[1]", "Duplicate value"],
        ),
        (
            KRUISE_CLAIM,
            "/spec/inplaceUpdate",
            json!({"resources": {"requests": {"cpu": "much"}}}),
            ["inplaceUpdate.resources.requests.cpu", "should match"],
        ),
        (
            KRUISE_CLAIM,
            "/spec/createOnNoStock",
            json!("yes"),
            ["spec.createOnNoStock", "boolean"],
        ),
        (
            KRUISE_SANDBOX,
            "/spec/upgradePolicy",
            json!({"type": "Rolling"}),
            ["spec.upgradePolicy.type", "\"CheckpointRestore\""],
        ),
        (
            KRUISE_SANDBOX,
            "/spec/lifecycle",
            json!({"preUpgrade": {"exec": {"command": "ls"}}}),
            ["preUpgrade.exec.command", "array"],
        ),
        (
            KRUISE_SANDBOX,
            "/spec/lifecycle",
            json!({"postUpgrade": {"timeoutSeconds": "60"}}),
            ["postUpgrade.timeoutSeconds", "integer"],
        ),
        (
            KRUISE_SANDBOX,
            "/spec/pauseTime",
            json!("noon"),
            ["spec.pauseTime", "date-time"],
        ),
        (
            KRUISE_SANDBOX,
            "/spec/paused",
            json!(1),
            ["spec.paused", "boolean"],
        ),
        (
            KRUISE_TEMPLATE,
            "/spec/persistentContents",
            json!("memory"),
            ["spec.persistentContents", "array"],
        ),
        (
            UPDATE_OPS,
            "/spec/selector",
            json!(null),
            ["spec.selector", "Required value"],
        ),
        (
            UPDATE_OPS,
            "/spec/selector",
            json!({"matchExpressions": [{"operator": "In"}]}),
            ["spec.selector.matchExpressions[0].key", "Required value"],
        ),
        (
            UPDATE_OPS,
            "/spec/selector",
            json!({"matchLabel": {"a": "b"}}),
            ["spec.selector.matchLabel", "unknown field"],
        ),
        (
            UPDATE_OPS,
            "/spec/updateStrategy",
            json!({"type": "InPlace"}),
            ["spec.updateStrategy.type", "\"Recreate\""],
        ),
        (
            UPDATE_OPS,
            "/spec/updateStrategy",
            json!({"maxUnavailable": "101%"}),
            ["spec.updateStrategy.maxUnavailable", "between 0% and 100%"],
        ),
        (
            UPDATE_OPS,
            "/spec/stateFilter",
            json!({"states": ["Running", "Running"]}),
            ["spec.stateFilter.states[1]", "Duplicate value"],
        ),
        (
            CHECKPOINT,
            "/spec/keepRunning",
            json!("true"),
            ["spec.keepRunning", "boolean"],
        ),
        (
            CHECKPOINT,
            "/spec/persistentContents",
            json!([1]),
            ["persistentContents[0]", "string"],
        ),
    ]
}

fn v1alpha1_cases() -> Vec<Case> {
    let sandbox = "agents.x-k8s.io/v1alpha1 Sandbox";
    let claim = "extensions.agents.x-k8s.io/v1alpha1 SandboxClaim";
    let pool = "extensions.agents.x-k8s.io/v1alpha1 SandboxWarmPool";
    vec![
        (
            sandbox,
            "/spec/replicas",
            json!(2),
            ["spec.replicas", "less than or equal to 1"],
        ),
        (
            sandbox,
            "/spec/operatingMode",
            json!("Running"),
            ["spec.operatingMode", "unknown field"],
        ),
        (
            claim,
            "/spec/sandboxTemplateRef",
            json!(null),
            ["spec.sandboxTemplateRef", "Required value"],
        ),
        (
            claim,
            "/spec/warmPoolRef",
            json!({"name": "p"}),
            ["spec.warmPoolRef", "unknown field"],
        ),
        (
            pool,
            "/spec/replicas",
            json!(null),
            ["spec.replicas", "Required value"],
        ),
    ]
}

fn change(object: &mut Value, pointer: &str, value: &Value) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap();
    match (parent, value) {
        (Value::Object(fields), Value::Null) => _ = fields.remove(name),
        (Value::Object(fields), value) => _ = fields.insert(name.to_owned(), value.clone()),
        (Value::Array(items), value) => items[name.parse::<usize>().unwrap()] = value.clone(),
        (other, _) => panic!("{pointer} leads into {other}"),
    }
}

fn all_refused(cluster: &Cluster, cases: Vec<Case>) {
    let namespace = cluster.namespace("bad-input");
    let mut problems = Vec::new();
    for (kind, pointer, value, expected) in cases {
        let (api_version, name) = kind.split_once(' ').unwrap();
        let mut object = minimal(api_version, name, &namespace);
        change(&mut object, pointer, &value);
        let said = cluster.kubectl(&["create", "-f", "-"], Some(&object));
        let clear = !said.ok && expected.iter().all(|text| said.stderr.contains(text));
        let stored = cluster.stored(&minimal(api_version, name, &namespace));
        if !clear || stored.is_some() {
            problems.push(format!(
                "{kind} {pointer} = {value}: {said:?}, stored: {stored:?}"
            ));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn of_the_sigs_kinds_is_refused() {
    all_refused(&V1BETA1, sigs_cases());
}

#[test]
fn of_the_kruise_kinds_is_refused() {
    all_refused(&KRUISE, kruise_cases());
}

#[test]
fn of_the_v1alpha1_kinds_is_refused() {
    all_refused(&V1ALPHA1, v1alpha1_cases());
}

#[test]
fn the_table_is_long_enough_and_its_base_objects_are_good() {
    let tables = [
        (&V1BETA1, sigs_cases()),
        (&KRUISE, kruise_cases()),
        (&V1ALPHA1, v1alpha1_cases()),
    ];
    assert!(tables.iter().map(|(_, cases)| cases.len()).sum::<usize>() >= 40);
    for (cluster, cases) in tables {
        let namespace = cluster.namespace("good-input");
        let kinds: BTreeSet<_> = cases.iter().map(|(kind, ..)| *kind).collect();
        for kind in kinds {
            let (api_version, name) = kind.split_once(' ').unwrap();
            let object = minimal(api_version, name, &namespace);
            let said = cluster.kubectl(&["create", "-f", "-"], Some(&object));
            assert!(said.ok, "{said:?}");
        }
    }
}

#[test]
fn changing_what_is_immutable_is_refused_and_changes_nothing() {
    let templates = |size: &str| json!([{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": size}}}}]);
    let cases = [
        (
            SANDBOX,
            "/spec/volumeClaimTemplates",
            templates("1Gi"),
            templates("2Gi"),
            "volumeClaimTemplates is immutable",
        ),
        (
            SANDBOX,
            "/spec/volumeClaimTemplates",
            templates("1Gi"),
            json!(null),
            "volumeClaimTemplates is immutable",
        ),
        (
            SANDBOX,
            "/spec/volumeClaimTemplates",
            json!(null),
            templates("1Gi"),
            "volumeClaimTemplates is immutable",
        ),
        (
            KRUISE_CLAIM,
            "/spec/replicas",
            json!(2),
            json!(3),
            "replicas is immutable",
        ),
    ];
    for (kind, pointer, before, after, says) in cases {
        let (api_version, name) = kind.split_once(' ').unwrap();
        let cluster = cluster_of(api_version);
        let namespace = cluster.namespace("immutable");
        let mut object = minimal(api_version, name, &namespace);
        change(&mut object, pointer, &before);
        assert!(cluster.kubectl(&["create", "-f", "-"], Some(&object)).ok);
        let stored = cluster.stored(&object).unwrap();
        change(&mut object, pointer, &after);
        let said = cluster.kubectl(&["replace", "-f", "-"], Some(&object));
        assert!(!said.ok && said.stderr.contains(says), "{kind}: {said:?}");
        assert_eq!(cluster.stored(&object).unwrap(), stored);
    }
}

#[test]
fn volume_claim_templates_of_a_template_may_change() {
    let namespace = V1BETA1.namespace("mutable");
    let mut object = minimal(
        "extensions.agents.x-k8s.io/v1beta1",
        "SandboxTemplate",
        &namespace,
    );
    assert!(V1BETA1.kubectl(&["create", "-f", "-"], Some(&object)).ok);
    object["spec"]["volumeClaimTemplates"] = json!([{"spec": {}}]);
    let said = V1BETA1.kubectl(&["replace", "-f", "-"], Some(&object));
    assert!(said.ok, "{said:?}");
    assert_eq!(
        V1BETA1.stored(&object).unwrap()["spec"]["volumeClaimTemplates"],
        json!([{"spec": {}}])
    );
}

//! What people see of the kinds in kubectl: establishment, explain, short names, columns, scale.

use serde_json::json;

use crate::{
    cluster::{Cluster, cluster_of, minimal},
    examples::all_apply,
};

#[test]
fn deploy_crds_applies_with_plain_kubectl_and_then_the_examples_do() {
    let cluster = Cluster::empty();
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crds");
    for run in ["created", "unchanged"] {
        let said = cluster.kubectl(&["apply", "-f", directory], None);
        assert!(said.ok, "{said:?}");
        assert_eq!(said.stderr, "", "no warning of the server");
        assert_eq!(said.stdout.matches(run).count(), 10, "{}", said.stdout);
    }
    cluster.wait_for_crds();
    all_apply(&cluster, "kruise", 12);
    all_apply(&cluster, "sigs/v1beta1", 7);
}

#[test]
fn explain_describes_every_kind_down_to_the_pod() {
    const SANDBOX: &str = "agents.x-k8s.io/v1beta1";
    const EXTENSIONS: &str = "extensions.agents.x-k8s.io/v1beta1";
    const KRUISE: &str = "agents.kruise.io/v1alpha1";
    for (api_version, path, says) in [
        (SANDBOX, "sandboxes.spec.operatingMode", "Suspended"),
        (
            SANDBOX,
            "sandboxes.spec.podTemplate.spec.containers.ports",
            "containerPort",
        ),
        (
            EXTENSIONS,
            "sandboxclaims.spec.warmPoolRef",
            "The pool to draw from",
        ),
        (
            EXTENSIONS,
            "sandboxtemplates.spec.networkPolicy.ingress",
            "ports",
        ),
        (EXTENSIONS, "sandboxwarmpools.spec", "updateStrategy"),
        (
            KRUISE,
            "sandboxes.spec.lifecycle.preUpgrade",
            "timeoutSeconds",
        ),
        (KRUISE, "sandboxsets.spec.updateStrategy", "maxUnavailable"),
        (KRUISE, "sandboxclaims.spec", "claimTimeout"),
        (KRUISE, "sandboxtemplates.spec", "volumeClaimTemplates"),
        (KRUISE, "sandboxupdateops.spec.selector", "matchExpressions"),
        (KRUISE, "checkpoints.spec", "keepRunning"),
    ] {
        let said = cluster_of(api_version).kubectl(
            &["explain", path, &format!("--api-version={api_version}")],
            None,
        );
        assert!(said.ok, "{path}: {said:?}");
        assert!(said.stdout.contains(says), "{path}: {}", said.stdout);
    }
}

/// Kind, short name, a status, and the row that `kubectl get` prints for it (but for the age).
fn columns() -> Vec<(
    &'static str,
    &'static str,
    &'static str,
    serde_json::Value,
    &'static str,
)> {
    let ready = json!({"conditions": [{
        "type": "Ready", "status": "True", "reason": "DependenciesReady", "message": "",
        "lastTransitionTime": "2026-11-15T12:00:00Z",
    }], "sandbox": {"name": "box"}});
    vec![
        (
            "agents.x-k8s.io/v1beta1",
            "Sandbox",
            "sandbox",
            json!({"conditions": ready["conditions"]}),
            "NAME READY REASON AGE one True DependenciesReady",
        ),
        (
            "extensions.agents.x-k8s.io/v1beta1",
            "SandboxClaim",
            "sandboxclaim",
            ready.clone(),
            "NAME READY SANDBOX REASON AGE one True box DependenciesReady",
        ),
        (
            "extensions.agents.x-k8s.io/v1beta1",
            "SandboxWarmPool",
            "swp",
            json!({"readyReplicas": 7}),
            "NAME READY DESIRED AGE one 7 1",
        ),
        (
            "extensions.agents.x-k8s.io/v1beta1",
            "SandboxTemplate",
            "sandboxtemplate",
            json!(null),
            "NAME AGE one",
        ),
        (
            "agents.kruise.io/v1alpha1",
            "Sandbox",
            "sbx",
            json!({"phase": "Running", "message": "fine"}),
            "NAME STATUS AGE CLAIMED SHUTDOWN_TIME PAUSE_TIME RECYCLEDCOUNT MESSAGE one Running",
        ),
        (
            "agents.kruise.io/v1alpha1",
            "SandboxSet",
            "sbs",
            json!({"replicas": 3, "availableReplicas": 2, "updateRevision": "abc"}),
            "NAME REPLICAS AVAILABLE UPDATEDREPLICAS UPDATEDAVAILABLEREPLICAS UPDATEREVISION AGE one 3 2 abc",
        ),
        (
            "agents.kruise.io/v1alpha1",
            "SandboxClaim",
            "sbc",
            json!({"phase": "Completed", "claimedReplicas": 1}),
            "NAME PHASE TEMPLATE DESIRED CLAIMED AGE one Completed pool 1 1",
        ),
        (
            "agents.kruise.io/v1alpha1",
            "SandboxTemplate",
            "sbt",
            json!(null),
            "NAME AGE one",
        ),
        (
            "agents.kruise.io/v1alpha1",
            "SandboxUpdateOps",
            "suo",
            json!({"phase": "Updating", "replicas": 9, "updatedReplicas": 4,
                "updatingReplicas": 3, "failedReplicas": 2}),
            "NAME PHASE TOTAL UPDATED UPDATING FAILED AGE one Updating 9 4 3 2",
        ),
        (
            "agents.kruise.io/v1alpha1",
            "Checkpoint",
            "cp",
            json!({"phase": "Succeeded"}),
            "NAME STATUS AGE one Succeeded",
        ),
    ]
}

#[test]
fn get_by_short_name_shows_the_columns_people_know() {
    for (api_version, kind, short, status, expected) in columns() {
        let cluster = cluster_of(api_version);
        let namespace = cluster.namespace("columns");
        let mut object = minimal(api_version, kind, &namespace);
        let said = cluster.kubectl(&["create", "-f", "-"], Some(&object));
        assert!(said.ok, "{said:?}");
        if !status.is_null() {
            object["status"] = status;
            let patch = json!({"status": object["status"]}).to_string();
            let args = [
                "patch",
                "-f",
                "-",
                "--subresource=status",
                "--type=merge",
                "-p",
                &patch,
            ];
            let said = cluster.kubectl(&args, Some(&object));
            assert!(said.ok, "{kind}: {said:?}");
        }
        let said = cluster.kubectl(&["get", short, "-n", &namespace], None);
        let words = said.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.starts_with(expected), "{kind}: {said:?}");
    }
}

#[test]
fn pools_and_v1alpha1_sandboxes_scale_by_their_scale_subresource() {
    for (api_version, kind, short, replicas) in [
        (
            "extensions.agents.x-k8s.io/v1beta1",
            "SandboxWarmPool",
            "swp",
            5,
        ),
        (
            "extensions.agents.x-k8s.io/v1alpha1",
            "SandboxWarmPool",
            "swp",
            5,
        ),
        ("agents.kruise.io/v1alpha1", "SandboxSet", "sbs", 5),
        ("agents.x-k8s.io/v1alpha1", "Sandbox", "sandbox", 0),
    ] {
        let cluster = cluster_of(api_version);
        let namespace = cluster.namespace("scale");
        let object = minimal(api_version, kind, &namespace);
        assert!(cluster.kubectl(&["create", "-f", "-"], Some(&object)).ok);
        let replicas_arg = format!("--replicas={replicas}");
        let said = cluster.kubectl(
            &["scale", short, "one", &replicas_arg, "-n", &namespace],
            None,
        );
        assert!(said.ok, "{said:?}");
        assert_eq!(
            cluster.stored(&object).unwrap()["spec"]["replicas"],
            replicas,
            "{kind}"
        );
    }
}

use serde_json::{Value, json};

use super::Part;
use super::testing::{World, create, faults, field, update};

fn claim(spec: Value) -> Value {
    json!({"metadata": {"name": "c"}, "spec": spec})
}

fn deployment(spec: Value) -> Value {
    let mut spec = spec;
    let defaults = json!({
        "replicas": 0,
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    });
    for (field, value) in defaults.as_object().unwrap() {
        if spec.get(field).is_none() {
            spec[field] = value.clone();
        }
    }
    json!({"metadata": {"name": "d"}, "spec": spec})
}

#[test]
fn text_in_a_secret_becomes_data_and_wins() {
    let secret = json!({"data": {"a": "aGVsbG8="}, "stringData": {"b": "text", "a": "wins"}});
    let secret = create("Secret", secret).unwrap();
    assert_eq!(secret["data"], json!({"a": "d2lucw==", "b": "dGV4dA=="}));
    assert_eq!(secret.get("stringData"), None);
    assert_eq!(secret["type"], "Opaque");
    assert_eq!(field("Secret", &secret, "type").as_deref(), Some("Opaque"));
}

#[test]
fn secrets_of_known_types_need_their_keys() {
    let table = [
        (
            "kubernetes.io/dockerconfigjson",
            json!({}),
            vec!["data[.dockerconfigjson]: Required value"],
        ),
        (
            "kubernetes.io/tls",
            json!({"tls.crt": ""}),
            vec!["data[tls.key]: Required value"],
        ),
        (
            "kubernetes.io/basic-auth",
            json!({}),
            vec![
                "data[password]: Required value",
                "data[username]: Required value",
            ],
        ),
        (
            "kubernetes.io/ssh-auth",
            json!({}),
            vec!["data[ssh-privatekey]: Required value"],
        ),
    ];
    for (kind, data, expected) in table {
        assert_eq!(
            faults("Secret", json!({"type": kind, "data": data})),
            expected
        );
    }
    let fault = faults("Secret", json!({"data": {"a b": "aGVsbG8="}}));
    assert!(
        fault[0].starts_with("data[a b]: Invalid value: \"a b\": a valid config key must consist")
    );
}

#[test]
fn what_is_frozen_stays() {
    let secret = create(
        "Secret",
        json!({"immutable": true, "data": {"a": "aGVsbG8="}}),
    )
    .unwrap();
    let fault = update("Secret", Part::Main, &secret, |secret| {
        secret["data"]["a"] = "aGFsbG8=".into();
    });
    let expected = "data: Forbidden: field is immutable when `immutable` is set";
    assert_eq!(fault.unwrap_err(), [expected]);
    let fault = update("Secret", Part::Main, &secret, |secret| {
        secret["type"] = "x/y".into()
    });
    assert_eq!(
        fault.unwrap_err(),
        ["type: Invalid value: \"x/y\": field is immutable"]
    );
    let map = create("ConfigMap", json!({"immutable": true, "data": {"a": "b"}})).unwrap();
    let fault = update("ConfigMap", Part::Main, &map, |map| {
        map["immutable"] = false.into()
    });
    let expected = "immutable: Forbidden: field is immutable when `immutable` is set";
    assert_eq!(fault.unwrap_err(), [expected]);
}

#[test]
fn a_namespace_is_born_active_labelled_and_with_a_finalizer() {
    let namespace = create("Namespace", json!({})).unwrap();
    assert_eq!(
        namespace["metadata"]["labels"],
        json!({"kubernetes.io/metadata.name": "x"})
    );
    assert_eq!(namespace["spec"], json!({"finalizers": ["kubernetes"]}));
    assert_eq!(namespace["status"], json!({"phase": "Active"}));
}

#[test]
fn each_part_of_a_namespace_has_its_door() {
    let old = create("Namespace", json!({})).unwrap();
    let write = |part: Part| {
        let change = |namespace: &mut Value| {
            namespace["metadata"]["labels"] =
                json!({"x": "y", "kubernetes.io/metadata.name": "other"});
            namespace["spec"]["finalizers"] = json!(["kubernetes", "example.com/x"]);
            namespace["status"]["conditions"] = json!([{"type": "X", "status": "True"}]);
        };
        update("Namespace", part, &old, change).unwrap()
    };
    let labels = json!({"x": "y", "kubernetes.io/metadata.name": "x"});
    for part in [Part::Main, Part::Status, Part::Finalize] {
        let new = write(part);
        assert_eq!(new["metadata"]["labels"], labels, "{part:?}");
        assert_eq!(
            new["spec"] != old["spec"],
            part == Part::Finalize,
            "{part:?}"
        );
        assert_eq!(
            new["status"] != old["status"],
            part == Part::Status,
            "{part:?}"
        );
    }
}

#[test]
fn a_claim_gets_a_mode_a_protection_and_a_class() {
    let spec =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let class = json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    let world = World::new().with("storageclasses.storage.k8s.io", "fast", class);
    let made = world.create("PersistentVolumeClaim", claim(spec)).unwrap();
    assert_eq!(
        made["metadata"]["finalizers"],
        json!(["kubernetes.io/pvc-protection"])
    );
    assert_eq!(made["spec"]["volumeMode"], "Filesystem");
    assert_eq!(made["spec"]["storageClassName"], "fast");
    assert_eq!(made["status"], json!({"phase": "Pending"}));
}

#[test]
fn bad_claims_are_refused() {
    assert_eq!(
        faults(
            "PersistentVolumeClaim",
            claim(json!({"storageClassName": "none"}))
        ),
        [
            "spec.accessModes: Required value: at least 1 access mode is required",
            "spec.resources[storage]: Required value",
        ]
    );
    let spec = json!({"accessModes": ["Sometimes"], "resources": {"requests": {"storage": "0"}}});
    assert_eq!(
        faults("PersistentVolumeClaim", claim(spec)),
        [
            "spec.accessModes: Unsupported value: \"Sometimes\": supported values: \"ReadOnlyMany\", \
             \"ReadWriteMany\", \"ReadWriteOnce\", \"ReadWriteOncePod\"",
            "spec.resources[storage]: Invalid value: \"0\": must be greater than zero",
        ]
    );
}

#[test]
fn the_spec_of_a_claim_is_fixed_but_may_grow_when_bound() {
    let spec =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let made = create("PersistentVolumeClaim", claim(spec)).unwrap();
    let grow = |claim: &mut Value| claim["spec"]["resources"]["requests"]["storage"] = "2Gi".into();
    let fault = update("PersistentVolumeClaim", Part::Main, &made, grow).unwrap_err();
    let diff = "\n@@ -6,7 +6,7 @@\n  \"Resources\": {\n   \"Limits\": null,\n   \"Requests\": {\n-   \"storage\": \
                \"1Gi\"\n+   \"storage\": \"2Gi\"\n   }\n  },\n  \"VolumeName\": \"\",\n";
    assert!(fault[0].starts_with("spec: Forbidden: spec is immutable after creation except"));
    assert!(fault[0].ends_with(diff), "{}", fault[0]);
    let bound = update("PersistentVolumeClaim", Part::Status, &made, |claim| {
        claim["status"]["phase"] = "Bound".into();
    });
    let grown = update("PersistentVolumeClaim", Part::Main, &bound.unwrap(), grow).unwrap();
    assert_eq!(grown["spec"]["resources"]["requests"]["storage"], "2Gi");
}

#[test]
fn a_volume_has_one_source_which_is_fixed() {
    let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
    let volume = create("PersistentVolume", claim(spec)).unwrap();
    assert_eq!(
        volume["spec"]["hostPath"],
        json!({"path": "/x", "type": ""})
    );
    assert_eq!(
        volume["metadata"]["finalizers"],
        json!(["kubernetes.io/pv-protection"])
    );
    let fault = update("PersistentVolume", Part::Main, &volume, |volume| {
        volume["spec"]["hostPath"]["path"] = "/y".into();
    })
    .unwrap_err();
    let diff = "\n@@ -2,7 +2,7 @@\n  \"GCEPersistentDisk\": null,\n  \"AWSElasticBlockStore\": null,\n  \"HostPath\": \
                {\n-  \"Path\": \"/x\",\n+  \"Path\": \"/y\",\n   \"Type\": \"\"\n  },\n  \"Glusterfs\": null,\n";
    assert!(fault[0].ends_with(diff), "{}", fault[0]);
}

#[test]
fn a_storage_class_has_defaults_and_is_mostly_fixed() {
    let class = create("StorageClass", json!({"provisioner": "example.com/p"})).unwrap();
    assert_eq!(class["reclaimPolicy"], "Delete");
    assert_eq!(class["volumeBindingMode"], "Immediate");
    let fault = update("StorageClass", Part::Main, &class, |class| {
        class["provisioner"] = "example.com/q".into();
    });
    let expected = "provisioner: Invalid value: \"example.com/q\": field is immutable";
    assert_eq!(fault.unwrap_err(), [expected]);
    assert_eq!(
        faults(
            "StorageClass",
            json!({"provisioner": "", "reclaimPolicy": "Perhaps"})
        ),
        [
            "provisioner: Required value",
            "reclaimPolicy: Unsupported value: \"Perhaps\": supported values: \"Delete\", \"Retain\"",
        ]
    );
}

#[test]
fn an_event_is_about_something_in_its_namespace() {
    let event =
        |namespace: &str| json!({"involvedObject": {"kind": "Pod", "namespace": namespace}});
    assert!(create("Event", event("ns")).is_ok());
    assert_eq!(
        faults("Event", event("other")),
        ["involvedObject.namespace: Invalid value: \"other\": does not match event.namespace"]
    );
    let new = json!({"regarding": {"kind": "Pod", "namespace": "ns"}, "reason": "Tested", "type": "Normal"});
    assert_eq!(
        faults("events.k8s.io/Event", new),
        ["eventTime: Required value"]
    );
}

#[test]
fn events_are_selected_by_what_they_are_about_in_both_forms() {
    let core = json!({"involvedObject": {"name": "p"}, "reportingComponent": "there"});
    assert_eq!(
        field("Event", &core, "involvedObject.name").as_deref(),
        Some("p")
    );
    assert_eq!(field("Event", &core, "source").as_deref(), Some("there"));
    let own = json!({"regarding": {"name": "p"}, "reportingController": "there"});
    assert_eq!(
        field("events.k8s.io/Event", &own, "regarding.name").as_deref(),
        Some("p")
    );
    assert_eq!(
        field("events.k8s.io/Event", &own, "reportingController").as_deref(),
        Some("there")
    );
}

#[test]
fn bad_leases_are_refused() {
    assert_eq!(
        faults(
            "Lease",
            json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}})
        ),
        [
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
        ]
    );
}

#[test]
fn a_node_can_give_all_it_has() {
    let node = create("Node", json!({"spec": {"unschedulable": true}})).unwrap();
    assert_eq!(
        field("Node", &node, "spec.unschedulable").as_deref(),
        Some("true")
    );
    let node = update("Node", Part::Status, &node, |node| {
        node["status"] = json!({"capacity": {"cpu": "4"}});
    });
    assert_eq!(node.unwrap()["status"]["allocatable"], json!({"cpu": "4"}));
    assert_eq!(
        faults(
            "Node",
            json!({"spec": {"taints": [{"key": "x", "effect": "Perhaps"}]}})
        ),
        [
            "metadata.taints[0].effect: Unsupported value: \"Perhaps\": supported values: \"NoSchedule\", \
             \"PreferNoSchedule\", \"NoExecute\""
        ]
    );
    assert_eq!(
        faults("Node", json!({"status": {"capacity": {"cpu": "-1"}}})),
        [
            "status.allocatable.cpu: Invalid value: \"-1\": must be greater than or equal to 0",
            "status.capacity.cpu: Invalid value: \"-1\": must be greater than or equal to 0",
        ]
    );
}

#[test]
fn a_network_policy_says_which_way_it_works() {
    let spec = json!({"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}], "egress": [{}]});
    let policy = create("NetworkPolicy", json!({"spec": spec})).unwrap();
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(policy["spec"]["ingress"][0]["ports"][0]["protocol"], "TCP");
    let bad = json!({
        "podSelector": {"matchExpressions": [{"key": "x", "operator": "Like"}]},
        "policyTypes": ["Sideways"],
        "egress": [{"to": [
            {"ipBlock": {"cidr": "nonsense"}},
            {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}},
        ]}],
    });
    assert_eq!(
        faults("NetworkPolicy", json!({"spec": bad})),
        [
            "spec.egress[0].to[0].ipBlock.cidr: Invalid value: \"nonsense\": must be a valid CIDR value, (e.g. \
             10.9.8.0/24 or 2001:db8::/64)",
            "spec.egress[0].to[1].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of \
             `cidr`",
            "spec.podSelector.matchExpressions[0].operator: Invalid value: \"Like\": not a valid selector operator",
            "spec.policyTypes[0]: Unsupported value: \"Sideways\": supported values: \"Ingress\", \"Egress\"",
        ]
    );
}

#[test]
fn the_data_of_a_revision_is_fixed() {
    let revision = create(
        "ControllerRevision",
        json!({"revision": 1, "data": {"a": 1}}),
    )
    .unwrap();
    let next = update("ControllerRevision", Part::Main, &revision, |it| {
        it["revision"] = 2.into()
    });
    assert!(next.is_ok());
    let fault = update("ControllerRevision", Part::Main, &revision, |it| {
        it["data"]["b"] = 2.into()
    });
    assert_eq!(
        fault.unwrap_err(),
        ["data: Invalid value: {\"a\":1,\"b\":2}: field is immutable"]
    );
    assert_eq!(
        faults("ControllerRevision", json!({"revision": -1})),
        [
            "data: Required value: data is mandatory",
            "revision: Invalid value: -1: must be greater than or equal to 0",
        ]
    );
}

#[test]
fn a_deployment_and_its_template_get_defaults() {
    let made = create("Deployment", deployment(json!({"paused": true}))).unwrap();
    assert_eq!(made["spec"]["progressDeadlineSeconds"], 600);
    assert_eq!(
        made["spec"]["strategy"],
        json!({"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"})
    );
    assert_eq!(
        made["spec"]["template"]["spec"],
        json!({
            "containers": [{
                "image": "i", "imagePullPolicy": "Always", "name": "c", "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
            "securityContext": {}, "terminationGracePeriodSeconds": 30,
        })
    );
}

#[test]
fn the_template_of_a_deployment_fits_its_selector() {
    let other = json!({"metadata": {"labels": {"app": "e"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(
        faults("Deployment", deployment(json!({"template": other}))),
        [
            "spec.template.metadata.labels: Invalid value: {\"app\":\"e\"}: `selector` does not match template `labels`"
        ]
    );
    let none =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    assert_eq!(
        faults("Deployment", none),
        [
            "spec.selector: Required value",
            "spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`",
        ]
    );
    let made = create("Deployment", deployment(json!({}))).unwrap();
    let fault = update("Deployment", Part::Main, &made, |it| {
        it["spec"]["selector"] = json!({"matchLabels": {"app": "d", "x": "y"}});
        it["spec"]["template"]["metadata"]["labels"]["x"] = "y".into();
    });
    assert_eq!(
        fault.unwrap_err(),
        [
            "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"d\",\"x\":\"y\"}}: field is immutable"
        ]
    );
}

#[test]
fn bad_deployments_are_refused() {
    let spec = json!({
        "replicas": -1,
        "strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}},
        "template": {
            "metadata": {"labels": {"app": "d"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        },
    });
    assert_eq!(
        faults("Deployment", deployment(spec)),
        [
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
        ]
    );
}

#[test]
fn a_budget_counts_one_way() {
    assert!(
        create(
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": "50%"}})
        )
        .is_ok()
    );
    assert_eq!(
        faults(
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": 1, "maxUnavailable": 1}})
        ),
        [
            "spec: Invalid value: {\"MinAvailable\":1,\"Selector\":null,\"MaxUnavailable\":1,\
             \"UnhealthyPodEvictionPolicy\":null}: minAvailable and maxUnavailable cannot be both set"
        ]
    );
}

#[test]
fn a_write_of_the_object_leaves_the_status_and_a_write_of_the_status_the_rest() {
    let old = create("PodDisruptionBudget", json!({"spec": {"minAvailable": 1}})).unwrap();
    let change = |budget: &mut Value| {
        budget["spec"]["minAvailable"] = 2.into();
        budget["status"]["expectedPods"] = 3.into();
    };
    let main = update("PodDisruptionBudget", Part::Main, &old, change).unwrap();
    assert_eq!(
        (&main["spec"]["minAvailable"], &main["status"]),
        (&json!(2), &old["status"])
    );
    let status = update("PodDisruptionBudget", Part::Status, &old, change).unwrap();
    assert_eq!(
        (&status["spec"], &status["status"]["expectedPods"]),
        (&old["spec"], &json!(3))
    );
}

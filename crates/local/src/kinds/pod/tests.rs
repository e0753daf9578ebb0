use serde_json::{Value, json};

use crate::kinds::Part;
use crate::kinds::testing::{World, create, faults, field, update};

fn pod(spec: Value) -> Value {
    let mut spec = spec;
    spec["automountServiceAccountToken"] = false.into();
    json!({"metadata": {"name": "p"}, "spec": spec})
}

fn with(container: Value) -> Value {
    let mut container = container;
    for (field, value) in [("name", "c"), ("image", "i")] {
        if container[field].is_null() {
            container[field] = value.into();
        }
    }
    pod(json!({"containers": [container]}))
}

fn sized() -> Value {
    let resources = json!({
        "requests": {"cpu": "100m", "memory": "10Mi"},
        "limits": {"cpu": "200m", "memory": "20Mi"},
    });
    create("Pod", with(json!({"resources": resources}))).unwrap()
}

#[test]
fn a_pod_gets_its_defaults() {
    let pod = create("Pod", with(json!({"image": "i:latest"}))).unwrap();
    let patience = |key: &str| json!({"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300});
    assert_eq!(
        pod["spec"],
        json!({
            "automountServiceAccountToken": false,
            "containers": [{
                "image": "i:latest", "imagePullPolicy": "Always", "name": "c", "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": true,
            "preemptionPolicy": "PreemptLowerPriority",
            "priority": 0,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "serviceAccount": "default",
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 30,
            "tolerations": [
                patience("node.kubernetes.io/not-ready"),
                patience("node.kubernetes.io/unreachable"),
            ],
        })
    );
    assert_eq!(
        pod["status"],
        json!({"phase": "Pending", "qosClass": "BestEffort"})
    );
}

#[test]
fn the_token_of_its_account_is_mounted() {
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pod = create("Pod", pod).unwrap();
    let mount = &pod["spec"]["containers"][0]["volumeMounts"][0];
    assert_eq!(
        mount["mountPath"],
        "/var/run/secrets/kubernetes.io/serviceaccount"
    );
    let name = mount["name"].as_str().unwrap();
    assert!(
        name.starts_with("kube-api-access-") && name.len() == 21,
        "{name}"
    );
    let volume = &pod["spec"]["volumes"][0];
    assert_eq!(volume["name"], name);
    assert_eq!(
        volume["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"],
        3607
    );
}

#[test]
fn probes_ports_and_volumes_have_defaults() {
    let spec = json!({
        "initContainers": [{"name": "i", "image": "i@sha256:01", "restartPolicy": "Always"}],
        "containers": [{
            "name": "c", "image": "i:1",
            "ports": [{"containerPort": 80}],
            "readinessProbe": {"httpGet": {"port": 80}},
            "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "resources": {"limits": {"cpu": "1"}},
            "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        }],
        "volumes": [
            {"name": "v", "emptyDir": {}},
            {"name": "s", "secret": {"secretName": "x"}},
            {"name": "d", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"name": "e"},
        ],
    });
    let pod = create("Pod", pod(spec)).unwrap();
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    assert_eq!(
        container["ports"],
        json!([{"containerPort": 80, "protocol": "TCP"}])
    );
    assert_eq!(container["resources"]["requests"], json!({"cpu": "1"}));
    assert_eq!(
        container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"],
        "v1"
    );
    assert_eq!(
        container["readinessProbe"],
        json!({
            "failureThreshold": 3, "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
            "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1,
        })
    );
    let volumes = &pod["spec"]["volumes"];
    assert_eq!(
        volumes[1]["secret"],
        json!({"defaultMode": 420, "secretName": "x"})
    );
    assert_eq!(
        volumes[2]["downwardAPI"]["items"][0]["fieldRef"]["apiVersion"],
        "v1"
    );
    assert_eq!(volumes[3]["emptyDir"], json!({}));
    assert_eq!(
        pod["spec"]["initContainers"][0]["imagePullPolicy"],
        "IfNotPresent"
    );
}

#[test]
fn a_pod_must_have_containers_with_name_and_image() {
    assert_eq!(
        faults("Pod", pod(json!({}))),
        ["spec.containers: Required value"]
    );
    assert_eq!(
        faults("Pod", json!({})),
        ["spec.containers: Required value"]
    );
    let empty = pod(json!({"containers": [{}]}));
    assert_eq!(
        faults("Pod", empty),
        [
            "spec.containers[0].image: Required value",
            "spec.containers[0].name: Required value",
        ]
    );
}

#[test]
fn bad_containers_are_refused() {
    let first = "spec.containers[0]";
    let table = [
        (
            json!({"image": " i"}),
            "image: Invalid value: \" i\": must not have leading or trailing whitespace",
        ),
        (
            json!({"volumeMounts": [{"name": "none", "mountPath": "/x"}]}),
            "volumeMounts[0].name: Not found: \"none\"",
        ),
        (
            json!({"ports": [{"containerPort": 99999}]}),
            "ports[0].containerPort: Invalid value: 99999: must be between 1 and 65535, inclusive",
        ),
        (
            json!({"env": [{"name": "A=B", "value": "x"}]}),
            "env[0].name: Invalid value: \"A=B\": a valid environment variable name must consist only of printable \
             ASCII characters other than '='",
        ),
        (
            json!({"imagePullPolicy": "Sometimes"}),
            "imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \
             \"Never\"",
        ),
        (
            json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}),
            "resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
        (
            json!({"resources": {"requests": {"cpu": "-1"}}}),
            "resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (
            json!({"livenessProbe": {"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}}}),
            "livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
        ),
        (
            json!({"livenessProbe": {}}),
            "livenessProbe: Required value: must specify a handler type",
        ),
        (
            json!({"envFrom": [{"configMapRef": {}}]}),
            "envFrom[0].configMapRef.name: Required value",
        ),
    ];
    for (container, fault) in table {
        assert_eq!(faults("Pod", with(container)), [format!("{first}.{fault}")]);
    }
}

#[test]
fn names_of_containers_differ() {
    let container = |name: &str| json!({"name": name, "image": "i"});
    let spec = json!({
        "containers": [container("c"), container("c")],
        "initContainers": [container("c"), container("i")],
    });
    assert_eq!(
        faults("Pod", pod(spec)),
        [
            "spec.containers[1].name: Duplicate value: \"c\"",
            "spec.initContainers[0].name: Duplicate value: \"c\"",
        ]
    );
}

#[test]
fn other_bad_values_are_refused() {
    let containers = json!([{"name": "c", "image": "i"}]);
    let table = [
        (
            json!({"restartPolicy": "Perhaps"}),
            "restartPolicy: Unsupported value: \"Perhaps\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ),
        (
            json!({"dnsPolicy": "None"}),
            "dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
        ),
        (
            json!({"tolerations": [{"key": "x", "operator": "Like"}]}),
            "tolerations[0].operator: Unsupported value: \"Like\": supported values: \"Equal\", \"Exists\"",
        ),
        (
            json!({"volumes": [{"name": "w", "configMap": {"name": "c"}, "secret": {"secretName": "s"}}]}),
            "volumes[0].configMap: Forbidden: may not specify more than 1 volume type",
        ),
    ];
    for (mut spec, fault) in table {
        spec["containers"] = containers.clone();
        assert_eq!(faults("Pod", pod(spec)), [format!("spec.{fault}")]);
    }
}

#[test]
fn a_negative_time_to_end_becomes_one_second() {
    let spec =
        json!({"terminationGracePeriodSeconds": -1, "containers": [{"name": "c", "image": "i"}]});
    let pod = create("Pod", pod(spec)).unwrap();
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 1);
}

#[test]
fn an_account_or_priority_class_must_exist() {
    let spec = |field: &str| json!({field: "none", "containers": [{"name": "c", "image": "i"}]});
    assert_eq!(
        faults("Pod", pod(spec("serviceAccountName"))),
        [
            "pods \"p\" is forbidden: error looking up service account ns/none: serviceaccount \"none\" not found"
        ]
    );
    assert_eq!(
        faults("Pod", pod(spec("priorityClassName"))),
        ["pods \"p\" is forbidden: no PriorityClass with name none was found"]
    );
}

#[test]
fn an_account_lends_its_secrets_and_its_wish_for_no_token() {
    let account =
        json!({"imagePullSecrets": [{"name": "s"}], "automountServiceAccountToken": false});
    let world = World::new().with("serviceaccounts", "a", account);
    let spec = json!({"serviceAccountName": "a", "containers": [{"name": "c", "image": "i"}]});
    let pod = world.create("Pod", json!({"spec": spec})).unwrap();
    assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "s"}]));
    assert_eq!(pod["spec"].get("volumes"), None);
}

#[test]
fn the_classes_of_the_system_are_known() {
    let spec = json!({"priorityClassName": "system-node-critical", "containers": [{"name": "c", "image": "i"}]});
    let pod = create("Pod", pod(spec)).unwrap();
    assert_eq!(pod["spec"]["priority"], 2_000_001_000);
}

#[test]
fn a_scheduling_gate_shows_in_the_status_and_can_be_removed() {
    let spec = json!({"schedulingGates": [{"name": "example.com/x"}], "containers": [{"name": "c", "image": "i"}]});
    let pod = create("Pod", pod(spec)).unwrap();
    let condition = &pod["status"]["conditions"][0];
    assert_eq!(condition["reason"], "SchedulingGated");
    assert_eq!(condition["lastProbeTime"], Value::Null);
    let free = update("Pod", Part::Main, &pod, |pod| {
        pod["spec"]
            .as_object_mut()
            .unwrap()
            .remove("schedulingGates");
    });
    assert_eq!(free.unwrap()["spec"].get("schedulingGates"), None);
}

#[test]
fn image_deadline_and_further_tolerations_may_change() {
    let pod = update("Pod", Part::Main, &sized(), |pod| {
        pod["spec"]["containers"][0]["image"] = "i:2".into();
        pod["spec"]["activeDeadlineSeconds"] = 100.into();
        let more = json!({"key": "x", "operator": "Exists"});
        pod["spec"]["tolerations"]
            .as_array_mut()
            .unwrap()
            .push(more);
        pod["status"]["phase"] = "Failed".into();
    })
    .unwrap();
    assert_eq!(pod["spec"]["containers"][0]["image"], "i:2");
    assert_eq!(pod["status"]["phase"], "Pending");
    let later = update("Pod", Part::Main, &pod, |pod| {
        pod["spec"]["activeDeadlineSeconds"] = 200.into();
    });
    assert_eq!(
        later.unwrap_err(),
        [
            "spec.activeDeadlineSeconds: Invalid value: 200: must be less than or equal to previous value"
        ]
    );
}

#[test]
fn most_of_the_spec_is_fixed() {
    let fault = update("Pod", Part::Main, &sized(), |pod| {
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "150m".into();
    })
    .unwrap_err();
    let diff = "\n@@ -17,7 +17,7 @@\n      \"memory\": \"20Mi\"\n     },\n     \"Requests\": {\n-     \"cpu\": \
                \"100m\",\n+     \"cpu\": \"150m\",\n      \"memory\": \"10Mi\"\n     },\n     \"Claims\": null\n";
    assert!(fault[0].starts_with("spec: Forbidden: pod updates may not change fields other than"));
    assert!(fault[0].ends_with(diff), "{}", fault[0]);
    let fault = update("Pod", Part::Main, &sized(), |pod| {
        let more = json!({"name": "d", "image": "i"});
        pod["spec"]["containers"].as_array_mut().unwrap().push(more);
    });
    let expected = "spec.containers: Forbidden: pod updates may not add or remove containers";
    assert_eq!(fault.unwrap_err(), [expected]);
}

#[test]
fn the_status_has_its_own_door() {
    let old = sized();
    let pod = update("Pod", Part::Status, &old, |pod| {
        pod["metadata"]["labels"] = json!({"x": "y"});
        pod["spec"]["terminationGracePeriodSeconds"] = 9.into();
        pod["status"] = json!({"phase": "Running", "podIP": "10.0.0.9"});
    })
    .unwrap();
    assert_eq!(pod["spec"], old["spec"]);
    assert_eq!(pod["metadata"]["labels"], json!({"x": "y"}));
    let expected = json!({
        "phase": "Running", "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}], "qosClass": "Burstable",
    });
    assert_eq!(pod["status"], expected);
}

#[test]
fn a_bad_status_is_refused() {
    let fault = |status: Value| {
        let change = |pod: &mut Value| pod["status"] = status;
        update("Pod", Part::Status, &sized(), change).unwrap_err()
    };
    assert_eq!(
        fault(json!({"podIPs": [{"ip": "nonsense"}]})),
        [
            "status.podIPs[0]: Invalid value: \"nonsense\": must be a valid IP address, (e.g. 10.9.8.7 or \
             2001:db8::ffff)"
        ]
    );
    let named = fault(json!({"conditions": [{"type": "bad type", "status": "True"}]}));
    assert!(named[0].starts_with("status.conditions[0].Type: Invalid value: \"bad type\""));
}

#[test]
fn resources_change_through_resize_alone() {
    let pod = update("Pod", Part::Resize, &sized(), |pod| {
        let container = &mut pod["spec"]["containers"][0];
        container["resources"]["requests"]["cpu"] = "150m".into();
        container["image"] = "other".into();
    })
    .unwrap();
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["resources"]["requests"]["cpu"], "150m");
    assert_eq!(container["image"], "i");
    let fault = update("Pod", Part::Resize, &sized(), |pod| {
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "900m".into();
    });
    assert_eq!(
        fault.unwrap_err(),
        [
            "spec.containers[0].resources.requests: Invalid value: \"900m\": must be less than or equal to cpu \
             limit of 200m"
        ]
    );
}

#[test]
fn a_resize_keeps_the_class_and_removes_nothing() {
    let fault = update("Pod", Part::Resize, &sized(), |pod| {
        pod["spec"]["containers"][0]["resources"] = json!({
            "requests": {"cpu": "200m", "memory": "20Mi"}, "limits": {"cpu": "200m", "memory": "20Mi"},
        });
    });
    assert_eq!(
        fault.unwrap_err(),
        [
            "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing"
        ]
    );
    let fault = update("Pod", Part::Resize, &sized(), |pod| {
        pod["spec"]["containers"][0]["resources"] =
            json!({"requests": {"cpu": "100m", "memory": "10Mi"}});
    });
    assert_eq!(
        fault.unwrap_err(),
        ["spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"]
    );
}

#[test]
fn containers_are_added_to_a_running_pod_by_their_own_door() {
    let extra = json!({"name": "e", "image": "i"});
    let pod = update("Pod", Part::EphemeralContainers, &sized(), |pod| {
        pod["spec"]["ephemeralContainers"] = json!([extra]);
        pod["spec"]["nodeName"] = "elsewhere".into();
    })
    .unwrap();
    assert_eq!(
        pod["spec"]["ephemeralContainers"][0]["imagePullPolicy"],
        "Always"
    );
    assert_eq!(pod["spec"].get("nodeName"), None);
    let fault = update("Pod", Part::EphemeralContainers, &pod, |pod| {
        pod["spec"]["ephemeralContainers"] = json!([]);
    });
    assert_eq!(
        fault.unwrap_err(),
        [
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be removed\n"
        ]
    );
}

#[test]
fn pods_are_selected_by_fields() {
    let pod = sized();
    let of = |name: &str| field("Pod", &pod, name);
    assert_eq!(of("spec.hostNetwork").as_deref(), Some("false"));
    assert_eq!(of("status.phase").as_deref(), Some("Pending"));
    assert_eq!(of("spec.nodeName").as_deref(), Some(""));
    assert_eq!(of("spec.containers"), None);
}

//! Changing a pod under a fence.

use std::sync::Arc;

use engine::in_place::{Platform, Verdict};
use serde_json::{Value, json};

use super::{
    super::{
        decide::{Act, Look, Step},
        update::{Endpoint, Whole, reasons, verdict},
    },
    Known, known, metadata,
};

const LATER: &str = "2026-01-31T13:00:00Z";
const BEFORE: &str = "2026-01-31T11:00:00Z";

/// A pod as an API server keeps it.
fn live(change: &Value) -> Value {
    let mut pod = json!({
        "metadata": metadata("box"),
        "spec": {
            "nodeName": "node", "priority": 0, "restartPolicy": "Always", "schedulerName": "default-scheduler",
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 30, "securityContext": {},
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            "volumes": [{"name": "kube-api-access-x", "projected": {"sources": [], "defaultMode": 420}}],
            "containers": [container("app:1")],
        },
        "status": {
            "phase": "Running", "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
            "containerStatuses": [{
                "name": "main", "image": "app:1", "imageID": "one", "containerID": "c://1", "restartCount": 0,
                "ready": true, "started": true, "state": {"running": {"startedAt": BEFORE}},
            }],
        },
    });
    pod["metadata"]["generation"] = json!(1);
    json_patch::merge(&mut pod, change);
    pod
}

fn container(image: &str) -> Value {
    json!({
        "name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "volumeMounts": [{"name": "kube-api-access-x", "mountPath": "/var/run/secrets", "readOnly": true}],
    })
}

fn fenced(deadline: &str, image: &str) -> Known {
    let fence = json!({"target": "x", "since": BEFORE, "deadline": deadline}).to_string();
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "DependenciesReady", "message": "Pod is Ready",
        "lastTransitionTime": BEFORE, "observedGeneration": 2,
    });
    known(json!({
        "metadata": {"annotations": {"sandbar.dev/update": fence, "agents.x-k8s.io/pod-name": "box"}},
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": image}]}}},
        "status": {"conditions": [ready]},
    }))
}

fn has(known: Known, pod: &Value) -> Known {
    let whole = Whole {
        view: Arc::new(super::pod(pod)),
        json: pod.clone(),
    };
    known
        .with_pod(pod)
        .with(|it| it.whole = Look::Found(Arc::new(whole)))
}

/// What is written to the pod, which then has it.
fn write(known: &Known, pod: &Value) -> (Endpoint, Value) {
    let Step::Act(Act::Update(_, endpoint, body)) = known.decide() else {
        panic!("nothing is written: {}", known.step());
    };
    let mut pod = pod.clone();
    if let Some(annotations) = body.pointer("/metadata/annotations") {
        json_patch::merge(&mut pod["metadata"]["annotations"], annotations);
    }
    if let Some(container) = body.pointer("/spec/containers/0") {
        json_patch::merge(&mut pod["spec"]["containers"][0], container);
    }
    (endpoint, pod)
}

fn ready_message(known: &Known) -> String {
    match known.decide() {
        Step::Act(Act::Status(patch)) => {
            let conditions = patch["conditions"].as_array().unwrap().iter();
            let mut ready = conditions.filter(|it| it["type"] == "Ready");
            let ready = ready.next().unwrap();
            format!(
                "{} @{}: {}",
                ready["status"], ready["observedGeneration"], ready["message"]
            )
        }
        _ => known.step(),
    }
}

#[test]
fn an_image_is_changed_waited_for_and_told() {
    let pod = live(&json!({}));
    let asked = fenced(LATER, "app:2").with_pod(&pod);
    assert_eq!(asked.step(), "read all of pod box");
    let (endpoint, mut pod) = write(&has(fenced(LATER, "app:2"), &pod), &pod);
    assert_eq!(endpoint, Endpoint::Pod);
    assert_eq!(pod["spec"]["containers"][0]["image"], "app:2");
    // the old container still runs and is ready, and the kubelet has seen the change
    pod["metadata"]["generation"] = json!(2);
    pod["status"]["observedGeneration"] = json!(2);
    let waiting = has(fenced(LATER, "app:2"), &pod);
    assert_eq!(waiting.step(), "rest In(3600s)");
    let mut stopped = pod.clone();
    stopped["status"]["conditions"][1]["status"] = json!("False");
    let stopped = has(fenced(LATER, "app:2"), &stopped);
    assert_eq!(
        ready_message(&stopped),
        r#""False" @3: "Pod is updating in place""#
    );
    let status = &mut pod["status"]["containerStatuses"][0];
    json_patch::merge(
        status,
        &json!({"image": "app:2", "imageID": "two", "containerID": "c://2"}),
    );
    let done = has(fenced(LATER, "app:2"), &pod);
    assert_eq!(ready_message(&done), r#""True" @3: "Pod is Ready""#);
    let late = has(fenced(BEFORE, "app:2"), &pod);
    assert_eq!(ready_message(&late), ready_message(&done));
}

#[test]
fn a_write_whose_answer_was_lost_is_waited_for_like_any_other() {
    let old = live(&json!({}));
    let (_, mut pod) = write(&has(fenced(LATER, "app:2"), &old), &old);
    pod["metadata"]["resourceVersion"] = json!("8");
    let unaware = has(fenced(LATER, "app:2"), &pod).with(|it| it.pods.clear());
    assert_eq!(unaware.with_pod(&old).step(), "rest In(3600s)");
}

#[test]
fn a_generation_that_asks_for_no_more_waits_for_what_is_under_way() {
    let pod = live(&json!({}));
    let (_, mut pod) = write(&has(fenced(LATER, "app:2"), &pod), &pod);
    let status = &mut pod["status"]["containerStatuses"][0];
    let replaced = json!({"image": "app:2", "imageID": "two", "containerID": "c://2"});
    json_patch::merge(status, &replaced);
    status["ready"] = json!(false);
    let next =
        |pod: &Value| has(fenced(LATER, "app:2"), pod).with(|it| it.sandbox.meta.generation = 4);
    assert_eq!(next(&pod).step(), "rest In(3600s)");
    pod["status"]["containerStatuses"][0]["ready"] = json!(true);
    assert_eq!(ready_message(&next(&pod)), r#""True" @4: "Pod is Ready""#);
}

#[test]
fn nothing_is_changed_without_a_fence_or_after_it() {
    let pod = live(&json!({}));
    let unfenced = fenced(LATER, "app:2").with(|it| {
        let annotations = &mut it.sandbox.meta.annotations;
        *annotations = annotations.without(|key| key == "sandbar.dev/update");
    });
    let step = has(unfenced, &pod).step();
    assert!(!step.starts_with("update"), "{step}");
    let late =
        format!(r#""False" @3: "Pod cannot be updated in place: it was not done by {BEFORE}""#);
    assert_eq!(ready_message(&has(fenced(BEFORE, "app:2"), &pod)), late);
    let refused = has(fenced(LATER, "app:2"), &pod).with(|it| it.refusal = Some("no".to_owned()));
    let told = r#""False" @3: "Pod cannot be updated in place: no""#;
    assert_eq!(ready_message(&refused), told);
    let same = has(fenced(LATER, "app:1"), &pod);
    assert_eq!(ready_message(&same), r#""True" @3: "Pod is Ready""#);
    let going = live(&json!({"metadata": {"deletionTimestamp": BEFORE}}));
    let step = has(fenced(LATER, "app:2"), &going).step();
    assert!(!step.starts_with("update"), "{step}");
    let endless = has(fenced(LATER, "app:2"), &pod).with(|it| it.updates = 4);
    assert!(ready_message(&endless).contains("does not keep"));
}

#[test]
fn the_next_change_waits_until_the_last_one_has_replaced_its_container() {
    let pod = live(&json!({}));
    let (_, mut pod) = write(&has(fenced(LATER, "app:2"), &pod), &pod);
    let newer =
        |pod: &Value| has(fenced(LATER, "app:3"), pod).with(|it| it.sandbox.meta.generation = 4);
    assert_eq!(newer(&pod).step(), "rest In(3600s)");
    let status = &mut pod["status"]["containerStatuses"][0];
    json_patch::merge(
        status,
        &json!({"image": "app:2", "imageID": "two", "containerID": "c://2"}),
    );
    let (_, pod) = write(&newer(&pod), &pod);
    assert_eq!(pod["spec"]["containers"][0]["image"], "app:3");
}

#[test]
fn sizes_grow_before_an_image_comes_and_shrink_after_it() {
    let sized = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}});
    let asking = || {
        fenced(LATER, "app:2").with(|it| {
            let container =
                json!({"name": "main", "image": "app:2", "resources": sized("2", "1Gi")});
            let spec = json!({"podTemplate": {"spec": {"containers": [container]}}});
            it.blueprint = serde_json::from_value(spec).unwrap();
        })
    };
    let mut pod = live(&json!({}));
    for path in [
        "/spec/containers/0/resources",
        "/status/containerStatuses/0/resources",
    ] {
        let (parent, field) = path.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[field] = sized("1", "2Gi");
    }
    let size = |pod: &Value| pod["spec"]["containers"][0]["resources"]["requests"].clone();
    let (record, pod) = write(&has(asking(), &pod), &pod);
    assert_eq!(
        (record, size(&pod)),
        (Endpoint::Pod, json!({"cpu": "1", "memory": "2Gi"}))
    );
    assert_eq!(pod["spec"]["containers"][0]["image"], "app:1");
    let (grown, pod) = write(&has(asking(), &pod), &pod);
    assert_eq!(
        (grown, size(&pod)),
        (Endpoint::Resize, json!({"cpu": "2", "memory": "2Gi"}))
    );
    let (changed, mut pod) = write(&has(asking(), &pod), &pod);
    assert_eq!(changed, Endpoint::Pod);
    assert_eq!(pod["spec"]["containers"][0]["image"], "app:2");
    assert_eq!(has(asking(), &pod).step(), "rest In(3600s)");
    let status = &mut pod["status"]["containerStatuses"][0];
    json_patch::merge(
        status,
        &json!({"image": "app:2", "imageID": "two", "containerID": "c://2"}),
    );
    let (shrunk, pod) = write(&has(asking(), &pod), &pod);
    assert_eq!(
        (shrunk, size(&pod)),
        (Endpoint::Resize, json!({"cpu": "2", "memory": "1Gi"}))
    );
}

fn judged(pod: &Value, spec: Value) -> String {
    let wanted = json!({"spec": spec});
    match verdict(pod, &wanted, None, &Platform::of(36, true)) {
        Verdict::None => "same".to_owned(),
        Verdict::Metadata(_) => "metadata".to_owned(),
        Verdict::Resize(_) => "resize".to_owned(),
        Verdict::Image(_) => "image".to_owned(),
        Verdict::Recreate { why } => reasons(&why),
    }
}

#[test]
fn a_pod_is_compared_with_what_it_was_asked_to_be_and_not_with_what_it_got_besides() {
    let asked = |change: Value| {
        let mut spec = json!({"containers": [{"name": "main", "image": "app:1"}]});
        json_patch::merge(&mut spec, &change);
        spec
    };
    let main = |change: Value| {
        let mut container = json!({"name": "main", "image": "app:1"});
        json_patch::merge(&mut container, &change);
        asked(json!({"containers": [container]}))
    };
    let sidecar = json!({"name": "proxy", "image": "proxy:1"});
    let injected = live(&json!({"spec": {"containers": [sidecar, container("app:1")]}}));
    let mut limited =
        live(&json!({"metadata": {"annotations": {"kubernetes.io/limit-ranger": "set"}}}));
    limited["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    let mut sized = limited.clone();
    sized["metadata"]["annotations"] = json!({});
    let plain = live(&json!({}));
    let cases = [
        (&plain, asked(json!({})), "same"),
        (&injected, asked(json!({})), "same"),
        (&limited, asked(json!({})), "same"),
        (
            &plain,
            asked(
                json!({"restartPolicy": "Always", "hostNetwork": false, "securityContext": {}, "tolerations": [], "dnsPolicy": "ClusterFirst"}),
            ),
            "same",
        ),
        (
            &plain,
            main(
                json!({"resources": {}, "command": [], "imagePullPolicy": "IfNotPresent", "env": []}),
            ),
            "same",
        ),
        (&plain, main(json!({"image": "app:2"})), "image"),
        (&injected, main(json!({"image": "app:2"})), "image"),
        (
            &sized,
            main(json!({"resources": {"requests": {"cpu": "1000m"}}})),
            "same",
        ),
        (
            &sized,
            main(json!({"resources": {"requests": {"cpu": "2"}}})),
            "resize",
        ),
        (
            &limited,
            main(json!({"resources": {"requests": {"cpu": "2"}}})),
            "resize",
        ),
        (
            &sized,
            asked(json!({})),
            "a request or limit of cpu of container main cannot be removed; the QoS class would change from Burstable to BestEffort",
        ),
        (
            &plain,
            main(json!({"command": ["sh"], "image": "app:2"})),
            "spec.containers[main].command cannot change in a running pod",
        ),
        (
            &plain,
            asked(json!({"nodeSelector": {"a": "b"}})),
            "spec.nodeSelector cannot change in a running pod",
        ),
        (
            &plain,
            asked(json!({"containers": [{"name": "other", "image": "app:1"}]})),
            "spec.containers were added, removed, renamed or reordered",
        ),
    ];
    for (index, (pod, spec, expected)) in cases.into_iter().enumerate() {
        assert_eq!(judged(pod, spec), expected, "case {index}");
    }
}

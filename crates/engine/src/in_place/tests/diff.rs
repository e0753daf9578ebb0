use std::slice::from_ref;

use serde_json::{Value, json};

use super::{platform, template, verdict, why, with};
use crate::in_place::{List, Platform, Step, Verdict, Why, diff};

#[test]
fn what_means_the_same_is_no_change() {
    let same = [
        ("/spec/restartPolicy", json!("Always")),
        ("/spec/containers/0/imagePullPolicy", json!("IfNotPresent")),
        ("/spec/containers/0/resources/requests/cpu", json!("1000m")),
        ("/metadata/creationTimestamp", Value::Null),
        ("/spec/volumes/0/emptyDir", json!({})),
    ];
    assert_eq!(verdict(&same, &platform()), Verdict::None);
}

#[test]
fn metadata_alone_restarts_nothing() {
    let changes = [
        ("/metadata/labels/b", Value::Null),
        ("/metadata/labels/c", json!("3")),
        ("/metadata/annotations/n", json!("y")),
    ];
    let Verdict::Metadata(changes) = verdict(&changes, &platform()) else {
        panic!("not metadata");
    };
    let patch = json!({"metadata": {"labels": {"b": null, "c": "3"}, "annotations": {"n": "y"}}});
    assert_eq!(changes.steps(), [Step::Update(patch)]);
    assert_eq!(changes.restarted().count(), 0);
}

#[test]
fn metadata_that_a_variable_shows_needs_a_restart() {
    let label = ("/metadata/labels/a", json!("2"));
    let key = "metadata.labels['a']".to_owned();
    let container = "main".to_owned();
    let reasons = why(from_ref(&label), &platform());
    assert_eq!(reasons, [Why::VariableFromMetadata { container, key }]);
    // a new image restarts it anyway
    let image = ("/spec/containers/0/image", json!("main:2"));
    assert!(matches!(
        verdict(&[label.clone(), image], &platform()),
        Verdict::Image(_)
    ));
    // a new image of another container does not
    let image = ("/spec/containers/1/image", json!("help:2"));
    assert_eq!(why(&[label, image], &platform()).len(), 1);
}

#[test]
fn images_of_containers_and_sidecars_change_in_place() {
    let changes = [
        ("/spec/containers/0/image", json!("main:2")),
        ("/spec/initContainers/1/image", json!("side:2")),
    ];
    let Verdict::Image(changes) = verdict(&changes, &platform()) else {
        panic!("not an image");
    };
    let patch = json!({"spec": {
        "containers": [{"name": "main", "image": "main:2"}],
        "initContainers": [{"name": "side", "image": "side:2"}],
    }});
    assert_eq!(changes.steps(), [Step::Update(patch)]);
    assert_eq!(changes.restarted().collect::<Vec<_>>(), ["main", "side"]);
}

/// Where the template differs, what stands there, and why that recreates the pod.
const REFUSED: &str = r#"
/spec/volumes/0/emptyDir | {"medium":"Memory"} | spec.volumes cannot change in a running pod
/spec/tolerations | [{"operator":"Exists"}] | spec.tolerations cannot change in a running pod
/spec/restartPolicy | "Never" | spec.restartPolicy cannot change in a running pod
/spec/readinessGates | [{"conditionType":"g"}] | spec.readinessGates cannot change in a running pod
/spec/automountServiceAccountToken | false | spec.automountServiceAccountToken cannot change in a running pod
/spec/fieldOfTomorrow | 1 | spec.fieldOfTomorrow cannot change in a running pod
/spec/containers | "odd" | spec.containers cannot change in a running pod
/spec/containers/0/command | ["x"] | spec.containers[main].command cannot change in a running pod
/spec/containers/0/env | null | spec.containers[main].env cannot change in a running pod
/spec/containers/0/resizePolicy | null | spec.containers[main].resizePolicy cannot change in a running pod
/spec/containers/0/imagePullPolicy | "Never" | spec.containers[main].imagePullPolicy cannot change in a running pod
/spec/containers/0/resources/claims | [{"name":"c"}] | spec.containers[main].resources.claims cannot change in a running pod
/spec/resources | {"limits":{"cpu":"4"}} | spec.resources cannot change in a running pod
/spec/containers/0/name | "other" | spec.containers were added, removed, renamed or reordered
/spec/initContainers | null | spec.initContainers were added, removed, renamed or reordered
/spec/initContainers/0/image | "once:2" | init container once has run already
/spec/initContainers/0/resources/limits/cpu | "3" | init container once has run already
/spec/containers/0/image | null | container main would have no image
/spec/containers/1/resources/limits/cpu | null | a request or limit of cpu of container help cannot be removed
/spec/containers/1/resources/limits/ephemeral-storage | "1Gi" | ephemeral-storage of container help cannot be resized
/spec/containers/1/resources/limits/cpu | "odd" | spec.containers[help].resources cannot change in a running pod
"#;

#[test]
fn what_no_pod_can_change_recreates_it() {
    for line in REFUSED.trim().lines() {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [pointer, value, reason] = cells[..] else {
            panic!("{line}");
        };
        let reasons = why(&[(pointer, value.parse().unwrap())], &platform());
        let told: Vec<String> = reasons.iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|it| it == reason), "{line}: {told:?}");
    }
    let template = template();
    let containers = &template["spec"]["containers"];
    let swapped = json!([containers[1], containers[0]]);
    let reasons = why(&[("/spec/containers", swapped)], &platform());
    assert_eq!(reasons, [Why::Containers(List::Containers)]);
}

#[test]
fn a_pull_policy_that_only_follows_the_tag_is_no_obstacle() {
    let moving = ("/spec/containers/0/image", json!("main:latest"));
    assert!(matches!(
        verdict(from_ref(&moving), &platform()),
        Verdict::Image(_)
    ));
    let kept = ("/spec/containers/0/imagePullPolicy", json!("IfNotPresent"));
    assert!(matches!(
        verdict(&[moving.clone(), kept], &platform()),
        Verdict::Image(_)
    ));
    let pinned = ("/spec/containers/0/imagePullPolicy", json!("Never"));
    assert_eq!(why(&[moving, pinned], &platform()).len(), 1);
}

#[test]
fn only_what_is_always_restarted_takes_an_image() {
    let cases = [
        (36, json!("Always"), Value::Null, true),
        (36, json!("OnFailure"), Value::Null, false),
        (36, json!("Never"), Value::Null, false),
        (36, json!("Never"), json!("Always"), true),
        (36, json!("Always"), json!("Never"), false),
        (34, json!("Never"), json!("Always"), false),
    ];
    for (minor, of_pod, of_container, fits) in cases {
        let policies = [
            ("/spec/restartPolicy", of_pod.clone()),
            ("/spec/containers/1/restartPolicy", of_container.clone()),
        ];
        let old = with(&policies);
        let mut new = old.clone();
        new["spec"]["containers"][1]["image"] = json!("help:2");
        let got = diff(&old, &new, &Platform::of(minor, true));
        assert_eq!(
            matches!(got, Verdict::Image(_)),
            fits,
            "1.{minor} {of_pod} {of_container}"
        );
    }
}

#[test]
fn every_reason_is_told_at_once() {
    let changes = [
        ("/spec/hostNetwork", json!(true)),
        ("/spec/containers/0/tty", json!(true)),
        ("/spec/initContainers/0/image", json!("once:2")),
    ];
    let told: Vec<String> = why(&changes, &platform())
        .iter()
        .map(ToString::to_string)
        .collect();
    let expected = [
        "spec.hostNetwork cannot change in a running pod",
        "spec.containers[main].tty cannot change in a running pod",
        "init container once has run already",
    ];
    assert_eq!(told, expected);
}

#[test]
fn what_is_not_understood_never_passes_for_the_same() {
    let resources =
        |resources: Value| json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
    let odd = [
        (json!("a"), json!("b")),
        (json!({"spec": "a"}), json!({"spec": "b"})),
        (
            json!({"spec": {"containers": ["a"]}}),
            json!({"spec": {"containers": ["b"]}}),
        ),
        (json!({"spec": {}, "more": 1}), json!({"spec": {}})),
        (resources(json!({"requests": "a"})), resources(json!({}))),
        (resources(json!("a")), resources(json!("b"))),
        (
            json!({"spec": {"resources": {"requests": "a"}}}),
            json!({"spec": {"resources": {"requests": "b"}}}),
        ),
    ];
    for (old, new) in odd {
        let got = diff(&old, &new, &platform());
        assert!(
            matches!(got, Verdict::Recreate { .. }),
            "{old} {new}: {got:?}"
        );
        assert_eq!(diff(&old, &old, &platform()), Verdict::None);
    }
    // spelled out and empty is not another claim
    let one = resources(json!({"requests": {"cpu": "1"}, "claims": []}));
    let two = resources(json!({"requests": {"cpu": "2"}}));
    assert!(matches!(diff(&one, &two, &platform()), Verdict::Resize(_)));
}

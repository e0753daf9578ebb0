use std::slice::from_ref;

use serde_json::{Value, json};

use super::{platform, verdict, why, with};
use crate::in_place::{Platform, Qos, ResizeVia, Step, Verdict, Why, diff};

#[test]
fn sizes_change_without_a_restart_unless_the_policy_says() {
    let cpu = ("/spec/containers/0/resources/limits/cpu", json!("3"));
    let memory = ("/spec/containers/0/resources/limits/memory", json!("3Gi"));
    let resized = |changes: &[(&str, Value)]| match verdict(changes, &platform()) {
        Verdict::Resize(changes) => changes,
        other => panic!("{other:?}"),
    };
    assert_eq!(resized(from_ref(&cpu)).restarted().count(), 0);
    assert_eq!(
        resized(&[cpu, memory.clone()])
            .restarted()
            .collect::<Vec<_>>(),
        ["main"]
    );
    let patch = json!({"spec": {"containers": [{"name": "main", "resources":
        {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "3Gi"}}}]}});
    assert_eq!(resized(from_ref(&memory)).steps(), [Step::Resize(patch)]);
    let undo = resized(&[memory]).undo_resize().unwrap();
    assert_eq!(
        undo["spec"]["containers"][0]["resources"]["limits"]["memory"],
        "2Gi"
    );
}

#[test]
fn a_resize_keeps_the_class_of_the_pod() {
    let pod =
        |resources: Value| json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
    let both = |request: &str, limit: &str| {
        pod(
            json!({"requests": {"cpu": request, "memory": "1Gi"}, "limits": {"cpu": limit, "memory": "1Gi"}}),
        )
    };
    let limited = |cpu: &str| pod(json!({"limits": {"cpu": cpu, "memory": "1Gi"}}));
    let cases = [
        (both("1", "1"), both("2", "2"), None),
        (limited("1"), limited("2"), None),
        (limited("1"), both("2", "2"), None),
        (
            both("1", "1"),
            both("1", "2"),
            Some((Qos::Guaranteed, Qos::Burstable)),
        ),
        (
            both("1", "2"),
            both("2", "2"),
            Some((Qos::Burstable, Qos::Guaranteed)),
        ),
        (both("1", "2"), both("1", "3"), None),
        (
            pod(json!({})),
            pod(json!({"requests": {"cpu": "1"}})),
            Some((Qos::BestEffort, Qos::Burstable)),
        ),
        (
            pod(json!({"requests": {"cpu": "1"}})),
            pod(json!({"requests": {"cpu": "1", "memory": "1"}})),
            None,
        ),
    ];
    for (old, new, changed) in cases {
        match (diff(&old, &new, &platform()), changed) {
            (Verdict::Resize(_), None) => {}
            (Verdict::Recreate { why }, Some((from, to))) => {
                assert_eq!(why, [Why::QosClass { from, to }]);
            }
            (other, _) => panic!("{old} {new}: {other:?}"),
        }
    }
    // what a limit implies rides along
    let Verdict::Resize(changes) = diff(&limited("1"), &limited("2"), &platform()) else {
        panic!("not a resize");
    };
    let Step::Resize(patch) = &changes.steps()[0] else {
        panic!("not a resize");
    };
    assert_eq!(
        patch["spec"]["containers"][0]["resources"]["requests"]["cpu"],
        "2"
    );
}

#[test]
fn sizes_change_as_far_as_the_version_goes() {
    let side = ("/spec/initContainers/1/resources/limits/cpu", json!("3"));
    let lower = ("/spec/containers/1/resources/limits/memory", json!("1.5Gi"));
    let lower_main = ("/spec/containers/0/resources/limits/memory", json!("1.5Gi"));
    let more = ("/spec/containers/1/resources/limits/cpu", json!("3"));
    let fits = |minor, can_resize, change: &(&str, Value)| {
        let platform = Platform::of(minor, can_resize);
        matches!(verdict(from_ref(change), &platform), Verdict::Resize(_))
    };
    for minor in 26..=37 {
        assert_eq!(fits(minor, true, &more), minor >= 27, "1.{minor}");
        assert!(!fits(minor, false, &more), "1.{minor}");
        assert_eq!(fits(minor, true, &side), minor >= 33, "1.{minor}");
        assert_eq!(
            fits(minor, true, &lower),
            minor >= 27 && minor != 33,
            "1.{minor}"
        );
        assert_eq!(fits(minor, true, &lower_main), minor >= 27, "1.{minor}");
    }
    let via = |minor| Platform::of(minor, true).resize;
    assert_eq!(
        [via(26), via(31), via(32)],
        [None, Some(ResizeVia::Pod), Some(ResizeVia::Subresource)]
    );
    assert_eq!(
        why(from_ref(&more), &Platform::of(36, false)),
        [Why::CannotResize]
    );
    let windows = with(&[("/spec/os", json!({"name": "windows"}))]);
    let mut larger = windows.clone();
    *larger.pointer_mut(more.0).unwrap() = more.1;
    let refused = Verdict::Recreate {
        why: vec![Why::CannotResizeOnWindows],
    };
    assert_eq!(diff(&windows, &larger, &platform()), refused);
}

#[test]
fn whole_pods_are_resized_where_the_version_can() {
    let pod = |cpu: &str| with(&[("/spec/resources", json!({"limits": {"cpu": cpu}}))]);
    let got = |minor| diff(&pod("8"), &pod("9"), &Platform::of(minor, true));
    assert_eq!(
        got(35),
        Verdict::Recreate {
            why: vec![Why::CannotResizePod]
        }
    );
    let Verdict::Resize(changes) = got(36) else {
        panic!("not a resize");
    };
    let patch = json!({"spec": {"resources": {"requests": {}, "limits": {"cpu": "9"}}}});
    assert_eq!(changes.steps(), [Step::Resize(patch)]);
}

#[test]
fn beside_a_new_image_sizes_grow_before_and_shrink_after() {
    let image = ("/spec/containers/1/image", json!("help:2"));
    let more = ("/spec/containers/1/resources/limits/cpu", json!("3"));
    let less = ("/spec/containers/1/resources/limits/memory", json!("1.5Gi"));
    let steps = |changes: &[(&str, Value)]| match verdict(changes, &platform()) {
        Verdict::Image(changes) => changes.steps(),
        other => panic!("{other:?}"),
    };
    let size = |cpu: &str, memory: &str| {
        Step::Resize(json!({"spec": {"containers": [{"name": "help", "resources":
            {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": cpu, "memory": memory}}}]}}))
    };
    let update =
        Step::Update(json!({"spec": {"containers": [{"name": "help", "image": "help:2"}]}}));
    assert_eq!(
        steps(&[image.clone(), more.clone()]),
        [size("3", "2Gi"), update.clone()]
    );
    assert_eq!(
        steps(&[image.clone(), less.clone()]),
        [update.clone(), size("2", "1.5Gi")]
    );
    assert_eq!(
        steps(&[image, more, less]),
        [size("3", "2Gi"), update, size("3", "1.5Gi")]
    );
}

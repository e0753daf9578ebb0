use std::time::{Duration, SystemTime};

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use serde_json::{Value, json};

use crate::in_place::{
    Failure, Intent, Platform, Progress, Trouble, Verdict, Waiting, diff, progress,
};

/// When the change was written: `2026-11-16T03:22:16Z`.
fn written_at() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_794_799_336)
}

const BEFORE: &str = "2026-11-16T03:00:00Z";
const AFTER: &str = "2026-11-16T03:22:17Z";
const SKEW: Duration = Duration::from_secs(2);

fn size(memory: &str) -> Value {
    json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": memory}})
}

fn template(image: &str, memory: &str, restarts: bool) -> Value {
    let policy = if restarts {
        "RestartContainer"
    } else {
        "NotRequired"
    };
    json!({"spec": {"containers": [{"name": "c", "image": image, "resources": size(memory),
        "resizePolicy": [{"resourceName": "memory", "restartPolicy": policy}]}]}})
}

/// A pod that runs the image `i:1` of generation 1.
fn running() -> Value {
    let template = template("i:1", "2Gi", false);
    json!({
        "metadata": {"generation": 1},
        "spec": template["spec"],
        "status": {"phase": "Running", "observedGeneration": 1, "containerStatuses": [{
            "name": "c", "image": "docker.io/library/i:1", "imageID": "i@sha256:1", "containerID": "c://1",
            "restartCount": 0, "ready": true, "started": true, "state": {"running": {"startedAt": BEFORE}},
            "resources": size("2Gi"),
        }]},
    })
}

/// The change to `new`, recorded on the running pod and written as generation 2, and the pod right after the write.
fn written(new: &Value) -> (Intent, Value) {
    let mut pod = running();
    let mut old = template("i:1", "2Gi", false);
    old["spec"]["containers"][0]["resizePolicy"] =
        new["spec"]["containers"][0]["resizePolicy"].clone();
    let verdict = diff(&old, new, &Platform::of(36, true));
    let mut intent = verdict.changes().unwrap().intent(&pod, written_at());
    intent.generation = Some(2);
    pod["spec"] = new["spec"].clone();
    pod["metadata"]["generation"] = json!(2);
    (intent, pod)
}

/// The pod with something else at each pointer.
fn with(pod: &Value, changes: &[(&str, Value)]) -> Value {
    let mut pod = pod.clone();
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = pod.pointer_mut(parent).unwrap();
        parent[key] = value.clone();
    }
    pod
}

const STATUS: &str = "/status/containerStatuses/0";

fn at(field: &str) -> String {
    format!("{STATUS}/{field}")
}

/// The kubelet has seen the write and replaced the container.
fn replaced(pod: &Value, image: &str, image_id: &str, started: &str) -> Value {
    with(
        pod,
        &[
            ("/status/observedGeneration", json!(2)),
            (&at("containerID"), json!("c://2")),
            (&at("image"), json!(image)),
            (&at("imageID"), json!(image_id)),
            (&at("restartCount"), json!(1)),
            (&at("state"), json!({"running": {"startedAt": started}})),
        ],
    )
}

fn of(pod: &Value, intent: &Intent) -> Progress {
    progress(pod, intent, SKEW)
}

fn waiting(container: &str, waiting: fn(String) -> Waiting) -> Progress {
    Progress::Waiting(waiting(container.to_owned()))
}

fn replacement(container: String) -> Waiting {
    Waiting::Replacement { container }
}

#[test]
fn a_seen_write_is_not_a_done_one() {
    let (intent, pod) = written(&template("i:2", "2Gi", false));
    let unwritten = with(&running(), &[]);
    assert_eq!(
        of(&unwritten, &intent),
        Progress::Waiting(Waiting::NotWritten)
    );
    assert_eq!(of(&pod, &intent), Progress::Waiting(Waiting::NotObserved));
    // the old container is still there, and ready
    let seen = with(&pod, &[("/status/observedGeneration", json!(2))]);
    assert_eq!(of(&seen, &intent), waiting("c", replacement));
}

#[test]
fn a_new_container_of_the_wanted_image_is_done() {
    let (intent, pod) = written(&template("i:2", "2Gi", false));
    let cases = [
        ("docker.io/library/i:2", "i@sha256:2", AFTER, true),
        ("i:2", "i@sha256:1", BEFORE, true),
        ("sha256:0123", "i@sha256:2", BEFORE, true),
        // two tags of one image, and the runtime reports the other one
        ("docker.io/library/i:1", "i@sha256:1", AFTER, true),
        // crashed between record and write, and restarted from the old image
        ("docker.io/library/i:1", "i@sha256:1", BEFORE, false),
        ("docker.io/library/i:1", "", BEFORE, false),
    ];
    for (image, image_id, started, is_done) in cases {
        let got = of(&replaced(&pod, image, image_id, started), &intent);
        let image = |container| Waiting::Image { container };
        let expected = if is_done {
            Progress::Done
        } else {
            waiting("c", image)
        };
        assert_eq!(got, expected, "{image_id} {started}");
    }
}

#[test]
fn a_pinned_digest_is_told_by_the_image_id() {
    let (intent, pod) = written(&template("r/i@sha256:1", "2Gi", false));
    let done = replaced(&pod, "sha256:ffff", "docker.io/r/i@sha256:1", BEFORE);
    assert_eq!(of(&done, &intent), Progress::Done);
}

#[test]
fn a_new_container_must_be_started_and_ready() {
    let (intent, pod) = written(&template("i:2", "2Gi", false));
    let pod = replaced(&pod, "i:2", "i@sha256:2", AFTER);
    for field in ["started", "ready"] {
        let got = of(&with(&pod, &[(&at(field), json!(false))]), &intent);
        let readiness = |container| Waiting::Readiness { container };
        assert_eq!(got, waiting("c", readiness), "{field}");
    }
}

#[test]
fn kubelets_that_say_no_generation_are_believed_by_the_container() {
    let (mut intent, pod) = written(&template("i:2", "2Gi", false));
    intent.generation = None;
    let silent = with(&pod, &[("/status/observedGeneration", Value::Null)]);
    assert_eq!(of(&silent, &intent), waiting("c", replacement));
    let done = replaced(&pod, "i:2", "i@sha256:2", AFTER);
    let done = with(&done, &[("/status/observedGeneration", Value::Null)]);
    assert_eq!(of(&done, &intent), Progress::Done);
}

#[test]
fn a_forgotten_generation_is_that_of_the_pod() {
    let (mut intent, pod) = written(&template("i:2", "2Gi", false));
    intent.generation = None;
    assert_eq!(of(&pod, &intent), Progress::Waiting(Waiting::NotObserved));
}

#[test]
fn a_restart_that_goes_wrong_is_told() {
    let (intent, pod) = written(&template("i:2", "2Gi", false));
    let pod = with(&pod, &[("/status/observedGeneration", json!(2))]);
    let trouble = |reason: &str| {
        Progress::Troubled(Trouble {
            container: Some("c".to_owned()),
            reason: reason.to_owned(),
        })
    };
    let waits = |reason: &str| {
        with(
            &pod,
            &[(&at("state"), json!({"waiting": {"reason": reason}}))],
        )
    };
    for bad in [
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "CrashLoopBackOff",
    ] {
        assert_eq!(of(&waits(bad), &intent), trouble(bad));
    }
    for normal in ["PodInitializing", "ContainerCreating"] {
        assert_eq!(of(&waits(normal), &intent), waiting("c", replacement));
    }
    let ended = [(
        &*at("state"),
        json!({"terminated": {"reason": "Error", "exitCode": 1}}),
    )];
    assert_eq!(of(&with(&pod, &ended), &intent), waiting("c", replacement));
    let new = replaced(&pod, "i:2", "i@sha256:2", AFTER);
    assert_eq!(of(&with(&new, &ended), &intent), trouble("Error"));
}

#[test]
fn a_pod_that_is_over_is_never_done() {
    let (intent, pod) = written(&template("i:2", "2Gi", false));
    let pod = replaced(&pod, "i:2", "i@sha256:2", AFTER);
    for over in [
        ("/status/phase", json!("Failed")),
        ("/status/phase", json!("Succeeded")),
        ("/metadata/deletionTimestamp", json!(AFTER)),
    ] {
        assert_eq!(
            of(&with(&pod, &[over]), &intent),
            Progress::Failed(Failure::PodEnded)
        );
    }
}

fn conditions(kind: &str, reason: &str, generation: i64) -> Value {
    json!([{"type": kind, "status": "True", "reason": reason, "message": "why", "observedGeneration": generation}])
}

#[test]
fn a_resize_is_done_when_it_is_reported() {
    let (intent, pod) = written(&template("i:1", "3Gi", false));
    assert_eq!(of(&pod, &intent), Progress::Waiting(Waiting::NotObserved));
    let seen = with(&pod, &[("/status/observedGeneration", json!(2))]);
    assert_eq!(of(&seen, &intent), Progress::Waiting(Waiting::Resize));
    let done = with(&seen, &[(&at("resources"), size("3072Mi"))]);
    assert_eq!(of(&done, &intent), Progress::Done);
    // more than was asked for is not what was asked for
    let more = with(&seen, &[(&at("resources"), size("4Gi"))]);
    assert_eq!(of(&more, &intent), Progress::Waiting(Waiting::Resize));
    let trouble = |reason: &str| {
        Progress::Troubled(Trouble {
            container: None,
            reason: reason.to_owned(),
        })
    };
    let infeasible = Progress::Failed(Failure::Infeasible {
        message: "why".to_owned(),
    });
    let cases = [
        ("PodResizePending", "Infeasible", 2, infeasible.clone()),
        ("PodResizePending", "Infeasible", 1, Progress::Done),
        ("PodResizePending", "Infeasible", 0, infeasible),
        ("PodResizePending", "Deferred", 2, trouble("Deferred")),
        ("PodResizeInProgress", "Error", 3, trouble("Error")),
        (
            "PodResizeInProgress",
            "",
            2,
            Progress::Waiting(Waiting::Resize),
        ),
        ("PodResizeInProgress", "", 1, Progress::Done),
    ];
    for (kind, reason, generation, expected) in cases {
        let pod = with(
            &done,
            &[("/status/conditions", conditions(kind, reason, generation))],
        );
        assert_eq!(of(&pod, &intent), expected, "{kind} {reason} {generation}");
    }
}

#[test]
fn a_resize_of_old_kubelets_is_told_by_its_status() {
    let (intent, pod) = written(&template("i:1", "3Gi", false));
    let pod = with(
        &pod,
        &[
            ("/status/observedGeneration", Value::Null),
            (&at("resources"), size("3Gi")),
        ],
    );
    let with_status = |status: &str| of(&with(&pod, &[("/status/resize", json!(status))]), &intent);
    assert!(matches!(
        with_status("Infeasible"),
        Progress::Failed(Failure::Infeasible { .. })
    ));
    assert!(matches!(with_status("Deferred"), Progress::Troubled(_)));
    assert_eq!(
        with_status("InProgress"),
        Progress::Waiting(Waiting::Resize)
    );
    assert_eq!(with_status(""), Progress::Done);
}

#[test]
fn a_resize_that_restarts_needs_another_container() {
    let (intent, pod) = written(&template("i:1", "3Gi", true));
    let applied = [
        ("/status/observedGeneration", json!(2)),
        (&*at("resources"), size("3Gi")),
    ];
    let pod = with(&pod, &applied);
    assert_eq!(of(&pod, &intent), waiting("c", replacement));
    let done = with(&pod, &[(&at("containerID"), json!("c://2"))]);
    assert_eq!(of(&done, &intent), Progress::Done);
}

#[test]
fn image_and_size_are_done_when_both_are() {
    let (intent, pod) = written(&template("i:2", "3Gi", false));
    let replaced = replaced(&pod, "i:2", "i@sha256:2", AFTER);
    assert_eq!(of(&replaced, &intent), Progress::Waiting(Waiting::Resize));
    let done = with(&replaced, &[(&at("resources"), size("3Gi"))]);
    assert_eq!(of(&done, &intent), Progress::Done);
}

#[test]
fn an_intent_survives_being_stored() {
    let (intent, _) = written(&template("i:2", "3Gi", true));
    let stored = serde_json::to_string(&intent).unwrap();
    assert_eq!(serde_json::from_str::<Intent>(&stored).unwrap(), intent);
    assert_eq!(intent.before["c"].container_id, "c://1");
}

#[test]
fn nothing_changed_needs_no_intent() {
    let template = template("i:1", "2Gi", false);
    assert_eq!(
        diff(&template, &template, &Platform::of(36, true)),
        Verdict::None
    );
}

proptest! {
    /// Whatever else a kubelet reports, an image is not there while the container from before runs.
    #[test]
    fn the_old_container_is_never_the_new_one(
        observed in 0_i64..5, restarts in 0_i64..5, ready in any::<bool>(), image in 1_u8..4, late in any::<bool>(),
    ) {
        let (intent, pod) = written(&template("i:2", "2Gi", false));
        let started = if late { AFTER } else { BEFORE };
        let pod = replaced(&pod, &format!("i:{image}"), &format!("i@sha256:{image}"), started);
        let changes = [
            ("/status/observedGeneration", json!(observed)),
            (&*at("restartCount"), json!(restarts)),
            (&*at("ready"), json!(ready)),
        ];
        let pod = with(&pod, &changes);
        let old = with(&pod, &[(&at("containerID"), json!("c://1"))]);
        prop_assert!(of(&old, &intent) != Progress::Done);
        let is_done = of(&pod, &intent) == Progress::Done;
        prop_assert_eq!(is_done, observed >= 2 && ready && (image != 1 || late));
    }
}

//! Containers whose program cannot be run, and what becomes of their pods.

use k8s_openapi::{api::core::v1::ContainerStateTerminated, jiff::SignedDuration};
use serde_json::{Value, json};

use super::{World, plan::Step};
use crate::node::end;

const WHY: &str = "exec: \"no-such\": executable file not found in $PATH";

impl World {
    /// Does what is to be done, but this container cannot be started.
    fn settle_without(&mut self, name: &str) -> Vec<String> {
        self.settle_by(|world, step| {
            let is_it = step
                == Step::Start {
                    name: name.to_owned(),
                };
            let told = world.take(step);
            let inmate = world.facts.containers.get_mut(name);
            if let Some(inmate) = inmate.filter(|_| is_it) {
                let end = end::unstarted(WHY.to_owned(), world.now);
                inmate.run.as_mut().unwrap().end = Some(end);
            }
            told
        })
    }

    fn terminated(&self, name: &str) -> Option<&ContainerStateTerminated> {
        self.container(name).state.as_ref()?.terminated.as_ref()
    }
}

fn pod(policy: &str, inits: Value) -> World {
    World::of(json!({
        "restartPolicy": policy, "initContainers": inits,
        "containers": [{"name": "a", "image": "one"}],
    }))
}

fn is_start_error(end: &ContainerStateTerminated) -> bool {
    (end.exit_code, end.reason.as_deref(), end.message.as_deref())
        == (128, Some("StartError"), Some(WHY))
}

#[test]
fn a_pod_that_may_not_restart_has_failed_if_its_program_cannot_be_run() {
    let mut world = pod("Never", json!([]));
    assert_eq!(world.settle_without("a"), ["make", "start a", "end"]);
    assert_eq!(world.phase(), "Failed");
    assert!(is_start_error(world.terminated("a").unwrap()));
    assert_eq!(world.pass(3600).settle(), Vec::<String>::new());
}

#[test]
fn it_is_never_told_to_run() {
    let mut world = pod("Never", json!([]));
    for expected in ["make", "start a"] {
        let step = world.next().steps.remove(0);
        assert_eq!(world.take(step), expected);
        world.tell();
    }
    let inmate = world.facts.containers.get_mut("a").unwrap();
    inmate.run.as_mut().unwrap().end = Some(end::unstarted(WHY.to_owned(), world.now));
    world.pod.status.as_mut().unwrap().phase = Some("Pending".to_owned());
    world.tell();
    assert_eq!(world.phase(), "Pending");
    assert!(world.terminated("a").is_some());
}

#[test]
fn a_program_that_cannot_be_run_is_tried_again_at_once_and_then_ever_later() {
    for policy in ["OnFailure", "Always"] {
        let mut world = pod(policy, json!([]));
        assert_eq!(world.settle_without("a"), ["make", "start a", "start a"]);
        assert_eq!(
            (world.phase(), world.waits_for("a")),
            ("Running", "RunContainerError"),
            "{policy}"
        );
        let last = world.container("a").last_state.clone().unwrap();
        assert!(is_start_error(&last.terminated.unwrap()));
        let wake = world.now + SignedDuration::from_secs(10);
        assert_eq!(world.next().wake, Some(wake));
        world.pass(2).tell();
        assert_eq!(world.waits_for("a"), "CrashLoopBackOff");
        assert_eq!(world.last_exit_of("a"), Some(128));
        assert_eq!(world.pass(8).settle_without("a"), ["start a"]);
        assert_eq!(world.container("a").restart_count, 2);
        let wake = world.now + SignedDuration::from_secs(20);
        assert_eq!(world.next().wake, Some(wake));
        assert_eq!(world.pass(20).settle(), ["start a"]);
        assert!(world.holds("Ready"), "once it can be run");
    }
}

#[test]
fn an_init_container_that_cannot_be_run_fails_the_pod_or_holds_it_up() {
    let inits = json!([{"name": "i", "image": "one"}]);
    let mut world = pod("Never", inits.clone());
    assert_eq!(world.settle_without("i"), ["make", "start i", "end"]);
    assert_eq!(world.phase(), "Failed");
    assert!(is_start_error(world.terminated("i").unwrap()));
    let mut world = pod("Always", inits);
    assert_eq!(world.settle_without("i"), ["make", "start i", "start i"]);
    assert_eq!(
        (world.phase(), world.waits_for("i"), world.waits_for("a")),
        ("Pending", "RunContainerError", "PodInitializing")
    );
}

#[test]
fn a_sidecar_that_cannot_be_run_is_tried_again_whatever_the_policy_says() {
    let sidecar = json!([{"name": "s", "image": "one", "restartPolicy": "Always"}]);
    let mut world = pod("Never", sidecar);
    assert_eq!(world.settle_without("s"), ["make", "start s", "start s"]);
    assert_eq!(
        (world.phase(), world.waits_for("s")),
        ("Pending", "RunContainerError")
    );
    assert_eq!(world.last_exit_of("s"), Some(128));
    assert_eq!(world.pass(10).settle(), ["start s", "start a"]);
    assert_eq!(world.phase(), "Running");
}

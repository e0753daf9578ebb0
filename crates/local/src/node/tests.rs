//! Plans and statuses of pods on a machine where every step succeeds at once, or fails as told.

mod over;
mod rejected;
mod unstarted;

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{ContainerStatus, Pod, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use serde_json::{Value, json};

use super::{
    facts::{Busy, End, Facts, Health, Made, Run, Setback, Shell},
    plan::{self, Next, Step},
    report::{self, Host},
    room::{self, Resources},
    trouble::Trouble,
    worker::container_of,
};
use crate::kubelet::{plan::Act, resize::wanted};

/// A pod, and what has become of it.
struct World {
    pod: Pod,
    facts: Facts,
    now: Timestamp,
    shells: u32,
}

impl World {
    fn of(spec: Value) -> Self {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1, "resourceVersion": "1"},
            "spec": spec,
        });
        Self {
            pod: serde_json::from_value(pod).unwrap(),
            facts: Facts::default(),
            now: "2030-01-01T00:00:00Z".parse().unwrap(),
            shells: 0,
        }
    }

    fn pass(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }

    fn next(&self) -> Next {
        plan::next(&self.granted(), &self.facts, self.now)
    }

    fn granted(&self) -> Pod {
        let (granted, _) = room::granted(&self.pod, &self.facts, &allocatable());
        granted.into_owned()
    }

    /// Does what is to be done until nothing is, and tells what it was.
    fn settle(&mut self) -> Vec<String> {
        self.settle_by(Self::take)
    }

    /// The same where steps have other outcomes.
    fn settle_by(&mut self, take: impl Fn(&mut Self, Step) -> String) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..100 {
            let steps = self.next().steps;
            if steps.is_empty() {
                break;
            }
            for step in steps {
                all.push(take(self, step));
            }
            self.tell();
        }
        self.tell();
        all
    }

    fn take(&mut self, step: Step) -> String {
        match step {
            Step::Make => {
                let ip = Some("10.0.0.9".to_owned());
                self.shells += 1;
                self.facts.shell = Shell::Whole {
                    number: self.shells,
                    ip,
                };
                "make".to_owned()
            }
            Step::Start { name } => {
                let container = container_of(&self.granted(), &name).unwrap();
                let health = Health {
                    started: container.startup_probe.is_none(),
                    ready: container.readiness_probe.is_none(),
                    lost: None,
                };
                let inmate = self.facts.containers.entry(name.clone()).or_default();
                let made = Made {
                    crashes: plan::crashes(&container, inmate, self.shells),
                    attempt: inmate.next_attempt(),
                    shell: self.shells,
                    image: container.image.clone().unwrap_or_default(),
                    image_id: format!("sha256:{}", container.image.clone().unwrap_or_default()),
                    resources: wanted(&container),
                    stop_signal: 15,
                };
                if let Some(last) = inmate.run.take() {
                    inmate.before = last.terminated("u", &name);
                }
                let started_at = self.now;
                inmate.run = Some(Run {
                    made,
                    started_at,
                    end: None,
                });
                inmate.health = health;
                inmate.setback = None;
                format!("start {name}")
            }
            Step::Stop { name, .. } => {
                self.exit(&name, 143);
                format!("stop {name}")
            }
            Step::Resize { name } => {
                let container = container_of(&self.granted(), &name).unwrap();
                let run = self.facts.containers.get_mut(&name).unwrap().run.as_mut();
                run.unwrap().made.resources = wanted(&container);
                format!("resize {name}")
            }
            Step::End { .. } => {
                let names: Vec<String> = self.facts.containers.keys().cloned().collect();
                names.iter().for_each(|name| self.exit(name, 143));
                self.facts.shell = Shell::Ended;
                "end".to_owned()
            }
        }
    }

    fn exit(&mut self, name: &str, code: i32) {
        let at = self.now;
        let inmate = self.facts.containers.get_mut(name).unwrap();
        inmate.health = Health::default();
        let reason = if code == 0 { "Completed" } else { "Error" };
        let end = End {
            code,
            reason,
            message: None,
            at,
        };
        inmate.run.as_mut().unwrap().end.get_or_insert(end);
    }

    fn fail(&mut self, name: &str, reason: &'static str, times: u32) {
        let container = container_of(&self.pod, name).unwrap();
        let inmate = self.facts.containers.entry(name.to_owned()).or_default();
        inmate.tried = container.image;
        let trouble = Trouble::new(reason, "why");
        inmate.setback = Some(Setback {
            trouble,
            at: self.now,
            times,
        });
    }

    /// What the API server is told becomes the status.
    fn tell(&mut self) -> Option<Act> {
        let host = Host {
            ip: "10.0.0.1",
            allocatable: &allocatable(),
        };
        let act = report::plan(&self.pod, &self.facts, &host, self.now).act;
        if let Some(Act::Status(patch)) = &act {
            let mut pod = serde_json::to_value(&self.pod).unwrap();
            merge(&mut pod["status"], &patch["status"]);
            self.pod = serde_json::from_value(pod).unwrap();
        }
        act
    }

    fn change(&mut self, pointer: &str, value: Value) {
        let mut pod = serde_json::to_value(&self.pod).unwrap();
        *pod.pointer_mut(pointer).unwrap() = value;
        pod["metadata"]["generation"] = json!(self.pod.metadata.generation.unwrap() + 1);
        self.pod = serde_json::from_value(pod).unwrap();
    }

    fn delete(&mut self, grace: i64) {
        let end = self.now + SignedDuration::from_secs(grace);
        self.pod.metadata.deletion_timestamp = Some(Time(end));
        self.pod.metadata.deletion_grace_period_seconds = Some(grace);
    }

    fn status(&self) -> &PodStatus {
        self.pod.status.as_ref().unwrap()
    }

    fn phase(&self) -> &str {
        self.status().phase.as_deref().unwrap()
    }

    fn container(&self, name: &str) -> &ContainerStatus {
        let status = self.status();
        let inits = status.init_container_statuses.iter().flatten();
        let mut all = inits.chain(status.container_statuses.iter().flatten());
        all.find(|one| one.name == name).unwrap()
    }

    fn waits_for(&self, name: &str) -> &str {
        let state = self.container(name).state.as_ref().unwrap();
        state.waiting.as_ref().unwrap().reason.as_deref().unwrap()
    }

    fn last_exit_of(&self, name: &str) -> Option<i32> {
        let last = self.container(name).last_state.as_ref()?;
        Some(last.terminated.as_ref()?.exit_code)
    }

    fn holds(&self, condition: &str) -> bool {
        let mut all = self.status().conditions.iter().flatten();
        all.any(|one| one.type_ == condition && one.status == "True")
    }
}

fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    let into = into.as_object_mut().unwrap();
    for (key, value) in patch {
        match value {
            Value::Null => drop(into.remove(key)),
            value => merge(into.entry(key.clone()).or_insert(Value::Null), value),
        }
    }
}

fn allocatable() -> Resources {
    serde_json::from_value(json!({"cpu": "4", "memory": "8Gi"})).unwrap()
}

fn simple() -> World {
    World::of(json!({"containers": [{"name": "a", "image": "one"}]}))
}

fn with_init() -> World {
    World::of(json!({
        "initContainers": [{"name": "i", "image": "one"}],
        "containers": [{"name": "a", "image": "one"}],
    }))
}

#[test]
fn a_pod_is_made_and_runs_and_is_told_to_be_ready() {
    let mut world = simple();
    world.tell();
    assert_eq!(
        (world.phase(), world.waits_for("a")),
        ("Pending", "ContainerCreating")
    );
    assert_eq!(world.settle(), ["make", "start a"]);
    assert_eq!(world.phase(), "Running");
    assert!(world.holds("Ready"));
    assert_eq!(world.status().pod_ip.as_deref(), Some("10.0.0.9"));
    assert_eq!(
        world.container("a").container_id.as_deref(),
        Some("sandbar://u.a.0")
    );
    assert_eq!(world.tell(), None, "what has been told is not told again");
}

#[test]
fn a_container_that_ends_starts_again_at_once_and_then_ever_later() {
    let mut world = simple();
    world.settle();
    world.exit("a", 1);
    assert_eq!(world.settle(), ["start a"]);
    assert_eq!(world.last_exit_of("a"), Some(1), "while it runs again");
    world.exit("a", 2);
    assert_eq!(world.settle(), Vec::<String>::new());
    assert_eq!(
        (world.phase(), world.waits_for("a")),
        ("Running", "CrashLoopBackOff")
    );
    assert!(!world.holds("Ready"));
    assert_eq!(world.last_exit_of("a"), Some(2), "while it waits");
    assert_eq!(
        world.next().wake,
        Some(world.now + SignedDuration::from_secs(10))
    );
    assert_eq!(world.pass(10).settle(), ["start a"]);
    assert_eq!(world.container("a").restart_count, 2);
    assert_eq!(world.last_exit_of("a"), Some(2));
}

#[test]
fn only_what_ends_by_itself_again_and_again_is_kept_waiting() {
    let mut world = simple();
    world.settle();
    for image in ["two", "three", "four"] {
        world.change("/spec/containers/0/image", json!(image));
        assert_eq!(world.settle(), ["stop a", "start a"]);
    }
    world.exit("a", 1);
    assert_eq!(world.settle(), ["start a"], "its first crash");
    world.exit("a", 1);
    assert_eq!(world.settle(), Vec::<String>::new(), "its second");
    assert_eq!(world.pass(10).settle(), ["start a"]);
    world.pass(600).exit("a", 1);
    assert_eq!(world.settle(), ["start a"], "it ran for long");
    world.exit("a", 1);
    let soon = world.now + SignedDuration::from_secs(10);
    assert_eq!(world.next().wake, Some(soon), "not as long as before");
}

#[test]
fn policies_say_whether_an_end_is_the_end() {
    for (policy, code, restarted, phase) in [
        ("Always", 0, true, "Running"),
        ("OnFailure", 0, false, "Succeeded"),
        ("OnFailure", 3, true, "Running"),
        ("Never", 0, false, "Succeeded"),
        ("Never", 3, false, "Failed"),
    ] {
        let mut world = simple();
        world.change(
            "/spec",
            json!({"restartPolicy": policy, "containers": [{"name": "a", "image": "one"}]}),
        );
        world.settle();
        world.exit("a", code);
        world.tell();
        assert_eq!(world.phase(), "Running", "until what it lives in has ended");
        let steps = world.settle();
        let expected = if restarted { ["start a"] } else { ["end"] };
        assert_eq!(steps, expected, "{policy} {code}");
        assert_eq!(world.phase(), phase, "{policy} {code}");
    }
}

#[test]
fn another_image_stops_the_container_and_starts_it_at_once_whatever_the_policy() {
    for policy in ["Always", "Never"] {
        let mut world = World::of(
            json!({"restartPolicy": policy, "containers": [{"name": "a", "image": "one"}]}),
        );
        world.settle();
        world.change("/spec/containers/0/image", json!("two"));
        assert_eq!(world.settle(), ["stop a", "start a"]);
        assert_eq!(world.phase(), "Running");
        let container = world.container("a");
        assert_eq!(
            (container.image.as_str(), container.restart_count),
            ("two", 1)
        );
        assert_eq!(world.status().pod_ip.as_deref(), Some("10.0.0.9"));
        assert_eq!(world.status().observed_generation, Some(2));
    }
}

#[test]
fn resources_change_in_place_unless_the_policy_wants_a_restart() {
    for (policy, steps) in [
        ("NotRequired", vec!["resize a"]),
        ("RestartContainer", vec!["stop a", "start a"]),
    ] {
        let mut world = World::of(json!({"containers": [{
            "name": "a", "image": "one",
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": policy}],
            "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
        }]}));
        world.settle();
        let more = json!({"limits": {"cpu": "2"}, "requests": {"cpu": "2"}});
        world.change("/spec/containers/0/resources", more);
        world.tell();
        assert!(world.holds("PodResizeInProgress"));
        assert_eq!(world.settle(), steps);
        assert!(!world.holds("PodResizeInProgress"));
        let allocated = world.container("a").allocated_resources.as_ref().unwrap();
        assert_eq!(allocated["cpu"].0, "2");
    }
}

#[test]
fn init_containers_come_first_one_after_the_other_and_sidecars_stay() {
    let mut world = World::of(json!({
        "initContainers": [
            {"name": "i", "image": "one"},
            {"name": "s", "image": "one", "restartPolicy": "Always"},
            {"name": "j", "image": "one"},
        ],
        "containers": [{"name": "a", "image": "one"}],
    }));
    assert_eq!(world.settle(), ["make", "start i"]);
    assert_eq!(
        (world.phase(), world.waits_for("a")),
        ("Pending", "PodInitializing")
    );
    world.exit("i", 0);
    assert_eq!(world.settle(), ["start s", "start j"]);
    assert!(!world.holds("Initialized"));
    world.exit("j", 0);
    assert_eq!(world.settle(), ["start a"]);
    assert!(world.holds("Initialized") && world.holds("Ready"));
    world.exit("s", 1);
    assert_eq!(world.settle(), ["start s"], "alone: the others are through");
}

#[test]
fn an_init_container_that_fails_is_tried_again_or_is_the_end() {
    for (policy, steps, phase) in [
        ("Always", ["start i"], "Pending"),
        ("Never", ["end"], "Failed"),
    ] {
        let mut world = World::of(json!({
            "restartPolicy": policy,
            "initContainers": [{"name": "i", "image": "one"}],
            "containers": [{"name": "a", "image": "one"}],
        }));
        world.settle();
        world.exit("i", 1);
        assert_eq!(world.settle(), steps);
        assert_eq!(world.phase(), phase);
    }
}

#[test]
fn after_what_they_lived_in_was_lost_all_start_again_without_a_rest() {
    let mut world = with_init();
    world.settle();
    world.exit("i", 0);
    world.settle();
    for _ in 0..3 {
        world.exit("a", 1);
        world.pass(1000).settle();
    }
    world.exit("a", 137);
    world.facts.shell = Shell::Absent;
    assert_eq!(world.pass(1).settle(), ["make", "start i"]);
    world.exit("i", 0);
    assert_eq!(world.settle(), ["start a"]);
}

#[test]
fn a_pod_that_was_over_when_what_it_lived_in_was_lost_is_over() {
    for (policy, code, phase) in [("Never", 1, "Failed"), ("OnFailure", 0, "Succeeded")] {
        let spec = json!({"restartPolicy": policy, "containers": [{"name": "a", "image": "one"}]});
        let mut world = World::of(spec);
        world.settle();
        world.exit("a", code);
        world.facts.shell = Shell::Absent;
        assert_eq!(world.settle(), Vec::<String>::new());
        assert_eq!(world.phase(), phase);
    }
}

#[test]
fn a_failed_pull_is_told_as_such_and_then_as_a_back_off_until_it_is_tried_again() {
    let mut world = simple();
    let make = world.next().steps.remove(0);
    world.take(make);
    world.fail("a", "ErrImagePull", 2);
    world.tell();
    assert_eq!(world.waits_for("a"), "ErrImagePull");
    world.pass(3).tell();
    assert_eq!(world.waits_for("a"), "ImagePullBackOff");
    assert_eq!(world.next().steps, []);
    assert_eq!(world.pass(17).settle(), ["start a"]);
}

#[test]
fn what_is_missing_here_is_looked_for_again_soon() {
    let mut world = simple();
    let make = world.next().steps.remove(0);
    world.take(make);
    world.fail("a", "CreateContainerConfigError", 1);
    assert_eq!(world.pass(1).settle(), ["start a"]);
}

#[test]
fn what_has_been_missing_here_for_long_is_looked_for_every_minute() {
    let mut world = simple();
    let make = world.next().steps.remove(0);
    world.take(make);
    world.fail("a", "CreateContainerConfigError", 20);
    assert_eq!(world.pass(59).settle(), Vec::<String>::new());
    assert_eq!(world.pass(1).settle(), ["start a"]);
}

#[test]
fn another_image_does_not_wait_for_the_one_that_could_not_be_pulled() {
    let mut world = simple();
    let make = world.next().steps.remove(0);
    world.take(make);
    world.fail("a", "ErrImagePull", 6);
    assert_eq!(world.pass(60).settle(), Vec::<String>::new());
    world.change("/spec/containers/0/image", json!("two"));
    assert_eq!(world.settle(), ["start a"]);
}

#[test]
fn a_container_that_a_probe_gave_up_is_stopped_with_its_own_grace() {
    let mut world = simple();
    world.settle();
    world.facts.containers.get_mut("a").unwrap().health.lost = Some(Some(7));
    let grace = Duration::from_secs(7);
    let stop = Step::Stop {
        name: "a".to_owned(),
        grace,
    };
    assert_eq!(world.next().steps, [stop]);
    assert_eq!(world.settle(), ["stop a", "start a"]);
}

#[test]
fn while_something_is_being_done_about_a_container_nothing_else_is() {
    let mut world = simple();
    world.settle();
    world.change("/spec/containers/0/image", json!("two"));
    world.facts.containers.get_mut("a").unwrap().busy = Some(Busy::Stopping);
    assert_eq!(world.next().steps, []);
}

#[test]
fn a_deleted_pod_ends_by_its_time_is_told_to_have_ended_and_removed() {
    let mut world = simple();
    world.settle();
    world.delete(30);
    let by = world.now + SignedDuration::from_secs(30);
    assert_eq!(world.next().steps, [Step::End { by }]);
    assert_eq!(world.tell(), None, "nothing is told before it has ended");
    world.take(Step::End { by });
    assert!(matches!(world.tell(), Some(Act::Status(_))));
    assert_eq!(world.phase(), "Failed");
    assert_eq!(world.tell(), Some(Act::Remove));
}

#[test]
fn a_pod_that_is_deleted_before_it_was_made_is_never_made() {
    let mut world = simple();
    world.delete(30);
    assert_eq!(world.next().steps, []);
    world.tell();
    assert_eq!(world.tell(), Some(Act::Remove));
}

#[test]
fn a_pod_that_ran_for_longer_than_it_may_fails() {
    let mut world = World::of(
        json!({"activeDeadlineSeconds": 5, "containers": [{"name": "a", "image": "one"}]}),
    );
    world.settle();
    assert_eq!(
        world.next().wake,
        Some(world.now + SignedDuration::from_secs(5))
    );
    assert_eq!(world.pass(5).settle(), ["end"]);
    assert_eq!(world.phase(), "Failed");
    assert_eq!(world.status().reason.as_deref(), Some("DeadlineExceeded"));
}

#[test]
fn readiness_follows_the_probes() {
    let mut world = World::of(json!({"containers": [{
        "name": "a", "image": "one",
        "startupProbe": {"exec": {"command": ["true"]}},
        "readinessProbe": {"exec": {"command": ["true"]}},
    }]}));
    world.settle();
    assert_eq!(world.container("a").started, Some(false));
    assert!(!world.holds("Ready"));
    let health = &mut world.facts.containers.get_mut("a").unwrap().health;
    (health.started, health.ready) = (true, true);
    world.tell();
    assert!(world.holds("Ready"));
}

//! Plans, followed without a server: each patch is applied, and time passes by argument.

use std::time::Duration;

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use serde_json::{Value, json};

use super::{
    Options,
    failure::{Failure, Rule, Target},
    plan::{Memory, Place, World, run},
};
use crate::{
    clock::after,
    kubelet::plan::{Act, Plan},
};

/// One pod on a node, and everything the node knows.
struct Life {
    pod: Pod,
    memory: Memory,
    options: Options,
    rules: Vec<Rule>,
    now: Timestamp,
    writes: usize,
    removed: bool,
    wake: Option<Timestamp>,
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn pod(spec: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1,
            "resourceVersion": "1"},
        "spec": {"nodeName": "hollow", "containers": [{"name": "main", "image": "app:1"}]},
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    });
    merge(&mut pod["spec"], spec);
    serde_json::from_value(pod).unwrap()
}

fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (key, new) in patch {
        if new.is_null() {
            value.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut value[key], new);
        }
    }
}

impl Life {
    fn new(spec: &Value, options: Options) -> Self {
        Self {
            pod: pod(spec),
            memory: Memory::default(),
            options,
            rules: Vec::new(),
            // not a whole second, so that what the API cannot keep has to be remembered
            now: "2026-01-31T12:00:00.7Z".parse().unwrap(),
            writes: 0,
            removed: false,
            wake: None,
        }
    }

    fn plan(&mut self) -> Plan {
        let world = World {
            now: self.now,
            options: &self.options,
            rules: &self.rules,
        };
        let place = Place {
            host_ip: "10.255.0.1",
            pod_ip: "10.0.0.1",
        };
        run(&self.pod, &mut self.memory, &world, &place)
    }

    fn patch(&mut self, patch: &Value) {
        let mut pod = serde_json::to_value(&self.pod).unwrap();
        merge(&mut pod, patch);
        self.pod = serde_json::from_value(pod).unwrap();
    }

    /// Does what the plan says until it says nothing more.
    fn settle(&mut self) -> &mut Self {
        for _ in 0..10 {
            let plan = self.plan();
            self.wake = plan.wake;
            match plan.act {
                None => return self,
                Some(Act::Status(patch)) => {
                    self.writes += 1;
                    self.patch(&patch);
                }
                Some(Act::Remove) => {
                    self.removed = true;
                    return self;
                }
                Some(Act::Bind { node }) => panic!("bound to {node} twice"),
            }
        }
        panic!("never settles");
    }

    fn pass(&mut self, time: Duration) -> &mut Self {
        self.now = after(self.now, time);
        self.settle()
    }

    fn respec(&mut self, spec: &Value) -> &mut Self {
        let generation = self.pod.metadata.generation.unwrap() + 1;
        self.patch(&json!({"metadata": {"generation": generation}, "spec": spec}));
        self.settle()
    }

    fn status(&self) -> Value {
        serde_json::to_value(&self.pod.status).unwrap()
    }

    fn phase(&self) -> String {
        self.status()["phase"].as_str().unwrap().to_owned()
    }

    fn condition(&self, kind: &str) -> Option<String> {
        let status = self.status();
        let mut all = status["conditions"].as_array().unwrap().iter();
        let condition = all.find(|condition| condition["type"] == kind)?;
        Some(condition["status"].as_str().unwrap().to_owned())
    }

    fn is_ready(&self) -> bool {
        self.condition("Ready").as_deref() == Some("True")
    }

    fn restarts(&self) -> Value {
        self.status()["containerStatuses"][0]["restartCount"].clone()
    }
}

#[test]
fn a_pod_that_starts_at_once_is_ready_with_one_write() {
    let mut life = Life::new(&json!({}), Options::default());
    life.settle();
    assert_eq!((life.phase().as_str(), life.writes), ("Running", 1));
    assert!(life.is_ready());
    let status = life.status();
    assert_eq!(status["startTime"], "2026-01-31T12:00:00Z");
    assert_eq!(status["podIPs"], json!([{"ip": "10.0.0.1"}]));
    assert_eq!(status["hostIP"], "10.255.0.1");
    assert_eq!(status["qosClass"], "BestEffort");
    assert_eq!(life.pass(seconds(86_400)).writes, 1);
}

#[test]
fn a_start_takes_its_delay_to_the_millisecond() {
    let options = Options {
        start_delay: millis(500),
        ..Options::default()
    };
    let mut life = Life::new(&json!({}), options);
    life.settle();
    assert_eq!(life.wake, Some(after(life.now, millis(500))));
    assert_eq!(life.pass(millis(499)).phase(), "Pending");
    assert_eq!(life.pass(millis(1)).phase(), "Running");
    assert_eq!(life.writes, 2);
}

#[test]
fn a_pod_on_the_network_of_its_host_has_the_address_of_its_host() {
    let options = Options {
        start_delay: seconds(5),
        ..Options::default()
    };
    let mut life = Life::new(&json!({"hostNetwork": true}), options);
    life.settle();
    assert_eq!(life.status()["podIP"], "10.255.0.1");
    assert_eq!(life.writes, 1);
    assert_eq!(life.pass(seconds(5)).phase(), "Running");
    assert_eq!(life.status()["podIP"], "10.255.0.1");
}

#[test]
fn a_node_that_has_forgotten_everything_goes_on_to_the_second() {
    let options = Options {
        start_delay: seconds(10),
        ..Options::default()
    };
    let mut life = Life::new(&json!({}), options);
    life.settle();
    life.memory = Memory::default();
    assert_eq!(life.pass(seconds(4)).writes, 1);
    assert_eq!(life.wake, Some("2026-01-31T12:00:10Z".parse().unwrap()));
    assert_eq!(life.pass(seconds(6)).phase(), "Running");
}

#[test]
fn a_new_image_stops_the_container_and_starts_it_anew() {
    let options = Options {
        restart_delay: millis(300),
        ..Options::default()
    };
    // whatever the restart policy: the node stopped it, it did not end by itself
    let mut life = Life::new(&json!({"restartPolicy": "Never"}), options);
    let before = life.settle().status();
    life.respec(&json!({"containers": [{"name": "main", "image": "app:2"}]}));
    assert_eq!((life.is_ready(), life.phase().as_str()), (false, "Running"));
    assert_eq!(life.status()["observedGeneration"], 2);
    assert!(!life.pass(millis(299)).is_ready());
    assert!(life.pass(millis(1)).is_ready());
    let status = life.status();
    let main = &status["containerStatuses"][0];
    assert_eq!(
        (&main["image"], &main["restartCount"]),
        (&json!("app:2"), &json!(1))
    );
    assert_ne!(
        main["containerID"],
        before["containerStatuses"][0]["containerID"]
    );
    assert_eq!(status["podIP"], before["podIP"]);
}

#[test]
fn a_new_generation_is_observed_before_its_image_runs() {
    let mut life = Life::new(&json!({}), Options::default());
    life.settle();
    life.patch(&json!({"metadata": {"generation": 2},
        "spec": {"containers": [{"name": "main", "image": "app:2"}]}}));
    let Some(Act::Status(patch)) = life.plan().act else {
        panic!("nothing is observed");
    };
    life.patch(&patch);
    assert_eq!(life.status()["observedGeneration"], 2);
    assert!(life.is_ready());
    assert_eq!(life.status()["containerStatuses"][0]["image"], "app:1");
    life.settle();
    assert_eq!(life.status()["containerStatuses"][0]["image"], "app:2");
}

#[test]
fn only_the_generation_may_change() {
    let mut life = Life::new(&json!({}), Options::default());
    life.settle();
    life.respec(&json!({"activeDeadlineSeconds": 1000}));
    assert_eq!((life.writes, life.restarts()), (2, json!(0)));
    assert_eq!(life.status()["observedGeneration"], 2);
}

fn sized(cpu: &str, image: &str) -> Value {
    json!({"containers": [{"name": "main", "image": image,
        "resources": {"requests": {"cpu": cpu}},
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}]})
}

#[test]
fn a_resize_restarts_a_container_that_wants_it() {
    let options = Options {
        resize_delay: seconds(1),
        restart_delay: seconds(1),
        ..Options::default()
    };
    let mut life = Life::new(&sized("1", "app:1"), options);
    life.settle();
    life.respec(&sized("2", "app:1"));
    assert_eq!(
        life.condition("PodResizeInProgress").as_deref(),
        Some("True")
    );
    assert!(life.is_ready());
    life.pass(seconds(1));
    assert_eq!(life.condition("PodResizeInProgress"), None);
    assert!(!life.is_ready());
    assert!(life.pass(seconds(1)).is_ready());
    assert_eq!(life.restarts(), 1);
    let status = life.status();
    let main = &status["containerStatuses"][0];
    assert_eq!(main["resources"]["requests"]["cpu"], "2");
    assert_eq!(main["allocatedResources"]["cpu"], "2");
}

#[test]
fn a_refused_resize_leaves_a_restarted_container_what_it_had() {
    let mut life = Life::new(&sized("1", "app:1"), Options::default());
    life.rules.push(Rule {
        id: 0,
        target: Target::All,
        failure: Failure::ResizeInfeasible,
    });
    life.settle();
    life.respec(&sized("2", "app:2"));
    let status = life.status();
    let main = &status["containerStatuses"][0];
    assert_eq!(
        (&main["image"], life.restarts()),
        (&json!("app:2"), json!(1))
    );
    assert_eq!(main["resources"]["requests"]["cpu"], "1");
    assert_eq!(life.condition("PodResizePending").as_deref(), Some("True"));
    life.rules.clear();
    life.settle();
    assert_eq!(life.condition("PodResizePending"), None);
    assert_eq!(life.restarts(), 2);
}

#[test]
fn a_crash_ends_a_pod_that_is_not_to_be_restarted() {
    let mut life = Life::new(&json!({"restartPolicy": "Never"}), Options::default());
    life.settle();
    life.patch(&json!({"metadata": {"annotations": {"hollow.sandbar.dev/fail": "crash"}}}));
    life.settle();
    assert_eq!(life.phase(), "Failed");
    assert_eq!(life.restarts(), 0);
    let writes = life.writes;
    life.patch(&json!({"metadata": {"annotations": null}}));
    assert_eq!(life.pass(seconds(600)).writes, writes);
}

#[test]
fn a_sidecar_ends_with_the_containers_it_serves() {
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"}],
    });
    let mut life = Life::new(&spec, Options::default());
    life.patch(&json!({"metadata": {"annotations": {"hollow.sandbar.dev/exit-after": "5s"}}}));
    assert!(life.settle().is_ready());
    assert_eq!(life.pass(seconds(5)).phase(), "Succeeded");
    let end = &life.status()["initContainerStatuses"][0]["state"]["terminated"];
    assert_eq!(end["exitCode"], 0);
}

fn deleted(life: &mut Life, grace: i64) {
    life.settle();
    life.patch(&json!({"metadata": {
        "deletionTimestamp": "2026-01-31T13:00:00Z", "deletionGracePeriodSeconds": grace,
    }}));
    life.settle();
}

#[test]
fn a_deleted_pod_ends_before_it_is_removed() {
    for (grace, phase) in [(30, "Succeeded"), (2, "Failed")] {
        let options = Options {
            stop_delay: seconds(5),
            ..Options::default()
        };
        let mut life = Life::new(&json!({}), options);
        deleted(&mut life, grace);
        assert!(!life.removed && life.is_ready());
        let due = seconds(5).min(seconds(grace.unsigned_abs()));
        life.pass(due - millis(1));
        assert!(!life.removed);
        life.pass(millis(1));
        assert!(life.removed && !life.is_ready());
        assert_eq!(life.phase(), phase);
    }
}

#[test]
fn a_pod_that_has_not_started_goes_at_once() {
    let options = Options {
        start_delay: seconds(60),
        stop_delay: seconds(60),
        ..Options::default()
    };
    let mut life = Life::new(&json!({}), options);
    deleted(&mut life, 30);
    assert_eq!((life.phase().as_str(), life.removed), ("Failed", true));
}

#[test]
fn a_pod_that_only_waits_for_its_finalizers_is_left_alone() {
    let mut life = Life::new(&json!({}), Options::default());
    deleted(&mut life, 30);
    life.removed = false;
    life.patch(&json!({"metadata": {"deletionGracePeriodSeconds": 0}}));
    assert!(!life.settle().removed);
}

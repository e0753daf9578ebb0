//! A container is being started when somebody dies: the program, or the shim that starts it.

use std::{path::Path, time::Duration};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::ResourceExt as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::instance::{Instance, container, eventually, sh};

/// A pod whose second container the shim has been told to start, and who cannot do so before he is woken.
async fn in_flight(up: &Instance) -> Pid {
    let image = "docker.io/library/late:1";
    let second = json!({
        "name": "second", "image": image, "imagePullPolicy": "Never", "command": ["/bin/sleep", "2222"],
    });
    let containers = json!({"containers": [sh("main", "exec sleep 1111"), second]});
    let pod = up.pod("both", containers).await;
    let runs = |pod: &Pod| container(pod, "main").ready;
    up.until("both", "ran its first container", runs).await;
    let directory = up.data().join("node/pods").join(pod.uid().unwrap());
    let shim = shim(&directory);
    kill_process(shim, Signal::STOP).unwrap();
    up.import(image, "late");
    eventually("it is to be started", async || {
        directory.join("runs/second.json").exists()
    })
    .await;
    // what is written down is sent at once
    tokio::time::sleep(Duration::from_millis(200)).await;
    shim
}

/// By what it has written down: whom it forks is called the same for a moment.
fn shim(directory: &Path) -> Pid {
    let record = std::fs::read(directory.join("shim/shim.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    let pid = record["process"]["pid"].as_i64().unwrap();
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// How many processes of the second container there are.
fn count(up: &Instance) -> usize {
    let all = up.processes();
    let lines = all
        .iter()
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok());
    lines.filter(|line| line.contains("2222")).count()
}

fn started_at(pod: &Pod, name: &str) -> Timestamp {
    let running = container(pod, name).state.unwrap().running.unwrap();
    running.started_at.unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_was_being_started_when_the_program_was_killed_is_known_to_the_next() {
    let mut up = Instance::start().await;
    let shim = in_flight(&up).await;
    up.end(Signal::KILL);
    let woken = std::thread::spawn(move || {
        // while the next one asks for what runs
        std::thread::sleep(Duration::from_millis(1000));
        kill_process(shim, Signal::CONT).unwrap();
    });
    up.start_again().await;
    woken.join().unwrap();
    let pod = up.ready("both").await;
    for name in ["main", "second"] {
        assert_eq!(container(&pod, name).restart_count, 0, "{name}");
    }
    assert_eq!(count(&up), 1);
    up.delete("both").await;
    eventually("its processes are gone", async || count(&up) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_was_being_started_when_its_shim_was_killed_is_started_without_a_rest() {
    let up = Instance::start().await;
    let shim = in_flight(&up).await;
    kill_process(shim, Signal::KILL).unwrap();
    let pod = up.ready("both").await;
    assert_eq!(container(&pod, "main").restart_count, 1);
    assert_eq!(count(&up), 1);
    let (first, second) = (started_at(&pod, "main"), started_at(&pod, "second"));
    assert!(
        second.duration_since(first).as_secs() < 5,
        "{first} {second}"
    );
}

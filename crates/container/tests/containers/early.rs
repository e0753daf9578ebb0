//! Who waits for the first container of a pod, before it is asked for.

use std::process::Command;
use std::time::Duration;

use container::{Pod, PodSettings};

use crate::support::{Machine, command, eventually, run};

/// A pod that expects `main`, and the process that waits for it.
async fn expecting(machine: &mut Machine, name: &str) -> (Pod, String) {
    let settings = PodSettings {
        first: Some("main".to_owned()),
        ..machine.pod_settings(name)
    };
    let helper = machine.helper.as_ref().unwrap();
    let pod = helper.start_pod(&settings).await.unwrap();
    let mut waiting = String::new();
    eventually("somebody waits in the cgroup of main", || {
        waiting = inside(machine, name);
        !waiting.is_empty()
    })
    .await;
    (pod, waiting)
}

/// The processes in the cgroup of `main`, which may not be there yet.
fn inside(machine: &Machine, pod: &str) -> String {
    let cgroup = &machine.cgroup;
    let file = format!("/sys/fs/cgroup/unified/{cgroup}/pod-{pod}/main/cgroup.procs");
    let processes = std::fs::read_to_string(file).unwrap_or_default();
    processes.trim().to_owned()
}

fn kill(pid: &str) {
    Command::new("kill").args(["-9", pid]).status().unwrap();
}

async fn nobody_waits(machine: &Machine, name: &str) {
    eventually("nobody waits any more", || inside(machine, name).is_empty()).await;
}

#[tokio::test]
async fn the_container_that_was_expected_has_its_streams_and_its_cgroup_to_itself() {
    let mut machine = Machine::new();
    let (pod, waiting) = expecting(&mut machine, "expected").await;
    let mut settings = machine.sh(
        "main",
        "echo out; echo err >&2; read word; echo $word; sleep 1000",
    );
    settings.stdin = true;
    pod.start(&settings).await.unwrap();
    eventually("both streams are in the log", || {
        machine.said("main").lines().count() == 2
    })
    .await;
    eventually("who waited is gone", || {
        !inside(&machine, "expected").contains(&waiting)
    })
    .await;
    let (out, ..) = command(&pod, "main", &["cat", "/proc/1/cgroup"]).await;
    assert!(out.lines().any(|line| line == "0::/"), "{out}");
}

#[tokio::test]
async fn the_same_container_can_be_started_again() {
    let mut machine = Machine::new();
    let (pod, _) = expecting(&mut machine, "again").await;
    assert_eq!(run(&pod, &machine.sh("main", "exit 3")).await.code, 3);
    let mut second = machine.sh("main", "exit 4");
    second.attempt = 1;
    assert_eq!(run(&pod, &second).await.code, 4);
}

#[tokio::test]
async fn another_container_than_expected_sends_who_waits_away() {
    let mut machine = Machine::new();
    let (pod, _) = expecting(&mut machine, "surprise").await;
    pod.start(&machine.sh("other", "sleep 1000")).await.unwrap();
    nobody_waits(&machine, "surprise").await;
    assert_eq!(run(&pod, &machine.sh("main", "exit 5")).await.code, 5);
}

#[tokio::test]
async fn one_that_was_killed_while_it_waited_is_replaced() {
    let mut machine = Machine::new();
    let (pod, waiting) = expecting(&mut machine, "killed").await;
    kill(&waiting);
    nobody_waits(&machine, "killed").await;
    assert_eq!(run(&pod, &machine.sh("main", "exit 6")).await.code, 6);
}

#[tokio::test]
async fn a_pod_that_is_stopped_while_somebody_waits_leaves_nothing() {
    let mut machine = Machine::new();
    let (pod, _) = expecting(&mut machine, "unused").await;
    pod.stop(&[], Duration::from_secs(10)).await.unwrap();
    machine.assert_nothing_left().await;
}

#[tokio::test]
async fn who_waits_ends_with_the_shim() {
    let mut machine = Machine::new();
    let (pod, _) = expecting(&mut machine, "left").await;
    kill(&pod.pid().to_string());
    nobody_waits(&machine, "left").await;
}

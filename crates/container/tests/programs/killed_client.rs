//! A client that is killed.

use std::future::pending;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use container::Pod;

use crate::support::{Machine, ended, eventually};

const COUNT: &str =
    "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; exit 6";

/// The process that is killed: it starts a pod and waits for its own end.
pub(crate) async fn client(dir: &str, cgroup: &str) {
    let mut machine = Machine::new();
    let mut settings = machine.pod_settings("unused");
    settings.dir = PathBuf::from(dir);
    settings.cgroup_parent = cgroup.to_owned();
    settings.cgroup = "pod-survivor".to_owned();
    let helper = machine.helper.as_ref().unwrap();
    let pod = helper.start_pod(&settings).await.unwrap();
    let mut main = machine.sh("main", COUNT);
    let root = Path::new(dir).parent().unwrap();
    main.root.layers = vec![root.join("layer")];
    main.log = root.join("main.log");
    pod.start(&main).await.unwrap();
    std::fs::write(root.join("started"), "").unwrap();
    pending::<()>().await;
}

pub(crate) async fn a_container_outlives_a_killed_client_and_its_helper() {
    let mut machine = Machine::new();
    let settings = machine.pod_settings("survivor");
    let mut client = Command::new(std::env::current_exe().unwrap())
        .arg("client")
        .arg(&settings.dir)
        .arg(&machine.cgroup)
        .env("TMPDIR", machine.dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let started = machine.dir.path().join("started");
    eventually("the container has started", || started.exists()).await;
    let helper = children_of(client.id());
    assert_eq!(helper.len(), 1);
    client.kill().unwrap();
    client.wait().unwrap();
    let gone = format!("/proc/{}", helper[0]);
    eventually("the helper has ended", || !Path::new(&gone).exists()).await;

    let pod = Pod::connect(&settings.dir).await.unwrap();
    let mut events = pod.events();
    let states = pod.containers().await.unwrap();
    let state = match &states[0].exit {
        Some(_) => states[0].clone(),
        None => ended(&mut events, "main").await,
    };
    assert_eq!(state.exit.unwrap().code, 6);
    let expected: String = (0..300).map(|i| format!("line {i}\n")).collect();
    assert_eq!(machine.said("main"), expected);
    pod.stop(&[], Duration::ZERO).await.unwrap();
    machine.assert_nothing_left().await;
}

fn children_of(pid: u32) -> Vec<String> {
    let output = Command::new("ps")
        .args(["-o", "pid=", "--ppid", &pid.to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

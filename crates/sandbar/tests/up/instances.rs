//! Several instances, other users, and the end of everything.

use std::{
    fs,
    os::unix::fs::{chown, symlink},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::Command,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    e2b::ASK_DAEMON,
    instance::{Instance, ip, sh},
    range::free_range,
    storage::mounts_below,
};

fn listed(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn two_instances_know_nothing_of_each_other() {
    let (one, other) = (Instance::start().await, Instance::start().await);
    one.run("same", "exec sleep 1000").await;
    other.run("same", "exec sleep 1000").await;
    let (first, second) = (one.ready("same").await, other.ready("same").await);
    assert_ne!(ip(&first), ip(&second));
    one.delete("same").await;
    assert_eq!(other.exec("same", &["echo", "here"]).0, "here\n");
    let down = one.sandbar(&["down"]);
    assert!(down.status.success(), "{down:?}");
    assert_eq!(one.cgroups(), Vec::<PathBuf>::new());
    assert_ne!(other.cgroups(), Vec::<PathBuf>::new());
    assert_eq!(other.exec("same", &["echo", "here"]).0, "here\n");
}

#[tokio::test]
async fn down_leaves_no_process_mount_link_rule_or_cgroup() {
    // of its own: what is free again is taken by the next instance at once
    let range = free_range(213).to_string();
    let mut up = Instance::with(&["--pool", "2", "--pod-cidr", &range]).await;
    let mut one = sh("main", "exec sleep 1000");
    one["volumeMounts"] = json!([{"name": "memory", "mountPath": "/memory"}]);
    let volumes = json!([{"name": "memory", "emptyDir": {"medium": "Memory"}}]);
    up.pod("left", json!({"volumes": volumes, "containers": [one]}))
        .await;
    let address = ip(&up.ready("left").await);
    up.end(Signal::KILL);
    assert_ne!(up.processes(), Vec::<u32>::new());
    let (data, memory) = (up.data(), up.memory());
    assert_eq!(mounts_below(&memory).len(), 1);
    let network = fs::read(data.join("node/network.json")).unwrap();
    let network: Value = serde_json::from_slice(&network).unwrap();
    let id = network["id"].as_str().unwrap();
    let table = format!("sandbar_{id}");
    let range = network["network"].as_str().unwrap();
    assert!(listed("ip", &["route"]).contains(range));
    let tables = local::network::tables().await.unwrap();
    assert!(tables.contains(&table), "{tables:?}");
    assert!(listed("ip", &["link"]).contains(id));
    let down = up.sandbar(&["down"]);
    assert!(down.status.success(), "{down:?}");
    assert_eq!(up.processes(), Vec::<u32>::new());
    assert_eq!(up.cgroups(), Vec::<PathBuf>::new());
    assert!(!data.exists());
    assert_eq!(mounts_below(&data), Vec::<String>::new());
    assert_eq!(mounts_below(&memory), Vec::<String>::new());
    assert!(!memory.exists());
    let routes = listed("ip", &["route"]);
    assert!(!routes.contains(&address), "{routes}");
    assert!(!routes.contains(range), "{routes}");
    let links = listed("ip", &["link"]);
    assert!(!links.contains(id), "{links}");
    let tables = local::network::tables().await.unwrap();
    assert!(!tables.contains(&table), "{tables:?}");
}

#[tokio::test]
async fn a_data_directory_behind_a_link_can_be_used_again_after_down() {
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(elsewhere.path(), directory.path().join("data")).unwrap();
    let program = vec![crate::instance::PROGRAM.to_owned()];
    let mut up = Instance::launched(program, directory, &["--pool", "0"]).await;
    up.end(Signal::TERM);
    let down = up.sandbar(&["down"]);
    assert!(down.status.success(), "{down:?}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    up.start_again().await;
    assert!(elsewhere.path().join("kubeconfig").is_file());
}

#[tokio::test]
async fn down_stops_an_instance_that_runs() {
    let up = Instance::start().await;
    up.run("left", "exec sleep 1000").await;
    up.ready("left").await;
    let for_ever = u64::MAX.to_string();
    let down = up.sandbar(&["down", "--grace", &for_ever]);
    assert!(down.status.success(), "{down:?}");
    assert_eq!(up.cgroups(), Vec::<PathBuf>::new());
    assert!(!up.data().exists());
}

#[tokio::test]
async fn down_ends_sandboxes_that_take_too_long() {
    let up = Instance::start().await;
    let stubborn = sh("main", "trap '' TERM; while :; do sleep 1; done");
    let spec = json!({"terminationGracePeriodSeconds": 3600, "containers": [stubborn]});
    up.pod("stubborn", spec).await;
    up.ready("stubborn").await;
    let down = up.sandbar(&["down", "--grace", "1"]);
    assert!(down.status.success(), "{down:?}");
    assert_eq!(up.processes(), Vec::<u32>::new());
    assert!(!up.data().exists());
}

#[tokio::test]
async fn down_removes_nothing_that_is_not_an_instance() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("mine"), "").unwrap();
    let output = Command::new(crate::instance::PROGRAM)
        .args(["down", "--data-dir"])
        .arg(directory.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(directory.path().join("mine").exists());
}

/// Whoever is not root has pods without a network but their loopback.
#[test]
fn an_ordinary_user_has_sandboxes_too() {
    const NOBODY: u32 = 65534;
    let directory = tempfile::Builder::new()
        .prefix("ordinary")
        .tempdir_in("/tmp")
        .unwrap();
    chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let program = directory.path().join("sandbar");
    fs::copy(crate::instance::PROGRAM, &program).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(&program);
        command
            .args(&args[..1])
            .arg("--data-dir")
            .arg(directory.path().join("data"));
        command
            .args(&args[1..])
            .env_clear()
            .env("PATH", "/usr/bin:/bin");
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
        command
    };
    let mut up = run(&["up", "--port", "0", "--pool", "1"]);
    let mut child = up.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let start = std::time::Instant::now();
    let mut answer = String::new();
    while start.elapsed() < std::time::Duration::from_secs(60) && answer != "0\n" {
        let table = run(&["get", "sandboxes", "-o", "name"]).output().unwrap();
        let names = String::from_utf8_lossy(&table.stdout).into_owned();
        if let Some(name) = names.lines().next().and_then(|line| line.split('/').nth(1)) {
            let sandbox = format!("sandbox/{name}");
            let ask = [&["exec", &sandbox, "--"], &ASK_DAEMON[..], &["id -u"]].concat();
            let output = run(&ask).output().unwrap();
            answer = String::from_utf8_lossy(&output.stdout).into_owned();
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let down = run(&["down"]).output().unwrap();
    let _ = child.wait();
    assert!(down.status.success(), "{down:?}");
    assert_eq!(answer, "0\n");
    assert!(!directory.path().join("data").exists());
}

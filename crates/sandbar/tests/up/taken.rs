//! A port that is somebody else's: the program says so, and leaves nothing of what it had begun.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::instance::{Instance, PROGRAM, eventually, processes_of};

/// By what links and rules of an instance are known, if it has had any.
fn network_of(data: &Path) -> Option<String> {
    let network = fs::read(data.join("node/network.json")).ok()?;
    let network: Value = serde_json::from_slice(&network).unwrap();
    Some(network["id"].as_str().unwrap().to_owned())
}

/// Runs the program with a port that is taken, which it has to name.
fn try_in_vain(data: &Path) {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    let mut command = Command::new(PROGRAM);
    command
        .args(["up", "--port", &port, "--data-dir"])
        .arg(data);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&port), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}

/// Of the network that was known, and of that which is noted now.
async fn assert_nothing_is_left(data: &Path, known: Option<&str>) {
    eventually("no process is left", async || processes_of(data).is_empty()).await;
    let links = Command::new("ip").arg("link").output().unwrap();
    let links = String::from_utf8(links.stdout).unwrap();
    let tables = local::network::tables().await.unwrap();
    let noted = network_of(data);
    for network in known.into_iter().chain(noted.as_deref()) {
        assert!(!links.contains(network), "{links}");
        assert!(
            !tables.contains(&format!("sandbar_{network}")),
            "{tables:?}"
        );
    }
}

/// Removes every trace of a directory, however its test ends.
struct Traces(PathBuf);

impl Drop for Traces {
    fn drop(&mut self) {
        let mut command = Command::new(PROGRAM);
        let _ = command.args(["down", "--data-dir"]).arg(&self.0).output();
    }
}

#[tokio::test]
async fn where_its_port_is_taken_a_first_start_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let traces = Traces(directory.path().join("data"));
    try_in_vain(&traces.0);
    assert_nothing_is_left(&traces.0, None).await;
}

#[tokio::test]
async fn where_its_port_is_taken_a_further_start_leaves_nothing_and_the_next_one_goes_on() {
    let mut up = Instance::start().await;
    up.run("resting", "exec sleep 1000").await;
    up.ready("resting").await;
    let network = network_of(&up.data());
    let network = network.as_deref();
    assert!(network.is_some());
    up.end(Signal::TERM);
    assert_nothing_is_left(&up.data(), network).await;
    try_in_vain(&up.data());
    assert_nothing_is_left(&up.data(), network).await;
    up.start_again().await;
    up.ready("resting").await;
}

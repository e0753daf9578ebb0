//! What is left of a cluster after its end: nothing, however it ended.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testbed::{OwnOptions, Testbed};

use crate::support::{eventually_sync, output};

/// A cluster started by the command line; stopped even if the test fails.
struct Started(String);

impl Started {
    fn new(purpose: &str) -> Self {
        let started = Self(format!("test-{purpose}-{}", std::process::id()));
        output(testbed().args(["up", "--name", &started.0]));
        started
    }

    fn directory(&self) -> PathBuf {
        let kubeconfig = output(testbed().args(["kubeconfig", "--name", &self.0]));
        Path::new(kubeconfig.trim()).parent().unwrap().to_owned()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = testbed().args(["down", "--name", &self.0]).output();
    }
}

fn testbed() -> Command {
    Command::new(env!("CARGO_BIN_EXE_testbed"))
}

/// Everything of one cluster that can be seen on the machine. Process ids and the slot's names are given to others
/// soon after; start times, the link's index and inodes tell them apart.
struct Traces {
    directory: PathBuf,
    processes: BTreeSet<(u32, String)>,
    link: String,
    link_index: String,
    groups: Vec<(PathBuf, u64)>,
}

impl Traces {
    fn of(started: &Started) -> Self {
        let directory = started.directory();
        let status = fs::read(directory.join("status.json")).unwrap();
        let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
        let holders = pids().filter(|pid| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("__hold") && line.contains(directory.to_str().unwrap())
        });
        let mut processes: BTreeSet<(u32, String)> =
            holders.map(|pid| (pid, stat(pid).unwrap().1)).collect();
        // all descendants, containers included
        loop {
            let parents: BTreeSet<u32> = processes.iter().map(|(pid, _)| *pid).collect();
            let children = pids().filter_map(|pid| {
                let (parent, began) = stat(pid)?;
                parents.contains(&parent).then_some((pid, began))
            });
            let before = processes.len();
            processes.extend(children);
            if processes.len() == before {
                break;
            }
        }
        let slot = status["slot"].as_u64().unwrap();
        let link = format!("sbtb{slot}h");
        let groups = fs::read_dir("/sys/fs/cgroup")
            .unwrap()
            .flatten()
            .filter_map(|hierarchy| {
                let path = hierarchy.path().join(format!("sandbar-testbed-{slot}"));
                let inode = path.metadata().ok()?.ino();
                Some((path, inode))
            });
        Self {
            groups: groups.collect(),
            link_index: index_of(&link).unwrap(),
            directory,
            processes,
            link,
        }
    }

    fn holder(&self) -> u32 {
        let is_holder = |pid: &u32| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split('\0').nth(1) == Some("__hold")
        };
        self.processes
            .iter()
            .map(|(pid, _)| *pid)
            .find(is_holder)
            .unwrap()
    }

    /// What can still be seen.
    fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for (pid, began) in &self.processes {
            if stat(*pid).is_some_and(|(_, now)| now == *began) {
                left.push(format!("process {pid}"));
            }
        }
        let directory = self.directory.to_str().unwrap();
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        left.extend(
            mounts
                .lines()
                .filter(|l| l.contains(directory))
                .map(str::to_owned),
        );
        if index_of(&self.link).as_ref() == Some(&self.link_index) {
            for what in [["-o", "link"], ["-4", "route"], ["-4", "rule"]] {
                let listed = output(Command::new("ip").args(what));
                left.extend(
                    listed
                        .lines()
                        .filter(|l| l.contains(&self.link))
                        .map(str::to_owned),
                );
            }
        }
        for (path, inode) in &self.groups {
            if path.metadata().is_ok_and(|now| now.ino() == *inode) {
                left.push(path.display().to_string());
            }
        }
        if self.directory.exists() {
            left.push(directory.to_owned());
        }
        left
    }
}

fn index_of(link: &str) -> Option<String> {
    fs::read_to_string(Path::new("/sys/class/net").join(link).join("ifindex")).ok()
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok())
}

/// Parent and start time; `None` if the process is gone or only waits to be reaped.
fn stat(pid: u32) -> Option<(u32, String)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    (!matches!(fields[0], "Z" | "X"))
        .then(|| (fields[1].parse().unwrap_or(0), fields[19].to_owned()))
}

/// The machine's packet filter, as far as the kernel shows it without tools.
fn tables() -> String {
    ["ip_tables_names", "ip6_tables_names"]
        .map(|f| fs::read_to_string(Path::new("/proc/net").join(f)).unwrap_or_default())
        .concat()
}

/// Settings of the whole machine that a kubelet would change.
fn settings() -> Vec<String> {
    [
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "kernel/panic",
        "kernel/panic_on_oops",
    ]
    .map(|s| fs::read_to_string(Path::new("/proc/sys").join(s)).unwrap())
    .to_vec()
}

fn with_a_pod(started: &Started) -> Traces {
    let kubeconfig = started.directory().join("kubeconfig");
    let environment = output(testbed().args(["env", "--name", &started.0]));
    let script = format!(
        "{environment}
         kubectl run web --image=busybox:v1 --restart=Never -- sleep 100000 &&
         kubectl wait --for=condition=Ready pod/web --timeout=90s"
    );
    output(
        Command::new("sh")
            .arg("-c")
            .arg(script)
            .env("KUBECONFIG", kubeconfig),
    );
    let traces = Traces::of(started);
    let left = traces.left();
    // each kind of trace is there before, so that its absence afterwards means something
    for kind in ["process", "sbtb", "sandbar-testbed-", "10.90."] {
        assert!(
            left.iter().any(|l| l.contains(kind)),
            "{kind} is not in {left:?}"
        );
    }
    let sleeping = traces.processes.iter().any(|(pid, _)| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line == "sleep\x00100000\x00"
    });
    assert!(sleeping, "the container's process is among the cluster's");
    traces
}

#[test]
fn nothing_is_left_after_down() {
    let (tables_before, settings_before) = (tables(), settings());
    let started = Started::new("down");
    let traces = with_a_pod(&started);
    assert_eq!(settings(), settings_before);
    let again = output(testbed().args(["up", "--name", &started.0]));
    assert!(again.contains("was up already"), "{again}");
    output(testbed().args(["down", "--name", &started.0]));
    assert_eq!(traces.left(), Vec::<String>::new());
    assert_eq!(tables(), tables_before);
    let gone = testbed()
        .args(["kubeconfig", "--name", &started.0])
        .output()
        .unwrap();
    assert!(!gone.status.success());
    assert!(
        String::from_utf8_lossy(&gone.stderr).contains("up --name"),
        "{gone:?}"
    );
}

#[test]
fn nothing_is_left_after_the_holder_was_killed_and_down() {
    let started = Started::new("kill");
    let traces = with_a_pod(&started);
    output(Command::new("kill").args(["-9", &traces.holder().to_string()]));
    eventually_sync("all processes are gone without anybody's help", || {
        !traces.left().iter().any(|l| l.starts_with("process"))
    });
    let status = output(testbed().args(["status", "--name", &started.0]));
    assert!(status.contains("dead"), "{status}");
    output(testbed().args(["down", "--name", &started.0]));
    assert_eq!(traces.left(), Vec::<String>::new());
}

const KEEP: &str = "TESTBED_KEEP_A_CLUSTER";

/// Not a test by itself: the process that the next one kills.
#[tokio::test]
async fn keep_a_cluster_until_killed() {
    if std::env::var_os(KEEP).is_some() {
        let bed = Testbed::own(OwnOptions::default()).await.unwrap();
        println!("\nholding {}", bed.logs().parent().unwrap().display());
        std::future::pending::<()>().await;
    }
}

struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_cluster_ends_when_the_process_that_owns_it_is_killed() {
    let mut owner = KilledOnDrop(
        Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "lifetime::keep_a_cluster_until_killed",
                "--nocapture",
            ])
            .env(KEEP, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let lines = BufReader::new(owner.0.stdout.take().unwrap()).lines();
    let directory = lines
        .map(Result::unwrap)
        .find_map(|l| l.strip_prefix("holding ").map(PathBuf::from))
        .unwrap();
    assert!(directory.exists());
    drop(owner);
    eventually_sync("the cluster's directory is gone", || !directory.exists());
}

//! The program dies, is stopped, comes back: what became of its sandboxes.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt as _, api::ListParams};
use rustix::{
    fs::{CWD, Mode, OFlags, mkfifoat},
    process::{Pid, Signal, kill_process},
};
use serde_json::json;

use crate::instance::{
    Instance, PROGRAM, container, eventually, exit_code, ip, is_ready, ready_by_file, sh,
};

/// What a process calls itself.
fn name_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    name.unwrap_or_default().trim_end().to_owned()
}

/// How many lines the log of a pod's first run has on the disk.
fn lines_on_disk(up: &Instance, uid: &str) -> usize {
    let pod = up.data().join("node/pods").join(uid);
    let log = std::fs::read_to_string(pod.join("logs/main/0.log"));
    log.unwrap().lines().count()
}

/// The program under a name of its own, as somebody has installed it.
struct Installed(PathBuf);

impl Installed {
    fn new() -> Self {
        let name = format!("sandbar-{}", std::process::id());
        let installed = Self(Path::new(PROGRAM).with_file_name(name));
        installed.put();
        installed
    }

    fn put(&self) {
        std::fs::hard_link(PROGRAM, &self.0).unwrap();
    }

    /// As who installs it once more does: the old file is gone, and another one lies in its place.
    fn replace(&self) {
        std::fs::remove_file(&self.0).unwrap();
        self.put();
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn a_helper_that_was_killed_is_started_anew_though_the_program_was_replaced() {
    let installed = Installed::new();
    let launcher = vec![installed.0.to_str().unwrap().to_owned()];
    let directory = tempfile::tempdir().unwrap();
    let up = Instance::launched(launcher, directory, &["--pool", "0"]).await;
    up.run("before", "exec sleep 1000").await;
    up.ready("before").await;
    installed.replace();
    let mut all = up.processes().into_iter();
    let helper = all.find(|pid| name_of(*pid) == "sandbar-helper").unwrap();
    let helper = Pid::from_raw(i32::try_from(helper).unwrap()).unwrap();
    kill_process(helper, Signal::KILL).unwrap();
    up.run("after", "exec sleep 1000").await;
    up.ready("after").await;
    let before = up.ready("before").await;
    assert_eq!(container(&before, "main").restart_count, 0);
}

#[tokio::test]
async fn a_shim_that_was_being_made_when_the_program_was_killed_goes_with_the_rest() {
    let mut up = Instance::start().await;
    let gated = json!({"containers": [sh("main", "exec sleep 1000")], "schedulingGates": [{"name": "later"}]});
    let uid = up.pod("late", gated).await.uid().unwrap();
    let shim = up.data().join("node/pods").join(uid).join("shim");
    std::fs::create_dir_all(&shim).unwrap();
    // who opens the shim's log waits until somebody reads it
    let log = shim.join("shim.log");
    mkfifoat(CWD, &log, Mode::RWXU).unwrap();
    let opened = json!({"spec": {"schedulingGates": [{"name": "later", "$patch": "delete"}]}});
    up.patch("late", None, opened).await;
    eventually("a shim is being made", async || {
        let names = up.processes().into_iter().map(name_of);
        names.filter(|name| name == "sandbar-shim").count() > 0
    })
    .await;
    up.end(Signal::KILL);

    let mut down = Command::new(PROGRAM);
    down.args(["down", "--data-dir"]).arg(up.data());
    let down = tokio::task::spawn_blocking(move || down.output().unwrap());
    // time enough to remove everything, for who does not wait
    tokio::time::sleep(Duration::from_millis(500)).await;
    let reader = rustix::fs::open(&log, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
    assert!(reader.is_ok(), "its directory was removed around it");
    let output = down.await.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!up.data().exists());
    eventually("no process is left", async || up.processes().is_empty()).await;
}

#[tokio::test]
async fn twenty_pods_outlive_the_program_that_was_killed_and_none_restarts() {
    let mut up = Instance::start().await;
    let script = "i=0; while :; do echo $i; i=$((i + 1)); sleep 0.05; done";
    for number in 0..20 {
        up.run(&format!("p{number}"), script).await;
    }
    let mut before = Vec::new();
    for number in 0..20 {
        let pod = up.ready(&format!("p{number}")).await;
        before.push((
            pod.uid(),
            ip(&pod),
            container(&pod, "main").container_id.clone(),
        ));
    }
    up.end(Signal::KILL);
    let of_all = || {
        let all = before.iter().map(|(uid, ..)| uid.as_deref().unwrap());
        all.map(|uid| lines_on_disk(&up, uid)).collect::<Vec<_>>()
    };
    let at_the_kill = of_all();
    let has_grown = |now: &[usize]| now.iter().zip(&at_the_kill).all(|(now, then)| now > then);
    eventually("each has spoken to nobody", async || has_grown(&of_all())).await;
    let at_the_restart = of_all();
    up.start_again().await;
    for (number, before) in before.iter().enumerate() {
        let name = format!("p{number}");
        let pod = up.ready(&name).await;
        let main = container(&pod, "main");
        assert_eq!(main.restart_count, 0);
        assert_eq!(&(pod.uid(), ip(&pod), main.container_id.clone()), before);
        let (out, code) = up.exec(&name, &["echo", "alive"]);
        assert_eq!((out.as_str(), code), ("alive\n", 0));
        let said = up.logs(&name).await;
        let lines: Vec<usize> = said.lines().map(|line| line.parse().unwrap()).collect();
        let whole: Vec<usize> = (0..lines.len()).collect();
        assert_eq!(lines, whole, "nothing of the log is missing");
        assert!(lines.len() >= at_the_restart[number], "{name}");
        let next = format!("\n{}\n", lines.len());
        up.says(&name, &next).await;
    }
}

#[tokio::test]
async fn what_ended_while_the_program_was_away_is_known_when_it_comes_back() {
    let mut up = Instance::start().await;
    let spec =
        json!({"restartPolicy": "Never", "containers": [sh("main", "sleep 5; echo done; exit 5")]});
    let uid = up.pod("unseen", spec).await.uid().unwrap();
    up.phase("unseen", "Running").await;
    up.end(Signal::KILL);
    let main = up.data().join("node/pods").join(uid);
    let state = main.join("shim/containers/main/0/state.json");
    eventually("its end is recorded", async || {
        let state = std::fs::read_to_string(&state).unwrap_or_default();
        state.contains("\"code\":5")
    })
    .await;
    up.start_again().await;
    let pod = up.phase("unseen", "Failed").await;
    assert_eq!(exit_code(&pod, "main"), Some(5));
    assert_eq!(up.logs("unseen").await, "done\n");
}

#[tokio::test]
async fn stopped_it_stops_its_sandboxes_and_starts_them_again_when_it_comes_back() {
    let mut up = Instance::start().await;
    let script = "trap 'echo stopped; exit 0' TERM; echo started; while :; do sleep 0.05; done";
    // each in its own time, which is never up here
    let spec = json!({"terminationGracePeriodSeconds": 1000, "containers": [sh("main", script)]});
    up.pod("resting", spec).await;
    // as a service is stopped, and as Ctrl-C does it
    for (restarts, signal) in [(1, Signal::TERM), (2, Signal::INT)] {
        up.says("resting", "started").await;
        assert_eq!(up.end(signal), Some(0), "{signal:?}");
        eventually("no process is left", async || up.processes().is_empty()).await;
        up.start_again().await;
        let again = |pod: &Pod| {
            let main = container(pod, "main");
            main.restart_count == restarts && main.ready
        };
        up.until("resting", "was started again", again).await;
        let previous = kube::api::LogParams {
            previous: true,
            ..Default::default()
        };
        let said = up.pods().logs("resting", &previous).await.unwrap();
        assert_eq!(said, "started\nstopped\n", "{signal:?}");
    }
}

#[tokio::test]
async fn told_to_stop_twice_it_ends_at_once_and_takes_up_later_what_still_runs() {
    let mut up = Instance::start().await;
    let script = "trap 'echo told' TERM; echo started; while :; do sleep 0.05; done";
    // longer than any test
    let spec =
        json!({"terminationGracePeriodSeconds": 100_000, "containers": [sh("main", script)]});
    up.pod("stubborn", spec).await;
    up.says("stubborn", "started").await;
    let before = up.ready("stubborn").await;
    up.signal(Signal::INT);
    up.says("stubborn", "told").await;
    assert_eq!(up.end(Signal::INT), Some(130));
    let cgroup = format!("pod-{}/main/cgroup.procs", before.uid().unwrap());
    let mut all = up.cgroups().into_iter();
    let processes = all.find_map(|top| std::fs::read_to_string(top.join(&cgroup)).ok());
    assert_ne!(processes.unwrap(), "", "it still runs");

    up.start_again().await;
    let after = up.ready("stubborn").await;
    let (before, main) = (container(&before, "main"), container(&after, "main"));
    assert_eq!(main.container_id, before.container_id);
    assert_eq!(main.restart_count, 0);
    assert_eq!(up.exec("stubborn", &["echo", "alive"]).0, "alive\n");
    assert_eq!(up.logs("stubborn").await, "started\ntold\n");
}

#[tokio::test]
async fn told_to_keep_them_running_it_does() {
    let mut up = Instance::with(&["--pool", "0", "--keep-running"]).await;
    up.run("goes-on", "exec sleep 1000").await;
    let before = up.ready("goes-on").await;
    up.end(Signal::TERM);
    assert_ne!(up.processes(), Vec::<u32>::new());
    up.start_again().await;
    let after = up.ready("goes-on").await;
    assert_eq!(container(&after, "main").restart_count, 0);
    assert_eq!(ip(&before), ip(&after));
}

#[tokio::test]
async fn a_pod_that_was_ready_is_never_told_to_be_unready_and_its_probes_go_on() {
    let mut up = Instance::start().await;
    let one = ready_by_file(sh("main", "touch /tmp/ready; exec sleep 1000"));
    up.pod("probed", json!({"containers": [one]})).await;
    let since = |pod: &Pod| {
        let mut conditions = pod.status.clone().unwrap().conditions.into_iter().flatten();
        let ready = conditions.find(|condition| condition.type_ == "Ready");
        ready.unwrap().last_transition_time
    };
    let before = up.ready("probed").await;
    up.end(Signal::KILL);
    // times are told in seconds
    std::thread::sleep(Duration::from_millis(1100));
    up.start_again().await;
    assert_eq!(up.exec("probed", &["true"]).1, 0);
    let after = up.ready("probed").await;
    assert_eq!(since(&before), since(&after));
    assert_eq!(up.exec("probed", &["rm", "/tmp/ready"]).1, 0);
    up.until("probed", "became unready", |pod| !is_ready(pod))
        .await;
}

#[tokio::test]
async fn a_pod_that_was_deleted_while_nobody_looked_after_it_is_ended() {
    let mut up = Instance::with(&["--pool", "0", "--keep-running"]).await;
    up.run("unknown", "exec sleep 1000").await;
    up.ready("unknown").await;
    up.end(Signal::TERM);
    up.without_node(async |client| {
        let pods: kube::Api<Pod> = kube::Api::default_namespaced(client);
        let grace = kube::api::DeleteParams::default().grace_period(0);
        pods.delete("unknown", &grace).await.unwrap();
    })
    .await;
    assert_ne!(up.processes(), Vec::<u32>::new());
    up.start_again().await;
    eventually("its processes are gone", async || {
        let own = up.processes();
        own.iter().all(|pid| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            !name.starts_with("sleep") && !name.starts_with("sandbar-shim")
        })
    })
    .await;
}

#[tokio::test]
async fn a_pod_whose_shim_was_killed_starts_again_at_another_address() {
    let up = Instance::start().await;
    up.run("orphan", "exec sleep 1000").await;
    let before = up.ready("orphan").await;
    for pid in up.processes() {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.starts_with("sandbar-shim") {
            let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            kill_process(pid, Signal::KILL).unwrap();
        }
    }
    let again =
        |pod: &Pod| container(pod, "main").restart_count == 1 && container(pod, "main").ready;
    let after = up.until("orphan", "was started again", again).await;
    assert_eq!(before.uid(), after.uid());
    let last = container(&after, "main")
        .last_state
        .unwrap()
        .terminated
        .unwrap();
    assert_eq!(last.exit_code, 137);
    assert_eq!(up.exec("orphan", &["echo", "here"]).0, "here\n");
}

#[tokio::test]
async fn a_pod_that_was_deleted_while_the_program_was_away_is_swept() {
    let mut up = Instance::start().await;
    up.run("gone", "exec sleep 1000").await;
    let pod = up.ready("gone").await;
    let directory = up.data().join("node/pods").join(pod.uid().unwrap());
    assert!(directory.is_dir());
    let grace = kube::api::DeleteParams::default().grace_period(0);
    up.pods().delete("gone", &grace).await.unwrap();
    up.end(Signal::KILL);
    up.start_again().await;
    eventually("nothing is left of it", async || !directory.exists()).await;
    assert_eq!(
        up.pods()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        0
    );
    eventually("no process is left", async || up.processes().len() <= 2).await;
}

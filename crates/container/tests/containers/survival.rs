//! Who dies, and who goes on.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use container::{Error, Pod, remains, sweep};
use tokio::task::JoinSet;

use crate::support::{Machine, command, eventually, helper_program};

const DIR: &str = "CONTAINER_TEST_DIR";
const COUNT: &str =
    "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; exit 6";

/// Not a test: the process that another test kills. It starts a pod and waits for its end.
#[tokio::test]
#[ignore = "run by another test in a process of its own"]
async fn client_that_will_be_killed() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let mut machine = Machine::new();
    let mut settings = machine.pod_settings("unused");
    settings.dir = PathBuf::from(&dir);
    settings.cgroup_parent = std::env::var("CONTAINER_TEST_CGROUP").unwrap();
    settings.cgroup = "pod-survivor".to_owned();
    let pod = machine
        .helper
        .as_ref()
        .unwrap()
        .start_pod(&settings)
        .await
        .unwrap();
    let mut main = machine.sh("main", COUNT);
    let root = Path::new(&dir).parent().unwrap();
    main.root.layers = vec![root.join("layer")];
    main.log = root.join("main.log");
    pod.start(&main).await.unwrap();
    std::fs::write(root.join("started"), "").unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_container_outlives_a_killed_client_and_its_helper() {
    let mut machine = Machine::new();
    let settings = machine.pod_settings("survivor");
    let mut client = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "survival::client_that_will_be_killed",
            "--ignored",
        ])
        .env(DIR, &settings.dir)
        .env("CONTAINER_TEST_CGROUP", &machine.cgroup)
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
        None => crate::support::ended(&mut events, "main").await,
    };
    assert_eq!(state.exit.unwrap().code, 6);
    let expected: String = (0..300).map(|i| format!("line {i}\n")).collect();
    assert_eq!(machine.said("main"), expected);
    pod.stop(&[], Duration::ZERO).await.unwrap();
    machine.assert_nothing_left().await;
}

#[tokio::test]
async fn what_ended_while_nobody_was_connected_is_known() {
    let mut machine = Machine::new();
    let pod = machine.pod("unseen").await;
    pod.start(&machine.sh("main", "sleep 0.2; exit 8"))
        .await
        .unwrap();
    let dir = pod.dir().to_owned();
    drop(pod);
    machine.helper = None;
    eventually("the end is recorded", || {
        remains(&dir).containers[0].exit.is_some()
    })
    .await;
    let pod = Pod::connect(&dir).await.unwrap();
    assert_eq!(
        pod.containers().await.unwrap()[0]
            .exit
            .as_ref()
            .unwrap()
            .code,
        8
    );
}

#[tokio::test]
async fn a_helper_that_is_killed_takes_no_pod_with_it() {
    let mut machine = Machine::new();
    let pod = machine.pod("orphan").await;
    pod.start(&machine.sh("main", "sleep 1000")).await.unwrap();
    let helper = std::fs::read_to_string(format!("/proc/{}/stat", pod.pid())).unwrap();
    let parent = helper
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .nth(1)
        .unwrap()
        .to_owned();
    Command::new("kill").args(["-9", &parent]).status().unwrap();
    let settings = machine.pod_settings("late");
    let refused = machine.helper.as_ref().unwrap().start_pod(&settings).await;
    assert!(matches!(
        refused,
        Err(Error::HelperGone(_) | Error::ShimGone)
    ));
    let (out, _, _) = command(&pod, "main", &["echo", "alive"]).await;
    assert_eq!(out, "alive\n");
    let fresh = container::Helper::spawn(Command::new(helper_program())).unwrap();
    let second = fresh.start_pod(&settings).await.unwrap();
    second.stop(&[], Duration::ZERO).await.unwrap();
    drop(fresh);
    pod.stop(&[], Duration::ZERO).await.unwrap();
    machine.assert_nothing_left().await;
}

#[tokio::test]
async fn after_the_shim_is_killed_files_tell_the_truth_and_a_sweep_leaves_nothing() {
    let mut machine = Machine::new();
    let pod = machine.pod("swept").await;
    crate::support::run(&pod, &machine.sh("before", "exit 3")).await;
    let started = pod
        .start(&machine.sh("main", "sleep 1000 & sleep 1001 & sleep 1002"))
        .await
        .unwrap();
    let dir = pod.dir().to_owned();
    assert!(matches!(sweep(&dir), Err(container::SweepError::Alive(_))));
    let mut events = pod.events();
    Command::new("kill")
        .args(["-9", &pod.pid().to_string()])
        .status()
        .unwrap();
    while events.next().await.is_some() {}
    assert!(matches!(pod.containers().await, Err(Error::ShimGone)));
    assert!(matches!(
        Pod::connect(&dir).await,
        Err(Error::NobodyHome(_))
    ));

    eventually("the shim has ended", || !remains(&dir).shim_alive).await;
    let left = remains(&dir);
    let known: Vec<(&str, bool, Option<i32>)> = left
        .containers
        .iter()
        .map(|c| {
            (
                c.name.as_str(),
                c.is_alive(),
                c.exit.as_ref().map(|e| e.code),
            )
        })
        .collect();
    assert_eq!(known, [("before", false, Some(3)), ("main", true, None)]);
    assert_eq!(left.containers[1].pid(), started.pid);
    let processes = || {
        let all = machine
            .cgroups()
            .into_iter()
            .map(|c| c.join("pod-swept/main/cgroup.procs"));
        all.filter_map(|f| std::fs::read_to_string(f).ok())
            .map(|t| t.lines().count())
            .max()
    };
    eventually("all processes are there", || processes() == Some(4)).await;

    tokio::task::spawn_blocking({
        let dir = dir.clone();
        move || sweep(&dir).unwrap()
    })
    .await
    .unwrap();
    assert!(remains(&dir).containers.iter().all(|c| !c.is_alive()));
    machine.assert_nothing_left().await;
}

#[tokio::test]
async fn several_clients_see_the_same_pod() {
    let mut machine = Machine::new();
    let pod = machine.pod("several").await;
    let socket = std::fs::metadata(pod.dir().join("shim.sock")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    let other = Pod::connect(pod.dir()).await.unwrap();
    let mut events = other.events();
    pod.start(&machine.sh("main", "sleep 1000")).await.unwrap();
    other.kill("main", 9).await.unwrap();
    let state = crate::support::ended(&mut events, "main").await;
    assert_eq!(state.exit.unwrap().signal, Some(9));
    assert_eq!(
        pod.containers().await.unwrap(),
        other.containers().await.unwrap()
    );
}

#[tokio::test]
async fn twenty_pods_at_once_all_run_and_all_end() {
    let mut machine = Machine::new();
    let helper = Arc::new(machine.helper.take().unwrap());
    let mut starts = JoinSet::new();
    for number in 0..20 {
        let settings = machine.pod_settings(&format!("pod{number}"));
        let main = machine.sh(&format!("main{number}"), "hostname; sleep 1000");
        let helper = helper.clone();
        starts.spawn(async move {
            let begin = std::time::Instant::now();
            let pod = helper.start_pod(&settings).await.unwrap();
            pod.start(&main).await.unwrap();
            (pod, begin.elapsed())
        });
    }
    let (pods, mut times): (Vec<Pod>, Vec<Duration>) = starts.join_all().await.into_iter().unzip();
    times.sort_unstable();
    println!(
        "the middle one after {:?}, the last after {:?}",
        times[10], times[19]
    );
    for number in 0..20 {
        let name = format!("main{number}");
        eventually("it has spoken", || {
            machine.said(&name) == format!("pod{number}\n")
        })
        .await;
    }
    drop(helper);
    let mut ends = JoinSet::new();
    for pod in pods {
        ends.spawn(async move { pod.stop(&[], Duration::ZERO).await.unwrap() });
    }
    ends.join_all().await;
    machine.assert_nothing_left().await;
}

#[tokio::test]
#[ignore = "prints a measurement"]
async fn time_of_a_start() {
    let mut machine = Machine::new();
    for number in 0..10 {
        let settings = machine.pod_settings(&format!("pod{number}"));
        let begin = std::time::Instant::now();
        let pod = machine
            .helper
            .as_ref()
            .unwrap()
            .start_pod(&settings)
            .await
            .unwrap();
        let shim = begin.elapsed();
        pod.start(&machine.sh("main", "sleep 1000")).await.unwrap();
        let container = begin.elapsed() - shim;
        let (_, _, _) = command(&pod, "main", &["true"]).await;
        let exec = begin.elapsed() - shim - container;
        pod.stop(&[], Duration::ZERO).await.unwrap();
        println!(
            "shim {shim:?}, container {container:?}, exec {exec:?}, all {:?}",
            begin.elapsed()
        );
    }
}

#[tokio::test]
#[ignore = "prints a measurement"]
async fn memory_of_a_shim() {
    let mut machine = Machine::new();
    let mut pods = Vec::new();
    for number in 0..20 {
        let pod = machine.pod(&format!("pod{number}")).await;
        pod.start(&machine.sh("main", "echo hello; sleep 1000"))
            .await
            .unwrap();
        pods.push(pod);
    }
    for pod in [&pods[0], &pods[19]] {
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", pod.pid())).unwrap();
        let of_interest = ["Rss", "Pss:", "Private_Dirty", "Private_Clean"];
        for line in rollup
            .lines()
            .filter(|l| of_interest.iter().any(|i| l.starts_with(i)))
        {
            println!("{line}");
        }
    }
}

fn children_of(pid: u32) -> Vec<String> {
    let output = Command::new("ps")
        .args(["-o", "pid=", "--ppid", &pid.to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

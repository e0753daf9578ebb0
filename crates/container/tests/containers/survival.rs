//! Who dies, and who goes on.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use container::{Error, Pod, has_shim, remains, sweep};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use tokio::task::JoinSet;

use crate::support::{
    Machine, command, eventually, helper_program, helper_without_a_file, newcomer,
};

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
async fn a_helper_is_started_though_the_file_of_its_program_is_gone() {
    let mut machine = Machine::new();
    let name = format!("gone-{}", std::process::id());
    let gone = helper_program().with_file_name(name);
    std::fs::hard_link(helper_program(), &gone).unwrap();
    let helper = helper_without_a_file(&gone);
    let settings = machine.pod_settings("late");
    let pod = helper.start_pod(&settings).await.unwrap();
    let exit = crate::support::run(&pod, &machine.sh("main", "exit 4")).await;
    assert_eq!(exit.code, 4);
    pod.stop(&[], Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_shim_that_is_being_made_is_known_of_though_nobody_waits_for_it_any_more() {
    let mut machine = Machine::new();
    let settings = machine.pod_settings("unborn");
    let dir = settings.dir.clone();
    // who opens the shim's log waits until somebody reads it
    let log = dir.join("shim.log");
    mkfifoat(CWD, &log, Mode::RWXU).unwrap();
    let start = machine.helper.as_ref().unwrap().start_pod(&settings);
    let started = tokio::time::timeout(Duration::from_millis(200), start).await;
    assert!(started.is_err());
    machine.helper = None;
    assert!(has_shim(&dir));
    assert!(matches!(sweep(&dir), Err(container::SweepError::Alive(_))));
    assert!(matches!(
        Pod::connect(&dir).await,
        Err(Error::Connection(_))
    ));

    let reader = rustix::fs::open(&log, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
    let pod = loop {
        match Pod::connect(&dir).await {
            Err(Error::Connection(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
            reached => break reached.unwrap(),
        }
    };
    pod.stop(&[], Duration::ZERO).await.unwrap();
    eventually("the shim has ended", || !has_shim(&dir)).await;
    sweep(&dir).unwrap();
    drop(reader);
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
async fn a_start_that_nobody_waits_for_any_more_is_told_to_who_comes_next() {
    let mut machine = Machine::new();
    let pod = machine.pod("heir").await;
    let dir = pod.dir().to_owned();
    let main = machine.sh("main", "sleep 1000");
    let mut start = std::pin::pin!(pod.start(&main));
    // long enough to be sent, and mostly too short for an answer
    let answer = tokio::time::timeout(Duration::from_millis(1), &mut start).await;
    let heir = Pod::connect(&dir).await.unwrap();
    let known = heir.containers().await.unwrap();
    assert_eq!(known.len(), 1);
    assert!(known[0].is_alive());
    let started = match answer {
        Ok(started) => started,
        Err(_) => start.await,
    };
    assert_eq!(started.unwrap().pid, known[0].pid());
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

/// How many processes there are of whom a file in `/proc` says so.
fn count(file: &str, is_one: impl Fn(&str) -> bool) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let texts = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join(file)).ok());
    texts.filter(|text| is_one(text)).count()
}

fn signal(pod: &Pod, signal: &str) {
    let pid = pod.pid().to_string();
    let sent = Command::new("kill").args([signal, &pid]).status();
    assert!(sent.unwrap().success());
}

#[tokio::test]
async fn a_program_that_its_shim_did_not_live_to_hear_of_ends() {
    let mut machine = Machine::new();
    let pod = Arc::new(machine.pod("deaf").await);
    pod.start(&machine.sh("main", "sleep 1000")).await.unwrap();
    let shim = pod.pid().to_string();
    let children = || {
        let parent = |stat: &str| Some(stat.rsplit_once(") ")?.1.split(' ').nth(1)? == shim);
        count("stat", |stat| parent(stat) == Some(true))
    };
    let mut settings = newcomer();
    settings.args = vec!["sleep".to_owned(), format!("9{shim}")];
    let running = || count("cmdline", |line| line == format!("sleep\09{shim}\0"));
    loop {
        let (asking, settings) = (Arc::clone(&pod), settings.clone());
        let asked = tokio::spawn(async move { asking.exec("main", &settings).await.unwrap() });
        eventually("its builder is there", || children() > 1).await;
        signal(&pod, "-STOP");
        eventually("the program runs", || running() == 1).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        if !asked.is_finished() {
            break;
        }
        // the shim has heard before it was stopped
        signal(&pod, "-CONT");
        asked.await.unwrap().kill(9).await.unwrap();
        eventually("it has ended", || running() == 0 && children() == 1).await;
    }
    signal(&pod, "-9");
    eventually("the program has ended", || running() == 0).await;
    assert!(remains(pod.dir()).containers[0].is_alive());
}

//! Whoever enters a container is not its prey: from the moment that a command is in there until it is the program, it has
//! descriptors and rights that no container is to have.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use container::{ContainerSettings, Seccomp};

use crate::support::{
    HUNT, Machine, SEIZE, assert_newcomers_are_safe, eventually, finish, newcomer,
};

fn hunter(machine: &Machine) -> ContainerSettings {
    machine.command("main", &["python3", "-u", "-c", SEIZE])
}

#[tokio::test]
async fn who_enters_a_container_cannot_be_taken_over_by_its_root() {
    let mut machine = Machine::new();
    let pod = machine.pod("prey").await;
    assert_newcomers_are_safe(&pod, hunter(&machine)).await;
}

#[tokio::test]
async fn who_enters_a_container_is_not_kept_safe_by_the_filter_alone() {
    let mut machine = Machine::new();
    let pod = machine.pod("unfiltered").await;
    let mut hunter = hunter(&machine);
    hunter.seccomp = Seccomp::Unconfined;
    assert_newcomers_are_safe(&pod, hunter).await;
}

#[tokio::test]
async fn who_enters_a_container_cannot_be_taken_over_by_the_user_he_becomes() {
    let mut machine = Machine::new();
    let pod = machine.pod("alike").await;
    let mut hunter = hunter(&machine);
    hunter.seccomp = Seccomp::Unconfined;
    hunter.user.uid = 1000;
    hunter.user.gid = 1000;
    // who enters has no capability either that the hunter lacks
    hunter.capabilities.drop = vec!["ALL".to_owned()];
    assert_newcomers_are_safe(&pod, hunter).await;
}

/// Stops one who enters, before he is what he is to become. Whoever got further before he stood still is let go on.
const STOP: &str = "import os, signal, time
def look(pid):
    name, rest = open(f'/proc/{pid}/stat').read().rsplit(') ', 1)
    return '(youki' in name, rest[0]
def stop(pid):
    try:
        if not look(pid)[0]:
            return False
        os.kill(pid, signal.SIGSTOP)
        while look(pid)[1] not in 'TZX':
            time.sleep(0.001)
        if look(pid) == (True, 'T'):
            return True
        os.kill(pid, signal.SIGCONT)
    except OSError:
        pass
    return False
print('ready', flush=True)
while not any(stop(int(name)) for name in os.listdir('/proc') if name.isdigit()):
    pass
time.sleep(1000)";

#[tokio::test]
async fn who_enters_a_container_brings_nothing_that_the_shim_holds() {
    let _alone = HUNT.lock().await;
    let mut machine = Machine::new();
    let pod = machine.pod("bare").await;
    let main = machine.command("main", &["python3", "-c", STOP]);
    let started = pod.start(&main).await.unwrap();
    eventually("it is ready", || !machine.said("main").is_empty()).await;
    let found = Cell::new(None);
    let newcomer = newcomer();
    // on a busy machine some are in before they are seen
    let entering = async {
        while found.get().is_none() {
            let exec = pod.exec("main", &newcomer).await.unwrap();
            assert_eq!(finish(exec).await.2.code, 0);
        }
    };
    let looking = async {
        eventually("somebody has been stopped", || {
            found.set(stopped_beside(started.pid));
            found.get().is_some()
        })
        .await;
        let newcomer = found.get().unwrap();
        let brought = descriptors(newcomer);
        let held = descriptors(pod.pid());
        let continued = Command::new("kill")
            .args(["-CONT", &newcomer.to_string()])
            .status();
        assert!(continued.unwrap().success());
        (brought, held)
    };
    let ((), (brought, held)) = tokio::join!(entering, looking);
    assert!(held.len() > 3 && brought.len() > 3, "{held:?} {brought:?}");
    let both: Vec<&String> = brought.intersection(&held).collect();
    assert_eq!(both, Vec::<&String>::new());
}

/// Somebody in the pid namespace of a process who has been stopped while he entered.
fn stopped_beside(pid: i32) -> Option<i32> {
    let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let own = namespace(pid);
    pids.filter(|other| namespace(*other) == own).find(|other| {
        let stat = fs::read_to_string(format!("/proc/{other}/stat")).unwrap_or_default();
        stat.contains("(youki") && stat.contains(") T ")
    })
}

/// Sockets and logs that a process has open. The ends of a pipe have the same name, and those of a command are both to be held.
fn descriptors(pid: i32) -> BTreeSet<String> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let names = open.filter_map(|fd| fs::read_link(fd.path()).ok());
    let names = names.map(|name| name.display().to_string());
    names
        .filter(|name| name.starts_with("socket:") || name.ends_with("main.log"))
        .collect()
}

//! Containers of somebody who is not root: in a user namespace, without limits but one of processes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use container::{
    ContainerSettings, Crowds, Error, Helper, Overlay, PodSettings, Root, UserNamespace, remains,
    sweep,
};

use crate::support::{
    SEIZE, assert_newcomers_are_safe, assert_sealed, command, end, eventually, helper_program,
    helper_without_a_file, make_layer, run, text_of,
};

const NOBODY: u32 = 65534;
const PODS: [&str; 5] = ["pod", "killed", "late", "bomb", "bystander"];

pub(crate) fn an_ordinary_user_runs_containers_without_limits() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    // the programs may lie where nobody but root may look
    let test = dir.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &test).unwrap();
    let helper = dir.path().join("helper");
    fs::copy(helper_program(), &helper).unwrap();
    chown(&helper, Some(NOBODY), Some(NOBODY)).unwrap();
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    let _left = Left(home);
    let status = Command::new(&test)
        .arg("ordinary-user")
        .arg(dir.path())
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .status()
        .unwrap();
    assert!(status.success());
}

/// Pods outlive a process that panics.
struct Left(PathBuf);

impl Drop for Left {
    fn drop(&mut self) {
        PODS.iter().for_each(|pod| end(&self.0.join(pod)));
    }
}

/// What is run as somebody else.
pub(crate) async fn inside(dir: &Path) {
    assert!(!rustix::process::geteuid().is_root());
    let home = dir.join("home");
    make_layer(&home.join("layer"));
    let pod_dir = home.join(PODS[0]);
    fs::create_dir(&pod_dir).unwrap();
    let helper = Helper::spawn(Command::new(dir.join("helper"))).unwrap();
    let pod = helper.start_pod(&settings(&pod_dir)).await.unwrap();
    let mut events = pod.events();
    let started = pod
        .start(&sh(
            &home,
            "main",
            "id -u; hostname; touch /etc/mine && echo written; sleep 1000",
        ))
        .await
        .unwrap();
    assert!(started.limits_not_applied.is_some());
    let log = home.join("main.log");
    eventually("it has spoken", || {
        fs::read_to_string(&log).is_ok_and(|l| text_of(&l) == "0\nplain\nwritten\n")
    })
    .await;
    let (out, err, exit) = command(
        &pod,
        "main",
        &[
            "sh",
            "-c",
            "id -u; cat /proc/self/uid_map | tr -s ' '; ls /sys/class/net",
        ],
    )
    .await;
    assert_eq!((out.as_str(), exit.code), ("0\n 0 0 1\nlo\n", 0), "{err}");
    let attempts = [
        "mount -t tmpfs none /tmp",
        "unshare -m true",
        "echo 1 > /proc/sys/kernel/panic",
    ];
    for attempt in attempts {
        let (_, _, exit) = command(&pod, "main", &["sh", "-c", attempt]).await;
        assert_ne!(exit.code, 0, "{attempt}");
    }
    assert_eq!(run(&pod, &sh(&home, "second", "exit 4")).await.code, 4);
    pod.kill("main", 9).await.unwrap();
    crate::support::ended(&mut events, "main").await;
    pod.remove("main").await.unwrap();
    let mut hunter = sh(&home, "hunter", "");
    hunter.args = ["python3", "-u", "-c", SEIZE].map(str::to_owned).to_vec();
    hunter.capabilities.add = vec!["ALL".to_owned()];
    assert_newcomers_are_safe(&pod, hunter).await;
    sweep_after_a_killed_shim(&helper, &home).await;
    hold_back_a_fork_bomb(&helper, &home).await;
    assert_sealed(pod, helper).await;
    run_by_a_helper_without_a_file(dir, &home).await;
}

async fn run_by_a_helper_without_a_file(dir: &Path, home: &Path) {
    let program = home.join("helper");
    fs::copy(dir.join("helper"), &program).unwrap();
    let helper = helper_without_a_file(&program);
    let pod_dir = home.join(PODS[2]);
    fs::create_dir(&pod_dir).unwrap();
    let pod = helper.start_pod(&settings(&pod_dir)).await.unwrap();
    assert_eq!(run(&pod, &sh(home, "late", "exit 5")).await.code, 5);
    pod.stop(&[], Duration::ZERO).await.unwrap();
}

/// As many as its pod may have, and no other pod has fewer for it.
async fn hold_back_a_fork_bomb(helper: &Helper, home: &Path) {
    const LIMIT: u64 = 64;
    const BOMB: &str = "
import os, time
count = 0
try:
    while count < 1000:
        if os.fork() == 0:
            time.sleep(1000)
        count += 1
except BlockingIOError:
    print('refused after', count, flush=True)
time.sleep(1000)";
    let mut pods = Vec::new();
    for name in &PODS[3..] {
        let dir = home.join(name);
        fs::create_dir(&dir).unwrap();
        pods.push(helper.start_pod(&settings(&dir)).await.unwrap());
    }
    let mut bomb = sh(home, "bomb", "");
    bomb.args = ["python3", "-u", "-c", BOMB].map(str::to_owned).to_vec();
    bomb.limits.pids = Some(LIMIT);
    pods[0].start(&bomb).await.unwrap();
    let log = home.join("bomb.log");
    let mut count = None;
    eventually("it has been refused a process", || {
        let said = fs::read_to_string(&log).map(|log| text_of(&log));
        let said = said.unwrap_or_default();
        count = said
            .strip_prefix("refused after ")
            .and_then(|rest| rest.trim().parse::<u64>().ok());
        count.is_some()
    })
    .await;
    assert!(
        count.is_some_and(|count| (32..LIMIT).contains(&count)),
        "{count:?}"
    );
    // the builder may have been one of them until it was reaped
    assert!(Crowds::now().around(pods[0].pid()) >= LIMIT - 4);
    let mut one_more = sh(home, "more", "true");
    one_more.limits.pids = Some(LIMIT);
    match pods[0].start(&one_more).await {
        Err(Error::Failed(_)) => {}
        other => panic!("{other:?}"),
    }
    let mut bystander = sh(
        home,
        "bystander",
        "for i in 1 2 3 4 5 6 7 8; do sleep 0.1 & done; wait; exit 6",
    );
    bystander.limits.pids = Some(LIMIT);
    assert_eq!(run(&pods[1], &bystander).await.code, 6);
    for pod in pods {
        pod.stop(&[], Duration::ZERO).await.unwrap();
    }
}

/// Without cgroups, what is left is known by the processes that were recorded.
async fn sweep_after_a_killed_shim(helper: &Helper, home: &Path) {
    let dir = home.join(PODS[1]);
    fs::create_dir(&dir).unwrap();
    let pod = helper.start_pod(&settings(&dir)).await.unwrap();
    pod.start(&sh(home, "orphan", "sleep 1000 & sleep 1000"))
        .await
        .unwrap();
    Command::new("kill")
        .args(["-9", &pod.pid().to_string()])
        .status()
        .unwrap();
    eventually("the shim has ended", || !remains(&dir).shim_alive).await;
    assert!(remains(&dir).containers[0].is_alive());
    sweep(&dir).unwrap();
    assert!(!remains(&dir).containers[0].is_alive());
}

fn settings(dir: &Path) -> PodSettings {
    PodSettings {
        dir: dir.to_owned(),
        hostname: "plain".to_owned(),
        cgroup_parent: "sandbar-ordinary".to_owned(),
        cgroup: "pod".to_owned(),
        user_namespace: Some(UserNamespace::of_caller()),
        first: None,
        isolated: true,
        sysctls: BTreeMap::new(),
    }
}

fn sh(home: &Path, name: &str, script: &str) -> ContainerSettings {
    let root = Root {
        layers: vec![home.join("layer")],
        read_only: false,
    };
    let args = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let mut settings = ContainerSettings::new(name, root, args, home.join(format!("{name}.log")));
    settings.overlays = vec![Overlay {
        destination: "/usr".into(),
        layers: vec!["/usr".into()],
        read_only: true,
    }];
    settings
}

//! Containers of somebody who is not root: in a user namespace, without limits.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use container::{
    ContainerSettings, Helper, Overlay, PodSettings, Root, UserNamespace, remains, sweep,
};

use crate::support::{
    assert_sealed, command, end, eventually, helper_program, make_layer, run, text_of,
};

const NOBODY: u32 = 65534;
const PODS: [&str; 2] = ["pod", "killed"];

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
    sweep_after_a_killed_shim(&helper, &home).await;
    assert_sealed(pod, helper).await;
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

//! What a container may use, and what happens when it wants more.

use container::{ExecSettings, Limits, Refusals};

use crate::support::{Machine, command, ended, eventually, run};

#[tokio::test]
async fn a_memory_hog_is_killed_and_reported() {
    let mut machine = Machine::new();
    let pod = machine.pod("hog").await;
    let mut settings = machine.sh("main", "exec tail /dev/zero");
    settings.limits.memory = Some(32 << 20);
    let exit = run(&pod, &settings).await;
    assert_eq!((exit.code, exit.oom_killed), (137, true));
    let exit = run(&pod, &machine.sh("modest", "true")).await;
    assert!(!exit.oom_killed);
}

#[tokio::test]
async fn a_fork_bomb_is_held_and_reported() {
    let mut machine = Machine::new();
    let pod = machine.pod("bomb").await;
    let mut settings = machine.sh("main", "bomb() { bomb | bomb & }; bomb & exec sleep 1000");
    settings.limits.pids = Some(50);
    let mut events = pod.events();
    pod.start(&settings).await.unwrap();
    let read = |file| machine.cgroup_file("pids", "bomb", "main", file);
    eventually("the bomb has met its limit", || {
        read("pids.events") != "max 0"
    })
    .await;
    assert!(read("pids.current").parse::<u32>().unwrap() <= 50);
    let refusals = Refusals::of(&machine.cgroup);
    assert!(refusals.processes("pod-bomb", "main") > 0, "while it runs");
    pod.kill("main", 9).await.unwrap();
    let exit = ended(&mut events, "main").await.exit.unwrap();
    assert!(exit.processes_refused, "and after its end");
    let exit = run(&pod, &machine.sh("after", "exit 0")).await;
    assert_eq!((exit.code, exit.processes_refused), (0, false));
}

#[tokio::test]
async fn limits_are_in_force_and_change_in_place() {
    let mut machine = Machine::new();
    let pod = machine.pod("resize").await;
    let mut settings = machine.sh("main", "sleep 1000");
    settings.limits = Limits {
        cpu_shares: Some(512),
        cpu_quota: Some(50_000),
        cpu_period: None,
        memory: Some(64 << 20),
        pids: Some(30),
    };
    let started = pod.start(&settings).await.unwrap();
    assert_eq!(started.limits_not_applied, None);
    let read = |controller, file| machine.cgroup_file(controller, "resize", "main", file);
    assert_eq!(read("cpu", "cpu.shares"), "512");
    assert_eq!(read("cpu", "cpu.cfs_quota_us"), "50000");
    assert_eq!(
        read("memory", "memory.limit_in_bytes"),
        (64_u64 << 20).to_string()
    );
    assert_eq!(read("pids", "pids.max"), "30");
    let devices = read("devices", "devices.list");
    assert!(
        devices.contains("c 1:3 rwm") && !devices.contains("*:*"),
        "{devices}"
    );
    for memory in [128_u64 << 20, 32 << 20] {
        let limits = Limits {
            memory: Some(memory),
            pids: None,
            ..settings.limits.clone()
        };
        pod.resize("main", &limits).await.unwrap();
        assert_eq!(read("memory", "memory.limit_in_bytes"), memory.to_string());
        assert_eq!(read("pids", "pids.max"), "max");
    }
    let pids = read("memory", "cgroup.procs");
    assert!(pids.lines().any(|pid| pid == started.pid.to_string()));
}

/// What a container is told of its limits, of whichever version: memory, the part of a processor, processes.
const READ_LIMITS: &str = "cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes memory.max 2>/dev/null; \
    cat cpu/cpu.cfs_quota_us cpu.max 2>/dev/null | cut -d' ' -f1; cat pids/pids.max pids.max 2>/dev/null";

#[tokio::test]
async fn whoever_is_in_a_container_reads_its_limits_and_sees_no_others() {
    let mut machine = Machine::new();
    let own = machine.own_users("own").await;
    for (pod, user) in [
        (machine.pod("root").await, 0),
        (machine.pod("user").await, 1000),
        (own, 0),
    ] {
        let mut settings = machine.sh("main", "sleep 1000");
        settings.user.uid = user;
        settings.limits = Limits {
            cpu_quota: Some(50_000),
            memory: Some(64 << 20),
            pids: Some(30),
            ..Limits::default()
        };
        pod.start(&settings).await.unwrap();
        let (limits, _, _) = command(&pod, "main", &["sh", "-c", READ_LIMITS]).await;
        assert_eq!(limits, "67108864\n50000\n30\n");
        let script = "find /sys/fs/cgroup/ -mindepth 1 -type d; \
            grep -E ' - cgroup2? ' /proc/self/mountinfo | cut -d' ' -f4 | sort -u";
        let (seen, _, _) = command(&pod, "main", &["sh", "-c", script]).await;
        let (directories, roots): (Vec<&str>, Vec<&str>) =
            seen.lines().partition(|line| line.starts_with("/sys"));
        assert_eq!(roots, ["/"], "mounts begin with its own cgroup");
        assert!(directories.len() <= 3, "{directories:?}");
    }
}

#[tokio::test]
async fn commands_count_as_their_container() {
    let mut machine = Machine::new();
    let pod = machine.pod("count").await;
    pod.start(&machine.command("main", &["sleep", "1000"]))
        .await
        .unwrap();
    let used =
        |expected: &str| machine.cgroup_file("pids", "count", "main", "pids.current") == expected;
    eventually("only the container is there", || used("1")).await;
    let settings = ExecSettings {
        args: ["sleep", "1000"].map(str::to_owned).to_vec(),
        ..ExecSettings::default()
    };
    let exec = pod.exec("main", &settings).await.unwrap();
    eventually("the command is there too", || used("2")).await;
    drop(exec);
}

#[tokio::test]
async fn open_files_are_limited_and_groups_are_not_inherited() {
    let mut machine = Machine::new();
    let pod = machine.pod("files").await;
    let mut settings = machine.sh(
        "main",
        "ulimit -n; ulimit -Hn; id -G; cat /proc/self/oom_score_adj; sleep 1000",
    );
    settings.open_files = Some(123);
    settings.user.uid = 1000;
    settings.user.gid = 1000;
    settings.user.additional_gids = vec![5, 6];
    settings.oom_score_adj = Some(900);
    pod.start(&settings).await.unwrap();
    eventually("it has spoken", || {
        machine.said("main").lines().count() == 4
    })
    .await;
    assert_eq!(machine.said("main"), "123\n123\n1000 5 6\n900\n");
    let (out, _, _) = command(&pod, "main", &["sh", "-c", "ulimit -n; id -G"]).await;
    assert_eq!(out, "123\n1000 5 6\n");
}

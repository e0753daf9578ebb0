//! What a sandbox tries, and is refused. Every attempt is made as root in the container.

use std::process::Command;

use container::Helper;

use crate::support::{Machine, assert_sealed, command, helper_program, run};

/// Runs attempts, each of which must fail, and says which did not.
async fn refused(pod: &str, attempts: &[(&str, &str)]) {
    let mut machine = Machine::new();
    let pod = machine.pod(pod).await;
    for (number, (what, script)) in attempts.iter().enumerate() {
        let name = format!("try-{number}");
        let exit = run(&pod, &machine.sh(&name, &format!("exec 2>&1; {script}"))).await;
        assert_ne!(exit.code, 0, "{what} was possible: {}", machine.said(&name));
        assert!(
            !matches!(exit.code, 126 | 127),
            "{what} was not tried: {}",
            machine.said(&name)
        );
    }
}

#[tokio::test]
async fn the_kernels_switches_are_out_of_reach() {
    refused(
        "switches",
        &[
            (
                "changing a kernel parameter",
                "echo 1 > /proc/sys/kernel/panic",
            ),
            (
                "changing the core pattern",
                "echo '|/bin/sh' > /proc/sys/kernel/core_pattern",
            ),
            ("pressing the magic key", "echo b > /proc/sysrq-trigger"),
            ("writing to /sys", "echo x > /sys/kernel/uevent_helper"),
            ("making a cgroup", "mkdir /sys/fs/cgroup/x"),
            (
                "making a cgroup below its own",
                "cd /sys/fs/cgroup; mkdir memory/x || mkdir pids/x",
            ),
            (
                "lifting its limit",
                "cd /sys/fs/cgroup; f=pids/pids.max; test -e $f || f=pids.max; cat $f && echo max > $f",
            ),
            (
                "being told of the last process",
                "echo 1 > /sys/fs/cgroup/memory/notify_on_release",
            ),
            ("remounting its cgroups", "mount -o remount,rw /sys/fs/cgroup"),
            ("unmounting its cgroups", "umount -l /sys/fs/cgroup"),
            ("remounting /proc/sys", "mount -o remount,rw /proc/sys"),
            ("remounting /sys", "mount -o remount,rw /sys"),
            ("reading interrupts", "test -n \"$(cat /proc/interrupts)\""),
            ("reading keys", "test -n \"$(cat /proc/keys)\""),
            ("seeing firmware", "test -n \"$(ls /sys/firmware)\""),
        ],
    )
    .await;
}

#[tokio::test]
async fn mounts_and_namespaces_cannot_be_changed() {
    refused(
        "mounts",
        &[
            ("mounting", "mkdir -p /x && mount -t tmpfs none /x"),
            ("binding", "mkdir -p /x && mount --bind / /x"),
            ("unmounting", "umount /proc/sys"),
            ("unmounting lazily", "umount -l /usr"),
            ("a mount namespace", "unshare -m true"),
            ("a user namespace", "unshare -Ur true"),
            ("a network namespace", "unshare -n true"),
            ("entering one", "nsenter -t 1 -m true"),
        ],
    )
    .await;
}

#[tokio::test]
async fn devices_cannot_be_made_or_opened() {
    refused(
        "devices",
        &[
            ("making a disk", "mknod /disk b 254 0"),
            ("making memory", "mknod /dev/mem c 1 1"),
            ("making a disk in /tmp", "mknod /tmp/disk b 8 0"),
            ("opening kernel messages", "head -c 1 /dev/kmsg"),
            ("loading a module", "/usr/sbin/modprobe dummy || exit 1"),
        ],
    )
    .await;
}

const SYSTEM_CALL: &str = "import ctypes, sys\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    def call(*args):\n    \
        result = libc.syscall(*args)\n    \
        sys.exit(0 if result >= 0 else ctypes.get_errno())\n";

#[tokio::test]
async fn system_calls_beyond_a_container_are_refused() {
    let mut machine = Machine::new();
    let pod = machine.pod("calls").await;
    let number = |call: libc::c_long| call.to_string();
    let attempts = [
        ("keyctl", number(libc::SYS_keyctl), "0, -3, 0", libc::EPERM),
        (
            "add_key",
            number(libc::SYS_add_key),
            "b'user', b'x', b'y', 1, -3",
            libc::EPERM,
        ),
        ("bpf", number(libc::SYS_bpf), "0, 0, 0", libc::EPERM),
        (
            "perf_event_open",
            number(libc::SYS_perf_event_open),
            "0, 0, -1, -1, 0",
            libc::EPERM,
        ),
        (
            "io_uring_setup",
            number(libc::SYS_io_uring_setup),
            "1, 0",
            libc::EPERM,
        ),
        (
            "userfaultfd",
            number(libc::SYS_userfaultfd),
            "0",
            libc::EPERM,
        ),
        (
            "clone into a user namespace",
            number(libc::SYS_clone),
            "0x10000011, 0, 0, 0, 0",
            libc::EPERM,
        ),
        ("clone3", number(libc::SYS_clone3), "0, 0", libc::ENOSYS),
        ("a call of the future", "599".to_owned(), "0", libc::ENOSYS),
        (
            "mount",
            number(libc::SYS_mount),
            "b'x', b'/', b'tmpfs', 0, 0",
            libc::EPERM,
        ),
        ("setns", number(libc::SYS_setns), "0, 0", libc::EPERM),
        (
            "pidfd_getfd",
            number(libc::SYS_pidfd_getfd),
            "0, 0, 0",
            libc::EPERM,
        ),
        (
            "open_by_handle_at",
            number(libc::SYS_open_by_handle_at),
            "0, 0, 0",
            libc::EPERM,
        ),
        (
            "reboot",
            number(libc::SYS_reboot),
            "0, 0, 0, 0",
            libc::EPERM,
        ),
    ];
    pod.start(&machine.sh("main", "sleep 1000")).await.unwrap();
    for (what, number, args, errno) in attempts {
        let script = format!("{SYSTEM_CALL}call({number}, {args})");
        let (_, err, exit) = command(&pod, "main", &["python3", "-c", &script]).await;
        assert_eq!(exit.code, errno, "{what}: {err}");
    }
}

#[tokio::test]
async fn raw_packets_cannot_be_sent() {
    let mut machine = Machine::new();
    let pod = machine.pod("raw").await;
    pod.start(&machine.sh("main", "sleep 1000")).await.unwrap();
    let kinds = [
        ("AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP", false),
        ("AF_PACKET, socket.SOCK_RAW, 0", false),
        ("AF_VSOCK, socket.SOCK_STREAM", false),
        ("AF_ALG, socket.SOCK_SEQPACKET", false),
        ("AF_INET, socket.SOCK_STREAM", true),
        ("AF_UNIX, socket.SOCK_STREAM", true),
    ];
    for (kind, possible) in kinds {
        let script = format!("import socket; socket.socket(socket.{kind})");
        let (_, err, exit) = command(&pod, "main", &["python3", "-c", &script]).await;
        assert_eq!(exit.code == 0, possible, "{kind}: {err}");
    }
}

#[tokio::test]
async fn processes_of_other_pods_and_of_the_host_are_out_of_reach() {
    let mut machine = Machine::new();
    let victim = machine.pod("victim").await;
    let started = victim
        .start(&machine.sh("main", "sleep 1000"))
        .await
        .unwrap();
    let pod = machine.pod("attacker").await;
    pod.start(&machine.sh("attacker", "sleep 1000"))
        .await
        .unwrap();
    for pid in [started.pid, victim.pid()] {
        let trace = format!("{SYSTEM_CALL}call({}, 16, {pid}, 0, 0)", libc::SYS_ptrace);
        let (_, _, exit) = command(&pod, "attacker", &["python3", "-c", &trace]).await;
        assert_eq!(exit.code, libc::ESRCH, "tracing {pid}");
        let kill = format!("kill -9 {pid}; test -e /proc/{pid}/status");
        let (_, _, exit) = command(&pod, "attacker", &["sh", "-c", &kill]).await;
        assert_ne!(exit.code, 0, "killing {pid}");
    }
    assert!(victim.containers().await.unwrap()[0].is_alive());
    let (out, _, _) = command(&pod, "attacker", &["ls", "/proc/1/root"]).await;
    assert!(!out.contains("boot"), "{out}");
}

#[tokio::test]
async fn no_descriptor_of_the_shim_reaches_a_container() {
    let mut machine = Machine::new();
    let pod = machine.pod("descriptors").await;
    let list = "ls /proc/self/fd | tr '\\n' ' '";
    run(&pod, &machine.sh("main", list)).await;
    assert_eq!(machine.said("main"), "0 1 2 3 ");
    pod.start(&machine.sh("other", "sleep 1000")).await.unwrap();
    let (out, _, _) = command(&pod, "other", &["sh", "-c", list]).await;
    assert_eq!(out, "0 1 2 3 ");
}

#[tokio::test]
async fn the_program_itself_cannot_be_overwritten_through_its_processes() {
    let mut machine = Machine::new();
    let program = machine.dir.path().join("program");
    std::fs::copy(helper_program(), &program).unwrap();
    let settings = machine.pod_settings("sealed");
    let helper = Helper::spawn(Command::new(&program)).unwrap();
    let pod = helper.start_pod(&settings).await.unwrap();
    assert_sealed(pod, helper).await;
}

#[tokio::test]
async fn the_groups_of_whoever_started_it_are_not_the_containers() {
    let mut machine = Machine::new();
    let settings = machine.pod_settings("groups");
    let mut program = Command::new("setpriv");
    program
        .args(["--groups", "7,8", "--"])
        .arg(helper_program());
    program.env("PATH", "/usr/bin:/bin");
    let helper = Helper::spawn(program).unwrap();
    let pod = helper.start_pod(&settings).await.unwrap();
    run(&pod, &machine.sh("main", "grep Groups /proc/self/status")).await;
    assert_eq!(machine.said("main").trim_end(), "Groups:");
}

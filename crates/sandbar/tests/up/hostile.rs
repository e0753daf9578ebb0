//! Sandboxes that mean harm: contained and reported, and the others go on.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::Instant,
};

use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::instance::{CROWD, Instance, PATIENCE, container, eventually, ip, sh};

#[tokio::test]
async fn who_takes_too_much_memory_is_killed_and_said_to_be() {
    let up = Instance::start().await;
    up.run("bystander", "exec sleep 1000").await;
    let mut one = sh(
        "main",
        "exec python3 -c 'x = bytearray(200 << 20); print(len(x))'",
    );
    one["resources"] = json!({"limits": {"memory": "48Mi"}});
    up.pod(
        "hog",
        json!({"restartPolicy": "Never", "containers": [one]}),
    )
    .await;
    let pod = up.phase("hog", "Failed").await;
    let end = container(&pod, "main")
        .state
        .clone()
        .unwrap()
        .terminated
        .unwrap();
    assert_eq!(
        (end.reason.as_deref(), end.exit_code),
        (Some("OOMKilled"), 137)
    );
    assert_eq!(
        container(&up.ready("bystander").await, "main").restart_count,
        0
    );
}

#[tokio::test]
async fn a_fork_bomb_stays_in_its_sandbox_and_is_reported() {
    let _alone = CROWD.lock().await;
    let up = Instance::start().await;
    up.run("bystander", "exec sleep 1000").await;
    up.ready("bystander").await;
    up.run(
        "bomb",
        "f() { f & f & sleep 1000; }; f 2>/dev/null; exec sleep 1000",
    )
    .await;
    up.phase("bomb", "Running").await;
    let (out, code) = up.exec("bystander", &["sh", "-c", "echo fine"]);
    assert_eq!((out.as_str(), code), ("fine\n", 0));
    up.event("ProcessLimitReached").await;
    let told = up.api::<Event>().list(&ListParams::default()).await;
    let told: Vec<_> = told
        .unwrap()
        .items
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some("ProcessLimitReached"))
        .map(|event| (event.involved_object.name, event.message))
        .collect();
    let message = "container main has reached its limit of 4096 processes: \
        no more can be started in it until some of them end";
    let expected = (Some("bomb".to_owned()), Some(message.to_owned()));
    assert_eq!(told, [expected], "once, and of nobody else");
    up.delete("bomb").await;
    eventually("its processes are gone", async || up.processes().len() < 50).await;
}

#[tokio::test]
async fn a_command_in_a_pod_that_is_dying_ends_with_it() {
    let up = Instance::start().await;
    up.run("dying", "trap '' TERM; while :; do sleep 0.1; done")
        .await;
    up.ready("dying").await;
    let data = up.data();
    let waiting = std::thread::spawn(move || {
        let mut command = std::process::Command::new(crate::instance::PROGRAM);
        command.arg("exec").arg("--data-dir").arg(data);
        command
            .args(["dying", "--", "sleep", "1000"])
            .output()
            .unwrap()
    });
    up.delete("dying").await;
    let output = waiting.join().unwrap();
    assert!(!output.status.success());
    let (out, code) = up.exec("dying", &["true"]);
    assert_ne!(code, 0);
    assert!(out.contains("dying"), "{out}");
}

#[tokio::test]
async fn what_a_sandbox_may_not_do_it_cannot() {
    let up = Instance::start().await;
    up.run("inside", "exec sleep 1000").await;
    let mut root = sh("main", "exec sleep 1000");
    root["securityContext"] = json!({"runAsUser": 0});
    up.pod("root", json!({"containers": [root]})).await;
    up.run("other", "exec python3 -m http.server 8000").await;
    for (pod, user) in [("inside", "1000\n"), ("root", "0\n")] {
        up.ready(pod).await;
        assert_eq!(up.exec(pod, &["id", "-u"]).0, user);
    }
    let other = ip(&up.ready("other").await);
    for attempt in [
        "echo 1 > /proc/sys/kernel/panic",
        "echo b > /proc/sysrq-trigger",
        "echo 1 > /sys/kernel/profiling",
        "mount -t tmpfs none /mnt",
        "mount --bind / /mnt",
        "mount -o remount,rw /sys",
        "umount /proc/kcore",
        "unshare -m true",
        "unshare -U true",
        "mknod /tmp/disk b 8 0",
        "mknod /tmp/kmem c 1 2",
        "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'",
        "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'",
        // whoever may open it finds nothing in it
        "test $(head -c 1 /proc/kcore | wc -c) = 1",
        &format!("ls {}", up.data().display()),
        "date -s 2001-01-01",
        "hostname other",
    ] {
        for pod in ["inside", "root"] {
            let (out, code) = up.exec(pod, &["sh", "-c", attempt]);
            // beyond these nobody was refused anything: the program of the attempt is not there or did not run
            assert!((1..126).contains(&code), "{pod}: {attempt}: {code} {out}");
        }
    }
    let reach = |address: &str, port: u16| {
        let script = format!("import socket; socket.create_connection(('{address}', {port}), 1)");
        up.exec("inside", &["python3", "-c", &script]).1 == 0
    };
    eventually("the other one serves", async || {
        TcpStream::connect((other.as_str(), 8000)).is_ok()
    })
    .await;
    assert!(!reach(&other, 8000) && !reach("169.254.169.254", 80));
    let script = "awk '$2 == \"00000000\" {print $3}' /proc/net/route";
    let (hex, _) = up.exec("inside", &["sh", "-c", script]);
    let number = u32::from_str_radix(hex.trim(), 16).unwrap();
    let machine = Ipv4Addr::from(number.swap_bytes()).to_string();
    let service = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = service.local_addr().unwrap().port();
    assert!(TcpStream::connect((machine.as_str(), port)).is_ok());
    assert!(!reach(&machine, port), "the machine is out of reach");
    assert!(reach(&machine, 53), "but for the names that it knows");
}

#[tokio::test]
async fn a_sandbox_shares_no_namespace_and_can_gain_no_right() {
    const KINDS: [&str; 6] = ["cgroup", "ipc", "mnt", "net", "pid", "uts"];
    let up = Instance::start().await;
    for (name, profile) in [("inside", "RuntimeDefault"), ("other", "Unconfined")] {
        let mut one = sh("main", "exec sleep 1000");
        one["securityContext"] = json!({
            "runAsUser": 0, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": profile},
        });
        up.pod(name, json!({"containers": [one]})).await;
        up.ready(name).await;
    }
    for kind in KINDS {
        let link = format!("/proc/self/ns/{kind}");
        let of = |pod: &str| up.exec(pod, &["readlink", &link]).0.trim().to_owned();
        let machine = std::fs::read_link(&link).unwrap();
        let machine = machine.to_str().unwrap().to_owned();
        let all = BTreeSet::from([machine, of("inside"), of("other")]);
        assert_eq!(all.len(), 3, "{all:?}");
    }
    for (pod, filters) in [("inside", "2"), ("other", "0")] {
        let (status, _) = up.exec(pod, &["cat", "/proc/self/status"]);
        let says = |field: &str| {
            let line = status.lines().find(|line| line.starts_with(field)).unwrap();
            line.split('\t').nth(1).unwrap().to_owned()
        };
        assert_eq!(says("NoNewPrivs:"), "1", "{pod}");
        assert_eq!(says("Seccomp:"), filters, "{pod}");
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            assert_eq!(says(set), "0000000000000000", "{pod} {set}");
        }
    }
}

/// Tells which processes it sees, whether it may trace a child of its own, and which of those named it can get hold of.
const TRACER: &str = r#"
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
def traces(pid, how):
    return libc.ptrace(ctypes.c_long(how), ctypes.c_long(pid), None, None) == 0
def reads(pid):
    buffer = ctypes.create_string_buffer(8)
    here, there = Part(ctypes.addressof(buffer), 8), Part(ctypes.addressof(buffer), 8)
    read = libc.process_vm_readv(ctypes.c_int(pid), ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return read > 0 or ctypes.get_errno() not in (1, 3)
seen = [name for name in os.listdir("/proc") if name.isdigit()]
print("seen", *seen)
child = os.fork()
if child == 0:
    signal.pause()
print("child", traces(child, PTRACE_ATTACH))
os.kill(child, signal.SIGKILL)
for pid in map(int, sys.argv[1:]):
    if traces(pid, PTRACE_ATTACH) or traces(pid, PTRACE_SEIZE) or reads(pid) or os.path.exists(f"/proc/{pid}/mem"):
        print("caught", pid)
"#;

#[tokio::test]
async fn a_sandbox_traces_its_own_processes_and_neither_those_of_others_nor_the_host_s() {
    let up = Instance::start().await;
    up.run("inside", "exec sleep 1000").await;
    up.run("other", "exec sleep 1000").await;
    up.ready("inside").await;
    up.ready("other").await;
    let (seen, _) = up.exec("inside", &["python3", "-c", TRACER]);
    let own: BTreeSet<&str> = seen.lines().next().unwrap().split(' ').skip(1).collect();
    assert!(own.contains("1") && own.len() <= 3, "{seen}");
    assert!(seen.contains("child True"), "{seen}");

    // the program, its helper, the shims, and what runs in both pods
    let everybody = up.processes().into_iter().chain([std::process::id()]);
    let strangers: Vec<String> = everybody.map(|pid| pid.to_string()).collect();
    assert!(strangers.len() >= 7, "{strangers:?}");
    let mut command = vec!["python3", "-c", TRACER];
    // numbers below these are those of its own commands
    command.extend(
        strangers
            .iter()
            .map(String::as_str)
            .filter(|pid| pid.len() > 2),
    );
    let (said, code) = up.exec("inside", &command);
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains("caught"), "{said}");
}

#[tokio::test]
async fn a_command_for_a_pod_that_is_dying_runs_or_says_why_not_and_never_hangs() {
    let up = Instance::start().await;
    let script = "trap '' TERM; while :; do sleep 0.1; done";
    let spec = json!({"containers": [sh("main", script)], "terminationGracePeriodSeconds": 15});
    up.pod("dying", spec).await;
    up.ready("dying").await;
    let options = DeleteParams::default();
    up.pods().delete("dying", &options).await.unwrap();
    let ask = || {
        let mut answers = Vec::new();
        loop {
            let begun = Instant::now();
            let (said, code) = up.exec("dying", &["echo", "hello"]);
            assert!(begun.elapsed() < PATIENCE, "{said}");
            let is_gone = said.contains("\"dying\" not found");
            answers.push((code, said));
            if is_gone {
                return answers;
            }
        }
    };
    let answers: Vec<(i32, String)> = std::thread::scope(|scope| {
        let askers: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
        let answers = askers.into_iter().flat_map(|asker| asker.join().unwrap());
        answers.collect()
    });
    assert_eq!(answers[0], (0, "hello\n".to_owned()));
    for (code, said) in answers {
        let is_clear = ["not found", "is not running", "is gone", "exit code 137"];
        let is_clear = is_clear.iter().any(|words| said.contains(words));
        assert!(
            (code == 0 && said == "hello\n") || (code != 0 && is_clear),
            "{code} {said:?}"
        );
    }
}

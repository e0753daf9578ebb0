//! Sandboxes that mean harm: contained and reported, and the others go on.

use serde_json::json;

use crate::instance::{Instance, container, eventually, sh};

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
async fn a_fork_bomb_stays_in_its_sandbox() {
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
    up.run("other", "exec sleep 1000").await;
    up.ready("inside").await;
    let other = up.ready("other").await.status.unwrap().pod_ip.unwrap();
    let gateway = "ip=$(awk '$2 == \"00000000\" {print $3}' /proc/net/route)";
    for attempt in [
        "echo 1 > /proc/sys/kernel/panic",
        "echo b > /proc/sysrq-trigger",
        "echo 1 > /sys/kernel/profiling",
        "mount -t tmpfs none /mnt",
        "mount --bind / /mnt",
        "unshare -m true",
        "unshare -U true",
        "mknod /tmp/disk b 8 0",
        "chroot / true && mknod /tmp/kmem c 1 2",
        "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'",
        "cat /proc/kcore > /dev/null",
        &format!("ls {}", up.data().display()),
        "date -s 2001-01-01",
        "hostname other",
    ] {
        let (out, code) = up.exec("inside", &["sh", "-c", attempt]);
        assert_ne!(code, 0, "{attempt}: {out}");
    }
    let reach = |address: &str, port: u16| {
        let script = format!("import socket; socket.create_connection(('{address}', {port}), 1)");
        up.exec("inside", &["python3", "-c", &script]).1 == 0
    };
    assert!(!reach(&other, 22) && !reach("169.254.169.254", 80));
    let (found, _) = up.exec("inside", &["sh", "-c", &format!("{gateway}; echo $ip")]);
    let hex = found.trim();
    if let Ok(number) = u32::from_str_radix(hex, 16) {
        let gateway = std::net::Ipv4Addr::from(number.swap_bytes());
        let port = up.introduction.split("127.0.0.1:").nth(1).unwrap();
        let port: String = port.chars().take_while(char::is_ascii_digit).collect();
        assert!(
            !reach(&gateway.to_string(), port.parse().unwrap()),
            "the API is out of reach"
        );
    }
}

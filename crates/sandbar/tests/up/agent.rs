//! The daemon of sandboxes in a container of another image, brought there by a sidecar as templates of OpenKruise Agents do it: on
//! the node of `sandbar up`, and on a real one.

use std::process::{Command, Output};

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use serde_json::{Value, json};
use testbed::Testbed;

use crate::instance::{Instance, PROGRAM, eventually, is_ready};

/// A pod whose first container has nothing of the daemon's in its image. `shell` runs the script of its hook.
fn spec(runtime: &str, main: &str, shell: &str) -> Value {
    let env = json!([{"name": "ENVD_DIR", "value": "/mnt/envd"}]);
    let mounts = json!([{"name": "envd-volume", "mountPath": "/mnt/envd"}]);
    let hook = [
        shell,
        "/mnt/envd/envd-run.sh",
        "--",
        "touch",
        "/tmp/of-the-user",
    ];
    json!({
        "terminationGracePeriodSeconds": 1,
        "initContainers": [{
            "name": "runtime",
            "image": runtime,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "/workspace/entrypoint.sh"],
            "env": env,
            "volumeMounts": mounts,
            "restartPolicy": "Always",
        }],
        "containers": [{
            "name": "main",
            "image": main,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sleep", "1000"],
            "securityContext": {"runAsUser": 0},
            "env": env,
            "volumeMounts": mounts,
            "lifecycle": {"postStart": {"exec": {"command": hook}}},
            "startupProbe": {"tcpSocket": {"port": 49983}, "periodSeconds": 1, "failureThreshold": 60},
        }],
        "volumes": [{"name": "envd-volume", "emptyDir": {}}],
    })
}

/// What is so in the first container, given what runs a command in it. `fetch` is what prints the answer at an address.
fn is_served(runs: impl Fn(&[&str]) -> Output, fetch: &[&str]) {
    let exec = |command: &[&str]| {
        let output = runs(command);
        let text = String::from_utf8(output.stdout).unwrap();
        (text, output.status.code().unwrap_or(-1))
    };
    let written = exec(&[
        "sh",
        "-c",
        "echo hello > /home/user/greeting; ls /tmp/of-the-user",
    ]);
    assert_eq!(written, ("/tmp/of-the-user\n".to_owned(), 0));
    let at = "http://127.0.0.1:49983/files?username=user&path=greeting";
    let read = exec(&[fetch, &[at]].concat());
    assert_eq!(read, ("hello\n".to_owned(), 0));
    let (user, _) = exec(&["id", "-u", "user"]);
    assert_ne!(user.trim(), "0");
    let (help, code) = exec(&["/mnt/envd/sandbox-runtime-storage", "--help"]);
    assert!(
        help.contains("usage: sandbox-runtime-storage mount") && code == 0,
        "{help}"
    );
}

#[tokio::test]
async fn a_sidecar_of_sandbar_runtime_brings_the_daemon_into_any_container() {
    let up = Instance::start().await;
    up.pod("box", spec("sandbar/runtime", "sandbar/base", "bash"))
        .await;
    up.ready("box").await;
    let fetch =
        "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode(), end='')";
    let exec =
        |command: &[&str]| up.sandbar(&[&["exec", "box", "-c", "main", "--"], command].concat());
    is_served(exec, &["python3", "-c", fetch]);
}

#[tokio::test]
async fn a_real_kubelet_runs_the_image_that_is_written_for_clusters() {
    let cluster = Testbed::shared().await.unwrap();
    let files = tempfile::tempdir().unwrap();
    let (base, image) = (
        files.path().join("base.tar"),
        files.path().join("image.tar"),
    );
    let busybox = cluster.busybox_image("docker.io/library/base:1").unwrap();
    busybox.write(&base).unwrap();
    let name = "docker.io/sandbar/runtime:from-busybox";
    let output = Command::new(PROGRAM)
        .args(["image", "runtime", "--name", name, "--base"])
        .args([&base, &image])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    cluster.import_image(&image).await.unwrap();
    let namespace = cluster.namespace("runtime").await.unwrap();
    let pod = json!({
        "metadata": {"name": "box"},
        "spec": spec(name, "docker.io/library/busybox:1.36", "sh"),
    });
    let pods = namespace.api::<Pod>();
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    eventually("the pod is ready", async || {
        is_ready(&pods.get("box").await.unwrap())
    })
    .await;
    let exec = |command: &[&str]| {
        let mut kubectl = cluster.kubectl();
        kubectl.args(["exec", "-n", namespace.name(), "box", "-c", "main", "--"]);
        kubectl.args(command).output().unwrap()
    };
    is_served(exec, &["wget", "-q", "-O", "-"]);
}

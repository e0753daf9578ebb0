//! What several tests need.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

/// Not a bound on anything that is tested: only how long a broken test takes to fail.
const PATIENCE: Duration = Duration::from_secs(90);

/// Polls until `probe` has an answer.
pub(crate) async fn eventually<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = probe().await {
            return answer;
        }
        assert!(Instant::now() < give_up, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The same without an async runtime.
pub(crate) fn eventually_sync(what: &str, mut probe: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !probe() {
        assert!(Instant::now() < give_up, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A pod with one container `main` of busybox `v1` that runs `script`; `spec` is merged over it.
pub(crate) fn pod(name: &str, script: &str, spec: Value) -> Pod {
    let mut object = json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main",
                "image": "busybox:v1",
                "command": ["sh", "-c", script],
            }],
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        if let Some(container) = key.strip_prefix("container.") {
            object["spec"]["containers"][0][container] = value.clone();
        } else {
            object["spec"][key] = value.clone();
        }
    }
    serde_json::from_value(object).unwrap()
}

/// Creates a pod and waits until it is ready.
pub(crate) async fn run(pods: &Api<Pod>, pod: &Pod) -> Pod {
    pods.create(&PostParams::default(), pod).await.unwrap();
    let name = pod.metadata.name.as_deref().unwrap();
    eventually(&format!("pod {name} is ready"), async || {
        pods.get(name).await.ok().filter(is_ready)
    })
    .await
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|c| c.type_ == "Ready" && c.status == "True")
}

/// The status of the pod's only container.
pub(crate) fn container(pod: &Pod) -> &ContainerStatus {
    &pod.status
        .as_ref()
        .unwrap()
        .container_statuses
        .as_ref()
        .unwrap()[0]
}

pub(crate) fn ip(pod: &Pod) -> String {
    pod.status.as_ref().unwrap().pod_ip.clone().unwrap()
}

/// The body of a page.
pub(crate) fn http_get(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned())
        .unwrap_or_default())
}

/// Standard output of a command that must succeed.
pub(crate) fn output(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = String::from_utf8_lossy(&stdout).into_owned();
    assert!(
        status.success(),
        "{command:?}: {text}{}",
        String::from_utf8_lossy(&stderr)
    );
    text
}

//! Talking with plain processes, and asking them how they are.

use futures::SinkExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{AttachParams, AttachedProcess, TerminalSize};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpSocket,
    time::timeout,
};

use crate::{
    instance::{PATIENCE, container, exit_code, is_ready, sh},
    unisolated::{Ward, start},
};

/// Reads until something has been said.
pub(crate) async fn hear(stream: &mut (impl AsyncRead + Unpin), words: &str) {
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains(words) {
        let read = timeout(PATIENCE, stream.read_buf(&mut said)).await;
        let read = read.ok().and_then(Result::ok).unwrap_or_default();
        assert_ne!(read, 0, "{words:?} is not in {said:?}");
    }
}

async fn exit_of(mut process: AttachedProcess) -> Option<String> {
    let status = timeout(PATIENCE, process.take_status().unwrap()).await;
    let status = status.unwrap().unwrap();
    let causes = status.details.and_then(|details| details.causes);
    causes?.pop()?.message
}

#[tokio::test]
async fn one_talks_with_a_plain_process_as_with_a_container() {
    let ward = Ward::open();
    let up = start(&ward, "0").await;
    let script = "while read line; do echo heard $line; done; echo over; exit 4";
    for (name, tty) in [("pipe", false), ("terminal", true)] {
        let mut one = sh("main", script);
        one["stdin"] = json!(true);
        one["stdinOnce"] = json!(true);
        one["tty"] = json!(tty);
        up.pod(name, json!({"restartPolicy": "Never", "containers": [one]}))
            .await;
        up.ready(name).await;
        let options = match tty {
            true => AttachParams::interactive_tty(),
            false => AttachParams::default().stdin(true),
        };
        let mut process = up.pods().attach(name, &options).await.unwrap();
        let mut stdin = process.stdin().unwrap();
        let mut stdout = process.stdout().unwrap();
        stdin.write_all(b"one\n").await.unwrap();
        hear(&mut stdout, "heard one").await;
        match tty {
            // what means the end there
            true => stdin.write_all(b"\x04").await.unwrap(),
            false => stdin.shutdown().await.unwrap(),
        }
        hear(&mut stdout, "over").await;
        let ended = up.phase(name, "Failed").await;
        assert_eq!(exit_code(&ended, "main"), Some(4), "{name}");
    }
}

#[tokio::test]
async fn a_command_beside_a_plain_process_has_a_terminal_of_its_own() {
    let ward = Ward::open();
    let up = start(&ward, "0").await;
    let status = "grep NoNewPrivs /proc/self/status";
    up.run("place", &format!("{status}; exec sleep 1000")).await;
    up.ready("place").await;
    let gains_nothing = "NoNewPrivs:\t1\n";
    assert_eq!(up.says("place", "\n").await, gains_nothing);
    assert_eq!(up.exec("place", &["sh", "-c", status]).0, gains_nothing);
    let script = "until [ \"$(stty size)\" = '40 120' ]; do sleep 0.05; done
        trap 'exit 5' INT; echo resized on $(tty); while :; do sleep 0.05; done";
    let options = AttachParams::interactive_tty();
    let command = ["sh", "-c", script];
    let mut process = up.pods().exec("place", command, &options).await.unwrap();
    let mut stdin = process.stdin().unwrap();
    let mut stdout = process.stdout().unwrap();
    let size = TerminalSize {
        height: 40,
        width: 120,
    };
    process.terminal_size().unwrap().send(size).await.unwrap();
    hear(&mut stdout, "resized on /dev/pts/").await;
    // Ctrl-C
    stdin.write_all(b"\x03").await.unwrap();
    assert_eq!(exit_of(process).await.as_deref(), Some("5"));
}

/// Held by nobody else, though anybody who says that addresses may be used again can listen there.
fn port() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

fn probed(script: &str, port: u16, kind: &str, probe: Value) -> Value {
    let mut one = sh("main", script);
    one["startupProbe"] =
        json!({"tcpSocket": {"port": port}, "periodSeconds": 1, "failureThreshold": 50});
    one[kind] = probe;
    one[kind]["periodSeconds"] = json!(1);
    one[kind]["failureThreshold"] = json!(1);
    json!({"containers": [one]})
}

#[tokio::test]
async fn a_plain_process_is_asked_by_http_whether_it_is_ready() {
    let ward = Ward::open();
    let up = start(&ward, "0").await;
    let (_held, port) = port();
    let script = format!("exec python3 -m http.server --bind 127.0.0.1 {port}");
    let probe = json!({"httpGet": {"path": "/ready", "port": port}, "timeoutSeconds": 5});
    up.pod("web", probed(&script, port, "readinessProbe", probe))
        .await;
    let has_started = |pod: &Pod| container(pod, "main").started == Some(true);
    let pod = up.until("web", "started", has_started).await;
    assert!(!is_ready(&pod));
    assert_eq!(up.exec("web", &["touch", "ready"]).1, 0);
    up.ready("web").await;
    assert_eq!(up.exec("web", &["rm", "ready"]).1, 0);
    up.until("web", "became unready", |pod| !is_ready(pod))
        .await;
}

#[tokio::test]
async fn a_plain_process_that_listens_no_more_is_started_anew() {
    let ward = Ward::open();
    let up = start(&ward, "0").await;
    let (_held, port) = port();
    let script = format!(
        r#"exec python3 -c '
import os, socket, time
server = socket.create_server(("127.0.0.1", {port}))
while not os.path.exists("deaf"):
    time.sleep(0.05)
os.remove("deaf")
server.close()
time.sleep(1000)
'"#
    );
    let probe = json!({"tcpSocket": {"port": port}});
    up.pod("listens", probed(&script, port, "livenessProbe", probe))
        .await;
    let pod = up.ready("listens").await;
    assert_eq!(container(&pod, "main").restart_count, 0);
    assert_eq!(up.exec("listens", &["touch", "deaf"]).1, 0);
    let is_back = |pod: &Pod| is_ready(pod) && container(pod, "main").restart_count == 1;
    up.until("listens", "was started anew", is_back).await;
}

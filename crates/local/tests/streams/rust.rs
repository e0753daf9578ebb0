//! The client of the controllers: `kube`, over TLS.

use futures::{AsyncBufReadExt as _, SinkExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams, LogParams, TerminalSize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::forward::echo;
use crate::stage::{Stage, until};

async fn pods(stage: &Stage) -> Api<Pod> {
    Api::namespaced(stage.client().await, "default")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_run_with_input_output_and_status() {
    let stage = Stage::new().await;
    let options = AttachParams::default().stdin(true).stderr(true);
    let command = ["sh", "-c", "cat; echo err >&2; exit 4"];
    let mut process = pods(&stage)
        .await
        .exec("p", command, &options)
        .await
        .unwrap();
    let mut stdin = process.stdin().unwrap();
    let (mut stdout, mut stderr) = (process.stdout().unwrap(), process.stderr().unwrap());
    let status = process.take_status().unwrap();
    let writing = tokio::spawn(async move {
        stdin.write_all(&vec![b'x'; 1_000_000]).await.unwrap();
        stdin.shutdown().await.unwrap();
    });
    let (mut out, mut err) = (Vec::new(), String::new());
    stdout.read_to_end(&mut out).await.unwrap();
    stderr.read_to_string(&mut err).await.unwrap();
    writing.await.unwrap();
    assert_eq!((out.len(), err.as_str()), (1_000_000, "err\n"));
    let status = status.await.unwrap();
    assert_eq!(status.reason.as_deref(), Some("NonZeroExitCode"));
    let causes = status.details.unwrap().causes.unwrap();
    assert_eq!(causes[0].message.as_deref(), Some("4"));
    process.join().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_can_be_resized() {
    let stage = Stage::new().await;
    let options = AttachParams::interactive_tty();
    let script = "until [ \"$(stty size)\" = '40 120' ]; do sleep 0.05; done; echo resized";
    let mut process = pods(&stage)
        .await
        .exec("p", ["sh", "-c", script], &options)
        .await
        .unwrap();
    let size = TerminalSize {
        height: 40,
        width: 120,
    };
    process.terminal_size().unwrap().send(size).await.unwrap();
    let mut said = String::new();
    process
        .stdout()
        .unwrap()
        .read_to_string(&mut said)
        .await
        .unwrap();
    assert_eq!(said, "resized\r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_let_go_is_told() {
    let stage = Stage::new().await;
    let options = AttachParams::default().stdin(true).stderr(false);
    let process = pods(&stage)
        .await
        .exec("p", ["cat"], &options)
        .await
        .unwrap();
    until(|| stage.host.processes() == 1).await;
    process.abort();
    drop(process);
    until(|| stage.host.processes() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_forwarded() {
    let stage = Stage::new().await;
    let (first, second) = (echo().await, echo().await);
    let mut forwarder = pods(&stage)
        .await
        .portforward("p", &[first, second])
        .await
        .unwrap();
    for (port, word) in [(first, "one"), (second, "two")] {
        let mut stream = forwarder.take_stream(port).unwrap();
        stream.write_all(word.as_bytes()).await.unwrap();
        let mut back = [0; 3];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(back, word.as_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_closed_is_named() {
    let stage = Stage::new().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let mut forwarder = pods(&stage).await.portforward("p", &[port]).await.unwrap();
    let error = forwarder.take_error(port).unwrap().await.unwrap();
    let expected = format!("failed to connect to localhost:{port}: Connection refused");
    assert!(error.contains(&expected), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_followed_in_process_and_over_tls() {
    let stage = Stage::new().await;
    stage.write_log("x-p-main-1", "2026-11-16T17:00:00Z stdout F one\n");
    let options = LogParams {
        follow: true,
        ..LogParams::default()
    };
    for pods in [stage.pods(), pods(&stage).await] {
        stage.host.running.send_replace(true);
        let mut lines = pods.log_stream("p", &options).await.unwrap().lines();
        assert_eq!(lines.try_next().await.unwrap().unwrap(), "one");
        stage.host.running.send_replace(false);
        assert_eq!(lines.try_next().await.unwrap(), None);
    }
}

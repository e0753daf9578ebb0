//! `kubectl port-forward`.

use std::process::Stdio;

use futures::future::join_all;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdout};

use crate::stage::{KUBECTLS, Kubectl, Stage};

/// Sends back what it gets, and ends when the other side does.
pub(crate) async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                let _ = writer.shutdown().await;
            });
        }
    });
    port
}

/// A running `kubectl port-forward` and where it listens.
struct Forwarding {
    child: Child,
    port: u16,
    _lines: Lines<BufReader<ChildStdout>>,
}

impl Forwarding {
    async fn start(stage: &Stage, kubectl: &Kubectl, to: u16) -> Forwarding {
        let mut child = stage
            .kubectl(kubectl, &["port-forward", "p", &format!(":{to}")])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().unwrap();
        let address = line.strip_prefix("Forwarding from ").unwrap();
        let address = address.split(' ').next().unwrap();
        let port = address.rsplit(':').next().unwrap().parse().unwrap();
        Forwarding {
            child,
            port,
            _lines: lines,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }
}

/// Sends so much and demands it back.
async fn there_and_back(stream: TcpStream, size: usize, seed: u8) {
    let sent: Vec<u8> = (0..size)
        .map(|index| index.to_le_bytes()[0] ^ seed)
        .collect();
    let (mut reader, mut writer) = stream.into_split();
    let expected = sent.clone();
    let writing = tokio::spawn(async move {
        writer.write_all(&sent).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    reader.read_to_end(&mut received).await.unwrap();
    assert_eq!(received.len(), expected.len());
    assert!(received == expected);
    writing.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_connections_go_through_one_at_the_same_time() {
    let stage = Stage::new().await;
    let port = echo().await;
    for kubectl in KUBECTLS.iter() {
        let forwarding = Forwarding::start(&stage, kubectl, port).await;
        for _ in 0..3 {
            let stream = forwarding.connect().await;
            there_and_back(stream, 10, 0).await;
        }
        let connections = (0..8).map(async |number| {
            let stream = forwarding.connect().await;
            there_and_back(stream, 3_000_000, number).await;
        });
        join_all(connections).await;
        stage.assert_upgrades(kubectl);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_port_is_named() {
    let stage = Stage::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let uid = stage.pods().get("p").await.unwrap().metadata.uid.unwrap();
    for kubectl in KUBECTLS.iter() {
        let mut forwarding = Forwarding::start(&stage, kubectl, port).await;
        let mut stream = forwarding.connect().await;
        let mut nothing = Vec::new();
        let _ = stream.read_to_end(&mut nothing).await;
        assert!(nothing.is_empty());
        let mut said = String::new();
        let mut stderr = BufReader::new(forwarding.child.stderr.take().unwrap());
        let expected = format!(
            "error forwarding port {port} to pod p, uid {uid}: failed to connect to localhost:{port}: Connection \
             refused"
        );
        while !said.contains(&expected) {
            let read = stderr.read_line(&mut said).await.unwrap();
            assert!(read > 0, "{kubectl:?} {said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_kubectl_ends_its_connections_do() {
    let stage = Stage::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for kubectl in KUBECTLS.iter() {
        let mut forwarding = Forwarding::start(&stage, kubectl, port).await;
        let _outside = forwarding.connect().await;
        let (mut inside, _) = listener.accept().await.unwrap();
        forwarding.child.kill().await.unwrap();
        let mut nothing = Vec::new();
        let _ = inside.read_to_end(&mut nothing).await;
        assert!(nothing.is_empty());
    }
}

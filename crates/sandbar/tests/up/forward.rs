//! Ports of real pods, forwarded by kubectl and by the client of the controllers.

use std::process::Stdio;

use futures::future::join_all;
use tokio::{
    io::{
        AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
        BufReader,
    },
    net::TcpStream,
    process::{Child, ChildStdout},
};

use crate::{
    instance::Instance,
    kubectl::{Kubectl, kubectls},
};

const PORT: u16 = 8000;

/// Sends back what it gets. Like what agents start, it listens within its pod only.
const ECHO: &str = r#"exec python3 -c '
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
socketserver.ThreadingTCPServer.allow_reuse_address = True
server = socketserver.ThreadingTCPServer(("127.0.0.1", 8000), Echo)
print("listening", flush=True)
server.serve_forever()
'"#;

/// A kubectl that forwards a port of a pod, and where it listens itself.
struct Forwarding {
    child: Child,
    address: String,
    _stdout: BufReader<ChildStdout>,
}

impl Forwarding {
    async fn start(up: &Instance, kubectl: &Kubectl, to: u16) -> Self {
        let ports = format!(":{to}");
        let arguments = ["port-forward", "--address=127.0.0.1", "server", &ports];
        let mut child = kubectl
            .command(up, &arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).await.unwrap();
        let address = line.strip_prefix("Forwarding from ").unwrap();
        let address = address.split(' ').next().unwrap().to_owned();
        Self {
            child,
            address,
            _stdout: stdout,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).await.unwrap()
    }
}

async fn with_server() -> Instance {
    let up = Instance::start().await;
    up.run("server", ECHO).await;
    up.says("server", "listening").await;
    up
}

/// Sends so much, and demands it back.
async fn there_and_back(stream: impl AsyncRead + AsyncWrite, size: usize, seed: u8) {
    let sent: Vec<u8> = (0..size).map(|at| at.to_le_bytes()[0] ^ seed).collect();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut received = vec![0; size];
    let (written, read) = tokio::join!(writer.write_all(&sent), reader.read_exact(&mut received));
    written.unwrap();
    read.unwrap();
    assert!(received == sent, "what came back is what was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_forwards_many_connections_to_a_port_within_a_pod() {
    let up = with_server().await;
    for kubectl in kubectls() {
        let forwarding = Forwarding::start(&up, &kubectl, PORT).await;
        let mut first = forwarding.connect().await;
        there_and_back(&mut first, 10, 0).await;
        let many = (1..5).map(async |seed| {
            there_and_back(forwarding.connect().await, 1_000_000, seed).await;
        });
        join_all(many).await;
        // it has been open all the time
        there_and_back(&mut first, 10, 5).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_is_told_that_nobody_listens_within_the_pod() {
    let up = with_server().await;
    for kubectl in kubectls() {
        let mut forwarding = Forwarding::start(&up, &kubectl, PORT + 1).await;
        let mut nothing = Vec::new();
        let _ = forwarding.connect().await.read_to_end(&mut nothing).await;
        assert!(nothing.is_empty());
        let mut stderr = BufReader::new(forwarding.child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("failed to connect to localhost:8001 inside the pod") {
            let read = stderr.read_line(&mut said).await.unwrap();
            assert!(read > 0, "{kubectl:?} ended with {said}");
        }
        assert!(said.contains("refused"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_connection_ends_with_its_pod() {
    let up = with_server().await;
    let forwarding = Forwarding::start(&up, &kubectls()[0], PORT).await;
    let mut stream = forwarding.connect().await;
    stream.write_all(b"hello").await.unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).await.unwrap();
    up.delete("server").await;
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_websockets_reaches_a_port_within_a_pod() {
    let up = with_server().await;
    let mut forwarder = up.pods().portforward("server", &[PORT]).await.unwrap();
    there_and_back(forwarder.take_stream(PORT).unwrap(), 300_000, 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_websockets_is_told_that_nobody_listens_within_the_pod() {
    let up = with_server().await;
    let port = PORT + 1;
    let mut forwarder = up.pods().portforward("server", &[port]).await.unwrap();
    let said = forwarder.take_error(port).unwrap().await.unwrap();
    let expected = "failed to connect to localhost:8001 inside the pod";
    assert!(said.contains(expected), "{said}");
}

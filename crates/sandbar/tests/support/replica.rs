//! The controller as a process.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use super::until;

/// The Lease of the reference.
pub(crate) const LEASE: &str = "a3317529.agent-sandbox.x-k8s.io";

/// A process that is killed with the test.
pub(crate) struct Process {
    pub(crate) child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Process {
    pub(crate) fn start(
        mut command: Command,
        output: fn(&mut Child) -> Box<dyn Read + Send>,
    ) -> Self {
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(output(&mut child));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let said = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                said.lock().unwrap().push(line);
            }
        });
        Self { child, lines }
    }

    pub(crate) fn said(&self, text: &str) -> Option<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().find(|line| line.contains(text)).cloned()
    }

    pub(crate) fn terminate(&self) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", "TERM", &id]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn sandbar(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbar"));
    command
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A replica of the controller.
pub(crate) struct Replica(pub(crate) Process);

impl Replica {
    pub(crate) fn start(kubeconfig: &Path, more: &[&str]) -> Self {
        let mut command = sandbar(&[
            "controller",
            "--extensions",
            "--leader-election-namespace=default",
            "--metrics-bind-address=127.0.0.1:0",
            "--health-probe-bind-address=127.0.0.1:0",
            "--kubeconfig",
        ]);
        command.arg(kubeconfig).args(more);
        Self(Process::start(command, |child| {
            Box::new(child.stderr.take().unwrap())
        }))
    }

    async fn get(&self, server: &str, path: &str) -> (u16, String) {
        let line = until(server, async || self.0.said(server)).await;
        let (_, address) = line.split_once("address=").unwrap();
        let mut stream = TcpStream::connect(address.trim()).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        (code, body.to_owned())
    }

    pub(crate) async fn probe(&self, path: &str) -> (u16, String) {
        self.get("serving probes", path).await
    }

    pub(crate) async fn metrics(&self) -> String {
        let (code, text) = self.get("serving metrics", "/metrics").await;
        assert_eq!(code, 200);
        text
    }

    pub(crate) async fn until_ready(&self) {
        until("ready", async || {
            let (code, _) = self.probe("/readyz").await;
            (code == 200).then_some(())
        })
        .await;
    }

    pub(crate) async fn until_leading(&self) {
        until("leading", async || {
            let text = self.metrics().await;
            text.contains("\nsandbar_leading 1\n").then_some(())
        })
        .await;
    }
}

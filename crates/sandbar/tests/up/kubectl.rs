//! kubectl and real pods: commands and first processes that one talks with, files, logs.

use std::{fs, path::PathBuf, process::Output, process::Stdio};

use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::Command,
    time::timeout,
};

use crate::{
    instance::{Instance, PATIENCE, exit_code, sh},
    plain::hear,
};

/// A kubectl and what it is to speak.
#[derive(Clone, Debug)]
pub(crate) struct Kubectl {
    program: PathBuf,
    websockets: bool,
}

impl Kubectl {
    pub(crate) fn command(&self, up: &Instance, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).kill_on_drop(true);
        command.env("KUBECONFIG", up.data().join("kubeconfig"));
        command.env("HOME", up.data());
        for what in ["REMOTE_COMMAND", "PORT_FORWARD"] {
            let name = format!("KUBECTL_{what}_WEBSOCKETS");
            command.env(name, self.websockets.to_string());
        }
        command
    }

    /// Runs it to its end, with something to read.
    async fn run(&self, up: &Instance, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(up, arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let talk = async {
            let write = async {
                let _ = stdin.write_all(input).await;
                drop(stdin);
            };
            let (output, ()) = tokio::join!(child.wait_with_output(), write);
            output.unwrap()
        };
        let ended = timeout(PATIENCE, talk).await;
        ended.unwrap_or_else(|_| panic!("{self:?} {arguments:?} never ends"))
    }

    /// Runs it to its end, which must be a good one.
    async fn does(&self, up: &Instance, arguments: &[&str]) -> String {
        let output = self.run(up, arguments, b"").await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{self:?} {arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Each with WebSockets and with SPDY.
pub(crate) fn kubectls() -> Vec<Kubectl> {
    let both = |program: PathBuf| {
        [true, false].map(|websockets| Kubectl {
            program: program.clone(),
            websockets,
        })
    };
    let programs = testbed::kubectls().unwrap();
    programs.into_iter().flat_map(both).collect()
}

/// Bytes of which no piece can be mistaken for another.
fn bytes(count: u32) -> Vec<u8> {
    let words = (0..count / 4).map(|number| number.wrapping_mul(2_654_435_761));
    words.flat_map(u32::to_le_bytes).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_talks_with_a_command_and_learns_how_it_ended() {
    let up = Instance::start().await;
    up.run("place", "exec sleep 1000").await;
    up.ready("place").await;
    let input = bytes(1_000_000);
    let script = "cat; echo over; echo why >&2; exit 3";
    for kubectl in kubectls() {
        let arguments = ["exec", "-i", "place", "--", "sh", "-c", script];
        let output = kubectl.run(&up, &arguments, &input).await;
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{kubectl:?} {errors}");
        assert_eq!(errors, "why\ncommand terminated with exit code 3\n");
        let echo = output.stdout.strip_suffix(b"over\n");
        assert!(echo == Some(&input[..]), "{kubectl:?}: it is what was sent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_attaches_to_the_first_process_of_a_pod_until_it_ends() {
    let up = Instance::start().await;
    let script = "while read line; do echo heard $line; done; echo over; exit 4";
    for (number, kubectl) in kubectls().iter().enumerate() {
        let name = format!("reads-{number}");
        let mut one = sh("main", script);
        one["stdin"] = json!(true);
        one["stdinOnce"] = json!(true);
        let spec = json!({"restartPolicy": "Never", "containers": [one]});
        up.pod(&name, spec).await;
        up.ready(&name).await;
        let mut command = kubectl.command(&up, &["attach", "-i", &name]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        for word in ["one", "two"] {
            let line = format!("{word}\n");
            stdin.write_all(line.as_bytes()).await.unwrap();
            hear(&mut stdout, &format!("heard {word}\n")).await;
        }
        drop(stdin);
        hear(&mut stdout, "over\n").await;
        let ended = up.phase(&name, "Failed").await;
        assert_eq!(exit_code(&ended, "main"), Some(4), "{kubectl:?}");
        let mut rest = Vec::new();
        let end = timeout(PATIENCE, stdout.read_to_end(&mut rest)).await;
        assert_eq!(end.unwrap().unwrap(), 0, "{kubectl:?} {rest:?}");
        timeout(PATIENCE, child.wait()).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_copies_files_into_a_pod_and_out_of_it() {
    let up = Instance::start().await;
    up.run("place", "exec sleep 1000").await;
    up.ready("place").await;
    let directory = tempfile::tempdir().unwrap();
    let large = bytes(1_000_000);
    let source = directory.path().join("source");
    fs::create_dir_all(source.join("deep")).unwrap();
    fs::write(source.join("deep/large"), &large).unwrap();
    fs::write(source.join("small"), "s").unwrap();
    for (number, kubectl) in kubectls().iter().enumerate() {
        let there = format!("place:/tmp/copy-{number}");
        let arguments = ["cp", source.to_str().unwrap(), &there];
        kubectl.does(&up, &arguments).await;
        let script = format!("cd /tmp/copy-{number}; find . -type f | sort | xargs wc -c");
        let (listed, code) = up.exec("place", &["sh", "-c", &script]);
        let sizes: Vec<&str> = listed.split_whitespace().collect();
        let expected = ["1000000", "./deep/large", "1", "./small"];
        assert_eq!((&sizes[..4], code), (&expected[..], 0), "{kubectl:?}");
        let back = directory.path().join(format!("back-{number}"));
        let arguments = ["cp", &there, back.to_str().unwrap()];
        kubectl.does(&up, &arguments).await;
        assert!(fs::read(back.join("deep/large")).unwrap() == large);
        assert_eq!(fs::read(back.join("small")).unwrap(), b"s");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_follows_a_log_until_its_container_ends() {
    let up = Instance::start().await;
    let script = "echo one; until test -e /tmp/go; do sleep 0.05; done; echo two; echo three";
    for (number, kubectl) in kubectls().iter().enumerate() {
        let name = format!("speaks-{number}");
        let spec = json!({"restartPolicy": "Never", "containers": [sh("main", script)]});
        up.pod(&name, spec).await;
        up.ready(&name).await;
        let mut command = kubectl.command(&up, &["logs", "-f", &name]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = async || {
            let line = timeout(PATIENCE, lines.next_line()).await;
            line.unwrap().unwrap()
        };
        assert_eq!(said().await.as_deref(), Some("one"));
        assert_eq!(up.exec(&name, &["touch", "/tmp/go"]).1, 0);
        assert_eq!(said().await.as_deref(), Some("two"));
        assert_eq!(said().await.as_deref(), Some("three"));
        assert_eq!(said().await, None, "{kubectl:?}");
        let end = timeout(PATIENCE, child.wait()).await;
        assert!(end.unwrap().unwrap().success(), "{kubectl:?}");
    }
}

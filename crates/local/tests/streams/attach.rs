//! `kubectl attach`.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use crate::exec::read_until;
use crate::stage::{KUBECTLS, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn one_talks_with_the_first_process_of_a_container() {
    let stage = Stage::new().await;
    for kubectl in KUBECTLS.iter() {
        let mut child = stage
            .kubectl(kubectl, &["attach", "-i", "reads"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(
            lines.next_line().await.unwrap().unwrap(),
            "hello",
            "{kubectl:?}"
        );
        stdin.write_all(b"one\n").await.unwrap();
        assert_eq!(lines.next_line().await.unwrap().unwrap(), "got one");
        drop(stdin);
        assert_eq!(lines.next_line().await.unwrap(), None);
        let output = child.wait_with_output().await.unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8(output.stderr).unwrap().contains("bye\n"));
        stage.assert_upgrades(kubectl);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_can_only_listen() {
    let stage = Stage::new().await;
    for kubectl in KUBECTLS.iter() {
        let said = stage.does(kubectl, &["attach", "p"]).await;
        assert_eq!(said, "hello\n");
        stage.assert_upgrades(kubectl);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whether_there_is_a_terminal_was_decided_when_the_container_started() {
    let stage = Stage::new().await;
    for kubectl in KUBECTLS.iter() {
        let (mut pty, pts) = pty_process::open().unwrap();
        let mut child = pty_process::Command::new(kubectl.program())
            .args(["attach", "-it", "terminal"])
            .envs(stage.environment(kubectl))
            .spawn(pts)
            .unwrap();
        pty.write_all(b"one\n").await.unwrap();
        read_until(&mut pty, "got one").await;
        // the end of input, as one types it
        pty.write_all(b"\x04").await.unwrap();
        read_until(&mut pty, "bye").await;
        let mut rest = Vec::new();
        let _ = pty.read_to_end(&mut rest).await;
        assert!(child.wait().await.unwrap().success(), "{kubectl:?}");
        stage.assert_upgrades(kubectl);
    }
}

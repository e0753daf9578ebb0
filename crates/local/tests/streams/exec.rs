//! `kubectl exec`.

use std::process::Stdio;

use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use crate::stage::{KUBECTLS, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn a_command_says_what_it_says_and_ends_as_it_ends() {
    let stage = Stage::new().await;
    for kubectl in KUBECTLS.iter() {
        let script = "echo out; echo err >&2; exit 7";
        let output = stage
            .run(kubectl, &["exec", "p", "--", "sh", "-c", script])
            .await;
        assert_eq!(output.status.code(), Some(7), "{kubectl:?} {output:?}");
        assert_eq!(output.stdout, b"out\n");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "err\ncommand terminated with exit code 7\n");
        let said = stage
            .does(kubectl, &["exec", "p", "--", "echo", "a b", "c"])
            .await;
        assert_eq!(said, "a b c\n");
        stage.assert_upgrades(kubectl);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_input_is_passed_on_and_its_end_too() {
    let stage = Stage::new().await;
    let input: Vec<u8> = (0..5_000_000_u32)
        .map(|number| number.to_le_bytes()[1])
        .collect();
    for kubectl in KUBECTLS.iter() {
        let arguments = ["exec", "-i", "p", "--", "sh", "-c", "cat; echo end"];
        let output = stage.run_with(kubectl, &arguments, input.clone()).await;
        assert!(output.status.success(), "{kubectl:?} {output:?}");
        let (echo, end) = output.stdout.split_at(input.len());
        assert!(echo == input, "{kubectl:?}");
        assert_eq!(end, b"end\n");
        stage.assert_upgrades(kubectl);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_does_not_read_is_not_waited_for() {
    let stage = Stage::new().await;
    for kubectl in KUBECTLS.iter() {
        let arguments = ["exec", "-i", "p", "--", "sh", "-c", "exec <&-; echo done"];
        let output = stage
            .run_with(kubectl, &arguments, vec![b'x'; 5_000_000])
            .await;
        assert!(output.status.success(), "{kubectl:?} {output:?}");
        assert_eq!(output.stdout, b"done\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_megabytes_arrive_whole() {
    const LINES: &str = "6900000";
    let stage = Stage::new().await;
    let here = tokio::process::Command::new("seq")
        .arg(LINES)
        .output()
        .await
        .unwrap();
    assert!(here.stdout.len() > 50_000_000);
    let expected = Sha256::digest(&here.stdout);
    drop(here);
    for kubectl in KUBECTLS.iter() {
        let mut child = stage
            .kubectl(kubectl, &["exec", "p", "--", "seq", LINES])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = output.read(&mut buffer).await.unwrap();
            if read == 0 {
                break;
            }
            hash.update(&buffer[..read]);
        }
        assert!(child.wait().await.unwrap().success());
        assert_eq!(hash.finalize(), expected, "{kubectl:?}");
        stage.assert_upgrades(kubectl);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_there_is_named() {
    let stage = Stage::new().await;
    for kubectl in KUBECTLS.iter() {
        let output = stage
            .run(kubectl, &["exec", "p", "--", "/no/such/program"])
            .await;
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        let expected = "error: Internal error occurred: error executing command in container: \
                        exec: \"/no/such/program\": No such file or directory (os error 2)\n";
        assert_eq!(said, expected, "{kubectl:?}");
    }
}

/// Reads until the text ends so.
pub(crate) async fn read_until(source: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains(end) {
        let mut buffer = [0; 1024];
        let read = source.read(&mut buffer).await.unwrap();
        assert!(
            read > 0,
            "{end:?} never came: {}",
            String::from_utf8_lossy(&text)
        );
        text.extend_from_slice(&buffer[..read]);
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_as_large_as_the_users_and_is_resized_with_it() {
    let stage = Stage::new().await;
    for kubectl in KUBECTLS.iter() {
        let (mut pty, pts) = pty_process::open().unwrap();
        pty.resize(pty_process::Size::new(31, 97)).unwrap();
        let mut child = pty_process::Command::new(kubectl.program())
            .args([
                "exec",
                "-it",
                "p",
                "--",
                "sh",
                "-c",
                "stty -echo; PS1= exec sh",
            ])
            .envs(stage.environment(kubectl))
            .spawn(pts)
            .unwrap();
        // the first size may come a moment after the shell
        pty.write_all(
            b"until [ \"$(stty size)\" = '31 97' ]; do sleep 0.05; done; echo is $((30 + 1))\n",
        )
        .await
        .unwrap();
        read_until(&mut pty, "is 31").await;
        pty.resize(pty_process::Size::new(40, 120)).unwrap();
        pty.write_all(
            b"until [ \"$(stty size)\" = '40 120' ]; do sleep 0.05; done; echo is $((39 + 1))\n",
        )
        .await
        .unwrap();
        read_until(&mut pty, "is 40").await;
        pty.write_all(b"[ -t 0 ] && echo terminal $((1 + 1)) >&2; exit 5\n")
            .await
            .unwrap();
        read_until(&mut pty, "terminal 2").await;
        // what kubectl writes at its end is read, or it would wait
        let mut rest = Vec::new();
        let _ = pty.read_to_end(&mut rest).await;
        let status = child.wait().await.unwrap();
        assert_eq!(
            status.code(),
            Some(5),
            "{kubectl:?} {}",
            String::from_utf8_lossy(&rest)
        );
        stage.assert_upgrades(kubectl);
    }
}

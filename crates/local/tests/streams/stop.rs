//! The server stops while sessions go on.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::stage::{KUBECTLS, Stage, until};

#[tokio::test(flavor = "multi_thread")]
async fn who_runs_a_command_is_told_and_the_process_too() {
    for kubectl in KUBECTLS.iter() {
        let stage = Stage::new().await;
        let mut child = stage
            .kubectl(
                kubectl,
                &["exec", "-i", "p", "--", "sh", "-c", "echo begun; cat"],
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next_line().await.unwrap().unwrap(), "begun");
        // kept open: without input the command would end by itself
        let stdin = child.stdin.take();
        let Stage { running, host, .. } = stage;
        let (_, output) = tokio::join!(running.stop(), child.wait_with_output());
        let said = String::from_utf8(output.unwrap().stderr).unwrap();
        assert_eq!(
            said, "error: Internal error occurred: the server is stopping\n",
            "{kubectl:?}"
        );
        until(|| host.processes() == 0).await;
        drop(stdin);
    }
}

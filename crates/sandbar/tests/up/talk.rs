//! What real pods have said, and commands that are spoken to.

use k8s_openapi::jiff::Timestamp;
use kube::api::{AttachParams, LogParams};
use tokio::io::AsyncWriteExt as _;

use crate::{instance::Instance, plain::hear};

#[tokio::test]
async fn a_log_is_told_as_far_as_it_is_asked_for() {
    let up = Instance::start().await;
    // times are asked for in seconds
    let script = "echo one; echo two >&2; sleep 2; echo three; exec sleep 1000";
    up.run("speaker", script).await;
    assert_eq!(up.says("speaker", "three").await, "one\ntwo\nthree\n");
    let said = async |options: LogParams| up.pods().logs("speaker", &options).await.unwrap();
    let timestamps = said(LogParams {
        timestamps: true,
        ..LogParams::default()
    })
    .await;
    let last = timestamps.lines().last().unwrap();
    let (time, text) = last.split_once(' ').unwrap();
    assert_eq!(text, "three");
    let time: Timestamp = time.parse().unwrap();
    let since = Timestamp::from_second(time.as_second()).unwrap();
    let part = |tail_lines, limit_bytes, since_time| LogParams {
        tail_lines,
        limit_bytes,
        since_time,
        ..LogParams::default()
    };
    for (options, expected) in [
        (part(Some(2), None, None), "two\nthree\n"),
        (part(Some(0), None, None), ""),
        (part(None, Some(5), None), "one\nt"),
        (part(None, None, Some(since)), "three\n"),
    ] {
        let asked = format!("{options:?}");
        assert_eq!(said(options).await, expected, "{asked}");
    }
}

#[tokio::test]
async fn a_command_learns_that_nothing_more_will_be_said_to_it() {
    let up = Instance::start().await;
    up.run("listener", "exec sleep 1000").await;
    up.ready("listener").await;
    let options = AttachParams::default().stdin(true).stderr(false);
    let command = ["sh", "-c", "cat; echo over"];
    let mut process = up.pods().exec("listener", command, &options).await.unwrap();
    let mut stdin = process.stdin().unwrap();
    let mut stdout = process.stdout().unwrap();
    stdin.write_all(b"one\n").await.unwrap();
    hear(&mut stdout, "one\n").await;
    stdin.shutdown().await.unwrap();
    hear(&mut stdout, "over\n").await;
}

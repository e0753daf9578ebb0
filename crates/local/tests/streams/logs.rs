//! `kubectl logs`.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::stage::{KUBECTLS, Kubectl, Stage, container};
use serde_json::json;

const LOG: &str = "2026-11-16T17:00:01.000000001Z stdout F one
2026-11-16T17:00:02.000000002Z stderr F two
2026-11-16T17:00:03.000000003Z stdout P thr
2026-11-16T17:00:03.000000004Z stdout F ee
";

async fn stage() -> Stage {
    let stage = Stage::new().await;
    stage.write_log("x-p-main-1", LOG);
    stage.write_log(
        "x-p-main-0",
        "2026-11-16T16:00:00.000000000Z stdout F before\n",
    );
    stage.write_log("x-two-main-1", "2026-11-16T17:00:00Z stdout F of main\n");
    stage.write_log("x-two-side-1", "2026-11-16T17:00:00Z stdout F of side\n");
    stage
}

#[tokio::test(flavor = "multi_thread")]
async fn every_flag_of_kubectl_does_what_it_says() {
    let stage = stage().await;
    let times = "2026-11-16T17:00:01.000000001Z one\n2026-11-16T17:00:02.000000002Z two\n\
                 2026-11-16T17:00:03.000000003Z three\n";
    for kubectl in KUBECTLS.iter() {
        for (arguments, expected) in [
            (&["p"][..], "one\ntwo\nthree\n"),
            (&["p", "--tail=1"], "three\n"),
            (&["p", "--tail=0"], ""),
            (&["p", "--timestamps"], times),
            (&["p", "--since-time=2026-11-16T17:00:02Z"], "two\nthree\n"),
            (&["p", "--since=1s"], ""),
            (&["p", "--since=999999h"], "one\ntwo\nthree\n"),
            (&["p", "--limit-bytes=5"], "one\nt"),
            (&["p", "--previous"], "before\n"),
            (&["p", "-c", "main"], "one\ntwo\nthree\n"),
            (&["two", "side"], "of side\n"),
            (
                &["two", "-c", "main", "--prefix"],
                "[pod/two/main] of main\n",
            ),
            (
                &["p", "--insecure-skip-tls-verify-backend"],
                "one\ntwo\nthree\n",
            ),
        ] {
            let arguments = [&["logs"], arguments].concat();
            let said = stage.does(kubectl, &arguments).await;
            assert_eq!(said, expected, "{kubectl:?} {arguments:?}");
        }
        // kubectl asks for them in any order
        let said = stage
            .does(kubectl, &["logs", "two", "--all-containers"])
            .await;
        let mut lines: Vec<&str> = said.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["of main", "of side"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_followed_until_the_container_ends() {
    let stage = stage().await;
    let mut child = stage
        .kubectl(&Kubectl::newest(), &["logs", "-f", "--tail=1", "p"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "three");
    stage.write_log(
        "x-p-main-1",
        &format!("{LOG}2026-11-16T17:00:04Z stdout F four\n"),
    );
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "four");
    stage.host.running.send_replace(false);
    assert_eq!(lines.next_line().await.unwrap(), None);
    assert!(child.wait().await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_read_is_missed_in_the_words_of_a_kubelet() {
    let stage = stage().await;
    stage
        .pod("new", json!([container("main")]), "Pending")
        .await;
    let kubectl = Kubectl::newest();
    for (arguments, expected) in [
        (
            &["new"][..],
            "container \"main\" in pod \"new\" is waiting to start: ContainerCreating",
        ),
        (
            &["new", "--previous"],
            "previous terminated container \"main\" in pod \"new\" not found",
        ),
        (
            &["p", "-c", "none"],
            "container none is not valid for pod p",
        ),
    ] {
        let arguments = [&["logs"], arguments].concat();
        let output = stage.run(&kubectl, &arguments).await;
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(expected), "{arguments:?} {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_stream_is_read_in_process_as_well() {
    let stage = stage().await;
    let request = |query: &str| {
        let path = format!("/api/v1/namespaces/default/pods/p/log{query}");
        http::Request::get(path).body(Vec::new()).unwrap()
    };
    for client in [stage.cluster.client(), stage.client().await] {
        let said = client
            .request_text(request("?stream=Stderr"))
            .await
            .unwrap();
        assert_eq!(said, "two\n");
        let said = client
            .request_text(request("?stream=Stdout"))
            .await
            .unwrap();
        assert_eq!(said, "one\nthree\n");
        let refused = client
            .request_text(request("?tailLines=-1"))
            .await
            .unwrap_err();
        assert!(refused.to_string().contains("tailLines"), "{refused}");
    }
}

use std::net::Ipv4Addr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::run;
use crate::node::probes::{Finding, Target, watch};
use crate::node::testing::Lodge;

fn container(probes: Value) -> Container {
    let mut container = json!({"name": "main"});
    for (name, probe) in probes.as_object().unwrap() {
        container[name] = probe.clone();
    }
    serde_json::from_value(container).unwrap()
}

async fn hook(handler: Value, target: &Target) -> Result<(), String> {
    let handler: LifecycleHandler = serde_json::from_value(handler).unwrap();
    run(&handler, &container(json!({})), target).await
}

#[tokio::test]
async fn hooks_do_what_they_say_and_failures_are_told_as_kubelets_tell_them() {
    let lodge = Lodge::open().await;
    lodge.start("main", "sleep 1000", |_| {}).await;
    let mut target = lodge.target("main");
    let touch = json!({"exec": {"command": ["touch", "/tmp/hooked"]}});
    assert_eq!(hook(touch, &target).await, Ok(()));
    let test = json!({"exec": {"command": ["test", "-e", "/tmp/hooked"]}});
    assert_eq!(hook(test, &target).await, Ok(()));
    let fail = json!({"exec": {"command": ["sh", "-c", "echo out; echo err >&2; exit 4"]}});
    let words = "Exec lifecycle hook ([sh -c echo out; echo err >&2; exit 4]) for Container \"main\" in Pod \
                 \"p_default(uid)\" failed - error: command 'sh -c echo out; echo err >&2; exit 4' exited with 4: \
                 err\n, message: \"out\\nerr\\n\"";
    assert_eq!(hook(fail, &target).await, Err(words.to_owned()));
    let refused = hook(json!({"tcpSocket": {"port": 80}}), &target).await;
    let words = "Cannot run handler: invalid handler: tcpSocket is no hook";
    assert_eq!(refused, Err(words.to_owned()));
    let start = Instant::now();
    assert_eq!(
        hook(json!({"sleep": {"seconds": 1}}), &target).await,
        Ok(())
    );
    assert!(start.elapsed() >= Duration::from_secs(1));
    target.address = Some(Ipv4Addr::LOCALHOST);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        let length = stream.read(&mut request).await.unwrap();
        let answer = b"HTTP/1.1 500 Bad\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    let get = json!({"httpGet": {"path": "/stop", "port": port}});
    assert_eq!(hook(get.clone(), &target).await, Ok(()));
    let request = server.await.unwrap();
    assert!(request.contains("user-agent: kube-lifecycle/"), "{request}");
    let refused = hook(get, &target).await.unwrap_err();
    let words = "HTTP lifecycle hook (/stop) for Container \"main\" in Pod \"p_default(uid)\" failed - error: Get ";
    assert!(refused.starts_with(words), "{refused}");
    lodge.close().await;
}

#[tokio::test]
async fn a_probe_runs_its_command_in_the_container() {
    let lodge = Lodge::open().await;
    lodge.start("main", "sleep 1000", |_| {}).await;
    let spec = container(json!({
        "startupProbe": {"exec": {"command": ["true"]}, "timeoutSeconds": 60},
        "readinessProbe": {
            "exec": {"command": ["test", "-d", "/tmp"]},
            "periodSeconds": 1,
            "timeoutSeconds": 60,
        },
        "livenessProbe": {
            "exec": {"command": ["sh", "-c", "echo ill; exit 1"]},
            "periodSeconds": 1,
            "timeoutSeconds": 60,
            "failureThreshold": 1,
        },
    }));
    let (sender, mut findings) = tokio::sync::mpsc::unbounded_channel();
    let now = k8s_openapi::jiff::Timestamp::now();
    let watching = watch(&spec, lodge.target("main"), now, move |finding| {
        let _ = sender.send(finding);
    });
    assert_eq!(findings.recv().await.unwrap(), Finding::Started);
    let killed = Finding::Unhealthy {
        probe: "Liveness",
        message: "Liveness probe failed: ill\n".to_owned(),
        kill: true,
        grace: None,
    };
    // on a busy machine one of them may be quicker twice
    let expected = [Finding::Ready(true), killed];
    let mut left: Vec<&Finding> = expected.iter().collect();
    while !left.is_empty() {
        let found = findings.recv().await.unwrap();
        assert!(expected.contains(&found), "{found:?}");
        left.retain(|finding| **finding != found);
    }
    drop(watching);
    while findings.recv().await.is_some() {}
    lodge.close().await;
}

#[tokio::test]
async fn a_probe_whose_command_takes_too_long_fails_and_one_that_cannot_be_run_does_not_count() {
    let lodge = Lodge::open().await;
    lodge.start("main", "sleep 1000", |_| {}).await;
    let table = [
        (
            json!(["sleep", "100"]),
            1,
            "Readiness probe failed: command timed out: \"sleep 100\" timed out after 1s",
        ),
        (
            json!(["no-such"]),
            60,
            "Readiness probe errored and resulted in unknown state: exec: \"no-such\": executable file not found in $PATH",
        ),
    ];
    for (command, patience, words) in table {
        let probe = json!({"exec": {"command": command}, "timeoutSeconds": patience});
        let spec = container(json!({"readinessProbe": probe}));
        let (sender, mut findings) = tokio::sync::mpsc::unbounded_channel();
        let now = k8s_openapi::jiff::Timestamp::now();
        let _watching = watch(&spec, lodge.target("main"), now, move |finding| {
            let _ = sender.send(finding);
        });
        assert_eq!(findings.recv().await.unwrap(), Finding::Started);
        let told = Finding::Unhealthy {
            probe: "Readiness",
            message: words.to_owned(),
            kill: false,
            grace: None,
        };
        assert_eq!(findings.recv().await.unwrap(), told);
    }
    lodge.close().await;
}

//! Requests that become no stream.

use http::Method;
use serde_json::{Value, json};

use crate::raw::{SPDY, WEBSOCKET};
use crate::stage::{KUBECTLS, Stage, container};

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_does_not_run_is_refused_in_the_words_of_a_kubelet() {
    let stage = Stage::new().await;
    stage
        .pod("broken", json!([container("broken")]), "Running")
        .await;
    for kubectl in KUBECTLS.iter() {
        let output = stage.run(kubectl, &["exec", "broken", "--", "true"]).await;
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        let expected = "error: unable to upgrade connection: container not found (\"broken\")";
        assert!(said.starts_with(expected), "{kubectl:?} {said}");
    }
    let (code, said) = stage
        .answer("admin", "broken/attach?stdout=true", WEBSOCKET)
        .await;
    assert_eq!(
        (code, said.as_str()),
        (500, "container broken not found in pod broken_default\n")
    );
    stage.host.running.send_replace(false);
    let headers = [
        &SPDY[..2],
        &[("x-stream-protocol-version", "portforward.k8s.io")],
    ]
    .concat();
    let (code, said) = stage.answer("admin", "p/portforward", &headers).await;
    assert_eq!(
        (code, said.as_str()),
        (500, "pod not found (\"p_default\")\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_for_wrongly_is_refused_before_anything_starts() {
    let stage = Stage::new().await;
    let unassigned =
        json!({"metadata": {"name": "nowhere"}, "spec": {"containers": [container("main")]}});
    let unassigned = serde_json::from_value(unassigned).unwrap();
    stage
        .pods()
        .create(&kube::api::PostParams::default(), &unassigned)
        .await
        .unwrap();
    let elsewhere = json!({"metadata": {"name": "elsewhere"},
        "spec": {"nodeName": "other", "containers": [container("main")]}});
    let elsewhere = serde_json::from_value(elsewhere).unwrap();
    stage
        .pods()
        .create(&kube::api::PostParams::default(), &elsewhere)
        .await
        .unwrap();
    for (path, code, expected) in [
        ("none/exec?stdout=true", 404, "pods \"none\" not found"),
        (
            "p/exec?container=x",
            400,
            "container x is not valid for pod p",
        ),
        (
            "two/exec?stdout=true",
            400,
            "a container name must be specified for pod two, choose one of: [main side]",
        ),
        (
            "nowhere/exec?stdout=true",
            400,
            "pod nowhere does not have a host assigned",
        ),
        (
            "elsewhere/attach?stdout=true",
            500,
            "Internal error occurred: error dialing backend: node \"other\" of pod elsewhere offers no attach",
        ),
    ] {
        let (answered, body) = stage.answer("admin", path, SPDY).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (answered, body["message"].as_str().unwrap()),
            (code, expected),
            "{path}"
        );
    }
    let (code, said) = stage.answer("admin", "p/exec?command=true", SPDY).await;
    assert_eq!(
        (code, said.as_str()),
        (
            400,
            "you must specify at least 1 of stdin, stdout, stderr\n"
        )
    );
    let (code, body) = stage.answer("admin", "p/exec?stdout=true", &[]).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (code, &body["message"]),
        (400, &json!("Upgrade request required"))
    );
    let channels = [
        &WEBSOCKET[..4],
        &[("sec-websocket-protocol", "v4.channel.k8s.io")],
    ]
    .concat();
    let (code, said) = stage.answer("admin", "p/portforward", &channels).await;
    assert_eq!(
        (code, said.as_str()),
        (400, "query parameter \"port\" is required\n")
    );
    let answer = stage.send("admin", Method::DELETE, "p/exec", SPDY).await;
    assert_eq!(answer.status(), 405);
    assert_eq!(stage.host.processes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_only_read_gets_logs_and_nothing_else() {
    let stage = Stage::new().await;
    stage.write_log("x-p-main-1", "2026-11-16T17:00:00Z stdout F one\n");
    let (code, said) = stage.answer("viewer", "p/log", &[]).await;
    assert_eq!((code, said.as_str()), (200, "one\n"));
    for door in [
        "exec?stdout=true&command=true",
        "attach?stdout=true",
        "portforward",
    ] {
        for headers in [SPDY, WEBSOCKET] {
            let (code, said) = stage.answer("viewer", &format!("p/{door}"), headers).await;
            assert_eq!(code, 403, "{said}");
        }
    }
    assert_eq!(stage.host.processes(), 0);
}

//! Pods that are asked how they are.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::instance::{Instance, container, is_ready, sh};

#[tokio::test]
async fn readiness_comes_and_goes_with_its_probe() {
    let up = Instance::start().await;
    let mut one = sh("main", "exec sleep 1000");
    one["readinessProbe"] = json!({"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1, "failureThreshold": 1});
    up.pod("moody", json!({"containers": [one]})).await;
    let pod = up.phase("moody", "Running").await;
    assert!(!is_ready(&pod));
    assert_eq!(up.exec("moody", &["touch", "/tmp/ready"]).1, 0);
    up.ready("moody").await;
    assert_eq!(up.exec("moody", &["rm", "/tmp/ready"]).1, 0);
    up.until("moody", "became unready", |pod| !is_ready(pod))
        .await;
}

#[tokio::test]
async fn a_container_that_is_not_alive_is_started_anew() {
    let up = Instance::start().await;
    let mut one = sh(
        "main",
        "mkdir /tmp/www; cd /tmp/www; exec python3 -m http.server 8000",
    );
    one["startupProbe"] =
        json!({"tcpSocket": {"port": 8000}, "periodSeconds": 1, "failureThreshold": 30});
    one["livenessProbe"] = json!({"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 5});
    up.pod("live", json!({"containers": [one]})).await;
    let pod = up.ready("live").await;
    assert_eq!(container(&pod, "main").restart_count, 0);
    assert_eq!(up.exec("live", &["rmdir", "/tmp/www"]).1, 0);
    let restarted = |pod: &Pod| container(pod, "main").restart_count >= 1;
    up.until("live", "was started anew", restarted).await;
}

#[tokio::test]
async fn a_pod_is_ready_only_when_its_gates_are_open() {
    let up = Instance::start().await;
    let spec = json!({
        "readinessGates": [{"conditionType": "example.com/open"}],
        "containers": [sh("main", "exec sleep 1000")],
    });
    up.pod("gated", spec).await;
    let waits = |pod: &Pod| container(pod, "main").ready;
    let pod = up.until("gated", "had its container ready", waits).await;
    assert!(!is_ready(&pod));
    for (status, is_open) in [("True", true), ("False", false)] {
        let condition = json!({"type": "example.com/open", "status": status});
        let patch = json!({"status": {"conditions": [condition]}});
        up.patch("gated", Some("status"), patch).await;
        let what = format!("had a gate that was {status}");
        up.until("gated", &what, |pod| is_ready(pod) == is_open)
            .await;
    }
}

#[tokio::test]
async fn who_is_not_alive_is_ended_by_the_signal_that_it_wishes() {
    let up = Instance::start().await;
    let script = "trap 'exit 5' USR1; touch /tmp/trapped; while :; do sleep 0.05; done";
    let mut one = sh("main", script);
    one["lifecycle"] = json!({"stopSignal": "SIGUSR1"});
    one["livenessProbe"] = json!({
        "exec": {"command": ["sh", "-c", "! test -e /tmp/trapped"]},
        "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 60,
    });
    let spec =
        json!({"os": {"name": "linux"}, "terminationGracePeriodSeconds": 20, "containers": [one]});
    up.pod("particular", spec).await;
    let restarted = |pod: &Pod| container(pod, "main").restart_count >= 1;
    let pod = up.until("particular", "was started anew", restarted).await;
    let last = container(&pod, "main").last_state.unwrap();
    assert_eq!(last.terminated.unwrap().exit_code, 5);
}

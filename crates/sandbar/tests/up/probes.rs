//! Pods that are asked how they are.

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
    let restarted =
        |pod: &k8s_openapi::api::core::v1::Pod| container(pod, "main").restart_count >= 1;
    up.until("live", "was started anew", restarted).await;
}

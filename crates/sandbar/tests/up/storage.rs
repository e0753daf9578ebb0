//! Pods that may use so much of the disk and no more.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::instance::{Instance, container, sh};

/// A pod that writes so many MiB to a file and stays.
fn writer(file: &str, mebibytes: u32, limit: Option<&str>) -> Value {
    let script = format!("head -c {mebibytes}M /dev/zero > {file}; exec sleep 1000");
    let mut one = sh("main", &script);
    one["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data"}, {"name": "shm", "mountPath": "/shm"}]);
    if let Some(limit) = limit {
        one["resources"] = json!({"limits": {"ephemeral-storage": limit}});
    }
    let volumes = json!([
        {"name": "data", "emptyDir": {"sizeLimit": "16Mi"}},
        {"name": "shm", "emptyDir": {"sizeLimit": "16Mi", "medium": "Memory"}},
    ]);
    json!({"volumes": volumes, "containers": [one]})
}

#[tokio::test]
async fn who_fills_the_disk_is_evicted_with_the_reason_and_its_neighbour_goes_on() {
    let up = Instance::start().await;
    let evicted = [
        (
            "volume",
            writer("/data/file", 32, None),
            "EmptyDir volume \"data\" exceeds the limit \"16Mi\"",
        ),
        (
            "memory",
            writer("/shm/file", 32, None),
            "EmptyDir volume \"shm\" exceeds the limit \"16Mi\"",
        ),
        (
            "root",
            writer("/tmp/file", 32, Some("20Mi")),
            "exceeds the total limit of containers 20Mi",
        ),
        (
            "both",
            writer("/data/file", 14, Some("12Mi")),
            "exceeds the total limit of containers 12Mi",
        ),
    ];
    up.pod("neighbour", writer("/data/file", 8, Some("20Mi")))
        .await;
    for (name, spec, _) in &evicted {
        up.pod(name, spec.clone()).await;
    }
    for (name, _, reason) in &evicted {
        let pod = up.phase(name, "Failed").await;
        let status = pod.status.clone().unwrap();
        assert_eq!(status.reason.as_deref(), Some("Evicted"), "{name}");
        let message = status.message.unwrap();
        assert!(message.contains(reason), "{name}: {message}");
        let end = container(&pod, "main").state.unwrap().terminated;
        assert!(end.is_some(), "{name} has ended");
        assert_eq!(up.exec(name, &["true"]).1, 1, "{name} runs no more");
    }
    up.event("Evicted").await;
    let neighbour = up.ready("neighbour").await;
    assert_eq!(container(&neighbour, "main").restart_count, 0);
}

#[tokio::test]
async fn what_is_not_there_is_refused_and_not_ignored() {
    let up = Instance::start().await;
    let shared =
        json!({"shareProcessNamespace": true, "containers": [sh("main", "exec sleep 1000")]});
    up.pod("shared", shared).await;
    let says = |pod: &Pod| {
        let waiting = container(pod, "main").state.and_then(|state| state.waiting);
        let message = waiting.and_then(|waiting| waiting.message);
        message.is_some_and(|message| message.contains("shareProcessNamespace is not supported"))
    };
    up.until("shared", "was refused", says).await;
}

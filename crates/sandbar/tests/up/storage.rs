//! Pods that may use so much of the disk and no more.

use std::{fs, path::Path};

use k8s_openapi::api::core::v1::Pod;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::instance::{Instance, container, eventually, is_ready, sh};

/// A pod that writes so many MiB to a file and stays.
fn writer(file: &str, mebibytes: u32, limit: Option<&str>) -> Value {
    let script = format!("head -c {mebibytes}M /dev/zero > {file}; exec sleep 1000");
    let mut one = sh("main", &script);
    one["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    if let Some(limit) = limit {
        one["resources"] = json!({"limits": {"ephemeral-storage": limit}});
    }
    let volumes = json!([{"name": "data", "emptyDir": {"sizeLimit": "16Mi"}}]);
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
            "root",
            writer("/tmp/file", 32, Some("20Mi")),
            "exceeds the total limit of containers 20Mi",
        ),
        (
            "words",
            writer("/dev/termination-log", 32, Some("20Mi")),
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

/// A pod with a volume in memory, which begins anew when it is told so.
fn in_memory(size: Option<&str>, memory: Option<&str>) -> Value {
    let mut one = sh("main", "until test -e /tmp/end; do sleep 0.05; done");
    one["volumeMounts"] = json!([{"name": "shm", "mountPath": "/shm"}]);
    one["resources"] = json!({"limits": {}});
    if let Some(memory) = memory {
        one["resources"]["limits"]["memory"] = json!(memory);
    }
    let volume = json!({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}});
    json!({"volumes": [volume], "containers": [one]})
}

/// Where the machine has something mounted below a directory.
pub(crate) fn mounts_below(directory: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let below = places.filter(|place| place.starts_with(directory.to_str().unwrap()));
    below.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_volume_in_memory_holds_what_it_may_and_no_more_until_its_pod_is_gone() {
    const LIMIT: &str = "16777216\n";
    let mut up = Instance::start().await;
    let pod = up.pod("full", in_memory(Some("16Mi"), Some("64Mi"))).await;
    let own = up.memory().join(pod.metadata.uid.unwrap());
    up.ready("full").await;
    let fill = "head -c 20M /dev/zero > /shm/file";
    let (said, code) = up.exec("full", &["sh", "-c", fill]);
    assert!(code != 0 && said.contains("No space left"), "{code} {said}");
    let kept = || up.exec("full", &["stat", "-c", "%s", "/shm/file"]).0;
    assert_eq!(kept(), LIMIT);

    assert_eq!(up.exec("full", &["touch", "/tmp/end"]).1, 0);
    let is_back = |pod: &Pod| is_ready(pod) && container(pod, "main").restart_count == 1;
    up.until("full", "began anew", is_back).await;
    assert_eq!(kept(), LIMIT);
    assert_eq!(mounts_below(&own).len(), 1);

    up.end(Signal::KILL);
    up.start_again().await;
    up.ready("full").await;
    assert_eq!(mounts_below(&own).len(), 1);
    up.delete("full").await;
    eventually("nothing is left of it", async || {
        mounts_below(&own).is_empty() && !own.exists()
    })
    .await;
}

#[tokio::test]
async fn a_volume_in_memory_is_no_larger_than_what_its_pod_may_have() {
    let up = Instance::start().await;
    let machine = fs::read_to_string("/proc/meminfo").unwrap();
    let machine = machine.split_whitespace().nth(1).unwrap();
    let machine: u64 = machine.parse().unwrap();
    for (name, size, memory, kibibytes) in [
        ("volume", Some("3Mi"), Some("64Mi"), 3 << 10),
        ("pod", Some("1Gi"), Some("64Mi"), 64 << 10),
        ("neither", None, None, machine / 2),
    ] {
        up.pod(name, in_memory(size, memory)).await;
        up.ready(name).await;
        let (said, _) = up.exec(name, &["df", "-k", "--output=size", "/shm"]);
        let found: u64 = said.lines().nth(1).unwrap().trim().parse().unwrap();
        assert!(found.abs_diff(kibibytes) < 8, "{name}: {said}");
    }
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

//! Pods whose users are not those of the machine, though root runs them.

use std::{fs, os::unix::fs::MetadataExt as _};

use k8s_openapi::api::core::v1::Secret;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::instance::{Instance, container, sh};

const SCRIPT: &str = "id -u; echo root > /root-was-here; touch /usr/mine; echo data > /data/file; echo kept >> /kept/file; \
    cat /secret/word; exec sleep 1000";

fn spec() -> Value {
    let mut one = sh("main", SCRIPT);
    one["securityContext"] = json!({"runAsUser": 0});
    one["volumeMounts"] = json!([
        {"name": "data", "mountPath": "/data"},
        {"name": "shm", "mountPath": "/shm"},
        {"name": "kept", "mountPath": "/kept"},
        {"name": "secret", "mountPath": "/secret"},
    ]);
    let volumes = json!([
        {"name": "data", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}},
        {"name": "secret", "secret": {"secretName": "secret", "defaultMode": 256}},
    ]);
    json!({"hostUsers": false, "volumes": volumes, "containers": [one]})
}

async fn documents(up: &Instance) {
    up.disk("kept").await;
    let secret = json!({"metadata": {"name": "secret"}, "stringData": {"word": "hush\n"}});
    up.create::<Secret>(secret).await;
}

/// Who a process in a pod is on this machine.
fn outside(up: &Instance, pod: &str) -> u32 {
    let (map, code) = up.exec(pod, &["cat", "/proc/self/uid_map"]);
    assert_eq!(code, 0, "{map}");
    let words: Vec<u32> = map
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    assert_eq!((words[0], words[2]), (0, 65536), "{map}");
    words[1]
}

#[tokio::test]
async fn root_in_a_pod_with_its_own_users_is_nobody_on_the_machine() {
    let mut up = Instance::start().await;
    documents(&up).await;
    up.pod("own", spec()).await;
    let mut plain = sh("main", "echo $(id -u); exec sleep 1000");
    plain["tty"] = json!(true);
    up.pod("second", json!({"hostUsers": false, "containers": [plain]}))
        .await;
    let pod = up.ready("own").await;
    up.ready("second").await;
    assert_eq!(up.says("own", "hush").await, "0\nhush\n");
    let first = outside(&up, "own");
    assert!(first >= 1 << 16 && first.abs_diff(outside(&up, "second")) >= 1 << 16);
    let uid = pod.metadata.uid.clone().unwrap();
    let place = up.data().join("node/pods").join(uid);
    let written = fs::metadata(place.join("shim/containers/main/0/upper/root-was-here")).unwrap();
    assert_eq!(written.uid(), first, "what it wrote is nobody's");
    let data = fs::metadata(place.join("volumes/data/file")).unwrap();
    assert_eq!(
        data.uid(),
        0,
        "volumes keep the ids that the container knows"
    );
    for attempt in [
        "mount -t tmpfs none /mnt",
        "echo 1 > /proc/sys/kernel/panic",
        "mknod /tmp/disk b 8 0",
    ] {
        let (out, code) = up.exec("own", &["sh", "-c", attempt]);
        assert_ne!(code, 0, "{attempt}: {out}");
    }
    let script = "touch /shm/x /tmp/y && chown 1000:1000 /tmp/y && stat -c %u:%g /data/file /tmp/y /etc/passwd /usr/bin/env";
    let (out, code) = up.exec("own", &["sh", "-c", script]);
    assert_eq!((out.as_str(), code), ("0:0\n1000:1000\n0:0\n0:0\n", 0));
    up.end(Signal::KILL);
    up.start_again().await;
    let again = up.ready("own").await;
    assert_eq!(container(&again, "main").restart_count, 0);
    assert_eq!(outside(&up, "own"), first);
    up.delete("own").await;
    up.pod("heir", spec()).await;
    up.says("heir", "hush").await;
    assert_eq!(up.exec("heir", &["cat", "/kept/file"]).0, "kept\nkept\n");
}

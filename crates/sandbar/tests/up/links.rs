//! Links that a sandbox plants in its volumes: whoever mounts what they point at gets nothing of the machine.

use std::fs;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::instance::{Instance, container, sh};

const PLANTED: [(&str, &str); 4] = [
    ("root", "/"),
    ("above", "../../../../../../../../../../../.."),
    ("file", "/etc/shadow"),
    ("chain", "root/etc"),
];

/// In a file beside the directory that sandboxes may have.
const SECRET: &str = "for nobody else";

fn as_root(name: &str, script: &str, mount: Value) -> Value {
    let mut one = sh(name, script);
    one["securityContext"] = json!({"runAsUser": 0});
    one["volumeMounts"] = json!([mount]);
    one
}

/// A container plants links, and for each of them another one mounts what it points at and tells of it what it can.
fn spec(mut volume: Value, secret: &str) -> Value {
    volume["name"] = json!("v");
    let plant = PLANTED.map(|(name, target)| format!("ln -s {target} /v/{name}"));
    let whole = json!({"name": "v", "mountPath": "/v"});
    let files = format!("/m /m/shadow /m/etc/shadow /m{secret}");
    let tell = format!("cat {files} 2>/dev/null; ls /m /m/etc 2>/dev/null; echo over");
    let containers = PLANTED.map(|(name, _)| {
        let part = json!({"name": "v", "mountPath": "/m", "subPath": name});
        as_root(name, &tell, part)
    });
    json!({
        "restartPolicy": "Never", "volumes": [volume],
        "initContainers": [as_root("plants", &plant.join(" && "), whole)],
        "containers": containers,
    })
}

/// Whether a container has run to its end or was refused, which is said.
fn is_settled(pod: &Pod, name: &str) -> bool {
    let state = container(pod, name).state.unwrap_or_default();
    let is_refused = state.waiting.is_some_and(|waiting| {
        let reason = waiting.reason.unwrap_or_default();
        [
            "CreateContainerConfigError",
            "CreateContainerError",
            "RunContainerError",
        ]
        .contains(&reason.as_str())
            && waiting.message.is_some()
    });
    is_refused || state.terminated.is_some()
}

#[tokio::test]
async fn a_link_in_a_volume_leads_no_further_than_the_volume() {
    let directory = tempfile::tempdir().unwrap();
    let (open, secret) = (
        directory.path().join("open"),
        directory.path().join("secret"),
    );
    fs::create_dir(&open).unwrap();
    fs::write(&secret, SECRET).unwrap();
    let up = Instance::with(&["--pool", "0", "--allow-host-path", open.to_str().unwrap()]).await;
    up.disk("kept").await;
    let volumes = [
        ("disk", json!({"emptyDir": {}})),
        ("memory", json!({"emptyDir": {"medium": "Memory"}})),
        (
            "claim",
            json!({"persistentVolumeClaim": {"claimName": "kept"}}),
        ),
        ("host", json!({"hostPath": {"path": open}})),
    ];
    for (name, volume) in &volumes {
        let spec = spec(volume.clone(), secret.to_str().unwrap());
        up.pod(name, spec).await;
    }
    let shadow = fs::read_to_string("/etc/shadow").unwrap();
    let shadow = shadow.lines().next().unwrap();
    for (name, _) in &volumes {
        let all_are = |pod: &Pod| PLANTED.iter().all(|(link, _)| is_settled(pod, link));
        let pod = up.until(name, "was served or refused", all_are).await;
        for (link, _) in PLANTED {
            let options = kube::api::LogParams {
                container: Some(link.to_owned()),
                ..Default::default()
            };
            let is_refused = container(&pod, link).state.unwrap().terminated.is_none();
            let said = match is_refused {
                true => String::new(),
                false => up.pods().logs(name, &options).await.unwrap(),
            };
            assert_eq!(said.ends_with("over\n"), !is_refused, "{name} {link}");
            let of_the_machine = [shadow, SECRET, "passwd"];
            let is_seen = of_the_machine.iter().any(|word| said.contains(word));
            assert!(!is_seen, "{name} {link} leads out of its volume");
        }
    }
}

//! What a sandbox of the default pool may use of the machine, and what becomes of one that wants more.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path, process::Command};

use api::sigs::v1beta1::SandboxTemplate;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    instance::{Instance, PROGRAM, container, eventually},
    sandboxes::{claim, stocked},
};

/// What is said for a reason, of a pod.
async fn said(up: &Instance, reason: &str, pod: &str) -> String {
    let mut said = None;
    eventually(&format!("{reason} is said of {pod}"), async || {
        let told = up.api::<Event>().list(&ListParams::default()).await;
        let mut all = told.unwrap().items.into_iter();
        let found = all.find(|event| {
            event.reason.as_deref() == Some(reason)
                && event.involved_object.name.as_deref() == Some(pod)
        });
        said = found.and_then(|event| event.message);
        said.is_some()
    })
    .await;
    said.unwrap()
}

/// What pods of the pool are made of.
async fn template(up: &Instance) -> Value {
    let template = up.api::<SandboxTemplate>().get("base").await.unwrap();
    let template = serde_json::to_value(&template).unwrap();
    template["spec"]["podTemplate"]["spec"].clone()
}

async fn resources(up: &Instance) -> Value {
    template(up).await["containers"][0]["resources"].clone()
}

/// Whose the processes of a pod are, for the machine.
fn owners(up: &Instance, pod: &Pod) -> Vec<u32> {
    let uid = pod.metadata.uid.as_deref().unwrap();
    let is_inside = |pid: &u32| {
        let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup"));
        cgroups.is_ok_and(|text| text.contains(&format!("pod-{uid}/")))
    };
    let inside = up.processes().into_iter().filter(is_inside);
    let owners = inside.filter_map(|pid| Some(fs::metadata(format!("/proc/{pid}")).ok()?.uid()));
    owners.collect()
}

/// Whether this machine can give sandboxes users of their own: not every kernel and file system can.
fn can_have_users(up: &Instance) -> bool {
    let mut probe = Command::new(PROGRAM);
    probe.arg("users-probe");
    let tried = container::users::check(probe, &[&up.data(), Path::new("/usr")]);
    tried.unwrap().is_ok()
}

#[tokio::test]
async fn hogs_in_sandboxes_of_the_default_pool_are_contained_and_reported_and_another_goes_on() {
    let up = Instance::with(&["--pool-memory", "96Mi", "--pool-disk", "48Mi"]).await;
    let limits = "up to 96Mi of memory and 48Mi of disk each";
    assert!(up.introduction.contains(limits), "{}", up.introduction);
    stocked(&up, "base", 2).await;
    let mut names = Vec::new();
    for name in ["greedy", "wordy", "modest"] {
        names.push(claim(&up, name, "base").await);
    }
    let [greedy, wordy, modest] = names.try_into().unwrap();
    let keep = "echo kept > ~/file";
    assert_eq!(up.exec(&modest, &["sh", "-c", keep]).1, 0);

    let eat = "x = bytearray(300 << 20); print(len(x))";
    let (out, code) = up.exec(&greedy, &["python3", "-c", eat]);
    assert!(code != 0 && !out.contains("314572800"), "{code} {out}");
    let message = said(&up, "OutOfMemory", &greedy).await;
    assert!(message.contains("limit of 96Mi of memory"), "{message}");

    let fill = "head -c 100M /dev/zero > ~/file; sleep 100";
    up.exec(&wordy, &["sh", "-c", fill]);
    let message = said(&up, "Evicted", &wordy).await;
    assert!(message.contains("containers 48Mi"), "{message}");

    let (out, code) = up.exec("sandboxclaim/modest", &["sh", "-c", "cat ~/file"]);
    assert_eq!((out.as_str(), code), ("kept\n", 0));
    let pod: Pod = up.pods().get(&modest).await.unwrap();
    assert_eq!(container(&pod, "sandbox").restart_count, 0);
    stocked(&up, "base", 2).await;
}

#[tokio::test]
async fn the_default_pool_has_limits_by_the_machine_and_keeps_what_its_owner_makes_of_them() {
    let mut up = Instance::with(&["--pool", "1"]).await;
    let found = resources(&up).await;
    for name in ["memory", "ephemeral-storage"] {
        let limit = found["limits"][name].as_str().unwrap();
        assert!(limit.ends_with("Mi") || limit.ends_with("Gi"), "{found}");
        assert!(up.introduction.contains(limit), "{}", up.introduction);
        assert_eq!(found["requests"][name], "0", "it asks for nothing");
    }
    stocked(&up, "base", 1).await;
    let (node, code) = up.exec(
        &claim(&up, "mine", "base").await,
        &["sh", "-c", "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null; true"],
    );
    let limit: u64 = node.trim().parse().unwrap();
    let machine = rustix::system::sysinfo();
    let all = machine.totalram * u64::from(machine.mem_unit);
    assert!(code == 0 && limit <= all / 4 && limit > all / 8, "{limit}");

    let own = json!([{"name": "sandbox", "image": "sandbar/base", "resources": {"limits": {"memory": "1Gi"}}}]);
    let patch = json!({"spec": {"podTemplate": {"spec": {"containers": own}}}});
    up.api::<SandboxTemplate>()
        .patch("base", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    up.end(Signal::TERM);
    up.options_for_next_start(&["--pool-memory", "3Gi", "--pool-disk", "none"]);
    up.start_again().await;
    assert_eq!(resources(&up).await, json!({"limits": {"memory": "1Gi"}}));
    let line = "up to 1Gi of memory each, no limit of disk";
    assert!(up.introduction.contains(line), "{}", up.introduction);
}

#[tokio::test]
async fn a_default_pool_without_limits_is_to_be_had_for_the_asking() {
    let up = Instance::with(&["--pool-memory", "none", "--pool-disk", "none"]).await;
    assert_eq!(resources(&up).await["limits"], Value::Null);
    let line = "2 sandboxes of sandbar/base, no limits of memory and disk";
    assert!(up.introduction.contains(line), "{}", up.introduction);
}

#[tokio::test]
async fn root_in_a_sandbox_of_the_default_pool_is_nobody_on_the_machine() {
    let up = Instance::with(&["--pool", "1"]).await;
    let has_users = can_have_users(&up);
    let line = "with users of their own";
    let is_said = up.introduction.contains(line);
    assert_eq!(is_said, has_users, "{}", up.introduction);
    let expected = match has_users {
        true => json!(false),
        false => Value::Null,
    };
    assert_eq!(template(&up).await["hostUsers"], expected);
    if !has_users {
        return;
    }
    stocked(&up, "base", 1).await;
    let plain = claim(&up, "plain", "base").await;
    assert_eq!(up.exec(&plain, &["id", "-u"]).0, "1000\n");

    let root = json!({"spec": {"podTemplate": {"spec": {"securityContext": {"runAsUser": 0}}}}});
    up.api::<SandboxTemplate>()
        .patch("base", &PatchParams::default(), &Patch::Merge(root))
        .await
        .unwrap();
    let mut name = String::new();
    for number in 0..20 {
        name = claim(&up, &format!("root-{number}"), "base").await;
        if up.exec(&name, &["id", "-u"]).0 == "0\n" {
            break;
        }
    }
    assert_eq!(up.exec(&name, &["id", "-u"]).0, "0\n");
    let written = up.exec(
        &name,
        &["sh", "-c", "echo mine > /etc/file && stat -c %u /etc/file"],
    );
    assert_eq!(written, ("0\n".to_owned(), 0));
    for name in [&plain, &name] {
        let pod = up.pods().get(name).await.unwrap();
        let owners = owners(&up, &pod);
        assert!(!owners.is_empty(), "{name} runs");
        let is_nobody = |uid: &u32| *uid >= 0x7000_0000;
        assert!(owners.iter().all(is_nobody), "{name}: {owners:?}");
    }
}

#[tokio::test]
async fn a_default_pool_with_the_machines_users_is_to_be_had_for_the_asking() {
    let up = Instance::with(&["--pool", "1", "--pool-host-users"]).await;
    assert_eq!(template(&up).await["hostUsers"], Value::Null);
    stocked(&up, "base", 1).await;
    let name = claim(&up, "mine", "base").await;
    let pod = up.pods().get(&name).await.unwrap();
    assert!(owners(&up, &pod).iter().all(|uid| *uid == 1000));
}

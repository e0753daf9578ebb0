//! The default pool, and what one has of it at once.

use std::{path::Path, process::Command};

use api::sigs::v1beta1::{SandboxClaim, SandboxWarmPool};
use kube::api::DeleteParams;
use serde_json::json;

use crate::instance::{Instance, PROGRAM, eventually};

async fn ready_members(up: &Instance, pool: &str) -> i64 {
    let pool = up.api::<SandboxWarmPool>().get(pool).await.unwrap();
    let status = serde_json::to_value(&pool).unwrap();
    status["status"]["readyReplicas"]
        .as_i64()
        .unwrap_or_default()
}

pub(crate) async fn stocked(up: &Instance, pool: &str, count: i64) {
    eventually("the pool is full", async || {
        ready_members(up, pool).await == count
    })
    .await;
}

/// The sandbox that a claim got, once it is ready.
pub(crate) async fn claim(up: &Instance, name: &str, pool: &str) -> String {
    let meta = json!({"metadata": {"name": name}, "spec": {"warmPoolRef": {"name": pool}}});
    up.create::<SandboxClaim>(meta).await;
    let mut found = String::new();
    eventually("the claim is answered", async || {
        let claim = up.api::<SandboxClaim>().get(name).await.unwrap();
        let claim = serde_json::to_value(&claim).unwrap();
        let conditions = claim["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let is_ready = conditions
            .iter()
            .any(|one| one["type"] == "Ready" && one["status"] == "True");
        found = claim["status"]["sandbox"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        is_ready && !found.is_empty()
    })
    .await;
    found
}

#[tokio::test]
async fn a_claim_on_the_default_pool_is_answered_and_usable() {
    let up = Instance::with(&["--pool", "2"]).await;
    assert_eq!(up.introduction.lines().count(), 6, "{}", up.introduction);
    stocked(&up, "base", 2).await;
    let sandbox = claim(&up, "mine", "base").await;
    let (out, code) = up.exec(
        "sandboxclaim/mine",
        &["sh", "-c", "echo hello from $(hostname)"],
    );
    assert_eq!((out, code), (format!("hello from {sandbox}\n"), 0));
    stocked(&up, "base", 2).await;
    let (out, code) = up.exec(
        &format!("sandbox/{sandbox}"),
        &["python3", "-c", "print(6 * 7)"],
    );
    assert_eq!((out.as_str(), code), ("42\n", 0));
    up.api::<SandboxClaim>()
        .delete("mine", &DeleteParams::default())
        .await
        .unwrap();
    up.gone(&sandbox).await;
}

#[tokio::test]
async fn the_rollout_of_an_instance_is_found_by_its_directory() {
    let up = Instance::with(&["--pool", "1"]).await;
    stocked(&up, "base", 1).await;
    let rollout = |command: &str, directory: &Path| {
        let mut rollout = Command::new(PROGRAM);
        rollout.args(["rollout", command, "base", "--data-dir"]);
        rollout.arg(directory).env_remove("KUBECONFIG");
        let output = rollout.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, text) = rollout("history", &up.data());
    assert!(code == Some(0) && text.contains("1 (now)"), "{text}");
    let (code, text) = rollout("history", Path::new("/nowhere"));
    assert_eq!(code, Some(1));
    assert!(
        text.contains("nothing has run with the data directory /nowhere"),
        "{text}"
    );
}

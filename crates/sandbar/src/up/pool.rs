//! The warm pool that is there from the start.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use api::sigs::v1beta1::{SandboxTemplate, SandboxWarmPool};
use kube::{Api, Client, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

const NAME: &str = "base";
pub(super) const IMAGE: &str = "sandbar/base";
const API: &str = "extensions.agents.x-k8s.io/v1beta1";
/// Says that the pool was made once: whoever deletes it does not want it.
const MARK: &str = "pool-made";

/// Makes the pool at the first start, and tells about it.
pub(super) async fn make(client: &Client, directory: &Path, count: u32) -> Result<String> {
    let mark = directory.join(MARK);
    if count == 0 || mark.exists() {
        let pools: Api<SandboxWarmPool> = Api::default_namespaced(client.clone());
        return Ok(match pools.get_opt(NAME).await? {
            Some(pool) => describe(pool.spec.replicas.unwrap_or_default()),
            None => "none; see `sandbar up --help`".to_owned(),
        });
    }
    put::<SandboxTemplate>(client, template()).await?;
    put::<SandboxWarmPool>(client, pool(count)).await?;
    fs::write(&mark, "").with_context(|| format!("writing {}", mark.display()))?;
    Ok(describe(i64::from(count)))
}

fn describe(count: impl std::fmt::Display) -> String {
    format!("{NAME} in namespace default, {count} sandboxes of {IMAGE}")
}

fn template() -> Value {
    json!({
        "apiVersion": API,
        "kind": "SandboxTemplate",
        "metadata": {"name": NAME},
        "spec": {"podTemplate": {"spec": {
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "sandbox", "image": IMAGE}],
        }}},
    })
}

fn pool(count: u32) -> Value {
    json!({
        "apiVersion": API,
        "kind": "SandboxWarmPool",
        "metadata": {"name": NAME},
        "spec": {
            "replicas": count,
            "sandboxTemplateRef": {"name": NAME},
            "updateStrategy": {"type": "RollingUpdate"},
        },
    })
}

/// One that is there is somebody's.
async fn put<K>(client: &Client, object: Value) -> Result<()>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let api: Api<K> = Api::default_namespaced(client.clone());
    let object: K = serde_json::from_value(object)?;
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(drop).context("making the warm pool"),
    }
}

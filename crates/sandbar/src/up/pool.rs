//! The warm pool that is there from the start.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use api::sigs::v1beta1::{SandboxTemplate, SandboxWarmPool};
use kube::{Api, Client, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    isolation::Isolation,
    limits::{Limits, Wishes},
};

const NAME: &str = "base";
pub(super) const IMAGE: &str = "sandbar/base";
const API: &str = "extensions.agents.x-k8s.io/v1beta1";
/// Says that the pool was made once: whoever deletes it does not want it.
const MARK: &str = "pool-made";

/// What the pool is made of.
#[derive(clap::Args)]
pub(super) struct Stock {
    /// How many sandboxes the warm pool `base` begins with; the pool is made at the first start only, and not at all with 0
    #[arg(long = "pool", value_name = "COUNT", default_value_t = 2)]
    count: u32,
    #[command(flatten)]
    limits: Wishes,
    /// Let sandboxes of the pool `base` have the users of this machine though they could have their own; it counts when the pool
    /// is made
    #[arg(long)]
    pool_host_users: bool,
}

impl Stock {
    /// Makes the pool at the first start, and tells about it. What is there already is its owner's and stays as it is.
    pub(super) async fn make(
        &self,
        client: &Client,
        directory: &Path,
        isolation: Isolation,
    ) -> Result<String> {
        let mark = directory.join(MARK);
        if self.count > 0 && !mark.exists() {
            let limits = self.limits.limits(isolation, directory)?;
            let has_users = !self.pool_host_users && isolation.can_have_users(directory)?;
            put::<SandboxTemplate>(client, template(&limits, has_users)).await?;
            put::<SandboxWarmPool>(client, pool(self.count)).await?;
            fs::write(&mark, "").with_context(|| format!("writing {}", mark.display()))?;
        } else {
            let users = self.pool_host_users.then_some("--pool-host-users");
            for flag in self.limits.given().into_iter().chain(users) {
                eprintln!(
                    "sandbar: {flag} changes nothing: it counts when the pool {NAME} is made; `kubectl edit sandboxtemplate {NAME}` \
                     changes what its sandboxes are made of"
                );
            }
        }
        describe(client).await
    }
}

/// The pool as it is, whoever has changed it.
async fn describe(client: &Client) -> Result<String> {
    let pools: Api<SandboxWarmPool> = Api::default_namespaced(client.clone());
    let Some(pool) = pools.get_opt(NAME).await? else {
        return Ok("none; see `sandbar up --help`".to_owned());
    };
    let count = pool.spec.replicas.unwrap_or_default();
    let begun = format!("{NAME} in namespace default, {count} sandboxes");
    let templates: Api<SandboxTemplate> = Api::default_namespaced(client.clone());
    let name = &pool.spec.sandbox_template_ref.name;
    let Some(template) = templates.get_opt(name).await? else {
        return Ok(format!("{begun}, whose template {name} is not there"));
    };
    let template = serde_json::to_value(&template.spec)?;
    let pod = &template["podTemplate"]["spec"];
    let container = &pod["containers"][0];
    let image = container["image"].as_str().unwrap_or("no image");
    let users = match pod["hostUsers"] == json!(false) {
        true => ", with users of their own",
        false => "",
    };
    let limits = Limits::of(container);
    Ok(format!("{begun} of {image}, {limits}{users}"))
}

fn template(limits: &Limits, has_users: bool) -> Value {
    let mut spec = json!({
        "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "sandbox", "image": IMAGE, "resources": limits.resources()}],
    });
    if has_users {
        spec["hostUsers"] = json!(false);
    }
    json!({
        "apiVersion": API,
        "kind": "SandboxTemplate",
        "metadata": {"name": NAME},
        "spec": {"podTemplate": {"spec": spec}},
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

//! A namespace per test.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace as Object, ServiceAccount};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, Resource};

use crate::cluster;

/// A namespace of one's own. Dropping it asks for its deletion and does not wait: what a test leaves behind must
/// not load the node of the next one, and the cluster's end removes the rest.
pub struct Namespace {
    name: String,
    client: Client,
    kubeconfig: PathBuf,
}

impl Namespace {
    pub(crate) async fn create(
        client: Client,
        kubeconfig: PathBuf,
        prefix: &str,
        accounts: bool,
    ) -> Result<Self> {
        let api: Api<Object> = Api::all(client.clone());
        let mut object = Object::default();
        object.metadata.generate_name = Some(format!("{prefix}-"));
        let created = api
            .create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("creating a namespace {prefix}-*"))?;
        let name = created
            .metadata
            .name
            .context("a namespace was created without a name")?;
        let namespace = Self {
            name,
            client,
            kubeconfig,
        };
        if accounts {
            namespace.await_default_account().await?;
        }
        Ok(namespace)
    }

    /// Pods cannot be created before their service account exists.
    async fn await_default_account(&self) -> Result<()> {
        let accounts: Api<ServiceAccount> = self.api();
        let give_up = Instant::now() + Duration::from_secs(30);
        while accounts
            .get_opt("default")
            .await
            .context("reading a service account")?
            .is_none()
        {
            if Instant::now() > give_up {
                bail!("namespace {} got no default service account", self.name);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The objects of one kind in this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let (name, kubeconfig) = (std::mem::take(&mut self.name), self.kubeconfig.clone());
        // a thread with a client of its own: the runtime that this handle belongs to may be ending
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let api: Api<Object> = Api::all(cluster::client(&kubeconfig).await?);
                api.delete(&name, &DeleteParams::background()).await?;
                anyhow::Ok(())
            })
        });
    }
}

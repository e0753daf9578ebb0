//! The supervisor's own conversation with the API server: the objects every cluster starts with, and the signs
//! that it is usable.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::plan::Spec;

/// Nodes created at the same time.
const PARALLEL: usize = 16;

pub(crate) struct Cluster {
    runtime: Runtime,
    client: Client,
}

/// A client for the cluster that a kubeconfig file names.
pub(crate) async fn client(kubeconfig: &Path) -> Result<Client> {
    let config = kube::config::Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("reading {}", kubeconfig.display()))?;
    let config = kube::Config::from_custom_kubeconfig(config, &Default::default())
        .await
        .with_context(|| format!("understanding {}", kubeconfig.display()))?;
    Client::try_from(config).context("creating a client")
}

impl Cluster {
    pub(crate) fn connect(kubeconfig: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("starting the async runtime")?;
        let client = runtime.block_on(client(kubeconfig))?;
        Ok(Self { runtime, client })
    }

    pub(crate) fn is_ready(&mut self) -> bool {
        let Ok(request) = http::Request::get("/readyz").body(Vec::new()) else {
            return false;
        };
        self.runtime.block_on(async {
            let answer =
                tokio::time::timeout(Duration::from_secs(2), self.client.request_text(request));
            matches!(answer.await, Ok(Ok(text)) if text.trim() == "ok")
        })
    }

    pub(crate) fn create_objects(&mut self, spec: &Spec) -> Result<()> {
        self.runtime.block_on(async {
            let class: StorageClass = serde_json::from_value(json!({
                "metadata": {
                    "name": "standard",
                    "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
                },
                "provisioner": "kubernetes.io/host-path",
            }))?;
            Api::all(self.client.clone())
                .create(&PostParams::default(), &class)
                .await
                .context("creating the storage class")?;
            self.create_fake_nodes(spec.fake_nodes).await
        })
    }

    async fn create_fake_nodes(&self, count: u32) -> Result<()> {
        let mut requests = JoinSet::new();
        for index in 0..count {
            let api: Api<Node> = Api::all(self.client.clone());
            let node = fake_node(index)?;
            if requests.len() >= PARALLEL
                && let Some(done) = requests.join_next().await
            {
                done??;
            }
            requests.spawn(async move {
                api.create(&PostParams::default(), &node)
                    .await
                    .map(drop)
                    .with_context(|| format!("creating the fake node {index}"))
            });
        }
        while let Some(done) = requests.join_next().await {
            done??;
        }
        Ok(())
    }

    pub(crate) fn has_default_account(&mut self) -> Result<bool> {
        let api: Api<ServiceAccount> = Api::default_namespaced(self.client.clone());
        let found = self.runtime.block_on(api.get_opt("default"));
        Ok(found
            .context("looking for the default service account")?
            .is_some())
    }

    pub(crate) fn ready_nodes(&mut self) -> Result<usize> {
        let api: Api<Node> = Api::all(self.client.clone());
        let nodes = self.runtime.block_on(api.list(&ListParams::default()));
        Ok(nodes
            .context("listing the nodes")?
            .iter()
            .filter(|n| is_usable(n))
            .count())
    }
}

/// Whether a node is ready and nothing keeps pods away from it.
fn is_usable(node: &Node) -> bool {
    let ready = node
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten())
        .any(|c| c.type_ == "Ready" && c.status == "True");
    let tainted = node
        .spec
        .iter()
        .flat_map(|s| s.taints.iter().flatten())
        .any(|t| t.key.starts_with("node.kubernetes.io/"));
    ready && !tainted
}

fn fake_node(index: u32) -> Result<Node> {
    let name = format!("fake-{index}");
    let labels = BTreeMap::from([
        ("kubernetes.io/hostname", name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("type", "kwok"),
    ]);
    let resources = json!({"cpu": "32", "memory": "256Gi", "pods": "1000"});
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
        },
        "status": {"capacity": resources, "allocatable": resources},
    }))
    .context("describing a fake node")
}

//! What the tests of the program have in common.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "no test needs all of it, and a test fails by panicking"
)]

pub(crate) mod replica;

use std::{
    fmt::Debug,
    path::PathBuf,
    time::{Duration, Instant},
};

use api::{
    crds::{Conversion, Family, Versions, render},
    sigs::v1beta1::SandboxWarmPool,
};
use k8s_openapi::{
    NamespaceResourceScope,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    serde::{Serialize, de::DeserializeOwned},
};
use kube::{
    Api, Client, Resource,
    api::{ListParams, PostParams},
};
use local::{
    Cluster, hollow,
    serve::{self, Home},
};
use serde_json::Value;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// Waits, and says in the end what was still to be seen.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn install(client: &Client) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in render(&[Family::Sigs], Versions::V1beta1, Conversion::None).unwrap() {
        crds.create(&PostParams::default(), &crd).await.unwrap();
    }
}

/// A served API with the family's kinds and a hollow node, and everything that keeps it.
pub(crate) struct Served {
    pub(crate) client: Client,
    pub(crate) kubeconfig: PathBuf,
    _home: TempDir,
    _serving: serve::Running,
    pub(crate) hollow: hollow::Hollow,
}

impl Served {
    pub(crate) async fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let cluster = Cluster::open(local::Options::ephemeral()).await.unwrap();
        let home = Home::open(directory.path()).unwrap();
        let options = serve::Options {
            listen: ([127, 0, 0, 1], 0).into(),
            names: Vec::new(),
            limits: serve::Limits::default(),
        };
        let serving = serve::start(home, cluster.service(), options).await;
        let serving = serving.unwrap();
        let client = cluster.client();
        install(&client).await;
        let pools: Api<SandboxWarmPool> = Api::all(client.clone());
        until("pools are served", async || {
            pools.list(&ListParams::default()).await.ok()
        })
        .await;
        let (clock, options) = (local::clock::Clock::system(), hollow::Options::default());
        Self {
            kubeconfig: serving.kubeconfig(),
            hollow: hollow::Hollow::start(client.clone(), clock, options),
            client,
            _home: directory,
            _serving: serving,
        }
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) async fn create<K>(&self, object: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).unwrap();
        let created = self.api().create(&PostParams::default(), &object).await;
        created.unwrap();
    }
}

//! The shared cluster: kube-apiserver, kubelet and containerd. Each fleet has a namespace of it, with controllers of its own.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use api::{
    crds::{Conversion, Family, Versions, render},
    sigs::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool},
};
use controller::{clock::Clock, sigs};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use testbed::{Namespace, Testbed};
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Ground {
    bed: Testbed,
    namespace: Namespace,
    /// The controllers' own.
    controlling: Client,
    controllers: JoinHandle<()>,
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.controllers.abort();
    }
}

impl Ground {
    pub(crate) async fn open(name: &str) -> Self {
        Self::run_by(name, async |bed, _| bed.client()).await
    }

    /// Controllers that have no other rights than those of the client that `client` makes for the namespace.
    pub(crate) async fn run_by(
        name: &str,
        client: impl AsyncFnOnce(&Testbed, &Namespace) -> Client,
    ) -> Self {
        let bed = Testbed::shared().await.unwrap();
        install(&bed).await;
        let namespace = bed.namespace(name).await.unwrap();
        let controlling = client(&bed, &namespace).await;
        let controllers = start(&namespace, controlling.clone());
        Self {
            bed,
            namespace,
            controlling,
            controllers,
        }
    }

    /// Other controllers, which know nothing of what these did, take over.
    pub(crate) fn restart(&mut self) {
        self.controllers.abort();
        self.controllers = start(&self.namespace, self.controlling.clone());
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.bed.kubeconfig()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.namespace.name()
    }

    /// With all rights.
    pub(crate) fn client(&self) -> Client {
        self.bed.client()
    }
}

fn start(namespace: &Namespace, client: Client) -> JoinHandle<()> {
    let options = sigs::Options {
        namespace: Some(namespace.name().to_owned()),
        ..sigs::Options::default()
    };
    tokio::spawn(sigs::run(client, Clock::system(), options))
}

/// Tests of several processes come here at once.
pub(crate) async fn define(client: Client, crd: &CustomResourceDefinition) {
    let crds: Api<CustomResourceDefinition> = Api::all(client);
    match crds.create(&PostParams::default(), crd).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
        other => drop(other.unwrap()),
    }
}

async fn install(bed: &Testbed) {
    for crd in render(&[Family::Sigs], Versions::V1beta1, Conversion::None).unwrap() {
        define(bed.client(), &crd).await;
    }
    let (sandboxes, pools): (Api<Sandbox>, Api<SandboxWarmPool>) =
        (Api::all(bed.client()), Api::all(bed.client()));
    let claims: Api<SandboxClaim> = Api::all(bed.client());
    let templates: Api<SandboxTemplate> = Api::all(bed.client());
    let give_up = Instant::now() + PATIENCE;
    let params = ListParams::default();
    while sandboxes.list(&params).await.is_err()
        || pools.list(&params).await.is_err()
        || claims.list(&params).await.is_err()
        || templates.list(&params).await.is_err()
    {
        assert!(Instant::now() < give_up, "the kinds are never served");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

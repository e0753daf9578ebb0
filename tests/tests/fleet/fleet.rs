//! A namespace of the shared cluster with controllers of its own.

use std::{
    fmt::Debug,
    path::PathBuf,
    time::{Duration, Instant},
};

use api::{
    crds::{Conversion, Family, Versions, render},
    sigs::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool},
};
use controller::{clock::Clock, sigs};
use k8s_openapi::{
    NamespaceResourceScope, api::core::v1::Pod,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use testbed::{Namespace, Testbed};
use tokio::task::JoinHandle;

/// Not a bound on anything that is tested: only how long a broken test takes to fail.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Fleet {
    bed: Testbed,
    pub(crate) namespace: Namespace,
    /// The controllers' own.
    client: Client,
    controllers: JoinHandle<()>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.controllers.abort();
    }
}

impl Fleet {
    pub(crate) async fn new(name: &str) -> Self {
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
        let client = client(&bed, &namespace).await;
        let controllers = start(&namespace, client.clone());
        Self {
            bed,
            namespace,
            client,
            controllers,
        }
    }

    /// Other controllers, which know nothing of what these did, take over.
    pub(crate) fn restart(&mut self) {
        self.controllers.abort();
        self.controllers = start(&self.namespace, self.client.clone());
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.bed.kubeconfig()
    }

    /// With all rights.
    pub(crate) fn admin(&self) -> Client {
        self.bed.client()
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.bed.client(), self.namespace.name())
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let object = serde_json::from_value(object).unwrap();
        let made = self.api().create(&PostParams::default(), &object).await;
        made.unwrap()
    }

    pub(crate) async fn patch<K>(&self, name: &str, patch: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let params = PatchParams::default();
        self.api()
            .patch(name, &params, &Patch::Merge(patch))
            .await
            .unwrap()
    }

    pub(crate) async fn delete<K>(&self, name: &str)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        drop(
            self.api::<K>()
                .delete(name, &DeleteParams::default())
                .await
                .unwrap(),
        );
    }

    pub(crate) async fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        self.api().list(&ListParams::default()).await.unwrap().items
    }

    /// Polls until `probe` has an answer.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        mut probe: impl AsyncFnMut() -> Option<T>,
    ) -> T {
        let give_up = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = probe().await {
                return answer;
            }
            if Instant::now() > give_up {
                let pools: Vec<SandboxWarmPool> = self.list().await;
                let statuses: Vec<_> = pools.iter().map(|pool| json!(pool.status)).collect();
                panic!("waited in vain until {what}: {statuses:#?}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The unclaimed members that are not going.
    pub(crate) async fn members(&self) -> Vec<Sandbox> {
        let mut all: Vec<Sandbox> = self.list().await;
        all.retain(|one| {
            let owner = one.owner_references().first();
            one.metadata.deletion_timestamp.is_none()
                && owner.is_some_and(|owner| owner.kind == "SandboxWarmPool")
        });
        all
    }

    /// Waits until there are so many members, all of them Ready and of this image.
    pub(crate) async fn until_stocked(&self, count: usize, wanted: &str) -> Vec<Sandbox> {
        let what = format!("{count} members are {wanted}");
        let probe = async || {
            let members = self.members().await;
            let is_so = members.len() == count
                && members
                    .iter()
                    .all(|one| is_ready(one) && image(one) == wanted);
            is_so.then_some(members)
        };
        self.until(&what, probe).await
    }

    /// Creates a claim and waits until it is Ready; names its sandbox.
    pub(crate) async fn claim(&self, name: &str, spec: Value) -> Sandbox {
        self.create::<SandboxClaim>(claim(name, spec)).await;
        self.until_claimed(name).await
    }

    pub(crate) async fn until_claimed(&self, name: &str) -> Sandbox {
        let probe = async || {
            let claim: SandboxClaim = self.api().get(name).await.unwrap();
            let status = claim.status.unwrap_or_default();
            let ready = status.conditions.iter().flatten();
            let mut ready = ready.filter(|one| one.type_ == "Ready" && one.status == "True");
            ready.next().and(status.sandbox?.name)
        };
        let sandbox = self.until(&format!("{name} is Ready"), probe).await;
        self.api().get(&sandbox).await.unwrap()
    }

    pub(crate) async fn pod_of(&self, sandbox: &Sandbox) -> Pod {
        self.api().get(&sandbox.name_any()).await.unwrap()
    }

    pub(crate) async fn set_image(&self, template: &str, image: &str) {
        let patch = json!({"spec": {"podTemplate": {"spec": {"containers": [container(image)]}}}});
        self.patch::<SandboxTemplate>(template, patch).await;
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

fn container(image: &str) -> Value {
    json!({"name": "main", "image": image, "command": ["sh", "-c", "exec sleep 100000"]})
}

pub(crate) fn image(sandbox: &Sandbox) -> String {
    let spec = sandbox.spec.blueprint.pod_template.spec.json();
    spec["containers"][0]["image"].as_str().unwrap().to_owned()
}

pub(crate) fn is_ready(sandbox: &Sandbox) -> bool {
    let status = sandbox.status.clone().unwrap_or_default();
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

pub(crate) fn pod_spec(image: &str) -> Value {
    json!({"terminationGracePeriodSeconds": 0, "containers": [container(image)]})
}

pub(crate) fn template(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxTemplate",
        "metadata": {"name": name},
        "spec": {"podTemplate": {"spec": pod_spec(image)}},
    })
}

pub(crate) fn pool(template: &str, replicas: u32, strategy: Value) -> Value {
    json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxWarmPool",
        "metadata": {"name": "pool"},
        "spec": {
            "replicas": replicas,
            "sandboxTemplateRef": {"name": template},
            "updateStrategy": strategy,
        },
    })
}

pub(crate) fn claim(name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxClaim",
        "metadata": {"name": name},
        "spec": {"warmPoolRef": {"name": "pool"}},
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

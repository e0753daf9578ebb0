//! A namespace with controllers and real containers, and what scenarios do in it. `crate::ground` says on what they run.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use api::sigs::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool};
use k8s_openapi::{NamespaceResourceScope, api::core::v1::Pod};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::ground::Ground;

/// Not a bound on anything that is tested: only how long a broken test takes to fail.
const PATIENCE: Duration = Duration::from_secs(120);

/// What controls a namespace with real containers, on whatever ground.
pub(crate) struct Fleet {
    pub(crate) ground: Ground,
}

impl Fleet {
    pub(crate) async fn new(name: &str) -> Self {
        let ground = Ground::open(name).await;
        Self { ground }
    }

    /// One whose pool follows the template `one` and is full.
    pub(crate) async fn filled(name: &str, replicas: u32, strategy: Value) -> Self {
        let fleet = Self::new(name).await;
        fleet
            .create::<SandboxTemplate>(template("one", "busybox:v1"))
            .await;
        fleet
            .create::<SandboxWarmPool>(pool("one", replicas, strategy))
            .await;
        fleet.until_stocked(replicas as usize, "busybox:v1").await;
        fleet
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.ground.client(), self.ground.namespace())
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

    /// Claims that come faster than pods start find nothing, and no rollout is to blame for that.
    pub(crate) async fn until_two_are_claimable(&self) {
        let probe = async || {
            let members = self.members().await;
            let claimable = members.iter().filter(|one| is_claimable(one));
            (claimable.count() >= 2).then_some(())
        };
        self.until("two are claimable", probe).await;
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

pub(crate) fn is_of(kind: &str, sandbox: &Sandbox) -> bool {
    let owner = sandbox.owner_references().first();
    owner.is_some_and(|owner| owner.kind == kind)
}

pub(crate) fn is_claimable(sandbox: &Sandbox) -> bool {
    let is_going = sandbox.metadata.deletion_timestamp.is_some();
    let is_fenced = sandbox.annotations().contains_key("sandbar.dev/update");
    is_of("SandboxWarmPool", sandbox) && is_ready(sandbox) && !is_going && !is_fenced
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

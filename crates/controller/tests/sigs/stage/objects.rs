//! What a scenario makes, changes and looks at in its namespace.

use std::fmt::Debug;

use api::{
    crds::Schemas,
    sigs::v1beta1::{Sandbox, SandboxStatus},
};
use json_patch::merge;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{core::v1::Pod, events::v1::Event},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{Stage, definitions};

impl Stage {
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
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
        let created = self.api().create(&PostParams::default(), &object).await;
        created.unwrap()
    }

    pub(crate) async fn patch<K>(&self, name: &str, patch: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let params = PatchParams::default();
        let patched = self.api().patch(name, &params, &Patch::Merge(patch)).await;
        patched.unwrap()
    }

    /// Gives the whole theatre other definitions; the server follows soon after.
    pub(crate) async fn define(&self, schemas: Schemas) {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for crd in definitions(schemas) {
            let patch = Patch::Merge(json!({"spec": {"versions": crd.spec.versions}}));
            let (name, params) = (crd.metadata.name.unwrap(), PatchParams::default());
            crds.patch(&name, &params, &patch).await.unwrap();
        }
    }

    pub(crate) async fn delete<K>(&self, name: &str)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        self.deleted.lock().unwrap().insert(name.to_owned());
        let api: Api<K> = self.api();
        drop(api.delete(name, &DeleteParams::default()).await.unwrap());
    }

    pub(crate) async fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let all = self.api().list(&ListParams::default()).await;
        all.unwrap().items
    }

    /// The pods, of which there is never more than one that is not going.
    pub(crate) async fn pods(&self) -> Vec<Pod> {
        let pods: Vec<Pod> = self.list().await;
        let staying = pods
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none());
        assert!(staying.count() <= 1, "{}", self.story("two pods"));
        pods
    }

    /// What has been told for this reason, once that was so often. Nothing depends on an event, so that a fault may cost one.
    pub(crate) async fn until_told(&self, reason: &str, times: usize) -> Vec<String> {
        let events = async || {
            let mut events: Vec<Event> = self.list().await;
            events.retain(|event| event.reason.as_deref() == Some(reason));
            events
        };
        let are_all = |events: &Vec<Event>| events.len() >= times || self.is_disturbed();
        let what = format!("{reason} is told");
        let events = self.until(&what, events, are_all).await;
        assert!(
            events.len() == times || (events.len() < times && self.is_disturbed()),
            "{}\n{events:#?}",
            self.story("not told as often as it happened")
        );
        let note = |event: Event| event.note.unwrap_or_default();
        events.into_iter().map(note).collect()
    }

    /// The same for what is wrong, with what was said of it.
    pub(crate) async fn until_warned(&self, reason: &str, times: usize, says: &str) {
        let notes = self.until_told(reason, times).await;
        assert!(notes.iter().all(|note| note.contains(says)), "{notes:#?}");
        let events: Vec<Event> = self.list().await;
        let mut warnings = events
            .iter()
            .filter(|event| event.reason.as_deref() == Some(reason));
        assert!(warnings.all(|event| event.type_.as_deref() == Some("Warning")));
    }

    pub(crate) async fn sandbox(&self) -> Sandbox {
        self.api().get("box").await.unwrap()
    }

    pub(crate) async fn status(&self) -> SandboxStatus {
        self.sandbox().await.status.unwrap_or_default()
    }

    /// Waits until the sandbox says this of its readiness.
    pub(crate) async fn until_ready_is(
        &self,
        status: &str,
        reason: &str,
        message: &str,
    ) -> SandboxStatus {
        let says = |seen: &SandboxStatus| {
            condition(seen, "Ready").is_some_and(|ready| {
                (&*ready.status, &*ready.reason, &*ready.message) == (status, reason, message)
            })
        };
        let observe = async || {
            self.pods().await;
            self.status().await
        };
        self.until(&format!("Ready {status} {reason} {message}"), observe, says)
            .await
    }

    pub(crate) async fn until_ready(&self) -> SandboxStatus {
        self.until_ready_is("True", "DependenciesReady", "Pod is Ready")
            .await
    }
}

pub(crate) fn condition<'a>(status: &'a SandboxStatus, kind: &str) -> Option<&'a Condition> {
    let mut all = status.conditions.iter().flatten();
    all.find(|condition| condition.type_ == kind)
}

pub(crate) fn reason<'a>(status: &'a SandboxStatus, kind: &str) -> Option<&'a str> {
    condition(status, kind).map(|condition| condition.reason.as_str())
}

/// A template of this name with one container of this image.
pub(crate) fn template(name: &str, image: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxTemplate",
        "metadata": {"name": name},
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": image}]}}},
    });
    merge(&mut object["spec"], &spec);
    object
}

/// A pool called `pool` of so many members made from the template `one`.
pub(crate) fn pool(replicas: u32, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxWarmPool",
        "metadata": {"name": "pool"},
        "spec": {"replicas": replicas, "sandboxTemplateRef": {"name": "one"}},
    });
    merge(&mut object["spec"], &spec);
    object
}

/// A sandbox called `box` with one container that listens.
pub(crate) fn sandbox(spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": "box"},
        "spec": {
            "podTemplate": {
                "metadata": {"labels": {"app": "agent"}, "annotations": {"team": "one"}},
                "spec": {"containers": [{
                    "name": "main", "image": "app:1", "ports": [{"containerPort": 8080}],
                }]},
            },
        },
    });
    merge(&mut object["spec"], &spec);
    object
}

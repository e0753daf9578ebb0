//! One request to the API server, and what came of it.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, Error,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::Status,
};
use serde_json::json;

use super::{node::NodeAct, plan::Act};

const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// What is known of an object after a request.
#[derive(Debug)]
pub(crate) enum Outcome<K> {
    /// It looks like this now.
    Is(Box<K>),
    /// It had changed meanwhile; nothing was done, and it looks like this now.
    Changed(Box<K>),
    /// It has a node; the watch will tell, or has told.
    Bound,
    /// It is going; the watch will tell.
    Removed,
    Gone,
    Failed(String),
}

#[derive(Clone, Debug)]
pub(crate) struct PodId {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

pub(crate) async fn on_pod(client: &Client, pod: &PodId, act: &Act) -> Outcome<Pod> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let result = match act {
        Act::Bind { node } => bind(&pods, pod, node).await.map(|()| Outcome::Bound),
        Act::Status(patch) => pods
            .patch_status(&pod.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(|pod| Outcome::Is(Box::new(pod))),
        Act::Remove => remove(&pods, pod).await.map(|()| Outcome::Removed),
    };
    let outcome = match result {
        Err(error) if is(&error, 409) => reread(&pods, &pod.name).await,
        other => other.unwrap_or_else(failed),
    };
    match outcome {
        Outcome::Changed(other) if other.metadata.uid.as_ref() != Some(&pod.uid) => Outcome::Gone,
        outcome => outcome,
    }
}

async fn bind(pods: &Api<Pod>, pod: &PodId, node: &str) -> Result<(), Error> {
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let _: Status = pods
        .create_subresource("binding", &pod.name, &PostParams::default(), &binding)
        .await?;
    Ok(())
}

async fn remove(pods: &Api<Pod>, pod: &PodId) -> Result<(), Error> {
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: Some(pod.uid.clone()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    pods.delete(&pod.name, &params).await.map(drop)
}

pub(crate) async fn on_node(client: &Client, name: &str, act: &NodeAct) -> Outcome<Node> {
    let nodes: Api<Node> = Api::all(client.clone());
    let params = PatchParams::default();
    let result = match act {
        NodeAct::Create(node) => nodes.create(&PostParams::default(), node).await,
        NodeAct::Status(patch) => {
            nodes
                .patch_status(name, &params, &Patch::Merge(patch))
                .await
        }
        NodeAct::Patch(patch) => nodes.patch(name, &params, &Patch::Merge(patch)).await,
    };
    match result {
        Err(error) if is(&error, 409) => reread(&nodes, name).await,
        Ok(node) => Outcome::Is(Box::new(node)),
        Err(error) => failed(error),
    }
}

async fn reread<K>(api: &Api<K>, name: &str) -> Outcome<K>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    match api.get_opt(name).await {
        Ok(Some(object)) => Outcome::Changed(Box::new(object)),
        Ok(None) => Outcome::Gone,
        Err(error) => failed(error),
    }
}

fn failed<K>(error: Error) -> Outcome<K> {
    if is(&error, 404) {
        return Outcome::Gone;
    }
    Outcome::Failed(error.to_string())
}

fn is(error: &Error, code: u16) -> bool {
    matches!(error, Error::Api(status) if status.code == code)
}

/// How long to wait after so many failures in a row.
pub(crate) fn retry_after(failures: u32) -> Duration {
    FIRST_RETRY
        .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)))
        .min(LONGEST_RETRY)
}

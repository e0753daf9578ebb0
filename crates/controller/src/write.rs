//! The requests of controllers.
//!
//! Every answer goes into the store of its kind, so that the next decision knows of it.

use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use kube::{
    Client, Resource,
    api::{DeleteParams, ListParams, ObjectList, Patch, PatchParams, PostParams, Preconditions},
    core::{Request, Status},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    meta::{Key, Meta},
    store::{Store, View},
};

/// What a write must find to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The same object, however it has changed.
    SameObject,
    /// The object exactly as it was seen: for what binds, adopts or deletes.
    Unchanged,
}

/// Why a request was not done, or not known to be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A name is taken.
    #[error("{0}")]
    Exists(String),
    /// The object is not what it was.
    #[error("{0}")]
    Changed(String),
    #[error("{0}")]
    Gone(String),
    /// The server will not do this, however often it is asked.
    #[error("{0}")]
    Refused(String),
    /// The server could not say, or said to come again.
    #[error("{0}")]
    Unknown(String),
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::answered(*status),
            other => Self::Unknown(other.to_string()),
        }
    }
}

impl Failure {
    /// Whether the same request may be done another time.
    pub fn may_pass(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }

    fn answered(status: Status) -> Self {
        let is_another = is_another(&status);
        let message = status.message;
        match (status.code, status.reason.as_str()) {
            (409, "AlreadyExists") => Self::Exists(message),
            (409, _) => Self::Changed(message),
            (422, _) if is_another => Self::Changed(message),
            (404, _) => Self::Gone(message),
            (408 | 429, _) => Self::Unknown(message),
            (400..500, _) => Self::Refused(message),
            _ => Self::Unknown(message),
        }
    }
}

/// Whether a patch that names a uid met an object of the same name with another.
fn is_another(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .into_iter()
        .any(|cause| cause.field == "metadata.uid")
}

/// A client that signs its writes.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    manager: &'static str,
}

impl Writer {
    pub fn new(client: Client, manager: &'static str) -> Self {
        Self { client, manager }
    }

    /// Reads past the store, for objects that are not watched.
    pub async fn read<V: View>(
        &self,
        store: &Store<V>,
        key: &Key,
    ) -> Result<Option<Arc<V>>, Failure> {
        let request =
            at::<V::Object>(&key.namespace).get(&key.name, &kube::api::GetParams::default());
        match self.send(request).await {
            Ok(object) => Ok(Some(store.see(object))),
            Err(Failure::Gone(_)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Reads what has this label, past the store.
    pub async fn list<V: View>(
        &self,
        store: &Store<V>,
        namespace: &str,
        label: &str,
    ) -> Result<Vec<Arc<V>>, Failure> {
        let request = at::<V::Object>(namespace).list(&ListParams::default().labels(label));
        let list: ObjectList<V::Object> = self.send(request).await?;
        Ok(list.items.into_iter().map(|item| store.see(item)).collect())
    }

    /// Reads an object with everything that is in it, whether it is known here or not.
    pub async fn read_whole<V: View>(&self, key: &Key) -> Result<Option<Value>, Failure> {
        let request =
            at::<V::Object>(&key.namespace).get(&key.name, &kube::api::GetParams::default());
        match self.send(request).await {
            Ok(object) => Ok(Some(object)),
            Err(Failure::Gone(_)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Reads past the store and tells the store, for when it may be behind. An object that was seen before and is not found
    /// any more is gone; one of the same name that came meanwhile is not touched by that.
    pub async fn refresh<V: View>(
        &self,
        store: &Store<V>,
        key: &Key,
        seen: Option<&Meta>,
    ) -> Result<Option<Arc<V>>, Failure> {
        let request =
            at::<V::Object>(&key.namespace).get(&key.name, &kube::api::GetParams::default());
        match self.send(request).await {
            Ok(object) => Ok(Some(store.hear(object))),
            Err(Failure::Gone(_)) => {
                if let Some(seen) = seen {
                    store.forget(key, &seen.uid, self.manager);
                }
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    pub async fn create<V: View>(
        &self,
        store: &Store<V>,
        namespace: &str,
        mut body: Value,
    ) -> Result<Arc<V>, Failure> {
        body["apiVersion"] = json!(V::Object::api_version(&()));
        body["kind"] = json!(V::Object::kind(&()));
        let request = at::<V::Object>(namespace).create(&self.posting(), bytes(&body));
        Ok(store.learn(self.send(request).await?, self.manager))
    }

    /// A merge patch.
    pub async fn patch<V: View>(
        &self,
        store: &Store<V>,
        seen: &Meta,
        guard: Guard,
        mut body: Value,
    ) -> Result<Arc<V>, Failure> {
        body["metadata"]["uid"] = json!(&*seen.uid);
        if guard == Guard::Unchanged {
            body["metadata"]["resourceVersion"] = json!(seen.version.to_string());
        }
        let Key { namespace, name } = &seen.key;
        let request = at::<V::Object>(namespace).patch(name, &self.patching(), &Patch::Merge(body));
        Ok(store.learn(self.send(request).await?, self.manager))
    }

    /// A strategic merge patch of the object, or of a subresource of it.
    pub async fn patch_strategic<V: View>(
        &self,
        store: &Store<V>,
        seen: &Meta,
        subresource: Option<&str>,
        mut body: Value,
    ) -> Result<Arc<V>, Failure> {
        body["metadata"]["uid"] = json!(&*seen.uid);
        body["metadata"]["resourceVersion"] = json!(seen.version.to_string());
        let Key { namespace, name } = &seen.key;
        let (at, params, patch) = (
            at::<V::Object>(namespace),
            self.patching(),
            Patch::Strategic(body),
        );
        let request = match subresource {
            None => at.patch(name, &params, &patch),
            Some(part) => at.patch_subresource(part, name, &params, &patch),
        };
        Ok(store.learn(self.send(request).await?, self.manager))
    }

    /// A merge patch of the status. One that only tells what was seen may meet an object that has changed meanwhile; one
    /// that others go by must hear first of whoever has written since.
    pub async fn patch_status<V: View>(
        &self,
        store: &Store<V>,
        seen: &Meta,
        guard: Guard,
        status: Value,
    ) -> Result<Arc<V>, Failure> {
        let mut body = json!({"metadata": {"uid": &*seen.uid}, "status": status});
        if guard == Guard::Unchanged {
            body["metadata"]["resourceVersion"] = json!(seen.version.to_string());
        }
        let Key { namespace, name } = &seen.key;
        let request = at::<V::Object>(namespace).patch_subresource(
            "status",
            name,
            &self.patching(),
            &Patch::Merge(body),
        );
        Ok(store.learn(self.send(request).await?, self.manager))
    }

    /// Asks for the end of exactly what was seen.
    pub async fn delete<V: View>(&self, store: &Store<V>, seen: &Meta) -> Result<(), Failure> {
        self.send_delete(store, seen, DeleteParams::default()).await
    }

    /// The same, and it stays until all that it owns is gone.
    pub async fn delete_last<V: View>(&self, store: &Store<V>, seen: &Meta) -> Result<(), Failure> {
        self.send_delete(store, seen, DeleteParams::foreground())
            .await
    }

    async fn send_delete<V: View>(
        &self,
        store: &Store<V>,
        seen: &Meta,
        params: DeleteParams,
    ) -> Result<(), Failure> {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(seen.uid.to_string()),
                resource_version: Some(seen.version.to_string()),
            }),
            ..params
        };
        let request = at::<V::Object>(&seen.key.namespace).delete(&seen.key.name, &params);
        let request = request.map_err(kube::Error::BuildRequest)?;
        let answer = self.client.request_status::<V::Object>(request).await;
        match answer.map_err(Failure::from) {
            Ok(answer) => match answer.left() {
                Some(going) => drop(store.learn(going, self.manager)),
                None => store.forget(&seen.key, &seen.uid, self.manager),
            },
            Err(Failure::Gone(_)) => store.forget(&seen.key, &seen.uid, self.manager),
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Creates an object that nobody watches.
    pub(crate) async fn post<K>(&self, namespace: &str, object: &K) -> Result<(), Failure>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize,
    {
        let request = at::<K>(namespace).create(&self.posting(), bytes(object));
        self.send::<Value>(request).await.map(drop)
    }

    async fn send<T: DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, Failure> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        Ok(self.client.request(request).await?)
    }

    fn posting(&self) -> PostParams {
        PostParams {
            field_manager: Some(self.manager.to_owned()),
            ..PostParams::default()
        }
    }

    fn patching(&self) -> PatchParams {
        PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        }
    }
}

fn at<K>(namespace: &str) -> Request
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Request::new(K::url_path(&(), Some(namespace)))
}

/// JSON values and API objects have string keys and no failing fields.
fn bytes(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).unwrap_or_default()
}

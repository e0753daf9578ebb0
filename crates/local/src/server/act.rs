//! What the cluster's own controllers do: the same as requests, without the way through HTTP.

use std::borrow::Cow;
use std::sync::Arc;

use http::{Extensions, HeaderMap, Method};
use serde_json::Value;

use super::answer::Answer;
pub(crate) use super::definitions::STORED_AS as DEFINITIONS;
pub(crate) use super::options::{DeleteOptions, Propagation};
use super::options::{FieldValidation, Query, WriteOptions};
use super::resource::Resource;
use super::route::Target;
use super::update::{By, Edited};
use super::write::Caller;
use super::{Asked, Server, Warnings, scale, select};
use crate::clock::Clock;
use crate::kinds::Part;
use crate::selector::Labels;
use crate::status::Failure;
use crate::store::Key;

const WRITER: Caller<'static> = Caller {
    manager: Cow::Borrowed("kube-controller-manager"),
    patches: false,
    warnings: None,
    subresource: None,
};
const OPTIONS: WriteOptions = WriteOptions {
    dry_run: false,
    validation: FieldValidation::Ignore,
    force: false,
};

impl Server {
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The resource that a stored object belongs to, in the version that is stored if that one is served.
    pub(crate) fn resource_of(&self, key: &Key) -> Option<Arc<Resource>> {
        let registry = self.registry();
        let mut versions = registry
            .iter()
            .filter(|resource| *resource.stored_as == *key.resource());
        let first = versions.next()?;
        let is_stored = |resource: &&Arc<Resource>| {
            resource
                .custom()
                .is_some_and(|custom| custom.stored_api_version == resource.api_version)
        };
        match is_stored(&first) {
            true => Some(Arc::clone(first)),
            false => Some(Arc::clone(versions.find(is_stored).unwrap_or(first))),
        }
    }

    /// What a reference by version and kind leads to.
    pub(crate) fn resource_named(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        let registry = self.registry();
        let found = registry
            .iter()
            .find(|resource| resource.kind == kind && resource.api_version == api_version);
        found.cloned()
    }

    /// Changes one part of an object, if it still has this version; nothing is written if `edit` changes nothing.
    /// Somebody else's write in between is a conflict.
    pub(crate) async fn edit(
        &self,
        key: &Key,
        part: Part,
        version: Option<&str>,
        mut edit: impl FnMut(&mut Value) + Send,
    ) -> Result<(), Failure> {
        let target = self.target(key)?;
        let change = self.change(&target, part, &WRITER, &OPTIONS, |old| {
            if version.is_some_and(|version| old.object["metadata"]["resourceVersion"] != *version)
            {
                return Err(Failure::modified(target.resource.qualified(), key.name()));
            }
            let mut object = old.object.clone();
            edit(&mut object);
            Ok(Edited {
                object,
                by: By::Client,
            })
        });
        change.await.map(|_| ())
    }

    pub(crate) async fn end(&self, key: &Key, options: &DeleteOptions) -> Result<(), Failure> {
        let target = self.target(key)?;
        self.delete(&target, options).await.map(|_| ())
    }

    pub(crate) async fn make(&self, key: &Key, mut object: Value) -> Result<(), Failure> {
        let mut target = self.target(key)?;
        target.name = None;
        target.resource.admit(&mut object)?;
        let made = self.create(&target, &WRITER, &OPTIONS, object, None);
        made.await.map(|_| ())
    }

    /// How many replicas an object is to have, if it says so.
    pub(crate) async fn replicas(
        &self,
        resource: &Arc<Resource>,
        key: &Key,
    ) -> Result<Option<i64>, Failure> {
        let unread = Warnings::default();
        let asked = Asked {
            method: &Method::GET,
            headers: &HeaderMap::new(),
            extensions: &Extensions::new(),
            query: &Query::default(),
            body: &bytes::Bytes::new(),
            warnings: &unread,
        };
        match self
            .scale(
                &Target::object(resource, key.namespace(), key.name()),
                &asked,
            )
            .await?
        {
            Answer::Scale(scale) => Ok(Some(scale["spec"]["replicas"].as_i64().unwrap_or(0))),
            _ => Ok(None),
        }
    }

    fn target(&self, key: &Key) -> Result<Target, Failure> {
        let resource = self.resource_of(key).ok_or_else(Failure::unknown_path)?;
        Ok(Target::object(&resource, key.namespace(), key.name()))
    }
}

/// Which objects a `LabelSelector` selects: none of it is absent, all if it is empty.
pub(crate) fn selects(selector: &Value) -> impl Fn(&Value) -> bool {
    let labels = match selector {
        Value::Null => None,
        selector => Labels::parse(&scale::selector_text(selector)).ok(),
    };
    move |object: &Value| {
        let labels = labels.as_ref();
        labels.is_some_and(|labels| labels.matches(&select::labels_of(object)))
    }
}

//! New objects.

use std::sync::Arc;
use std::time::Duration;

use api::patch::apply::{self, Managed, Writer};
use api::structural::FieldError;
use serde_json::{Value, json};

use super::Server;
use super::answer::Answer;
use super::encode::Encoded;
use super::kind::Owned;
use super::metadata;
use super::options::WriteOptions;
use super::resource::Resource;
use super::route::Target;
use super::write::{Caller, refused};
use crate::kinds::Part;
use crate::status::Failure;
use crate::store::{Change, Entry, Key, Precondition, Scope, WriteError};

/// How often a generated name that is taken is replaced by another.
const NAME_ATTEMPTS: usize = 8;

/// How long a pod waits for the account of a namespace that is just being made.
const ACCOUNT_PATIENCE: Duration = Duration::from_secs(2);

impl Server {
    /// `object` has been read as the kind; its owners are known already if an apply creates it.
    pub(super) async fn create(
        &self,
        target: &Target,
        caller: &Caller<'_>,
        options: &WriteOptions,
        object: Value,
        owners: Option<Managed>,
    ) -> Result<Answer, Failure> {
        let resource = &target.resource;
        let (object, owners) = self.new_object(target, caller, object, owners)?;
        if resource.is_core("Pod") {
            self.await_account(target, &object).await;
        }
        // an address is free until the service that took it is stored
        let _addresses = match resource.is_core("Service") {
            true => Some(self.addresses.lock().await),
            false => None,
        };
        for attempt in 1.. {
            let mut object = object.clone();
            metadata::generate_name(&mut object, || self.random());
            let name = object["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            resource.prepare_create(&mut object);
            resource.admit_create(&mut object, self)?;
            metadata::show_long_names(&mut object, &owners);
            let errors = errors_of(resource, &object);
            if !errors.is_empty() {
                return Err(resource.invalid(&name, &errors));
            }
            let warnings = resource.warnings(&object, None);
            warnings.iter().for_each(|warning| caller.warn(warning));
            resource.show_nulls(&mut object);
            if options.dry_run {
                return self.tried(target, object, &owners, &name);
            }
            let encoded = self.encoded(resource, &object, &owners)?;
            let encoded = encoded.marked(resource.mark());
            let is_exact = encoded.is_exact;
            match self.insert(target, encoded, &name).await {
                Ok(entry) => {
                    self.remember(resource, &entry, object, is_exact);
                    self.after_write(resource).await;
                    return Ok(Answer::Stored { entry, code: 201 });
                }
                Err(WriteError::Conflict { current, .. }) => {
                    let generated = object["metadata"]["generateName"].is_string()
                        && attempt < NAME_ATTEMPTS
                        && self.generates(&object);
                    if !generated {
                        return Err(taken(target, &name, current.as_deref()));
                    }
                }
                Err(error) => return Err(refused(error, target, &name)),
            }
        }
        Err(Failure::internal("no free name was found"))
    }

    /// The account `default` comes a moment after its namespace; who creates a pod that soon waits for it, as on the
    /// real server.
    async fn await_account(&self, target: &Target, pod: &Value) {
        let name = pod["spec"]["serviceAccountName"].as_str();
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let key = Key::new("serviceaccounts", namespace, "default");
        let scope = Scope::namespaced("serviceaccounts", namespace);
        let Ok(mut accounts) = self.store.watch(scope, self.store.revision()) else {
            return;
        };
        let appears =
            async { while self.store.get(&key).is_none() && accounts.next().await.is_some() {} };
        if name.is_none_or(|name| matches!(name, "" | "default")) {
            // if it does not come, admission says so
            let _ = tokio::time::timeout(ACCOUNT_PATIENCE, appears).await;
        }
    }

    /// Whether the name was made here, so that another one is as good.
    fn generates(&self, object: &Value) -> bool {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
        text("name").starts_with(text("generateName")) && text("name") != text("generateName")
    }

    /// The object with what the server says about every new object.
    fn new_object(
        &self,
        target: &Target,
        caller: &Caller<'_>,
        mut object: Value,
        owners: Option<Managed>,
    ) -> Result<(Value, Managed), Failure> {
        let resource = &target.resource;
        if self.is_ending(&resource.stored_as) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Failure::forbidden(resource.qualified(), name, why));
        }
        self.namespace_accepts(target, &object)?;
        let now = self.now();
        let Some(metadata) = object["metadata"].as_object_mut() else {
            return Err(Failure::bad_request("metadata is missing"));
        };
        if metadata.contains_key("resourceVersion") {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Failure::unexpected(message));
        }
        for server_owned in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            metadata.remove(server_owned);
        }
        metadata.insert("uid".to_owned(), json!(self.new_uid()));
        metadata.insert("creationTimestamp".to_owned(), json!(now));
        let owners = owners.unwrap_or_else(|| {
            let registry = self.registry();
            let kind = Owned::new(resource, &registry, Part::Main);
            let writer = caller.writer(resource, Part::Main, &now);
            apply::track(&kind, None, &mut object, writer)
        });
        Ok((object, owners))
    }

    async fn insert(
        &self,
        target: &Target,
        encoded: Encoded,
        name: &str,
    ) -> Result<Arc<Entry>, WriteError> {
        let key = Key::new(
            &target.resource.stored_as,
            target.namespace.as_deref().unwrap_or_default(),
            name,
        );
        let build = move |revision| encoded.at(revision);
        self.store
            .write(Change::put(key, Precondition::Absent, build))
            .await
    }

    /// What a dry run answers: the object without a version.
    fn tried(
        &self,
        target: &Target,
        mut object: Value,
        owners: &Managed,
        name: &str,
    ) -> Result<Answer, Failure> {
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let key = Key::new(&target.resource.stored_as, namespace, name);
        if let Some(current) = self.store.get(&key) {
            return Err(taken(target, name, Some(&current)));
        }
        self.encoded(&target.resource, &object, owners)?;
        owners.put(&mut object);
        Ok(Answer::Object { object, code: 201 })
    }

    /// Namespaced objects need a namespace that is there to stay.
    fn namespace_accepts(&self, target: &Target, object: &Value) -> Result<(), Failure> {
        let Some(namespace) = &target.namespace else {
            return Ok(());
        };
        let missing = || {
            let kind = crate::status::Qualified {
                group: "",
                plural: "namespaces",
            };
            Failure::not_found(kind, namespace)
        };
        let entry = self.store.get(&Key::new("namespaces", "", namespace));
        let entry = entry.ok_or_else(missing)?;
        let stored: Value = serde_json::from_slice(entry.value.rest()).unwrap_or_default();
        if stored["metadata"]["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let causes = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        Err(Failure::forbidden(target.resource.qualified(), name, &why).caused_by(causes))
    }
}

fn errors_of(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = metadata::validate_create(object, resource);
    let own = resource.validate_create(object);
    // two kinds look at their metadata last, and only if the rest is right
    let last = matches!(
        (resource.group.as_str(), resource.kind.as_str()),
        ("", "Event") | ("policy", "PodDisruptionBudget")
    );
    if last && !own.is_empty() {
        return own;
    }
    errors.extend(own);
    errors
}

fn taken(target: &Target, name: &str, current: Option<&Entry>) -> Failure {
    let kind = target.resource.qualified();
    let ending = current.is_some_and(|entry| {
        let object: Value = serde_json::from_slice(entry.value.rest()).unwrap_or_default();
        !object["metadata"]["deletionTimestamp"].is_null()
    });
    match ending {
        true => Failure::still_exists(kind, name),
        false => Failure::already_exists(kind, name),
    }
}

impl Caller<'_> {
    pub(super) fn writer<'a>(
        &'a self,
        resource: &'a Resource,
        part: Part,
        now: &'a str,
    ) -> Writer<'a> {
        Writer {
            manager: &self.manager,
            api_version: &resource.api_version,
            kind: &resource.kind,
            subresource: self.subresource.unwrap_or(part.name()),
            now,
        }
    }
}

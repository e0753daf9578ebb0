//! CRDs at work: their status, what is served because of them, and the end of their objects with them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::{Value, json};

use super::Server;
use super::encode::Encoded;
use super::options::DeleteOptions;
use super::registry::Registry;
use super::resource::Resource;
use super::route::Target;
use crate::crd::{self, Cleanup};
use crate::store::{Entry, Key, Scope, WriteError};

pub(crate) const STORED_AS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const ATTEMPTS: usize = 20;

/// What is known of definitions beside what is stored.
#[derive(Default)]
pub(super) struct Definitions(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// By name: what a definition serves, made when its generation was new.
    compiled: HashMap<String, Compiled>,
    /// Those whose objects must go.
    ending: HashSet<String>,
    /// Requests may be under way that know only what was served before.
    serving: bool,
}

struct Compiled {
    uid: String,
    generation: i64,
    resources: Vec<Arc<Resource>>,
}

impl Server {
    /// Brings the status of every definition, and what is served, up to date. Called after each write of one, before
    /// the write is answered, so that whoever defined a kind can use it at once.
    pub(super) async fn settle_definitions(&self) {
        for _ in 0..ATTEMPTS {
            match self.settle_once().await {
                Ok(true) => break,
                Ok(false) | Err(WriteError::Conflict { .. }) => {}
                // the next write, or the next start, tries again
                Err(_) => break,
            }
        }
        self.serve_definitions();
    }

    /// Writes the first status that is not what it should be. Returns whether there was none.
    async fn settle_once(&self) -> Result<bool, WriteError> {
        let definitions = self.definitions();
        let now = self.now();
        for (entry, outline) in &definitions {
            let all = definitions.iter().map(|(_, outline)| outline);
            if let Some(status) = crd::next_status(outline, all, &now)
                && let Ok(mut new) = serde_json::from_slice::<Value>(entry.value.rest())
            {
                new["status"] = status;
                self.put_definition(entry, &new).await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// All definitions with their outlines.
    fn definitions(&self) -> Vec<(Arc<Entry>, Value)> {
        let snapshot = self.store.snapshot();
        let scope = Scope::all(STORED_AS);
        let entries = snapshot.list(&scope).cloned();
        entries
            .filter_map(|entry| {
                let outline = outline(entry.value.rest())?;
                Some((entry, outline))
            })
            .collect()
    }

    async fn put_definition(&self, entry: &Arc<Entry>, new: &Value) -> Result<(), WriteError> {
        let ends = !new["metadata"]["deletionTimestamp"].is_null()
            && new["metadata"]["finalizers"]
                .as_array()
                .is_none_or(Vec::is_empty);
        match ends {
            true => self.remove(entry).await.map(drop),
            false => self
                .put_encoded(entry, Encoded::owned_as(new, &entry.value))
                .await
                .map(drop),
        }
    }

    /// Makes the registry from the definitions that are established.
    fn serve_definitions(&self) {
        let mut registry = Registry::built_in();
        let mut known = self.lock_definitions();
        let definitions = self.definitions();
        let present: HashSet<&str> = definitions
            .iter()
            .map(|(entry, _)| entry.key.name())
            .collect();
        known
            .compiled
            .retain(|name, _| present.contains(name.as_str()));
        known.ending.retain(|name| present.contains(name.as_str()));
        for (entry, outline) in &definitions {
            if !outline["metadata"]["deletionTimestamp"].is_null() {
                known.ending.insert(entry.key.name().to_owned());
            }
            // a kind that is built in stays what it is
            let shadows = registry
                .iter()
                .any(|known| &*known.stored_as == entry.key.name());
            if is_established(outline) && !shadows {
                let since = match known.serving {
                    true => self.store.revision(),
                    false => entry.revision,
                };
                registry.add(known.resources(entry, outline, since));
            }
        }
        known.serving = true;
        // still locked: of two that make registries at the same time, the one that knows more comes last
        self.set_registry(registry);
        drop(known);
    }

    fn lock_definitions(&self) -> std::sync::MutexGuard<'_, Known> {
        self.definitions
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the objects of a custom kind are on their way out. A custom kind is stored under the name of its
    /// definition.
    pub(crate) fn is_ending(&self, stored_as: &str) -> bool {
        self.lock_definitions().ending.contains(stored_as)
    }

    /// Brings everything up to date after a write of one definition, its end included. Returns whether it worked.
    pub(crate) async fn follow_definition(&self, name: &str) -> bool {
        self.settle_definitions().await;
        let cleaned = self.clean_up(name).await;
        self.settle_definitions().await;
        !matches!(cleaned, Err(_) | Ok(Some(Cleanup::Failed)))
    }

    /// Deletes all objects of a definition that is being deleted; when none is left the definition goes. Returns how
    /// far it is, if there was anything to do.
    async fn clean_up(&self, name: &str) -> Result<Option<Cleanup>, WriteError> {
        let Some(entry) = self.store.get(&Key::new(STORED_AS, "", name)) else {
            return Ok(None);
        };
        let metadata = &outline(entry.value.rest()).unwrap_or_default()["metadata"];
        let finalizers = metadata["finalizers"].as_array();
        let held = finalizers
            .into_iter()
            .flatten()
            .any(|held| held == crd::FINALIZER);
        if metadata["deletionTimestamp"].is_null() || !held {
            return Ok(None);
        }
        let crd: Value = serde_json::from_slice(entry.value.rest()).unwrap_or_default();
        let cleanup = match resource_to_clean(&crd) {
            Some(resource) => self.delete_all(&resource).await,
            None => Cleanup::NeverEstablished,
        };
        let mut new = crd.clone();
        crd::set_cleanup(&mut new, cleanup, &self.now());
        if new != crd {
            self.put_definition(&entry, &new).await?;
        }
        Ok(Some(cleanup))
    }

    async fn delete_all(&self, resource: &Arc<Resource>) -> Cleanup {
        let scope = Scope::all(&resource.stored_as);
        let snapshot = self.store.snapshot();
        let keys: Vec<Key> = snapshot
            .list(&scope)
            .map(|entry| entry.key.clone())
            .collect();
        for key in keys {
            let target = Target::object(resource, key.namespace(), key.name());
            match self.delete(&target, &DeleteOptions::default()).await {
                Err(failure) if failure.code() != 404 => return Cleanup::Failed,
                _ => {}
            }
        }
        match self.store.snapshot().list(&scope).next() {
            Some(_) => Cleanup::InProgress,
            None => Cleanup::Done,
        }
    }
}

impl Known {
    fn resources(&mut self, entry: &Entry, outline: &Value, since: u64) -> Vec<Arc<Resource>> {
        let metadata = &outline["metadata"];
        let uid = metadata["uid"].as_str().unwrap_or_default();
        let generation = metadata["generation"].as_i64().unwrap_or_default();
        let name = entry.key.name();
        if let Some(known) = self.compiled.get(name)
            && known.uid == uid
            && known.generation == generation
        {
            return known.resources.clone();
        }
        // what was accepted compiles; if it does not, the kind is better not served than half
        let crd = serde_json::from_slice(entry.value.rest()).unwrap_or_default();
        let resources = crd::resources(&crd, since).unwrap_or_default();
        let resources: Vec<Arc<Resource>> = resources.into_iter().map(Arc::new).collect();
        let compiled = Compiled {
            uid: uid.to_owned(),
            generation,
            resources: resources.clone(),
        };
        self.compiled.insert(name.to_owned(), compiled);
        resources
    }
}

/// A definition without its versions: their schemas are many times larger than all the rest.
fn outline(definition: &[u8]) -> Option<Value> {
    #[derive(Deserialize)]
    struct Outline {
        metadata: Value,
        spec: Spec,
        #[serde(default)]
        status: Value,
    }
    #[derive(Deserialize)]
    struct Spec {
        group: Value,
        names: Value,
    }
    let Outline {
        metadata,
        spec: Spec { group, names },
        status,
    } = serde_json::from_slice(definition).ok()?;
    let spec = json!({"group": group, "names": names});
    Some(json!({"metadata": metadata, "spec": spec, "status": status}))
}

/// Any version will do to delete objects, also one that is not served any more.
fn resource_to_clean(crd: &Value) -> Option<Arc<Resource>> {
    let mut all_served = crd.clone();
    for version in all_served["spec"]["versions"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        version["served"] = true.into();
    }
    let resources = crd::resources(&all_served, u64::MAX).ok()?;
    let mut stored = resources.into_iter().filter(Resource::is_stored_version);
    stored.next().map(Arc::new).filter(|_| is_established(crd))
}

fn is_established(crd: &Value) -> bool {
    let conditions = crd["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

//! The end of a namespace: everything in it is deleted, then the namespace itself goes.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::queue::{Outcome, Queue};
use super::remains::{Remains, tell};
use super::seen::{Head, Seen};
use super::{Controller, settled};
use crate::clock::rfc3339_seconds;
use crate::kinds::Part;
use crate::server::Server;
use crate::server::act::{DeleteOptions, Propagation};
use crate::server::resource::Resource;
use crate::status::Failure;
use crate::store::{Entry, Key, Scope, Snapshot};

const NAMESPACES: &str = "namespaces";
const PODS: &str = "pods";
const FINALIZER: &str = "kubernetes";
const AT_ONCE: usize = 16;
/// What is left is counted again at most this often, however fast it goes.
const BREATH: Duration = Duration::from_millis(20);

pub(super) struct Namespaces {
    server: Server,
    /// Those that end.
    ending: Mutex<HashSet<Box<str>>>,
}

enum Next {
    /// Nothing is left.
    Finalize,
    /// Something is, whose end will be noticed.
    Wait(Outcome),
}

impl Controller for Namespaces {
    fn notice(&self, seen: &Seen<'_>, queue: &Queue) {
        if seen.key.resource() == NAMESPACES {
            let name = seen.key.name();
            match &seen.after {
                Some(after) if after.head.is_ending() => {
                    self.ending().insert(name.into());
                    queue.add(seen.key);
                }
                Some(_) | None => _ = self.ending().remove(name),
            }
            return;
        }
        let namespace = seen.key.namespace();
        if namespace.is_empty() {
            return;
        }
        let ends = self.ending().contains(namespace);
        let namespace = Key::new(NAMESPACES, "", namespace);
        // what was created while the namespace went would otherwise stay for ever
        let stray = seen.before.is_none() && self.server.store().get(&namespace).is_none();
        if ends || stray {
            queue.add(&namespace);
        }
    }

    async fn work(&self, key: &Key) -> Outcome {
        // what is deleted was there while the namespace was ending or gone; one that comes again keeps its own
        let snapshot = self.server.store().snapshot();
        let Some(entry) = snapshot.get(key) else {
            let remains = self.empty(&snapshot, key.name(), |_| true).await;
            return if remains.failures.is_empty() {
                Outcome::Done
            } else {
                Outcome::Again
            };
        };
        let Ok(namespace) = serde_json::from_slice::<Value>(entry.value.rest()) else {
            return Outcome::Done;
        };
        let finalizers = namespace["spec"]["finalizers"].as_array();
        let ends = Head::read(entry.value.rest()).is_ending();
        if !ends || finalizers.is_none_or(Vec::is_empty) {
            return Outcome::Done;
        }
        let (remains, next) = self.emptied(&snapshot, key.name(), &namespace).await;
        let uid = namespace["metadata"]["uid"].as_str().unwrap_or_default();
        if let Err(failure) = self.report(key, uid, &remains).await {
            return settled(Err(failure));
        }
        match next {
            Next::Finalize => settled(self.finalize(key, uid).await),
            Next::Wait(outcome) => {
                tokio::time::sleep(BREATH).await;
                outcome
            }
        }
    }
}

impl Namespaces {
    pub(super) fn new(server: &Server) -> Self {
        Self {
            server: server.clone(),
            ending: Mutex::default(),
        }
    }

    fn ending(&self) -> MutexGuard<'_, HashSet<Box<str>>> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pods go first, since they may need what else is there. Returns what to say about it and how to go on.
    async fn emptied(&self, snapshot: &Snapshot, name: &str, namespace: &Value) -> (Remains, Next) {
        let is_pods = |resource: &Resource| resource.plural == PODS;
        let pods = self.empty(snapshot, name, is_pods).await;
        if !pods.failures.is_empty() {
            return (pods, Next::Wait(Outcome::Again));
        }
        if !pods.objects.is_empty() {
            let (said, outcome) = self.waiting_for_pods(name, namespace, &pods);
            return (said, Next::Wait(outcome));
        }
        let rest = self
            .empty(snapshot, name, |resource| !is_pods(resource))
            .await;
        let next = match (rest.failures.is_empty(), rest.objects.is_empty()) {
            (true, true) => Next::Finalize,
            (true, false) => Next::Wait(Outcome::Done),
            (false, _) => Next::Wait(Outcome::Again),
        };
        (rest, next)
    }

    /// The real controller does not count pods; it complains once they had all the time they asked for.
    fn waiting_for_pods(
        &self,
        name: &str,
        namespace: &Value,
        pods: &Remains,
    ) -> (Remains, Outcome) {
        let scope = Scope::namespaced(PODS, name);
        let snapshot = self.server.store().snapshot();
        let graces = snapshot.list(&scope).filter_map(|entry| grace(entry));
        let grace = SignedDuration::from_secs(graces.max().unwrap_or(0));
        let since = namespace["metadata"]["deletionTimestamp"].as_str();
        let since = since.and_then(|since| since.parse::<Timestamp>().ok());
        let due = since.and_then(|since| since.checked_add(grace).ok());
        let mut said = Remains::default();
        match due {
            Some(due) if due > self.server.clock().now() => (said, Outcome::At(due)),
            _ if !pods.finalizers.is_empty() => (said, Outcome::Done),
            _ => {
                said.failures.push(format!(
                    "unexpected items still remain in namespace: {name} for gvr: /v1, Resource=pods"
                ));
                (said, Outcome::Done)
            }
        }
    }

    /// Deletes what there is of some resources; says what is left.
    async fn empty(
        &self,
        snapshot: &Snapshot,
        namespace: &str,
        which: impl Fn(&Resource) -> bool,
    ) -> Remains {
        let registry = self.server.registry();
        let resources = registry.iter().filter(|resource| resource.namespaced);
        // one version of each will do
        let resources: BTreeMap<(&str, &str), &Arc<Resource>> = resources
            .filter(|resource| which(resource))
            .map(|resource| ((&*resource.group, &*resource.plural), resource))
            .collect();
        let mut remains = Remains::default();
        for resource in resources.values() {
            let scope = Scope::namespaced(&resource.stored_as, namespace);
            let failures = self.delete_all(snapshot, &scope).await;
            remains.failures.extend(failures);
            let snapshot = self.server.store().snapshot();
            for entry in snapshot.list(&scope) {
                let head = Head::read(entry.value.rest());
                let finalizers = head.finalizers().iter().map(AsRef::as_ref);
                remains.add(&resource.plural, &resource.group, finalizers);
            }
        }
        remains
    }

    async fn delete_all(&self, snapshot: &Snapshot, scope: &Scope) -> Vec<String> {
        let entries: Vec<Arc<Entry>> = snapshot.list(scope).cloned().collect();
        let deletes = entries.into_iter().map(|entry| async move {
            let options = DeleteOptions {
                propagation: Some(Propagation::Background),
                uid: Some(Head::read(entry.value.rest()).uid.into_owned()),
                ..DeleteOptions::default()
            };
            self.server.end(&entry.key, &options).await
        });
        stream::iter(deletes)
            .buffer_unordered(AT_ONCE)
            .filter_map(|result| async move {
                let failure: Failure = result.err()?;
                (failure.code() != 404).then(|| failure.message().to_owned())
            })
            .collect()
            .await
    }

    async fn report(&self, key: &Key, uid: &str, remains: &Remains) -> Result<(), Failure> {
        let now = rfc3339_seconds(self.server.clock().now());
        let edit = |namespace: &mut Value| {
            if namespace["metadata"]["uid"] != uid {
                return;
            }
            namespace["status"]["phase"] = json!("Terminating");
            tell(namespace, remains, &now);
        };
        self.server.edit(key, Part::Status, None, edit).await
    }

    async fn finalize(&self, key: &Key, uid: &str) -> Result<(), Failure> {
        let edit = |namespace: &mut Value| {
            if namespace["metadata"]["uid"] != uid {
                return;
            }
            let finalizers = namespace["spec"]["finalizers"].as_array_mut();
            if let Some(finalizers) = finalizers {
                finalizers.retain(|name| name != FINALIZER);
            }
        };
        self.server.edit(key, Part::Finalize, None, edit).await
    }
}

/// How long a pod may take to end; `None` if it has ended.
fn grace(entry: &Entry) -> Option<i64> {
    let pod: Value = serde_json::from_slice(entry.value.rest()).ok()?;
    match pod["status"]["phase"].as_str() {
        Some("Succeeded" | "Failed") => None,
        _ => pod["spec"]["terminationGracePeriodSeconds"].as_i64(),
    }
}

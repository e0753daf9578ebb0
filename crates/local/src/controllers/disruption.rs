//! The status of disruption budgets: how many pods may be evicted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::budget::{counts, disrupted, healthy, needs_scale, tell, tell_failure};
use super::queue::{Outcome, Queue};
use super::seen::{Head, Seen, State};
use super::{Controller, settled};
use crate::clock::rfc3339_seconds;
use crate::kinds::Part;
use crate::server::Server;
use crate::server::act::selects;
use crate::store::{Key, Scope};

const BUDGETS: &str = "poddisruptionbudgets.policy";
const PODS: &str = "pods";

pub(super) struct Disruption {
    server: Server,
    /// The budgets of each namespace that has any.
    budgets: Mutex<HashMap<Box<str>, BTreeSet<Key>>>,
}

impl Controller for Disruption {
    fn notice(&self, seen: &Seen<'_>, queue: &Queue) {
        match seen.key.resource() {
            BUDGETS => {
                self.note(seen);
                if seen.after.is_some() {
                    queue.add(seen.key);
                }
            }
            PODS => {
                let budgets = self.budgets();
                let Some(budgets) = budgets.get(seen.key.namespace()) else {
                    return;
                };
                if matters(seen.before.as_ref()) != matters(seen.after.as_ref()) {
                    budgets.iter().for_each(|key| queue.add(key));
                }
            }
            _ => {}
        }
    }

    async fn work(&self, key: &Key) -> Outcome {
        let Some(entry) = self.server.store().get(key) else {
            return Outcome::Done;
        };
        let Ok(budget) = serde_json::from_slice::<Value>(entry.value.rest()) else {
            return Outcome::Done;
        };
        let version = budget["metadata"]["resourceVersion"].as_str();
        let pods = self.pods_of(key, &budget);
        let clock = self.server.clock().now();
        let now = rfc3339_seconds(clock);
        let scale = match needs_scale(&budget["spec"]) {
            true => self.scale_of(&pods).await,
            false => Ok(0),
        };
        let counts = scale.and_then(|scale| counts(&budget["spec"], pods.len(), scale));
        let counts = match counts {
            Ok(counts) => counts,
            Err(why) => {
                let edit = |budget: &mut Value| tell_failure(budget, &why, &now);
                return settled(self.server.edit(key, Part::Status, version, edit).await);
            }
        };
        let (disrupted, recheck) = disrupted(&budget["status"], &pods, clock);
        let healthy = healthy(&pods, &disrupted);
        let edit = |budget: &mut Value| tell(budget, &counts, healthy, &disrupted, &now);
        let written = self.server.edit(key, Part::Status, version, edit).await;
        match (settled(written), recheck) {
            (Outcome::Done, Some(time)) => Outcome::At(time),
            (outcome, _) => outcome,
        }
    }
}

impl Disruption {
    pub(super) fn new(server: &Server) -> Self {
        Self {
            server: server.clone(),
            budgets: Mutex::default(),
        }
    }

    fn budgets(&self) -> MutexGuard<'_, HashMap<Box<str>, BTreeSet<Key>>> {
        self.budgets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, seen: &Seen<'_>) {
        let namespace = seen.key.namespace();
        let mut budgets = self.budgets();
        match seen.after {
            Some(_) => {
                let here = budgets.entry(namespace.into()).or_default();
                here.insert(seen.key.clone());
            }
            None => {
                if let Some(here) = budgets.get_mut(namespace) {
                    here.remove(seen.key);
                    if here.is_empty() {
                        budgets.remove(namespace);
                    }
                }
            }
        }
    }

    fn pods_of(&self, key: &Key, budget: &Value) -> Vec<Value> {
        let selects = selects(&budget["spec"]["selector"]);
        let snapshot = self.server.store().snapshot();
        let scope = Scope::namespaced(PODS, key.namespace());
        let pods = snapshot.list(&scope);
        pods.filter_map(|entry| serde_json::from_slice(entry.value.rest()).ok())
            .filter(selects)
            .collect()
    }

    /// How many pods the controllers of these want, together. Pods without a controller do not count.
    async fn scale_of(&self, pods: &[Value]) -> Result<i64, String> {
        let mut scales: BTreeMap<String, i64> = BTreeMap::new();
        for pod in pods {
            let owners = pod["metadata"]["ownerReferences"].as_array();
            let mut owners = owners.into_iter().flatten();
            let Some(controller) = owners.find(|owner| owner["controller"] == true) else {
                continue;
            };
            let uid = controller["uid"].as_str().unwrap_or_default();
            if !scales.contains_key(uid) {
                let scale = self.scale(pod, controller).await?;
                scales.insert(uid.to_owned(), scale);
            }
        }
        Ok(scales.values().sum())
    }

    async fn scale(&self, pod: &Value, controller: &Value) -> Result<i64, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&controller["apiVersion"]), text(&controller["kind"]));
        let resource = self.server.resource_named(&version, &kind);
        let resource = resource
            .ok_or_else(|| format!("no matches for kind {kind:?} in version {version:?}"))?;
        if resource.subresource("scale").is_none() {
            let name = resource.qualified();
            return Err(format!("{name} does not implement the scale subresource"));
        }
        let namespace = text(&pod["metadata"]["namespace"]);
        let key = Key::new(&resource.stored_as, &namespace, &text(&controller["name"]));
        let entry = self.server.store().get(&key);
        let is_it =
            entry.is_some_and(|entry| controller["uid"] == *Head::read(entry.value.rest()).uid);
        let scale = match is_it {
            true => self
                .server
                .replicas(&resource, &key)
                .await
                .unwrap_or_default(),
            false => None,
        };
        let name = text(&pod["metadata"]["name"]);
        scale.ok_or_else(|| format!("found no controllers for pod {name:?}"))
    }
}

/// As much of a pod as budgets look at.
fn matters(state: Option<&State<'_>>) -> Option<(Value, bool, bool, Option<String>)> {
    let state = state?;
    let pod: Value = serde_json::from_slice(state.entry.value.rest()).ok()?;
    let conditions = pod["status"]["conditions"].as_array();
    let is_ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
    let ready = conditions.is_some_and(|conditions| conditions.iter().any(is_ready));
    let mut owners = state.head.owners().iter();
    let controller = owners.find(|owner| owner.controls());
    Some((
        pod["metadata"]["labels"].clone(),
        ready,
        state.head.is_ending(),
        controller.map(|owner| owner.uid.to_string()),
    ))
}

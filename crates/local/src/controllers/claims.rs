//! Volumes and claims are kept while they are in use.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::garbage::remove_finalizer;
use super::queue::{Outcome, Queue};
use super::seen::{Head, Seen};
use super::{Controller, settled};
use crate::kinds::Part;
use crate::server::Server;
use crate::store::{Key, Scope};

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const PODS: &str = "pods";

pub(super) struct Claims {
    server: Server,
    /// Claims that wait for pods to let go of them.
    waiting: Mutex<BTreeSet<Key>>,
}

impl Controller for Claims {
    fn notice(&self, seen: &Seen<'_>, queue: &Queue) {
        let resource = seen.key.resource();
        if resource == PODS {
            let waiting = self.waiting();
            let in_namespace = |key: &&Key| key.namespace() == seen.key.namespace();
            waiting
                .iter()
                .filter(in_namespace)
                .for_each(|key| queue.add(key));
            return;
        }
        let Some(finalizer) = finalizer(resource) else {
            return;
        };
        let head = seen.after.as_ref().map(|after| &after.head);
        if head.is_some_and(|head| head.is_ending() == head.has_finalizer(finalizer)) {
            queue.add(seen.key);
        } else {
            self.waiting().remove(seen.key);
        }
    }

    async fn work(&self, key: &Key) -> Outcome {
        let (Some(entry), Some(finalizer)) =
            (self.server.store().get(key), finalizer(key.resource()))
        else {
            return Outcome::Done;
        };
        let head = Head::read(entry.value.rest());
        let version = Some(head.resource_version.as_ref());
        match (head.is_ending(), head.has_finalizer(finalizer)) {
            (true, true) if self.is_used(key, entry.value.rest()) => Outcome::Done,
            (true, true) => {
                let edit = |object: &mut Value| remove_finalizer(object, finalizer);
                settled(self.server.edit(key, Part::Main, version, edit).await)
            }
            (false, false) => {
                let edit = |object: &mut Value| add_finalizer(object, finalizer);
                settled(self.server.edit(key, Part::Main, version, edit).await)
            }
            _ => Outcome::Done,
        }
    }
}

impl Claims {
    pub(super) fn new(server: &Server) -> Self {
        Self {
            server: server.clone(),
            waiting: Mutex::default(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeSet<Key>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_used(&self, key: &Key, object: &[u8]) -> bool {
        let Ok(object) = serde_json::from_slice::<Value>(object) else {
            return false;
        };
        if key.resource() == VOLUMES {
            return object["status"]["phase"] == "Bound";
        }
        // noted before the look at the pods, so that none of their writes is missed
        self.waiting().insert(key.clone());
        let snapshot = self.server.store().snapshot();
        let scope = Scope::namespaced(PODS, key.namespace());
        let mut pods = snapshot
            .list(&scope)
            .filter_map(|entry| serde_json::from_slice(entry.value.rest()).ok());
        pods.any(|pod: Value| uses(&pod, &object))
    }
}

fn finalizer(resource: &str) -> Option<&'static str> {
    match resource {
        CLAIMS => Some("kubernetes.io/pvc-protection"),
        VOLUMES => Some("kubernetes.io/pv-protection"),
        _ => None,
    }
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let finalizers = &mut object["metadata"]["finalizers"];
    match finalizers.as_array_mut() {
        Some(finalizers) => finalizers.push(json!(finalizer)),
        None => *finalizers = json!([finalizer]),
    }
}

/// Whether a pod uses a claim that is being deleted. One without a node will not get to use it any more.
fn uses(pod: &Value, claim: &Value) -> bool {
    if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
        return false;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&claim["metadata"]["name"]);
    let (pod_name, pod_uid) = (text(&pod["metadata"]["name"]), &pod["metadata"]["uid"]);
    let over = !pod["metadata"]["deletionTimestamp"].is_null()
        && pod["metadata"]["deletionGracePeriodSeconds"] == 0;
    let owners = claim["metadata"]["ownerReferences"].as_array();
    let is_owner = |owner: &Value| owner["controller"] == true && owner["uid"] == *pod_uid;
    let made_for_pod = owners.is_some_and(|owners| owners.iter().any(is_owner));
    let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.any(|volume| {
        let ephemeral = !volume["ephemeral"].is_null()
            && format!("{pod_name}-{}", text(&volume["name"])) == name;
        volume["persistentVolumeClaim"]["claimName"] == *name
            || (!over && ephemeral && made_for_pod)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::uses;

    fn claim() -> Value {
        json!({"metadata": {"name": "p-data", "ownerReferences": [{"uid": "1", "controller": true}]}})
    }

    fn pod(node: &str, volume: &Value) -> Value {
        json!({"metadata": {"name": "p", "uid": "1"}, "spec": {"nodeName": node, "volumes": [volume]}})
    }

    #[test]
    fn only_pods_on_nodes_use_claims() {
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "p-data"}});
        assert!(uses(&pod("n", &volume), &claim()));
        assert!(!uses(&pod("", &volume), &claim()));
        let other = json!({"name": "v", "persistentVolumeClaim": {"claimName": "other"}});
        assert!(!uses(&pod("n", &other), &claim()));
    }

    #[test]
    fn a_claim_made_for_a_pod_is_used_until_the_pod_is_over() {
        let volume = json!({"name": "data", "ephemeral": {}});
        let mut pod = pod("n", &volume);
        assert!(uses(&pod, &claim()));
        pod["metadata"]["uid"] = json!("2");
        assert!(!uses(&pod, &claim()));
        pod["metadata"]["uid"] = json!("1");
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-31T12:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        assert!(!uses(&pod, &claim()));
    }
}

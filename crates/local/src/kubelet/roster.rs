//! What the node knows of the pods that are its business. No client and no clock.

use std::collections::{BTreeSet, HashMap, HashSet};

use k8s_openapi::{
    api::core::v1::{Pod, PodSpec},
    jiff::Timestamp,
};
use kube::{Resource, ResourceExt as _};
use serde_json::Value;

/// How often one patch is sent if the server keeps answering that the object is still otherwise.
const PERSISTENCE: u32 = 3;

/// Pods of these nodes, and those without a node, by uid.
pub(crate) struct Roster<M> {
    pub(crate) pods: HashMap<String, Entry<M>>,
    nodes: BTreeSet<String>,
    /// Whether pods without a node are the business of these.
    schedules: bool,
    load: HashMap<String, usize>,
    wakes: BTreeSet<(Timestamp, String)>,
}

#[derive(Default)]
pub(crate) struct Entry<M> {
    pub(crate) pod: Pod,
    pub(crate) memory: M,
    /// After an act that leaves nothing to do until the pod is seen to have changed.
    pub(crate) done: bool,
    /// The node it has, or is being given.
    pub(crate) node: Option<String>,
    wake: Option<Timestamp>,
    pub(crate) work: Work,
}

/// What is being done about an object.
#[derive(Default)]
pub(crate) struct Work {
    /// A request is on its way; whatever else is to be done waits for its answer.
    pub(crate) flying: bool,
    pub(crate) failures: u32,
    /// The last patch, and how often it was sent.
    pub(crate) sent: Option<(Value, u32)>,
}

impl Work {
    /// Whether to send the patch once more.
    pub(crate) fn insists(&mut self, patch: &Value) -> bool {
        let content = |patch: &Value| {
            let mut patch = patch.clone();
            if let Some(patch) = patch.as_object_mut() {
                patch.remove("metadata");
            }
            patch
        };
        let content = content(patch);
        let times = match &self.sent {
            Some((sent, times)) if *sent == content => times + 1,
            _ => 1,
        };
        self.sent = Some((content, times));
        times <= PERSISTENCE
    }
}

impl<M> Entry<M> {
    pub(crate) fn is_bound(&self) -> bool {
        self.pod.spec.as_ref().is_some_and(has_node)
    }
}

impl<M: Default> Roster<M> {
    pub(crate) fn new(nodes: &[String], schedules: bool) -> Self {
        Self {
            nodes: nodes.iter().cloned().collect(),
            schedules,
            pods: HashMap::new(),
            load: HashMap::new(),
            wakes: BTreeSet::new(),
        }
    }

    /// How many pods the node has.
    pub(crate) fn load(&self, node: &str) -> usize {
        self.load.get(node).copied().unwrap_or_default()
    }

    /// When the next pod wants to be looked at.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        self.wakes.first().map(|(time, _)| *time)
    }

    /// A pod that wants to be looked at by now, once.
    pub(crate) fn due(&mut self, now: Timestamp) -> Option<String> {
        let (time, _) = self.wakes.first()?;
        if *time > now {
            return None;
        }
        let (_, uid) = self.wakes.pop_first()?;
        if let Some(entry) = self.pods.get_mut(&uid) {
            entry.wake = None;
        }
        Some(uid)
    }

    /// The pods to which something applies, in one order, so that one world has one future.
    pub(crate) fn which(&self, applies: impl Fn(&Entry<M>) -> bool) -> Vec<String> {
        let all = self.pods.iter().filter(|(_, entry)| applies(entry));
        let mut all: Vec<_> = all
            .map(|(uid, entry)| (entry.pod.namespace(), entry.pod.name_any(), uid.clone()))
            .collect();
        all.sort();
        all.into_iter().map(|(_, _, uid)| uid).collect()
    }

    /// The pods that the list does not name.
    pub(crate) fn missing(&self, listed: &HashSet<String>) -> Vec<String> {
        let gone = self.pods.keys().filter(|uid| !listed.contains(*uid));
        gone.cloned().collect()
    }

    pub(crate) fn set_wake(&mut self, uid: &str, wake: Option<Timestamp>) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        if entry.wake == wake {
            return;
        }
        if let Some(old) = std::mem::replace(&mut entry.wake, wake) {
            self.wakes.remove(&(old, uid.to_owned()));
        }
        if let Some(new) = wake {
            self.wakes.insert((new, uid.to_owned()));
        }
    }

    /// Takes note of a pod, and names it if it is this node's business and news.
    pub(crate) fn observe(&mut self, pod: Pod) -> Option<String> {
        let uid = pod.metadata.uid.clone()?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let is_ours = match &node {
            Some(node) => self.nodes.contains(node),
            None => self.schedules && has_default_scheduler(&pod),
        };
        if !is_ours {
            self.forget(&uid);
            return None;
        }
        let entry = self.pods.entry(uid.clone()).or_default();
        if version(&entry.pod) > version(&pod) {
            return None;
        }
        let is_bound = node.is_some();
        entry.done &= !is_bound || entry.is_bound();
        entry.pod = pod;
        if is_bound {
            self.assign(&uid, node);
        }
        Some(uid)
    }

    /// Counts the pod to its node.
    pub(crate) fn assign(&mut self, uid: &str, node: Option<String>) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        if entry.node == node {
            return;
        }
        let new = node.clone();
        let old = std::mem::replace(&mut entry.node, node);
        if let Some(load) = old.and_then(|old| self.load.get_mut(&old)) {
            *load = load.saturating_sub(1);
        }
        if let Some(new) = new {
            *self.load.entry(new).or_default() += 1;
        }
    }

    pub(crate) fn forget(&mut self, uid: &str) {
        self.set_wake(uid, None);
        self.assign(uid, None);
        self.pods.remove(uid);
    }
}

fn has_node(spec: &PodSpec) -> bool {
    spec.node_name.is_some()
}

fn has_default_scheduler(pod: &Pod) -> bool {
    let scheduler = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.scheduler_name.as_deref());
    scheduler.is_none_or(|name| name == "default-scheduler")
}

pub(crate) fn version<K: Resource>(object: &K) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

//! What a node does about a pod as far as the API server is concerned. Pure.

use k8s_openapi::{
    api::core::v1::{Pod, PodSpec, PodStatus},
    jiff::Timestamp,
};
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};

use super::{
    node::{self, Spot},
    status::unschedulable,
};

#[derive(Debug, PartialEq)]
pub(crate) enum Act {
    Bind {
        node: String,
    },
    /// A merge patch of the status.
    Status(Value),
    /// Removes a pod that has ended.
    Remove,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) act: Option<Act>,
    /// When to ask again if nothing happens.
    pub(crate) wake: Option<Timestamp>,
}

/// What to do about a pod that has no node yet.
pub(crate) fn schedule(pod: &Pod, spots: &[Spot<'_>], lack: Option<&str>, now: Timestamp) -> Plan {
    let gated = |spec: &PodSpec| {
        spec.scheduling_gates
            .as_ref()
            .is_some_and(|gates| !gates.is_empty())
    };
    let Some(spec) = pod.spec.as_ref().filter(|spec| !gated(spec)) else {
        return Plan::default();
    };
    // nodes that are not there yet will be in a moment
    let has_nodes = spots.iter().any(|spot| spot.node.is_some());
    if pod.metadata.deletion_timestamp.is_some() || !has_nodes {
        return Plan::default();
    }
    match node::choose(spec, spots, lack) {
        Ok(node) => Plan {
            act: Some(Act::Bind {
                node: node.to_owned(),
            }),
            wake: None,
        },
        Err(message) => {
            let old = pod.status.clone().unwrap_or_default();
            let mut new = old.clone();
            new.conditions = Some(unschedulable(pod, &old, message, now));
            Plan {
                act: change(pod, &old, &new),
                wake: None,
            }
        }
    }
}

/// As kubelets name pods in messages: `name_namespace(uid)`.
pub(crate) fn pod_label(pod: &Pod) -> String {
    format!(
        "{}_{}({})",
        pod.name_any(),
        pod.namespace().unwrap_or_default(),
        pod.metadata.uid.as_deref().unwrap_or_default()
    )
}

pub(crate) fn restart_policy(spec: &PodSpec) -> &str {
    spec.restart_policy.as_deref().unwrap_or("Always")
}

/// The patch from one status to the other, if there is a difference. It only applies to the very
/// pod that was looked at: lists are replaced as wholes.
pub(crate) fn change(pod: &Pod, old: &PodStatus, new: &PodStatus) -> Option<Act> {
    if old == new {
        return None;
    }
    let as_json = |status| serde_json::to_value(status).unwrap_or_default();
    let status = difference(&as_json(old), &as_json(new))?;
    Some(Act::Status(json!({
        "metadata": {"resourceVersion": pod.metadata.resource_version},
        "status": status,
    })))
}

/// The merge patch that makes one value of the other.
pub(crate) fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(now)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (key, value) in now {
        let changed = match before.get(key) {
            Some(before) => difference(before, value),
            None => Some(value.clone()),
        };
        if let Some(changed) = changed {
            patch.insert(key.clone(), changed);
        }
    }
    for key in before.keys().filter(|key| !now.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

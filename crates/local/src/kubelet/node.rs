//! The Node objects, and which of them takes a pod. Pure.

use std::{collections::BTreeMap, net::Ipv4Addr};

use k8s_openapi::{
    api::core::v1::{Node, PodSpec},
    apimachinery::pkg::api::resource::Quantity,
    jiff::Timestamp,
};
use serde_json::{Value, json};

use super::{container::stamp, plan::difference};

/// The Kubernetes whose ways a node follows.
pub(crate) const VERSION: &str = "v1.36.3";
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// A node as the scheduler sees it.
pub(crate) struct Spot<'a> {
    pub(crate) name: &'a str,
    /// Absent until the object is there.
    pub(crate) node: Option<&'a Node>,
    /// How many pods it has.
    pub(crate) load: usize,
}

#[derive(Debug, PartialEq)]
pub(crate) enum NodeAct {
    Create(Box<Node>),
    Status(Value),
    /// A merge patch of the object itself.
    Patch(Value),
}

/// What a node is made of.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) capacity: BTreeMap<String, Quantity>,
    /// Labels besides those that every node has.
    pub(crate) labels: BTreeMap<String, String>,
    /// What it says of itself: runtime, kernel and the image of the system.
    pub(crate) runtime: String,
    pub(crate) kernel: String,
    pub(crate) system: String,
}

/// What is missing to make the node what it is meant to be.
pub(crate) fn keep(machine: &Machine, node: Option<&Node>, now: Timestamp) -> Option<NodeAct> {
    let Some(node) = node else {
        return Some(NodeAct::Create(Box::new(object(machine))));
    };
    let version = json!({"resourceVersion": node.metadata.resource_version});
    let old = serde_json::to_value(&node.status).unwrap_or_default();
    let new = status(machine, &old, now);
    if let Some(patch) = difference(&old, &new) {
        return Some(NodeAct::Status(
            json!({"metadata": version, "status": patch}),
        ));
    }
    let labels = node.metadata.labels.clone().unwrap_or_default();
    if machine
        .labels
        .iter()
        .any(|(key, value)| labels.get(key) != Some(value))
    {
        let mut metadata = version;
        metadata["labels"] = json!(machine.labels);
        return Some(NodeAct::Patch(json!({"metadata": metadata})));
    }
    let taints = node.spec.as_ref()?.taints.as_ref()?;
    if taints.iter().all(|taint| taint.key != NOT_READY) {
        return None;
    }
    let rest: Vec<_> = taints
        .iter()
        .filter(|taint| taint.key != NOT_READY)
        .collect();
    Some(NodeAct::Patch(
        json!({"metadata": version, "spec": {"taints": rest}}),
    ))
}

fn object(machine: &Machine) -> Node {
    let labels = [
        ("kubernetes.io/hostname", machine.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture()),
    ];
    let mut all = machine.labels.clone();
    all.extend(labels.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let mut node = Node::default();
    node.metadata.name = Some(machine.name.clone());
    node.metadata.labels = Some(all);
    node
}

/// As Go names it.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The whole status; what the node does not answer for, and the times of what has not changed, are
/// as before.
fn status(machine: &Machine, old: &Value, now: Timestamp) -> Value {
    let Machine { name, capacity, .. } = machine;
    let mut status = match old {
        Value::Object(_) => old.clone(),
        _ => json!({}),
    };
    status["capacity"] = json!(capacity);
    status["allocatable"] = json!(capacity);
    if status.get("addresses").is_none() {
        status["addresses"] = json!([
            {"type": "InternalIP", "address": machine.address.to_string()},
            {"type": "Hostname", "address": name},
        ]);
    }
    status["nodeInfo"] = json!({
        "architecture": architecture(),
        "bootID": name,
        "containerRuntimeVersion": machine.runtime,
        "kernelVersion": machine.kernel,
        "kubeProxyVersion": "",
        "kubeletVersion": VERSION,
        "machineID": name,
        "operatingSystem": "linux",
        "osImage": machine.system,
        "systemUUID": name,
    });
    let conditions = conditions(old.get("conditions").and_then(Value::as_array), now);
    status["conditions"] = Value::Array(conditions);
    status
}

fn conditions(old: Option<&Vec<Value>>, now: Timestamp) -> Vec<Value> {
    let own = [
        (
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        (
            "DiskPressure",
            "False",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        (
            "PIDPressure",
            "False",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
        (
            "Ready",
            "True",
            "KubeletReady",
            "kubelet is posting ready status",
        ),
    ];
    let now = json!(stamp(now));
    let kind = |condition: &Value| condition["type"].as_str().unwrap_or_default().to_owned();
    let old: &[Value] = old.map(Vec::as_slice).unwrap_or_default();
    let foreign = old
        .iter()
        .filter(|condition| own.iter().all(|own| own.0 != kind(condition)))
        .cloned();
    let own = own.map(|(name, status, reason, message)| {
        let before = old
            .iter()
            .find(|condition| kind(condition) == name && condition["status"] == status);
        let time = |field: &str| {
            let time = before.and_then(|before| before.get(field)).cloned();
            time.unwrap_or_else(|| now.clone())
        };
        json!({
            "type": name, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": time("lastHeartbeatTime"),
            "lastTransitionTime": time("lastTransitionTime"),
        })
    });
    foreign.chain(own).collect()
}

/// The node that takes the pod: of those that may, the one with the fewest pods. Otherwise the
/// scheduler's words for why there is none.
pub(crate) fn choose<'a>(
    pod: &PodSpec,
    spots: &[Spot<'a>],
    lack: Option<&str>,
) -> Result<&'a str, String> {
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut best: Option<&Spot<'a>> = None;
    let known = spots.iter().filter_map(|spot| Some((spot, spot.node?)));
    for (spot, node) in known.clone() {
        if let Some(reason) = objection(pod, node, spot.load, lack) {
            *reasons.entry(reason).or_default() += 1;
        } else if best.is_none_or(|best| spot.load < best.load) {
            best = Some(spot);
        }
    }
    let all = known.count();
    best.map(|spot| spot.name).ok_or_else(|| {
        let mut reasons: Vec<String> = reasons
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        reasons.sort();
        format!(
            "0/{all} nodes are available: {}. preemption: 0/{all} nodes are available: {all} \
             Preemption is not helpful for scheduling.",
            reasons.join(", ")
        )
    })
}

fn objection(pod: &PodSpec, node: &Node, load: usize, lack: Option<&str>) -> Option<String> {
    if let Some(resource) = lack {
        return Some(format!("Insufficient {resource}"));
    }
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        return Some("node(s) were unschedulable".to_owned());
    }
    let labels = node.metadata.labels.as_ref();
    let has = |key: &String, value: &String| labels.is_some_and(|all| all.get(key) == Some(value));
    let mut wanted = pod.node_selector.iter().flatten();
    if !wanted.all(|(key, value)| has(key, value)) {
        return Some("node(s) didn't match Pod's node affinity/selector".to_owned());
    }
    let room = node
        .status
        .as_ref()
        .and_then(|status| status.allocatable.as_ref()?.get("pods")?.0.parse().ok());
    match room {
        Some(room) if load >= room => Some("Too many pods".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, net::Ipv4Addr};

    use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
    use serde_json::json;

    use super::{Machine, NodeAct, keep, object, status};

    #[test]
    fn labels_of_the_machine_are_kept_and_those_of_others_left_alone() {
        let machine = Machine {
            name: "m".to_owned(),
            address: Ipv4Addr::LOCALHOST,
            capacity: BTreeMap::new(),
            labels: [("isolation".to_owned(), "none".to_owned())].into(),
            runtime: String::new(),
            kernel: String::new(),
            system: String::new(),
        };
        let now = Timestamp::UNIX_EPOCH;
        let mut node: Node = object(&machine);
        node.status = serde_json::from_value(status(&machine, &json!(null), now)).unwrap();
        assert_eq!(keep(&machine, Some(&node), now), None);
        let other = json!({"isolation": "namespaces", "disk": "ssd"});
        node.metadata.labels = serde_json::from_value(other).unwrap();
        let patch = json!({"metadata": {"resourceVersion": null, "labels": {"isolation": "none"}}});
        assert_eq!(
            keep(&machine, Some(&node), now),
            Some(NodeAct::Patch(patch))
        );
    }
}

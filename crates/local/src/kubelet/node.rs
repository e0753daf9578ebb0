//! The Node objects, and which of them takes a pod. Pure.

use std::{collections::BTreeMap, net::Ipv4Addr};

use k8s_openapi::{
    api::core::v1::{Node, PodSpec, Taint, Toleration},
    apimachinery::pkg::api::resource::Quantity,
    jiff::Timestamp,
};
use quantity::Quantity as Amount;
use serde_json::{Value, json};

use super::{container::stamp, plan::difference};

/// The Kubernetes whose ways a node follows.
pub(crate) const VERSION: &str = "v1.36.3";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// A cluster has a controller that makes it of the condition.
const DISK_PRESSURE: &str = "node.kubernetes.io/disk-pressure";

/// A node as the scheduler sees it.
pub(crate) struct Spot<'a> {
    pub(crate) name: &'a str,
    /// Absent until it is there and ready.
    pub(crate) node: Option<&'a Node>,
    /// How many pods it has.
    pub(crate) load: usize,
    pub(crate) has_disk_pressure: bool,
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

/// What is missing to make the node what it is meant to be. `pressure` says what is short on its disk.
pub(crate) fn keep(
    machine: &Machine,
    node: Option<&Node>,
    pressure: Option<&str>,
    now: Timestamp,
) -> Option<NodeAct> {
    let Some(node) = node else {
        return Some(NodeAct::Create(Box::new(object(machine))));
    };
    let version = json!({"resourceVersion": node.metadata.resource_version});
    let old = serde_json::to_value(&node.status).unwrap_or_default();
    let new = status(machine, &old, pressure, now);
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
    let taints = taints(node, pressure.is_some())?;
    Some(NodeAct::Patch(
        json!({"metadata": version, "spec": {"taints": taints}}),
    ))
}

/// Those that the node should have, if it has others.
fn taints(node: &Node, has_disk_pressure: bool) -> Option<Vec<Taint>> {
    let spec = node.spec.as_ref();
    let old = spec
        .and_then(|spec| spec.taints.clone())
        .unwrap_or_default();
    let is_kept = |taint: &&Taint| match taint.key.as_str() {
        NOT_READY => false,
        DISK_PRESSURE => has_disk_pressure,
        _ => true,
    };
    let mut new: Vec<Taint> = old.iter().filter(is_kept).cloned().collect();
    if has_disk_pressure && new.iter().all(|taint| taint.key != DISK_PRESSURE) {
        new.push(Taint {
            key: DISK_PRESSURE.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        });
    }
    (new != old).then_some(new)
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
fn status(machine: &Machine, old: &Value, pressure: Option<&str>, now: Timestamp) -> Value {
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
    let before = old.get("conditions").and_then(Value::as_array);
    let conditions = conditions(before, pressure, now);
    status["conditions"] = Value::Array(conditions);
    status
}

fn conditions(old: Option<&Vec<Value>>, pressure: Option<&str>, now: Timestamp) -> Vec<Value> {
    let pressed = pressure.map(|what| format!("kubelet has disk pressure: {what}"));
    let disk = match &pressed {
        Some(message) => (
            "DiskPressure",
            "True",
            "KubeletHasDiskPressure",
            message.as_str(),
        ),
        None => (
            "DiskPressure",
            "False",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
    };
    let own = [
        (
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        disk,
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
        if let Some(reason) = objection(pod, node, spot, lack) {
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

fn objection(pod: &PodSpec, node: &Node, spot: &Spot<'_>, lack: Option<&str>) -> Option<String> {
    if let Some(resource) = lack {
        return Some(format!("Insufficient {resource}"));
    }
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        return Some("node(s) were unschedulable".to_owned());
    }
    if spot.has_disk_pressure && !tolerates(pod, DISK_PRESSURE) {
        return Some(format!(
            "node(s) had untolerated taint {{{DISK_PRESSURE}: }}"
        ));
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
        .and_then(|status| Amount::parse(&status.allocatable.as_ref()?.get("pods")?.0).ok())
        .and_then(|room| usize::try_from(room.value()).ok());
    match room {
        Some(room) if spot.load >= room => Some("Too many pods".to_owned()),
        _ => None,
    }
}

/// A node says so with its first status: before that nobody knows what room it has.
pub(crate) fn is_ready(node: &Node) -> bool {
    let status = node.status.as_ref();
    let mut conditions = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

/// Whether a pod puts up with a taint that has no value and keeps others from being scheduled.
fn tolerates(pod: &PodSpec, taint: &str) -> bool {
    let tolerates = |one: &Toleration| {
        let is_any = one.operator.as_deref() == Some("Exists");
        let has_value = one.value.as_ref().is_some_and(|value| !value.is_empty());
        let is_for_it = match one.key.as_deref() {
            None | Some("") => is_any,
            Some(key) => key == taint && (is_any || !has_value),
        };
        let effect = one.effect.as_deref().unwrap_or_default();
        is_for_it && matches!(effect, "" | "NoSchedule")
    };
    pod.tolerations.iter().flatten().any(tolerates)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, net::Ipv4Addr};

    use k8s_openapi::{
        api::core::v1::{Node, PodSpec},
        jiff::Timestamp,
    };
    use serde_json::{Value, json};

    use super::{Machine, NodeAct, Spot, choose, is_ready, keep, object, status};

    fn machine() -> Machine {
        Machine {
            name: "m".to_owned(),
            address: Ipv4Addr::LOCALHOST,
            capacity: BTreeMap::new(),
            labels: [("isolation".to_owned(), "none".to_owned())].into(),
            runtime: String::new(),
            kernel: String::new(),
            system: String::new(),
        }
    }

    #[test]
    fn labels_of_the_machine_are_kept_and_those_of_others_left_alone() {
        let machine = machine();
        let now = Timestamp::UNIX_EPOCH;
        let mut node: Node = object(&machine);
        node.status = serde_json::from_value(status(&machine, &json!(null), None, now)).unwrap();
        assert_eq!(keep(&machine, Some(&node), None, now), None);
        let other = json!({"isolation": "namespaces", "disk": "ssd"});
        node.metadata.labels = serde_json::from_value(other).unwrap();
        let patch = json!({"metadata": {"resourceVersion": null, "labels": {"isolation": "none"}}});
        assert_eq!(
            keep(&machine, Some(&node), None, now),
            Some(NodeAct::Patch(patch))
        );
    }

    #[test]
    fn a_disk_that_is_nearly_full_is_a_condition_and_a_taint_until_it_is_not() {
        let (machine, now) = (machine(), Timestamp::UNIX_EPOCH);
        let mut node: Node = object(&machine);
        let own = json!({"key": "own", "effect": "NoSchedule"});
        let pressed = json!({"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"});
        node.spec = serde_json::from_value(json!({"taints": [own]})).unwrap();
        let mut taints = vec![own.clone()];
        for (pressure, value, message, then) in [
            (
                None,
                "False",
                "kubelet has no disk pressure",
                vec![own.clone()],
            ),
            (
                Some("1 of 20"),
                "True",
                "kubelet has disk pressure: 1 of 20",
                vec![own.clone(), pressed],
            ),
            (None, "False", "kubelet has no disk pressure", vec![own]),
        ] {
            let old = serde_json::to_value(&node.status).unwrap();
            let new = status(&machine, &old, pressure, now);
            let conditions = new["conditions"].as_array().unwrap();
            let disk = conditions.iter().find(|one| one["type"] == "DiskPressure");
            let disk = disk.unwrap();
            assert_eq!(
                (&disk["status"], &disk["message"]),
                (&json!(value), &json!(message))
            );
            node.status = serde_json::from_value(new).unwrap();
            let patch = json!({"metadata": {"resourceVersion": null}, "spec": {"taints": then}});
            let expected = (taints != then).then_some(NodeAct::Patch(patch));
            assert_eq!(keep(&machine, Some(&node), pressure, now), expected);
            node.spec = serde_json::from_value(json!({"taints": then})).unwrap();
            assert_eq!(keep(&machine, Some(&node), pressure, now), None);
            taints = then;
        }
    }

    #[test]
    fn under_disk_pressure_a_node_takes_only_who_puts_up_with_it() {
        let node = object(&machine());
        let chosen = |tolerations: Value, has_disk_pressure: bool| {
            let pod = json!({"containers": [], "tolerations": tolerations});
            let pod: PodSpec = serde_json::from_value(pod).unwrap();
            let (name, node, load) = ("m", Some(&node), 0);
            let spot = Spot {
                name,
                node,
                load,
                has_disk_pressure,
            };
            choose(&pod, &[spot], None).map(str::to_owned)
        };
        let key = "node.kubernetes.io/disk-pressure";
        for (tolerations, is_taken) in [
            (json!([]), false),
            (json!([{"operator": "Exists"}]), true),
            (json!([{"key": key, "operator": "Exists"}]), true),
            (json!([{"key": key, "effect": "NoSchedule"}]), true),
            (
                json!([{"key": key, "operator": "Exists", "effect": "NoExecute"}]),
                false,
            ),
            (json!([{"key": key, "value": "x"}]), false),
            (json!([{"key": "other", "operator": "Exists"}]), false),
        ] {
            assert!(chosen(tolerations.clone(), false).is_ok());
            let taken = chosen(tolerations.clone(), true);
            assert_eq!(taken.is_ok(), is_taken, "{tolerations}");
            if let Err(reason) = taken {
                assert!(
                    reason.contains(&format!("1 node(s) had untolerated taint {{{key}: }}")),
                    "{reason}"
                );
            }
        }
    }

    #[test]
    fn a_node_is_ready_once_it_has_said_so() {
        let machine = machine();
        let mut node: Node = object(&machine);
        assert!(!is_ready(&node));
        let first = status(&machine, &json!(null), None, Timestamp::UNIX_EPOCH);
        node.status = serde_json::from_value(first).unwrap();
        assert!(is_ready(&node));
    }
}

//! What a table says about a node.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::Definition;
use super::cells::{NONE, UNKNOWN, age, flag, items, name, text, text_or};

pub(super) const COLUMNS: &[Definition] = &[
    Definition::NAME,
    Definition::new("Status", "Whether the node can run pods."),
    Definition::new("Roles", "What the node is for."),
    Definition::AGE,
    Definition::new("Version", "The version of its kubelet."),
    Definition::new("Internal-IP", "The address inside of the cluster.").wide(),
    Definition::new("External-IP", "The address outside of the cluster.").wide(),
    Definition::new("OS-Image", "The operating system.").wide(),
    Definition::new(
        "Kernel-Version",
        "The kernel, and the architecture if it is known.",
    )
    .wide(),
    Definition::new(
        "Container-Runtime",
        "What runs the containers, with its version.",
    )
    .wide(),
];

pub(super) fn cells(node: &Value, now: Timestamp) -> Vec<Value> {
    // of several conditions of the type the last one counts
    let ready = items(node, "/status/conditions")
        .iter()
        .rfind(|condition| condition["type"] == "Ready");
    let mut status = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if flag(node, "/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let address = |address_type: &str| {
        let mut addresses = items(node, "/status/addresses").iter();
        let found = addresses.find(|address| address["type"] == address_type);
        found.map_or(NONE, |address| text(address, "/address"))
    };
    let info = |field: &str| text_or(node, &format!("/status/nodeInfo/{field}"), UNKNOWN);
    let kernel = match text(node, "/status/nodeInfo/architecture") {
        "" => info("kernelVersion").to_owned(),
        architecture => format!("{} ({architecture})", info("kernelVersion")),
    };
    vec![
        name(node).into(),
        status.into(),
        roles(node).into(),
        age(node, now).into(),
        text(node, "/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        info("osImage").into(),
        kernel.into(),
        info("containerRuntimeVersion").into(),
    ]
}

fn roles(node: &Value) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let role = |(key, value): (&'_ String, &'_ Value)| match key.as_str() {
        "kubernetes.io/role" => value.as_str().map(str::to_owned),
        key => key
            .strip_prefix("node-role.kubernetes.io/")
            .map(str::to_owned),
    };
    let mut roles: Vec<String> = labels
        .into_iter()
        .flatten()
        .filter_map(role)
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    match roles.is_empty() {
        true => NONE.to_owned(),
        false => roles.join(","),
    }
}

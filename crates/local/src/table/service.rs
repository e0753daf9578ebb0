//! What a table says about a service: how it is reached.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::Definition;
use super::cells::{NONE, UNKNOWN, age, items, joined, labels, name, number, text, text_or};

pub(super) const COLUMNS: &[Definition] = &[
    Definition::NAME,
    Definition::new("Type", "How the service can be reached."),
    Definition::new("Cluster-IP", "The address inside of the cluster."),
    Definition::new("External-IP", "Where the service is reached from outside."),
    Definition::new("Port(s)", "The ports with their protocols."),
    Definition::AGE,
    Definition::new("Selector", "The labels of the pods behind the service.").wide(),
];

pub(super) fn cells(service: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = items(service, "/spec/ports").iter().map(port).collect();
    let or_none = |text: String| match text.is_empty() {
        true => NONE.to_owned(),
        false => text,
    };
    vec![
        name(service).into(),
        text(service, "/spec/type").into(),
        text_or(service, "/spec/clusterIPs/0", NONE).into(),
        external_address(service).into(),
        or_none(ports.join(",")).into(),
        age(service, now).into(),
        or_none(labels(service, "/spec/selector")).into(),
    ]
}

fn port(port: &Value) -> String {
    let protocol = text(port, "/protocol");
    match (number(port, "/port"), number(port, "/nodePort")) {
        (port, on_node) if on_node > 0 => format!("{port}:{on_node}/{protocol}"),
        (port, _) => format!("{port}/{protocol}"),
    }
}

fn external_address(service: &Value) -> String {
    let given = items(service, "/spec/externalIPs").iter();
    let given = given.filter_map(Value::as_str);
    let (addresses, otherwise) = match text(service, "/spec/type") {
        "ExternalName" => return text(service, "/spec/externalName").to_owned(),
        "ClusterIP" | "NodePort" => (joined(given), NONE),
        "LoadBalancer" => {
            let mut assigned: Vec<&str> = items(service, "/status/loadBalancer/ingress")
                .iter()
                .map(|ingress| text_or(ingress, "/ip", text(ingress, "/hostname")))
                .filter(|address| !address.is_empty())
                .collect();
            assigned.sort_unstable();
            assigned.dedup();
            (joined(assigned.into_iter().chain(given)), "<pending>")
        }
        _ => return UNKNOWN.to_owned(),
    };
    match addresses.is_empty() {
        true => otherwise.to_owned(),
        false => addresses,
    }
}

//! Services.

mod allocate;
#[cfg(test)]
mod tests;
mod validate;

use serde_json::{Map, Value, json};

use super::access::{
    as_map, fill, fill_text, int, items, items_mut, made, take_from, text, text_at,
};
use super::check::Errors;
use super::{NameRule, Others, Part, Rules, keep_all_but_status, keep_status};

/// How long a client stays with a pod, if it is to.
const AFFINITY_SECONDS: i64 = 10800;

pub(super) const RULES: Rules = Rules {
    name: NameRule::Label,
    default,
    prepare_create: |service| {
        as_map(service).insert("status".to_owned(), json!({"loadBalancer": {}}));
        let spec = made(service, "spec");
        let address = spec.get("clusterIP").cloned();
        if let Some(address) = address.filter(|address| address != "") {
            fill(spec, "clusterIPs", json!([address]));
        }
    },
    admit: |service, others| allocate::admit(service, others),
    validate: |service| Errors::of(|errors| validate::check(&service["spec"], None, errors)),
    prepare_update,
    validate_update: |new, old, part| match part {
        Part::Status => Errors::of(|errors| validate::check_status(new, errors)),
        _ => Errors::of(|errors| validate::check_update(&new["spec"], &old["spec"], errors)),
    },
    fields: &[
        ("spec.clusterIP", |service| {
            text_at(service, "/spec/clusterIP").to_owned()
        }),
        ("spec.type", |service| {
            text_at(service, "/spec/type").to_owned()
        }),
    ],
    ..Rules::PLAIN
};

fn has_address(spec: &Value) -> bool {
    text(spec, "type") != "ExternalName"
}

fn is_headless(spec: &Value) -> bool {
    items(spec, "clusterIPs")
        .first()
        .is_some_and(|ip| ip == "None")
}

fn has_node_ports(spec: &Value) -> bool {
    match text(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false)),
        _ => false,
    }
}

/// Whether the node says on a port of its own if the service is there.
fn has_health_port(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn is_reached_from_outside(spec: &Value) -> bool {
    match text(spec, "type") {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => !items(spec, "externalIPs").is_empty(),
        _ => false,
    }
}

fn default(service: &mut Value) {
    let spec = made(service, "spec");
    fill_text(spec, "sessionAffinity", "None");
    fill_text(spec, "type", "ClusterIP");
    default_affinity(spec);
    for port in items_mut(spec, "ports") {
        fill_text(port, "protocol", "TCP");
        let target = port.get("targetPort");
        if target.is_none_or(|target| *target == 0 || *target == "") {
            let number = port.get("port").cloned().unwrap_or(0.into());
            port.insert("targetPort".to_owned(), number);
        }
    }
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", true);
    }
    if is_reached_from_outside(&service["spec"]) {
        fill_text(made(service, "spec"), "externalTrafficPolicy", "Cluster");
    }
}

fn default_affinity(spec: &mut Map<String, Value>) {
    match spec.get("sessionAffinity").and_then(Value::as_str) {
        Some("None") => _ = spec.remove("sessionAffinityConfig"),
        Some("ClientIP") => {
            let config = spec.get("sessionAffinityConfig");
            if config
                .and_then(|it| it.pointer("/clientIP/timeoutSeconds"))
                .is_none()
            {
                let config = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
                spec.insert("sessionAffinityConfig".to_owned(), config);
            }
        }
        _ => {}
    }
}

fn prepare_update(new: &mut Value, old: &Value, part: Part) {
    if part == Part::Status {
        return keep_all_but_status(new, old);
    }
    keep_status(new, old);
    let was = &old["spec"];
    keep_allocated(new, was);
    drop_what_no_longer_applies(new, was);
    if text_at(new, "/spec/type") != "LoadBalancer" {
        made(new, "status").insert("loadBalancer".to_owned(), json!({}));
    }
    if has_address(&new["spec"]) {
        let spec = made(new, "spec");
        for field in ["ipFamilyPolicy", "ipFamilies"] {
            if !spec.contains_key(field) && was.get(field).is_some() {
                take_from(spec, was, field);
            }
        }
        // a service that had no address gets one; that it is taken is not known here and not likely
        allocate::allocate(new, &Nobody);
    }
}

struct Nobody;

impl Others for Nobody {
    fn get(&self, _: &str, _: &str, _: &str) -> Option<Value> {
        None
    }

    fn list(&self, _: &str, _: Option<&str>) -> Vec<Value> {
        Vec::new()
    }
}

/// Clients that leave out what was allocated for them keep it.
fn keep_allocated(new: &mut Value, was: &Value) {
    if has_address(was) && has_address(&new["spec"]) {
        let spec = made(new, "spec");
        let address = spec.get("clusterIP").filter(|it| *it != "").cloned();
        let same_list = spec.get("clusterIPs") == was.get("clusterIPs");
        match address {
            None => {
                take_from(spec, was, "clusterIP");
                if spec.get("clusterIPs").is_none_or(|list| *list == json!([])) {
                    take_from(spec, was, "clusterIPs");
                }
            }
            Some(address) if Some(&address) == was.get("clusterIP") => {
                if !spec.contains_key("clusterIPs") {
                    take_from(spec, was, "clusterIPs");
                }
            }
            Some(address) if same_list || !spec.contains_key("clusterIPs") => {
                spec.insert("clusterIPs".to_owned(), json!([address]));
            }
            Some(_) => {}
        }
    }
    if has_node_ports(was) && has_node_ports(&new["spec"]) {
        for port in items_mut(made(new, "spec"), "ports") {
            let name = port.get("name").and_then(Value::as_str).unwrap_or_default();
            let before = items(was, "ports")
                .iter()
                .find(|old| text(old, "name") == name);
            let number = before.and_then(|before| int(before, "nodePort"));
            if let Some(number) = number {
                fill(port, "nodePort", number);
            }
        }
    }
    if has_health_port(was) && has_health_port(&new["spec"]) {
        let spec = made(new, "spec");
        if !spec.contains_key("healthCheckNodePort") {
            take_from(spec, was, "healthCheckNodePort");
        }
    }
}

/// What was filled in for the old type and is not of the new one goes, unless the client changed it.
fn drop_what_no_longer_applies(new: &mut Value, was: &Value) {
    let now = &new["spec"];
    let mut gone: Vec<&str> = Vec::new();
    if has_address(was) && !has_address(now) {
        gone.extend([
            "clusterIP",
            "clusterIPs",
            "internalTrafficPolicy",
            "ipFamilies",
            "ipFamilyPolicy",
        ]);
    }
    if has_health_port(was) && !has_health_port(now) {
        gone.push("healthCheckNodePort");
    }
    if text(was, "type") == "LoadBalancer" && text(now, "type") != "LoadBalancer" {
        gone.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if is_reached_from_outside(was) && !is_reached_from_outside(now) {
        gone.push("externalTrafficPolicy");
    }
    let no_node_ports = has_node_ports(was) && !has_node_ports(now);
    let spec = made(new, "spec");
    for field in gone {
        if spec.get(field) == was.get(field) {
            spec.remove(field);
        }
    }
    if no_node_ports {
        for port in items_mut(spec, "ports") {
            let number = port.get("nodePort");
            if items(was, "ports")
                .iter()
                .any(|old| old.get("nodePort") == number)
            {
                port.remove("nodePort");
            }
        }
    }
}

//! What a service must be like.

use std::collections::BTreeSet;

use api::structural::{FieldError, Reason};
use serde_json::Value;

use super::{has_health_port, is_headless, is_reached_from_outside};
use crate::kinds::access::{child, entries, int, items, text};
use crate::kinds::check::{Errors, Path};
use crate::kinds::pod::PROTOCOLS;

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const DISTRIBUTIONS: &[&str] = &["PreferClose", "PreferSameZone", "PreferSameNode"];
const LONGEST_AFFINITY: i64 = 86400;

/// A service, new or changed.
pub(super) fn check(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("spec");
    let kind = text(spec, "type");
    if items(spec, "ports").is_empty() && !is_headless(spec) && kind != "ExternalName" {
        errors.required(&path.field("ports"), "");
    }
    check_type(spec, kind, &path, errors);
    check_ports(spec, &path.field("ports"), errors);
    errors.labels(&path.field("selector"), entries(spec, "selector"));
    check_affinity(spec, &path, errors);
    if kind != "ExternalName" {
        check_addresses(spec, old, &path, errors);
    }
    let outside = path.field("externalIPs");
    for (index, ip) in items(spec, "externalIPs").iter().enumerate() {
        errors.ip(&outside.index(index), ip.as_str().unwrap_or_default());
    }
    errors.one_of(&path.field("type"), kind, TYPES);
    check_node_ports(spec, kind, &path.field("ports"), errors);
    check_same_ports(spec, &path.field("ports"), errors);
    check_balancer(spec, kind, &path, errors);
    check_traffic(spec, kind, &path, errors);
}

fn check_type(spec: &Value, kind: &str, path: &Path, errors: &mut Errors) {
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.invalid(&path.field("clusterIPs").index(0), "None", &detail);
        }
        "ExternalName" => {
            let detail = "may not be set for ExternalName services";
            for field in ["clusterIPs", "ipFamilies"] {
                if !items(spec, field).is_empty() {
                    errors.forbidden(&path.field(field), detail);
                }
            }
            if spec.get("ipFamilyPolicy").is_some() {
                errors.forbidden(&path.field("ipFamilyPolicy"), detail);
            }
            let name = text(spec, "externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            errors.reference(&path.field("externalName"), name);
        }
        _ => {}
    }
}

fn check_ports(spec: &Value, path: &Path, errors: &mut Errors) {
    let ports = items(spec, "ports");
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        match text(port, "name") {
            "" if ports.len() > 1 => errors.required(&path.field("name"), ""),
            "" => {}
            name => {
                errors.label(&path.field("name"), name);
                if !names.insert(name) {
                    errors.duplicate(&path.field("name"), name);
                }
            }
        }
        errors.port(&path.field("port"), int(port, "port").unwrap_or(0));
        errors.one_of(&path.field("protocol"), text(port, "protocol"), PROTOCOLS);
        errors.port_or_name(&path.field("targetPort"), port.get("targetPort"));
        if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
            errors.qualified_name(&path.field("appProtocol"), protocol);
        }
    }
}

fn check_affinity(spec: &Value, path: &Path, errors: &mut Errors) {
    let affinity = text(spec, "sessionAffinity");
    errors.one_of(
        &path.field("sessionAffinity"),
        affinity,
        &["ClientIP", "None"],
    );
    let timeout = spec.pointer("/sessionAffinityConfig/clientIP/timeoutSeconds");
    if let Some(seconds) = timeout.and_then(Value::as_i64)
        && affinity == "ClientIP"
        && !(1..=LONGEST_AFFINITY).contains(&seconds)
    {
        let path = path.field("sessionAffinityConfig");
        let path = path.field("clientIP");
        let detail = format!("must be greater than 0 and less than {LONGEST_AFFINITY}");
        errors.invalid(&path.field("timeoutSeconds"), seconds, &detail);
    }
}

/// The addresses of a service and their families.
pub(super) fn check_addresses(spec: &Value, old: Option<&Value>, path: &Path, errors: &mut Errors) {
    let (address, list) = (text(spec, "clusterIP"), items(spec, "clusterIPs"));
    let at = path.field("clusterIPs");
    match (address, list.first()) {
        ("", None) => {}
        ("", Some(_)) => {
            errors.invalid(
                &at,
                list.to_vec(),
                "must be empty when `clusterIP` is not specified",
            );
        }
        (_, None) => errors.required(&at, ""),
        (address, Some(first)) if first != address => {
            errors.invalid(&at, list.to_vec(), "first value must match `clusterIP`");
        }
        _ => {}
    }
    let families = items(spec, "ipFamilies");
    let at_families = path.field("ipFamilies");
    for (index, family) in families.iter().enumerate() {
        let name = family.as_str().unwrap_or_default();
        if !["IPv4", "IPv6"].contains(&name) {
            errors.not_supported(&at_families.index(index), name, &["IPv4", "IPv6"]);
        }
        if families[..index].contains(family) {
            errors.duplicate(&at_families.index(index), name);
        }
    }
    if let Some(policy) = spec.get("ipFamilyPolicy").and_then(Value::as_str) {
        let known = ["PreferDualStack", "RequireDualStack", "SingleStack"];
        if !known.contains(&policy) {
            errors.not_supported(&path.field("ipFamilyPolicy"), policy, &known);
        }
    }
    let known = old.map_or(&[][..], |old| items(old, "clusterIPs"));
    for (index, ip) in list.iter().enumerate() {
        if index == 0 && ip == "None" {
            if list.len() > 1 {
                errors.invalid(
                    &at,
                    list.to_vec(),
                    "'None' must be the first and only value",
                );
            }
        } else if !known.contains(ip) {
            errors.ip(&at.index(index), ip.as_str().unwrap_or_default());
        }
    }
    if list.len() > 2 {
        errors.invalid(&at, list.to_vec(), "may only hold up to 2 values");
    }
}

fn check_node_ports(spec: &Value, kind: &str, path: &Path, errors: &mut Errors) {
    let mut taken = BTreeSet::new();
    for (index, port) in items(spec, "ports").iter().enumerate() {
        let Some(number) = int(port, "nodePort").filter(|number| *number != 0) else {
            continue;
        };
        let path = path.index(index);
        if kind == "ClusterIP" {
            let detail = "may not be used when `type` is 'ClusterIP'";
            errors.forbidden(&path.field("nodePort"), detail);
        }
        if !taken.insert((text(port, "protocol"), number)) {
            errors.duplicate(&path.field("nodePort"), number);
        }
    }
}

fn check_same_ports(spec: &Value, path: &Path, errors: &mut Errors) {
    let mut taken = BTreeSet::new();
    for (index, port) in items(spec, "ports").iter().enumerate() {
        let (protocol, number) = (text(port, "protocol"), int(port, "port").unwrap_or(0));
        if !taken.insert((protocol, number)) {
            errors.push(FieldError {
                field: path.index(index).to_string(),
                reason: Reason::Duplicate,
                message: format!(
                    "Duplicate value: {{\"Name\":\"\",\"Protocol\":\"{protocol}\",\"AppProtocol\":null,\"Port\":\
                     {number},\"TargetPort\":0,\"NodePort\":0}}"
                ),
            });
        }
    }
}

fn check_balancer(spec: &Value, kind: &str, path: &Path, errors: &mut Errors) {
    let balanced = kind == "LoadBalancer";
    let detail = "may only be used when `type` is 'LoadBalancer'";
    let ranges = items(spec, "loadBalancerSourceRanges");
    let at = path.field("LoadBalancerSourceRanges");
    if !ranges.is_empty() && !balanced {
        errors.forbidden(&at, detail);
    }
    for (index, range) in ranges.iter().enumerate() {
        errors.cidr(&at.index(index), range.as_str().unwrap_or_default().trim());
    }
    for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if spec.get(field).is_some() && !balanced {
            errors.forbidden(&path.field(field), detail);
        }
    }
    if let Some(class) = spec.get("loadBalancerClass").and_then(Value::as_str)
        && balanced
    {
        errors.qualified_name(&path.field("loadBalancerClass"), class);
    }
}

fn check_traffic(spec: &Value, kind: &str, path: &Path, errors: &mut Errors) {
    let policy = text(spec, "externalTrafficPolicy");
    let at = path.field("externalTrafficPolicy");
    if is_reached_from_outside(spec) {
        errors.one_of(&at, policy, &["Cluster", "Local"]);
    } else if !policy.is_empty() {
        errors.invalid(
            &at,
            policy,
            "may only be set for externally-accessible services",
        );
    }
    let at = path.field("healthCheckNodePort");
    match (int(spec, "healthCheckNodePort"), has_health_port(spec)) {
        (Some(port), true) => errors.port(&at, port),
        (Some(port), false) => {
            let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(&at, port, detail);
        }
        (None, true) => errors.required(&at, ""),
        (None, false) => {}
    }
    let inside = spec.get("internalTrafficPolicy").and_then(Value::as_str);
    let at = path.field("internalTrafficPolicy");
    match inside {
        None if ["NodePort", "LoadBalancer", "ClusterIP"].contains(&kind) => {
            errors.required(&at, "");
        }
        Some(policy) if !["Cluster", "Local"].contains(&policy) => {
            errors.not_supported(&at, policy, &["Cluster", "Local"]);
        }
        _ => {}
    }
    if let Some(distribution) = spec.get("trafficDistribution").and_then(Value::as_str)
        && !DISTRIBUTIONS.contains(&distribution)
    {
        errors.not_supported(
            &path.field("trafficDistribution"),
            distribution,
            DISTRIBUTIONS,
        );
    }
}

/// What of a service may change.
pub(super) fn check_update(spec: &Value, was: &Value, errors: &mut Errors) {
    let external = |spec: &Value| text(spec, "type") == "ExternalName";
    let both_headless = is_headless(spec) && is_headless(was);
    if !both_headless && !external(spec) && !external(was) {
        check_kept(spec, was, errors);
    }
    let path = Path::new("spec");
    let (class, was_class) = (spec.get("loadBalancerClass"), was.get("loadBalancerClass"));
    let balanced = |spec: &Value| text(spec, "type") == "LoadBalancer";
    if balanced(spec) && balanced(was) && class != was_class {
        let class = class.cloned().unwrap_or_default();
        errors.invalid(
            &path.field("loadBalancerClass"),
            class,
            "may not change once set",
        );
    }
    let (port, was_port) = (
        int(spec, "healthCheckNodePort"),
        int(was, "healthCheckNodePort"),
    );
    if has_health_port(spec) && has_health_port(was) && port != was_port {
        errors.forbidden(&path.field("healthCheckNodePort"), "field is immutable");
    }
    check(spec, Some(was), errors);
}

fn check_kept(spec: &Value, was: &Value, errors: &mut Errors) {
    let root = Path::new("spec");
    let path = root.field("clusterIPs");
    let (list, old) = (items(spec, "clusterIPs"), items(was, "clusterIPs"));
    if list.is_empty() && !old.is_empty() {
        let detail = "primary clusterIP can not be unset";
        return errors.invalid(&path.index(0), list.to_vec(), detail);
    }
    let same_length = list.len() == old.len();
    for (index, (new, old)) in list.iter().zip(old).enumerate() {
        if (index == 0 || same_length) && new != old {
            errors.invalid(&path.index(index), list.to_vec(), "may not change once set");
        }
    }
    let (families, old) = (items(spec, "ipFamilies"), items(was, "ipFamilies"));
    let changed = is_headless(spec) != is_headless(was);
    if let (Some(first), Some(old)) = (families.first(), old.first())
        && first != old
        && !changed
    {
        let path = root.field("ipFamilies");
        errors.invalid(&path.index(0), families.to_vec(), "may not change once set");
    }
}

/// What balances the load says where it is.
pub(super) fn check_status(service: &Value, errors: &mut Errors) {
    let status = Path::new("status");
    let balancer = status.field("loadBalancer");
    let path = balancer.field("ingress");
    let ingress =
        child(&service["status"], "loadBalancer").map_or(&[][..], |it| items(it, "ingress"));
    if !ingress.is_empty() && text(&service["spec"], "type") != "LoadBalancer" {
        let detail = "may only be used when `spec.type` is 'LoadBalancer'";
        return errors.forbidden(&path, detail);
    }
    for (index, place) in ingress.iter().enumerate() {
        let path = path.index(index);
        let (ip, host) = (text(place, "ip"), text(place, "hostname"));
        if !ip.is_empty() {
            errors.ip(&path.field("ip"), ip);
        }
        if !host.is_empty() {
            errors.subdomain(&path.field("hostname"), host);
        }
    }
}

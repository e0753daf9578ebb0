//! What a pod, or the template of one, must be like.

use std::collections::BTreeSet;

use api::structural::names;
use serde_json::Value;

use super::containers::{self, Pod};
use super::{resources, security, volumes};
use crate::kinds::access::{child, entries, flag, int, items, text};
use crate::kinds::check::{Errors, Path};

const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// A pod, new or changed.
pub(super) fn check(pod: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let Some(spec) = pod.get("spec") else {
        return errors.required(&path.field("containers"), "");
    };
    check_spec(spec, true, &path, errors);
    if text(spec, "serviceAccountName").is_empty() {
        check_no_token(spec, &path.field("volumes"), errors);
    }
    for list in ["containers", "initContainers"] {
        let path = path.field(list);
        for (index, container) in items(spec, list).iter().enumerate() {
            containers::check_image_frame(container, &path.index(index), errors);
        }
    }
}

/// A new pod, in addition.
pub(super) fn check_new(pod: &Value, errors: &mut Errors) {
    check(pod, errors);
    let path = Path::new("spec");
    let Some(spec) = pod.get("spec") else { return };
    if !items(spec, "ephemeralContainers").is_empty() {
        errors.forbidden(
            &path.field("ephemeralContainers"),
            "cannot be set on create",
        );
    }
    if !text(spec, "nodeName").is_empty() && !items(spec, "schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(&path.field("nodeName"), detail);
    }
}

fn check_no_token(spec: &Value, path: &Path, errors: &mut Errors) {
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        let path = path.index(index);
        let path = path.field("projected");
        let path = path.field("sources");
        let sources = child(volume, "projected").map_or(&[][..], |it| items(it, "sources"));
        for (index, source) in sources.iter().enumerate() {
            if child(source, "serviceAccountToken").is_some() {
                let detail = "must not be specified when serviceAccountName is not set";
                errors.forbidden(&path.index(index).field("serviceAccountToken"), detail);
            }
        }
    }
}

/// The spec of a pod or of a template.
pub(in crate::kinds) fn check_spec(spec: &Value, is_pod: bool, path: &Path, errors: &mut Errors) {
    let pod = Pod {
        spec,
        volumes: volumes::check(spec, &path.field("volumes"), errors),
        is_pod,
    };
    containers::check(&pod, path, errors);
    if let Some(resources) = child(spec, "resources") {
        resources::check_pod(resources, &path.field("resources"), errors);
    }
    containers::check_host_network(&pod, path, errors);
    let policy = text(spec, "restartPolicy");
    errors.one_of(&path.field("restartPolicy"), policy, RESTART_POLICIES);
    let policy = text(spec, "dnsPolicy");
    errors.one_of(&path.field("dnsPolicy"), policy, DNS_POLICIES);
    containers::check_node_selector(spec, path, errors);
    if let Some(context) = child(spec, "securityContext") {
        security::check_pod(spec, context, &path.field("securityContext"), errors);
    }
    check_dns(spec, &path.field("dnsConfig"), errors);
    check_gates(spec, path, errors);
    check_names(spec, path, errors);
    check_tolerations(spec, &path.field("tolerations"), errors);
    check_host(spec, path, errors);
    if let Some(seconds) = int(spec, "activeDeadlineSeconds") {
        errors.range(
            &path.field("activeDeadlineSeconds"),
            seconds,
            1,
            i64::from(i32::MAX),
        );
    }
    if let Some(policy) = spec.get("preemptionPolicy").and_then(Value::as_str) {
        let known = ["PreemptLowerPriority", "Never"];
        errors.one_of(&path.field("preemptionPolicy"), policy, &known);
    }
    let overhead = path.field("overhead");
    for (name, amount) in entries(spec, "overhead") {
        let amount = amount.as_str().unwrap_or_default();
        resources::check_amount(name, amount, &overhead.key(name), errors);
    }
    if let Some(os) = child(spec, "os") {
        let path = path.field("os");
        errors.one_of(&path.field("name"), text(os, "name"), &["linux", "windows"]);
    }
}

fn check_names(spec: &Value, path: &Path, errors: &mut Errors) {
    for field in [
        "serviceAccountName",
        "nodeName",
        "priorityClassName",
        "runtimeClassName",
    ] {
        let name = text(spec, field);
        if !name.is_empty() {
            errors.subdomain(&path.field(field), name);
        }
    }
    for field in ["hostname", "subdomain"] {
        let name = text(spec, field);
        if !name.is_empty() {
            errors.label(&path.field(field), name);
        }
    }
}

fn check_host(spec: &Value, path: &Path, errors: &mut Errors) {
    let aliases = path.field("hostAliases");
    for (index, alias) in items(spec, "hostAliases").iter().enumerate() {
        let path = aliases.index(index);
        errors.ip(&path.field("ip"), text(alias, "ip"));
        let path = path.field("hostnames");
        for (index, name) in items(alias, "hostnames").iter().enumerate() {
            errors.subdomain(&path.index(index), name.as_str().unwrap_or_default());
        }
    }
    if spec.get("hostUsers") == Some(&Value::Bool(false)) {
        for (field, shown) in [("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
            if flag(spec, field) {
                errors.forbidden(&path.field(shown), "when `hostUsers` is false");
            }
        }
    }
    if let Some(name) = spec.get("hostnameOverride").and_then(Value::as_str) {
        let path = path.field("hostnameOverride");
        for field in ["setHostnameAsFQDN", "hostNetwork"] {
            if flag(spec, field) {
                let detail = format!("may not be specified when {field} is true");
                errors.forbidden(&path, &detail);
            }
        }
        errors.subdomain(&path, name);
    }
}

fn check_dns(spec: &Value, path: &Path, errors: &mut Errors) {
    let none = text(spec, "dnsPolicy") == "None";
    let Some(config) = child(spec, "dnsConfig") else {
        if none {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        return;
    };
    let servers = items(config, "nameservers");
    let at = path.field("nameservers");
    if none && servers.is_empty() {
        let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        return errors.required(&at, detail);
    }
    if servers.len() > 3 {
        errors.invalid(
            &at,
            servers.to_vec(),
            "must not have more than 3 nameservers",
        );
    }
    for (index, server) in servers.iter().enumerate() {
        errors.ip(&at.index(index), server.as_str().unwrap_or_default());
    }
    let searches = items(config, "searches");
    let at = path.field("searches");
    if searches.len() > 32 {
        errors.invalid(
            &at,
            searches.to_vec(),
            "must not have more than 32 search paths",
        );
    }
    for (index, search) in searches.iter().enumerate() {
        let search = search.as_str().unwrap_or_default();
        if search != "." {
            let search = search.strip_suffix('.').unwrap_or(search);
            if !names::subdomain_problems(&search.replace('_', "x")).is_empty() {
                errors.subdomain(&at.index(index), search);
            }
        }
    }
    let at = path.field("options");
    for (index, option) in items(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.required(&at.index(index), "must not be empty");
        }
    }
}

fn check_gates(spec: &Value, path: &Path, errors: &mut Errors) {
    let gates = path.field("readinessGates");
    for (index, gate) in items(spec, "readinessGates").iter().enumerate() {
        let path = gates.index(index);
        errors.qualified_name(&path.field("conditionType"), text(gate, "conditionType"));
    }
    let gates = path.field("schedulingGates");
    let mut seen = BTreeSet::new();
    for (index, gate) in items(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        errors.qualified_name(&gates.index(index), name);
        if !seen.insert(name) {
            errors.duplicate(&gates.index(index), name);
        }
    }
}

/// Tolerations of a pod.
pub(super) fn check_tolerations(spec: &Value, path: &Path, errors: &mut Errors) {
    for (index, toleration) in items(spec, "tolerations").iter().enumerate() {
        let path = path.index(index);
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        if !key.is_empty() {
            errors.qualified_name(&path.field("key"), key);
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&path.field("operator"), operator, detail);
        }
        let effect = text(toleration, "effect");
        if int(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&path.field("effect"), effect, detail);
        }
        let value = text(toleration, "value");
        let at = path.field("operator");
        match operator {
            "Equal" | "" => {
                let problems = names::label_value_problems(value);
                if !problems.is_empty() {
                    errors.invalid(&at, value, &problems.join(";"));
                }
            }
            "Exists" if value.is_empty() => {}
            "Exists" => {
                errors.invalid(
                    &at,
                    value,
                    "value must be empty when `operator` is 'Exists'",
                );
            }
            "Lt" | "Gt" => errors.not_supported(&at, operator, &["Equal", "Exists", "Lt", "Gt"]),
            _ => errors.not_supported(&at, operator, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            errors.one_of(&path.field("effect"), effect, EFFECTS);
        }
    }
}

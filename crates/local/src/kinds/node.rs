//! Nodes.

use std::collections::BTreeSet;

use api::structural::names;
use serde_json::{Value, json};

use super::access::{entries, flag, items, made, text};
use super::check::{Errors, Path};
use super::{Part, Rules, pod};

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
const NOT_READY: &str = "node.kubernetes.io/not-ready";

pub(super) const RULES: Rules = Rules {
    default,
    admit: |node, _| {
        taint(node);
        Ok(())
    },
    validate: |node| {
        Errors::of(|errors| {
            check_taints(node, errors);
            check_resources(node, errors);
        })
    },
    validate_update: |new, old, part| Errors::of(|errors| check_update(new, old, part, errors)),
    fields: &[("spec.unschedulable", |node| {
        flag(&node["spec"], "unschedulable").to_string()
    })],
    ..Rules::PLAIN
};

/// All of a node can be given to pods, unless it says otherwise.
fn default(node: &mut Value) {
    let capacity = node.pointer("/status/capacity").cloned();
    if let Some(capacity) = capacity {
        made(node, "status")
            .entry("allocatable")
            .or_insert(capacity);
    }
}

/// A new node has not shown yet that it is ready.
fn taint(node: &mut Value) {
    let taints = made(node, "spec").entry("taints").or_insert(json!([]));
    let Value::Array(taints) = taints else { return };
    let tainted =
        |taint: &Value| text(taint, "key") == NOT_READY && text(taint, "effect") == "NoSchedule";
    if !taints.iter().any(tainted) {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}

fn check_taints(node: &Value, errors: &mut Errors) {
    let metadata = Path::new("metadata");
    let path = metadata.field("taints");
    let mut seen = BTreeSet::new();
    for (index, taint) in items(&node["spec"], "taints").iter().enumerate() {
        let path = path.index(index);
        let (key, effect) = (text(taint, "key"), text(taint, "effect"));
        errors.qualified_name(&path.field("key"), key);
        let value = text(taint, "value");
        let problems = names::label_value_problems(value);
        if !problems.is_empty() {
            errors.invalid(&path.field("value"), value, &problems.join(";"));
        }
        errors.one_of(&path.field("effect"), effect, EFFECTS);
        if !seen.insert((key, effect)) {
            let detail = "taints must be unique by key and effect pair";
            errors.duplicate_with(&path, taint.clone(), detail);
        }
    }
}

fn check_resources(node: &Value, errors: &mut Errors) {
    let status = Path::new("status");
    for list in ["capacity", "allocatable"] {
        let path = status.field(list);
        for (name, amount) in entries(&node["status"], list) {
            let amount = amount.as_str().unwrap_or_default();
            pod::check_amount(name, amount, &path.field(name), errors);
        }
    }
}

fn check_update(new: &Value, old: &Value, part: Part, errors: &mut Errors) {
    if part == Part::Main {
        check_taints(new, errors);
        check_resources(new, errors);
    }
    check_resources(new, errors);
    let status = Path::new("status");
    let addresses = items(&new["status"], "addresses");
    for (index, address) in addresses.iter().enumerate() {
        if addresses[..index].contains(address) {
            errors.duplicate(&status.field("addresses").index(index), address.clone());
        }
    }
    let spec = Path::new("spec");
    let blocks = items(&old["spec"], "podCIDRs");
    if !blocks.is_empty() && blocks != items(&new["spec"], "podCIDRs") {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.forbidden(&spec.field("podCIDRs"), detail);
    }
    let provider = text(&old["spec"], "providerID");
    if !provider.is_empty() && provider != text(&new["spec"], "providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden(&spec.field("providerID"), detail);
    }
    check_taints(new, errors);
}

//! The network policy that a template wants.

use api::{
    open::known,
    sigs::shared::{NetworkPolicyManagement, NetworkRules},
};
use serde_json::{Map, Value, json};

use super::view::Template;
use crate::{meta::Key, sigs::names};

const SUFFIX: &str = "-network-policy";

pub(super) fn name(template: &str) -> String {
    format!("{template}{SUFFIX}")
}

/// The template that a policy of this name is for, whoever made it.
pub(crate) fn template_of(policy: &Key) -> Option<Key> {
    let template = policy.name.strip_suffix(SUFFIX)?;
    Some(policy.beside(template))
}

/// Nothing if the template wants no policy to be kept.
pub(super) fn wanted(template: &Template) -> Option<Value> {
    let policies = &template.spec.policies;
    if known(&policies.network_policy_management) == Some(NetworkPolicyManagement::Unmanaged) {
        return None;
    }
    let (ingress, egress) = match &policies.network_policy {
        Some(rules) => given(rules),
        None => (built_in_ingress(), built_in_egress()),
    };
    Some(json!({
        "podSelector": {"matchLabels": {names::TEMPLATE_REF_HASH: &*template.name_hash}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": ingress,
        "egress": egress,
    }))
}

/// No rules let nothing through.
fn given(rules: &NetworkRules) -> (Value, Value) {
    let ingress = rules.ingress.iter().flatten().map(|rule| rule.json());
    let egress = rules.egress.iter().flatten().map(|rule| rule.json());
    (ingress.cloned().collect(), egress.cloned().collect())
}

/// Only the router may come in.
fn built_in_ingress() -> Value {
    json!([{"from": [{
        "namespaceSelector": {
            "matchLabels": {"kubernetes.io/metadata.name": "agent-sandbox-system"},
        },
        "podSelector": {"matchLabels": {"app": "sandbox-router"}},
    }]}])
}

/// Everywhere but to private networks and the metadata of clouds.
fn built_in_egress() -> Value {
    let private = [
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "169.254.0.0/16",
    ];
    json!([{"to": [
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": private}},
        {"ipBlock": {"cidr": "::/0", "except": ["fc00::/7", "fe80::/10"]}},
    ]}])
}

/// A spec as the API server keeps it: defaults are there and what says nothing is not. An empty selector says a lot.
pub(super) fn canonical(spec: &Value) -> Value {
    let mut spec = kept(spec);
    for direction in ["ingress", "egress"] {
        let rules = spec[direction].as_array_mut().into_iter().flatten();
        let ports = rules.filter_map(|rule| rule.get_mut("ports"));
        for port in ports.filter_map(Value::as_array_mut).flatten() {
            if let Some(port) = port.as_object_mut() {
                port.entry("protocol").or_insert_with(|| json!("TCP"));
            }
        }
    }
    kept(&spec)
}

fn kept(value: &Value) -> Value {
    let Value::Object(fields) = value else {
        return match value {
            Value::Array(items) => items.iter().map(kept).collect(),
            value => value.clone(),
        };
    };
    let says_something = |(field, value): &(&String, &Value)| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty() || field.as_str() != "matchLabels",
        _ => true,
    };
    let left = fields.iter().filter(says_something);
    left.map(|(field, value)| (field.clone(), kept(value)))
        .collect()
}

/// The merge patch that makes one value another.
pub(super) fn patch(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return to.clone();
    };
    let removed = from.keys().filter(|field| !to.contains_key(*field));
    let removed = removed.map(|field| (field.clone(), Value::Null));
    let changed = to
        .iter()
        .filter(|(field, value)| from.get(*field) != Some(value));
    let changed = changed.map(|(field, value)| {
        let old = from.get(field).unwrap_or(&Value::Null);
        (field.clone(), patch(old, value))
    });
    Value::Object(removed.chain(changed).collect::<Map<_, _>>())
}

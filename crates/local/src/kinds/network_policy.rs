//! Network policies.

use serde_json::{Value, json};

use super::access::{child, fill_text, int, items, items_mut, made, text};
use super::check::{Errors, Path, cidr};
use super::{Rules, selectors};

pub(super) const RULES: Rules = Rules {
    generation: true,
    default,
    validate: |policy| Errors::of(|errors| check(&policy["spec"], errors)),
    validate_update: |new, _, _| Errors::of(|errors| check(&new["spec"], errors)),
    ..Rules::PLAIN
};

fn default(policy: &mut Value) {
    let spec = made(policy, "spec");
    for list in ["ingress", "egress"] {
        for rule in items_mut(spec, list) {
            for port in items_mut(rule, "ports") {
                fill_text(port, "protocol", "TCP");
            }
        }
    }
    let filled = |value: Option<&Value>| value.is_some_and(|value| *value != json!([]));
    if !filled(spec.get("policyTypes")) {
        let types = match filled(spec.get("egress")) {
            true => json!(["Ingress", "Egress"]),
            false => json!(["Ingress"]),
        };
        spec.insert("policyTypes".to_owned(), types);
    }
}

fn check(spec: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    if let Some(selector) = child(spec, "podSelector") {
        selectors::check(selector, &path.field("podSelector"), errors);
    }
    for (list, peers) in [("ingress", "from"), ("egress", "to")] {
        let path = path.field(list);
        for (index, rule) in items(spec, list).iter().enumerate() {
            let path = path.index(index);
            let at = path.field("ports");
            for (index, port) in items(rule, "ports").iter().enumerate() {
                check_port(port, &at.index(index), errors);
            }
            let at = path.field(peers);
            for (index, peer) in items(rule, peers).iter().enumerate() {
                check_peer(peer, &at.index(index), errors);
            }
        }
    }
    let types = items(spec, "policyTypes");
    let path = path.field("policyTypes");
    if types.len() > 2 {
        let detail = "may not specify more than two policyTypes";
        return errors.invalid(&path, types.to_vec(), detail);
    }
    for (index, kind) in types.iter().filter_map(Value::as_str).enumerate() {
        if !["Ingress", "Egress"].contains(&kind) {
            errors.not_supported(&path.index(index), kind, &["Ingress", "Egress"]);
        }
    }
}

fn check_port(port: &Value, path: &Path, errors: &mut Errors) {
    let protocol = text(port, "protocol");
    let known = ["TCP", "UDP", "SCTP"];
    if !protocol.is_empty() && !known.contains(&protocol) {
        errors.not_supported(&path.field("protocol"), protocol, &known);
    }
    let end = int(port, "endPort");
    let at = path.field("endPort");
    match port.get("port") {
        None => {
            if let Some(end) = end {
                let detail = "may not be specified when `port` is not specified";
                errors.invalid(&at, end, detail);
            }
        }
        Some(Value::String(_)) => {
            if let Some(end) = end {
                errors.invalid(&at, end, "may not be specified when `port` is non-numeric");
            }
            errors.port_or_name(&path.field("port"), port.get("port"));
        }
        Some(number) => {
            let number = number.as_i64().unwrap_or(0);
            errors.port(&path.field("port"), number);
            if let Some(end) = end {
                if end < number {
                    errors.invalid(&at, number, "must be greater than or equal to `port`");
                }
                errors.port(&at, end);
            }
        }
    }
}

fn check_peer(peer: &Value, path: &Path, errors: &mut Errors) {
    let mut selected = false;
    for field in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = child(peer, field) {
            selected = true;
            selectors::check(selector, &path.field(field), errors);
        }
    }
    match (child(peer, "ipBlock"), selected) {
        (None, false) => errors.required(path, "must specify a peer"),
        (None, true) => {}
        (Some(block), selected) => {
            check_block(block, &path.field("ipBlock"), errors);
            if selected {
                errors.forbidden(path, "may not specify both ipBlock and another peer");
            }
        }
    }
}

fn check_block(block: &Value, path: &Path, errors: &mut Errors) {
    let outer = text(block, "cidr");
    if outer.is_empty() {
        return errors.required(&path.field("cidr"), "");
    }
    errors.cidr(&path.field("cidr"), outer);
    let Some((base, length)) = cidr(outer) else {
        return;
    };
    let path = path.field("except");
    for (index, inner) in items(block, "except").iter().enumerate() {
        let inner = inner.as_str().unwrap_or_default();
        errors.cidr(&path.index(index), inner);
        let Some((inner_base, inner_length)) = cidr(inner) else {
            continue;
        };
        let within = prefix(inner_base, length) == prefix(base, length);
        if base.is_ipv4() != inner_base.is_ipv4() || !within || length >= inner_length {
            errors.invalid(
                &path.index(index),
                inner,
                "must be a strict subset of `cidr`",
            );
        }
    }
}

/// The first bits of an address.
fn prefix(address: std::net::IpAddr, length: u8) -> u128 {
    let (bits, width) = match address {
        std::net::IpAddr::V4(four) => (u128::from(four.to_bits()), 32),
        std::net::IpAddr::V6(six) => (six.to_bits(), 128),
    };
    bits.checked_shr(width - u32::from(length)).unwrap_or(0)
}

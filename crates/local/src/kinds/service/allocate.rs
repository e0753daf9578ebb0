//! What a service gets from the cluster: an address, and ports of nodes.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;

use api::structural::FieldError;
use serde_json::{Value, json};

use super::{has_address, has_health_port, has_node_ports, is_headless, validate};
use crate::kinds::Others;
use crate::kinds::access::{fill, int, items, items_mut, made, text, text_at};
use crate::kinds::check::{Errors, Path};
use crate::status::Failure;

/// The block of addresses of services: its base, and how many it has.
const ADDRESSES: (Ipv4Addr, u32) = (Ipv4Addr::new(10, 96, 0, 0), 1 << 16);
/// Addresses below are left to those who ask for one.
const FIRST_FREE: u32 = 256;
const NODE_PORTS: std::ops::Range<i64> = 30000..32768;

/// Gives a new service what it needs, or says why it cannot have what it asks for.
pub(super) fn admit(service: &mut Value, others: &dyn Others) -> Result<(), Failure> {
    if has_address(&service["spec"]) {
        check_wish(service, others)?;
        allocate(service, others);
    }
    Ok(())
}

fn refused(service: &Value, errors: &[FieldError]) -> Failure {
    Failure::invalid("", "Service", text_at(service, "/metadata/name"), errors)
}

/// What of families this cluster, which has one, cannot do.
fn check_families(spec: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    if is_open(spec) {
        return;
    }
    if text(spec, "ipFamilyPolicy") == "RequireDualStack" {
        let detail = "this cluster is not configured for dual-stack services";
        errors.invalid(&path.field("ipFamilyPolicy"), "RequireDualStack", detail);
    }
    let path = path.field("ipFamilies");
    for (index, family) in items(spec, "ipFamilies").iter().enumerate() {
        if family == "IPv6" {
            errors.invalid(&path.index(index), "IPv6", "not configured on this cluster");
        }
    }
}

fn check_wish(service: &Value, others: &dyn Others) -> Result<(), Failure> {
    let spec = &service["spec"];
    let path = Path::new("spec");
    for check in [
        Errors::of(|errors| validate::check_addresses(spec, None, &path, errors)),
        Errors::of(|errors| check_families(spec, errors)),
    ] {
        if !check.is_empty() {
            return Err(refused(service, &check));
        }
    }
    let wish = text(spec, "clusterIP");
    let Ok(address) = wish.parse::<Ipv4Addr>() else {
        return Ok(());
    };
    let (base, count) = ADDRESSES;
    let offset = address.to_bits().wrapping_sub(base.to_bits());
    let problem = if offset == 0 || offset >= count - 1 {
        "the provided network does not match the current range"
    } else if others
        .list("services", None)
        .iter()
        .any(|other| has(other, wish))
    {
        "provided IP is already allocated"
    } else {
        return Ok(());
    };
    let detail = format!("failed to allocate IP {wish}: {problem}");
    let error = FieldError::invalid("spec.clusterIPs", &service["spec"]["clusterIPs"], &detail);
    Err(refused(service, &[error]))
}

fn has(service: &Value, address: &str) -> bool {
    items(&service["spec"], "clusterIPs")
        .iter()
        .any(|ip| ip == address)
}

/// Fills in what is missing.
pub(super) fn allocate(service: &mut Value, others: &dyn Others) {
    let seed = seed(service);
    families(service);
    let spec = &service["spec"];
    let needs_address = !is_headless(spec) && text(spec, "clusterIP").is_empty();
    let (ports, health) = (has_node_ports(spec), has_health_port(spec));
    let lacks_ports = ports
        && items(spec, "ports")
            .iter()
            .any(|port| int(port, "nodePort").is_none());
    let lacks_health = health && int(spec, "healthCheckNodePort").is_none();
    if !(needs_address || lacks_ports || lacks_health) {
        return;
    }
    let services = others.list("services", None);
    if needs_address {
        let address = free_address(seed, &services);
        let spec = made(service, "spec");
        spec.insert("clusterIP".to_owned(), json!(address));
        spec.insert("clusterIPs".to_owned(), json!([address]));
    }
    let mut taken = taken_ports(&services);
    taken.extend(taken_ports(std::slice::from_ref(service)));
    let spec = made(service, "spec");
    if lacks_ports {
        for port in items_mut(spec, "ports") {
            if !port.contains_key("nodePort") {
                port.insert("nodePort".to_owned(), free_port(seed, &mut taken).into());
            }
        }
    }
    if lacks_health {
        let port = free_port(seed, &mut taken);
        spec.insert("healthCheckNodePort".to_owned(), port.into());
    }
}

/// Whether others say which pods are behind the service, which may have addresses of any family.
fn is_open(spec: &Value) -> bool {
    let selector = spec.get("selector");
    is_headless(spec) && selector.is_none_or(|selector| *selector == json!({}))
}

fn families(service: &mut Value) {
    let open = is_open(&service["spec"]);
    let spec = made(service, "spec");
    let policy = if open {
        "RequireDualStack"
    } else {
        "SingleStack"
    };
    fill(spec, "ipFamilyPolicy", policy);
    let both = open && spec["ipFamilyPolicy"] != "SingleStack";
    let families = if both {
        json!(["IPv4", "IPv6"])
    } else {
        json!(["IPv4"])
    };
    fill(spec, "ipFamilies", families);
}

fn seed(service: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    for field in ["namespace", "name", "uid"] {
        text(&service["metadata"], field).hash(&mut hasher);
    }
    hasher.finish()
}

fn free_address(seed: u64, services: &[Value]) -> String {
    let (base, count) = ADDRESSES;
    let taken: BTreeSet<&str> = services
        .iter()
        .flat_map(|service| items(&service["spec"], "clusterIPs"))
        .filter_map(Value::as_str)
        .collect();
    let usable = count - 1 - FIRST_FREE;
    let start = u32::try_from(seed % u64::from(usable)).unwrap_or(0);
    let at = |step: u32| {
        let offset = FIRST_FREE + (start + step) % usable;
        Ipv4Addr::from_bits(base.to_bits() + offset).to_string()
    };
    let mut candidates = (0..usable).map(at);
    candidates
        .find(|address| !taken.contains(address.as_str()))
        .unwrap_or_default()
}

fn taken_ports(services: &[Value]) -> BTreeSet<i64> {
    let ports = services.iter().flat_map(|service| {
        let spec = &service["spec"];
        let ports = items(spec, "ports")
            .iter()
            .filter_map(|port| int(port, "nodePort"));
        ports.chain(int(spec, "healthCheckNodePort"))
    });
    ports.collect()
}

fn free_port(seed: u64, taken: &mut BTreeSet<i64>) -> i64 {
    let count = NODE_PORTS.end - NODE_PORTS.start;
    let start = i64::try_from(seed >> 1).unwrap_or(0);
    let mut candidates = (0..count).map(|step| NODE_PORTS.start + (start % count + step) % count);
    let port = candidates.find(|port| !taken.contains(port)).unwrap_or(0);
    taken.insert(port);
    port
}

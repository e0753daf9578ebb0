//! What containers may ask for.

use api::structural::names;
use quantity::Quantity;
use serde_json::Value;

use crate::kinds::access::{entries, items, text};
use crate::kinds::check::{Errors, Path};

const OF_CONTAINERS: &[&str] = &["cpu", "memory", "ephemeral-storage"];
/// Names that need no prefix, but are not for containers.
const OF_OTHERS: &[&str] = &[
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];
/// Of which there is no half.
const WHOLE: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    let quota = format!("requests.{name}");
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name_problems(&quota).is_empty()
}

/// Whether pods may together be promised more than there is.
fn is_shared(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// Requests and limits of a container.
pub(super) fn check(resources: Option<&Value>, path: &Path, errors: &mut Errors) {
    check_with(resources, container_name, path, errors);
}

/// Requests and limits of a whole pod.
pub(super) fn check_pod(resources: &Value, path: &Path, errors: &mut Errors) {
    if !items(resources, "claims").is_empty() {
        let detail = "claims may not be set for Resources at pod-level";
        errors.forbidden(&path.field("claims"), detail);
    }
    check_with(Some(resources), pod_name, path, errors);
}

fn check_with(
    resources: Option<&Value>,
    name_rule: fn(&str, &Path, &mut Errors),
    path: &Path,
    errors: &mut Errors,
) {
    let Some(resources) = resources else { return };
    let (limits, requests) = (path.field("limits"), path.field("requests"));
    let (mut huge, mut small) = (false, false);
    for (list, path) in [("limits", &limits), ("requests", &requests)] {
        for (name, amount) in entries(resources, list) {
            let path = path.key(name);
            name_rule(name, &path, errors);
            check_amount(name, amount.as_str().unwrap_or_default(), &path, errors);
            huge |= is_huge_pages(name);
            small |= matches!(name, "cpu" | "memory");
        }
    }
    for (name, amount) in entries(resources, "requests") {
        let limit = resources.pointer("/limits").and_then(|it| it.get(name));
        check_limit(name, amount, limit, [&limits, &requests], errors);
    }
    if huge && !small {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
}

/// An amount of any resource, in a pod or on a node.
pub(in crate::kinds) fn check_amount(name: &str, amount: &str, path: &Path, errors: &mut Errors) {
    errors.quantity_not_negative(path, amount);
    let whole = WHOLE.contains(&name) || is_extended(name);
    if whole && Quantity::parse(amount).is_ok_and(|amount| !amount.is_whole()) {
        errors.invalid(path, amount, "must be an integer");
    }
}

fn check_limit(
    name: &str,
    request: &Value,
    limit: Option<&Value>,
    [limits, requests]: [&Path; 2],
    errors: &mut Errors,
) {
    let Some(limit) = limit.and_then(Value::as_str) else {
        if !is_shared(name) {
            let detail = "Limit must be set for non overcommitable resources";
            errors.required(limits, detail);
        }
        return;
    };
    let request = request.as_str().unwrap_or_default();
    let (Ok(asked), Ok(most)) = (Quantity::parse(request), Quantity::parse(limit)) else {
        return;
    };
    if asked != most && !is_shared(name) {
        let detail = format!("must be equal to {name} limit of {limit}");
        errors.invalid(requests, request, &detail);
    } else if asked > most {
        let detail = format!("must be less than or equal to {name} limit of {limit}");
        errors.invalid(requests, request, &detail);
    }
}

/// Whether the name is well formed, and known if it has no prefix.
fn resource_name(name: &str, path: &Path, errors: &mut Errors) -> bool {
    let before = errors.len();
    errors.qualified_name(path, name);
    let known =
        |name| OF_CONTAINERS.contains(&name) || OF_OTHERS.contains(&name) || is_huge_pages(name);
    if errors.len() == before && !name.contains('/') && !known(name) {
        let detail = "must be a standard resource type or fully qualified";
        errors.invalid(path, name, detail);
    }
    errors.len() == before
}

fn container_name(name: &str, path: &Path, errors: &mut Errors) {
    resource_name(name, path, errors);
    if !name.contains('/') {
        if !OF_CONTAINERS.contains(&name) && !is_huge_pages(name) {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

fn pod_name(name: &str, path: &Path, errors: &mut Errors) {
    let fine = resource_name(name, path, errors);
    if fine && !matches!(name, "cpu" | "memory") && !is_huge_pages(name) {
        errors.not_supported(path, name, &["cpu", "hugepages-", "memory"]);
    }
}

/// A resource of a container, by its path.
pub(super) fn check_field_ref(field: &Value, in_file: bool, path: &Path, errors: &mut Errors) {
    let resource = text(field, "resource");
    let huge = ["requests.hugepages-", "limits.hugepages-"];
    if in_file && text(field, "containerName").is_empty() {
        errors.required(&path.field("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.field("resource"), "");
    } else if !FIELDS.contains(&resource) && !huge.iter().any(|it| resource.starts_with(it)) {
        errors.not_supported(&path.field("resource"), resource, FIELDS);
    }
    check_divisor(
        resource,
        text(field, "divisor"),
        &path.field("divisor"),
        errors,
    );
}

const SIZES: &str = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";

fn check_divisor(resource: &str, divisor: &str, path: &Path, errors: &mut Errors) {
    if divisor.is_empty() || Quantity::parse(divisor).is_ok_and(|divisor| divisor.is_zero()) {
        return;
    }
    let (known, what) = match resource.split_once('.').map_or("", |(_, name)| name) {
        "cpu" => ("1m, 1", "cpu"),
        "memory" => (SIZES, "memory"),
        "ephemeral-storage" => (SIZES, "local ephemeral storage"),
        name if is_huge_pages(name) => (SIZES, "hugepages"),
        _ => return,
    };
    if !known.split(", ").any(|it| it == divisor) {
        let known = known.replace("1m, 1", "1m and 1");
        let detail =
            format!("only divisor's values {known} are supported with the {what} resource");
        errors.invalid(path, resource, &detail);
    }
}

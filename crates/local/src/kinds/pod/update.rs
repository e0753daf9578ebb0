//! What of a pod may change, and how.

use serde_json::Value;

use super::containers::check_image_frame;
use super::{admit, resize, validate};
use crate::kinds::Part;
use crate::kinds::access::{as_map, int, items, made, take_from, text, text_at};
use crate::kinds::check::{Errors, Path};
use crate::kinds::internal;

/// Of metadata, what only a write of the object itself changes.
const META: &[&str] = &["labels", "annotations", "finalizers", "ownerReferences"];

const CHANGEABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Puts back what this part may not change.
pub(super) fn prepare(new: &mut Value, old: &Value, part: Part) {
    match part {
        Part::Main | Part::Finalize => prepare_main(new, old),
        Part::Status => prepare_status(new, old),
        Part::EphemeralContainers => {
            let added = made(new, "spec").remove("ephemeralContainers");
            keep(new, old);
            let spec = made(new, "spec");
            match added {
                Some(added) => spec.insert("ephemeralContainers".to_owned(), added),
                None => spec.remove("ephemeralContainers"),
            };
        }
        Part::Resize => resize::prepare(new, old),
    }
}

/// Takes spec, status and most of metadata from the old pod.
pub(super) fn keep(new: &mut Value, old: &Value) {
    let map = as_map(new);
    take_from(map, old, "spec");
    take_from(map, old, "status");
    let metadata = made(new, "metadata");
    for field in META {
        take_from(metadata, &old["metadata"], field);
    }
}

fn prepare_main(new: &mut Value, old: &Value) {
    take_from(as_map(new), old, "status");
    let spec = made(new, "spec");
    for field in ["priority", "preemptionPolicy"] {
        if !spec.contains_key(field) {
            take_from(spec, &old["spec"], field);
        }
    }
    admit::be_patient(spec);
}

fn prepare_status(new: &mut Value, old: &Value) {
    take_from(as_map(new), old, "spec");
    take_from(made(new, "metadata"), &old["metadata"], "ownerReferences");
    let was = &old["status"];
    let status = made(new, "status");
    for field in ["qosClass", "observedGeneration"] {
        if !status.contains_key(field) {
            take_from(status, was, field);
        }
    }
    let Some(Value::Array(conditions)) = status.get_mut("conditions") else {
        return;
    };
    for condition in conditions {
        let kind = text(condition, "type");
        let mut before = items(was, "conditions").iter();
        if let Some(before) = before.find(|before| text(before, "type") == kind)
            && int(condition, "observedGeneration").is_none()
        {
            take_from(as_map(condition), before, "observedGeneration");
        }
    }
}

/// What is wrong with a change.
pub(super) fn check(new: &Value, old: &Value, part: Part) -> Errors {
    let mut errors = Errors::default();
    match part {
        Part::Status => check_status(new, old, &mut errors),
        Part::Resize => resize::check(new, old, &mut errors),
        Part::EphemeralContainers => {
            validate::check(new, &mut errors);
            check_ephemeral(new, old, &mut errors);
        }
        Part::Main | Part::Finalize => {
            validate::check(new, &mut errors);
            check_spec(&new["spec"], &old["spec"], &mut errors);
        }
    }
    errors
}

fn check_spec(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    for list in ["containers", "initContainers"] {
        let path = path.field(list);
        if items(new, list).len() != items(old, list).len() {
            return errors.forbidden(&path, "pod updates may not add or remove containers");
        }
        for (index, container) in items(new, list).iter().enumerate() {
            let path = path.index(index);
            if text(container, "image").is_empty() {
                errors.required(&path.field("image"), "");
            }
            check_image_frame(container, &path, errors);
        }
    }
    if !check_deadline(new, old, &path.field("activeDeadlineSeconds"), errors) {
        return;
    }
    check_tolerations(new, old, &path.field("tolerations"), errors);
    check_gates(new, old, &path.field("schedulingGates"), errors);
    if new == old {
        return;
    }
    let mut rest = new.clone();
    undo_allowed(&mut rest, old, errors);
    if rest != *old {
        let shown = internal::diff("PodSpec", old, &rest);
        errors.forbidden(&path, &format!("{CHANGEABLE}\n{shown}"));
    }
}

/// Returns whether the other checks are worth doing.
fn check_deadline(new: &Value, old: &Value, path: &Path, errors: &mut Errors) -> bool {
    let was = int(old, "activeDeadlineSeconds");
    let Some(deadline) = int(new, "activeDeadlineSeconds") else {
        if was.is_some() {
            let detail = "must not update from a positive integer to nil value";
            errors.invalid(path, Value::Null, detail);
        }
        return true;
    };
    if !(0..=i64::from(i32::MAX)).contains(&deadline) {
        errors.range(path, deadline, 0, i64::from(i32::MAX));
        return false;
    }
    if was.is_some_and(|was| was < deadline) {
        errors.invalid(
            path,
            deadline,
            "must be less than or equal to previous value",
        );
        return false;
    }
    true
}

fn check_tolerations(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    let same = |new: &Value, old: &Value| {
        let fields = ["key", "operator", "value", "effect"];
        fields
            .iter()
            .all(|field| text(new, field) == text(old, field))
    };
    let now = items(new, "tolerations");
    for toleration in items(old, "tolerations") {
        if !now.iter().any(|new| same(new, toleration)) {
            let detail = "existing toleration can not be modified except its tolerationSeconds";
            return errors.forbidden(path, detail);
        }
    }
    validate::check_tolerations(new, path, errors);
}

fn check_gates(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    let before = items(old, "schedulingGates");
    for (index, gate) in items(new, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !before.iter().any(|gate| text(gate, "name") == name) {
            let detail =
                format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&path.index(index).field("name"), &detail);
        }
    }
}

/// Makes a spec as it was in all that may change.
fn undo_allowed(spec: &mut Value, old: &Value, errors: &mut Errors) {
    for list in ["containers", "initContainers"] {
        let Some(Value::Array(containers)) = spec.get_mut(list) else {
            continue;
        };
        for (container, old) in containers.iter_mut().zip(items(old, list)) {
            take_from(as_map(container), old, "image");
        }
    }
    let grace = "terminationGracePeriodSeconds";
    let was_negative = int(old, grace).is_some_and(|grace| grace < 0);
    let becomes_one = int(spec, grace) == Some(1);
    let map = as_map(spec);
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        take_from(map, old, field);
    }
    if was_negative && becomes_one {
        take_from(map, old, grace);
    }
    if !items(old, "schedulingGates").is_empty() {
        undo_placement(spec, old, errors);
    }
}

/// A pod that is kept from nodes may still be told more precisely where to go.
fn undo_placement(spec: &mut Value, old: &Value, errors: &mut Errors) {
    let selector = |spec: &Value| spec.get("nodeSelector").cloned().unwrap_or_default();
    let (now, before) = (selector(spec), selector(old));
    let kept = |(key, value): (&String, &Value)| now.get(key) == Some(value);
    if now != before {
        if !before
            .as_object()
            .is_none_or(|before| before.iter().all(kept))
        {
            let path = Path::new("spec");
            let detail =
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            errors.invalid(&path.field("nodeSelector"), now.clone(), detail);
        }
        take_from(as_map(spec), old, "nodeSelector");
    }
}

fn check_ephemeral(new: &Value, old: &Value, errors: &mut Errors) {
    let spec = Path::new("spec");
    let path = spec.field("ephemeralContainers");
    let now = items(&new["spec"], "ephemeralContainers");
    for container in items(&old["spec"], "ephemeralContainers") {
        let name = text(container, "name");
        match now.iter().find(|new| text(new, "name") == name) {
            None => {
                let detail = format!("existing ephemeral containers {name:?} may not be removed\n");
                errors.forbidden(&path, &detail);
            }
            Some(new) if new != container => {
                let shown = internal::diff("EphemeralContainer", container, new);
                let detail =
                    format!("existing ephemeral containers {name:?} may not be changed\n{shown}");
                errors.forbidden(&path, &detail);
            }
            Some(_) => {}
        }
    }
}

fn check_status(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("status");
    let (status, was) = (&new["status"], &old["status"]);
    check_conditions(status, &path.field("conditions"), errors);
    let (class, was_class) = (text(status, "qosClass"), text(was, "qosClass"));
    errors.fixed_text(&path.field("qosClass"), class, was_class);
    let nominated = text(status, "nominatedNodeName");
    if !nominated.is_empty() && nominated != text(was, "nominatedNodeName") {
        let path = path.field("nominatedNodeName");
        errors.subdomain(&path, nominated);
        if !text_at(old, "/spec/nodeName").is_empty() {
            let detail = "may not be set on pods that are already bound to a node";
            errors.forbidden(&path, detail);
        }
    }
    for (list, field) in [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
    ] {
        check_containers([status, was], &old["spec"], list, field, errors);
    }
    check_addresses(status, was, "podIPs", &path, errors);
    let first = items(status, "hostIPs").first().map(|ip| text(ip, "ip"));
    if let Some(first) = first.filter(|first| *first != text(status, "hostIP")) {
        let path = path.field("hostIPs");
        errors.invalid(
            &path.index(0).field("ip"),
            first,
            "must be equal to `hostIP`",
        );
    }
    check_addresses(status, was, "hostIPs", &path, errors);
}

fn check_conditions(status: &Value, path: &Path, errors: &mut Errors) {
    for (index, condition) in items(status, "conditions").iter().enumerate() {
        let path = path.index(index);
        let detail = "must be a non-negative integer";
        if let Some(generation) = int(condition, "observedGeneration").filter(|it| *it < 0) {
            errors.invalid(&path.field("observedGeneration"), generation, detail);
        }
        let kind = text(condition, "type");
        if !["PodScheduled", "Ready", "Initialized"].contains(&kind) {
            errors.qualified_name(&path.field("Type"), kind);
        }
    }
}

/// A container that ended stays so where nothing restarts it.
fn check_containers(
    [status, was]: [&Value; 2],
    spec: &Value,
    list: &str,
    containers: &str,
    errors: &mut Errors,
) {
    let policy = text(spec, "restartPolicy");
    if policy == "Always" {
        return;
    }
    let root = Path::new("status");
    let path = root.field(list);
    for (index, now) in items(status, list).iter().enumerate() {
        let name = text(now, "name");
        let of_spec = items(spec, containers)
            .iter()
            .find(|it| text(it, "name") == name);
        let restarts = of_spec.is_some_and(|it| it.get("restartPolicy").is_some());
        let before = items(was, list).iter().find(|it| text(it, "name") == name);
        let ended = before.and_then(|before| before.pointer("/state/terminated"));
        let Some(ended) = ended.filter(|_| !restarts) else {
            continue;
        };
        let failed = int(ended, "exitCode").unwrap_or(0) != 0;
        if now.pointer("/state/terminated").is_none() && !(failed && policy == "OnFailure") {
            let path = path.index(index);
            errors.forbidden(
                &path.field("state"),
                "may not be transitioned to non-terminated state",
            );
        }
    }
}

fn check_addresses(status: &Value, was: &Value, list: &str, path: &Path, errors: &mut Errors) {
    let path = path.field(list);
    let addresses = items(status, list);
    for (index, address) in addresses.iter().enumerate() {
        if !items(was, list).contains(address) {
            errors.ip(&path.index(index), text(address, "ip"));
        }
    }
    let is_six = |address: &Value| text(address, "ip").contains(':');
    let mixed = addresses.len() == 2 && is_six(&addresses[0]) != is_six(&addresses[1]);
    if addresses.len() > 1 && !mixed {
        let detail = "may specify no more than one IP for each IP family";
        let addresses = Value::from(addresses.to_vec());
        errors.invalid_internal(&path, "[]PodIP", &addresses, detail);
    }
}

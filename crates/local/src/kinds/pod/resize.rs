//! Changing what the containers of a running pod may use.

use serde_json::{Map, Value};

use super::{qos, update, validate};
use crate::kinds::access::{as_map, entries, items, made, take_from, text, text_at};
use crate::kinds::check::{Errors, Path};

const LISTS: [&str; 2] = ["containers", "initContainers"];

/// Keeps all of the old pod but resources and the policies of resizing.
pub(super) fn prepare(new: &mut Value, old: &Value) {
    let (wish, was) = (&new["spec"], &old["spec"]);
    let comparable = LISTS
        .iter()
        .all(|list| items(wish, list).len() == items(was, list).len());
    if !comparable {
        // the check says what is wrong
        return;
    }
    let wish = as_map(new).remove("spec").unwrap_or_default();
    update::keep(new, old);
    let spec = made(new, "spec");
    take_from(spec, &wish, "resources");
    for list in LISTS {
        let kept = merged(items(&wish, list), items(was, list));
        if let Some(kept) = kept {
            spec.insert(list.to_owned(), kept);
        }
    }
}

/// The old containers with new resources; the new ones if these are not the same containers.
fn merged(news: &[Value], old: &[Value]) -> Option<Value> {
    if news.is_empty() {
        return None;
    }
    let mut containers = old.to_vec();
    for (container, new) in containers.iter_mut().zip(news) {
        if text(container, "name") != text(new, "name") {
            // the check says what is wrong
            return Some(news.into());
        }
        let container = as_map(container);
        take_from(container, new, "resources");
        take_from(container, new, "resizePolicy");
    }
    Some(containers.into())
}

/// What is wrong with new resources.
pub(super) fn check(new: &Value, old: &Value, errors: &mut Errors) {
    validate::check(new, errors);
    let path = Path::new("spec");
    let (spec, was) = (&new["spec"], &old["spec"]);
    let class = match text_at(old, "/status/qosClass") {
        "" => qos::class(was),
        class => class,
    };
    if class != qos::class(spec) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.invalid(&path, text_at(new, "/status/qosClass"), detail);
    }
    if !is_supported(old) {
        errors.forbidden(&path, "Pod running on node without support for resize");
    }
    check_pod_level(spec, was, &path, errors);
    if !check_order(spec, was, &path, errors) {
        return;
    }
    for list in ["initContainers", "containers"] {
        let path = path.field(list);
        for (index, (new, old)) in items(spec, list).iter().zip(items(was, list)).enumerate() {
            let path = path.index(index);
            check_removed(new, old, &path.field("resources"), errors);
        }
    }
    check_only_resources(spec, was, &path, errors);
}

/// A node that resizes containers also says what they have.
fn is_supported(pod: &Value) -> bool {
    let mut statuses = items(&pod["status"], "containerStatuses").iter();
    let running = statuses.find(|status| status.pointer("/state/running").is_some());
    running.is_none_or(|status| status.get("resources").is_some())
}

fn check_pod_level(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    let path = path.field("resources");
    let Some(old) = old.get("resources") else {
        return;
    };
    let Some(new) = new.get("resources") else {
        return errors.forbidden(&path, "pod-level resources cannot be removed");
    };
    for list in ["requests", "limits"] {
        if entries(old, list).any(|(name, _)| !has(new, list, name)) {
            let detail = format!("pod-level resource {list} cannot be removed");
            errors.forbidden(&path.field(list), &detail);
        }
    }
}

fn has(resources: &Value, list: &str, name: &str) -> bool {
    let amounts = resources.get(list);
    amounts.is_some_and(|amounts| amounts.get(name).is_some())
}

/// Returns whether the containers are the same, one by one.
fn check_order(new: &Value, old: &Value, path: &Path, errors: &mut Errors) -> bool {
    let before = errors.len();
    for list in LISTS {
        let (now, was) = (items(new, list), items(old, list));
        let path = path.field(list);
        if now.len() != was.len() {
            errors.forbidden(
                &path,
                &format!("{list} may not be added or removed on resize"),
            );
            continue;
        }
        for (index, (new, old)) in now.iter().zip(was).enumerate() {
            if text(new, "name") != text(old, "name") {
                let detail = format!("{list} may not be renamed or reordered on resize");
                errors.forbidden(&path.index(index).field("name"), &detail);
            }
        }
    }
    errors.len() == before
}

fn check_removed(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    let empty = Value::Object(Map::new());
    let new = new.get("resources").unwrap_or(&empty);
    let old = old.get("resources").unwrap_or(&empty);
    for list in ["requests", "limits"] {
        if entries(old, list).any(|(name, _)| !has(new, list, name)) {
            let detail = format!("resource {list} cannot be removed");
            errors.forbidden(&path.field(list), &detail);
        }
    }
}

fn check_only_resources(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    for (_, (new, old)) in pairs(new, old, "containers") {
        if !same_but_sizes(new, old) {
            errors.forbidden(path, "only cpu and memory resources are mutable");
        }
    }
    let list = path.field("initContainers");
    for (index, (new, old)) in pairs(new, old, "initContainers") {
        if !same_but_sizes(new, old) {
            let detail = "only cpu and memory resources for init or sidecar containers are mutable";
            errors.forbidden(&list.index(index), detail);
        }
    }
}

fn pairs<'a>(
    new: &'a Value,
    old: &'a Value,
    list: &str,
) -> impl Iterator<Item = (usize, (&'a Value, &'a Value))> {
    items(new, list).iter().zip(items(old, list)).enumerate()
}

/// Whether containers differ in processors and memory alone.
fn same_but_sizes(new: &Value, old: &Value) -> bool {
    let other = |container: &Value, list: &str| -> Vec<(String, Value)> {
        let resources = container.get("resources").unwrap_or(&Value::Null);
        entries(resources, list)
            .filter(|(name, _)| !matches!(*name, "cpu" | "memory"))
            .map(|(name, amount)| (name.to_owned(), amount.clone()))
            .collect()
    };
    let rest = |container: &Value| {
        let mut rest = container.clone();
        as_map(&mut rest).remove("resources");
        rest
    };
    ["requests", "limits"]
        .iter()
        .all(|list| other(new, list) == other(old, list))
        && rest(new) == rest(old)
}

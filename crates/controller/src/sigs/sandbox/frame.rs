//! What of a running pod must be as its template says because it cannot change.
//!
//! A pod has more than its template: defaults of the server, and what admission adds. So all that a template asks for has to
//! be there, and what is there besides is not asked about.

use engine::{
    in_place::{List, Why},
    revision::{Form, canonical_text},
};
use serde_json::{Map, Value};

const LISTS: [(&str, List); 2] = [
    ("containers", List::Containers),
    ("initContainers", List::InitContainers),
];
/// Put in by the server where a namespace has limits.
const LIMIT_RANGER: &str = "kubernetes.io/limit-ranger";

/// What the pod lacks and could not be given.
pub(super) fn differences(pod: &Value, wanted: &Value) -> Vec<Why> {
    let [pod, wanted] = [pod, wanted].map(canonical);
    let mut why = Vec::new();
    let fields = wanted["spec"].as_object().into_iter().flatten();
    for (field, value) in fields.filter(|(field, _)| *field != "resources") {
        match LISTS.iter().find(|(name, _)| name == field) {
            Some((name, list)) => containers(&pod["spec"][*name], value, *list, &mut why),
            None if !has(&pod["spec"][field], value) => {
                why.push(Why::Immutable(format!("spec.{field}")));
            }
            None => {}
        }
    }
    why
}

fn canonical(pod: &Value) -> Value {
    let text = canonical_text(Form::PodTemplate, &serde_json::json!({"spec": pod["spec"]}));
    serde_json::from_str(&text).unwrap_or_default()
}

fn containers(there: &Value, wanted: &Value, list: List, why: &mut Vec<Why>) {
    for container in wanted.as_array().into_iter().flatten() {
        let name = container["name"].as_str().unwrap_or_default();
        let Some(there) = named(there, name) else {
            return why.push(Why::Containers(list));
        };
        let fields = container.as_object().into_iter().flatten();
        for (field, value) in fields {
            let can_change = ["image", "imagePullPolicy", "resources"].contains(&field.as_str());
            if !can_change && !has(&there[field], value) {
                let path = format!("spec.{}[{name}].{field}", list.name());
                why.push(Why::Immutable(path));
            }
        }
    }
}

fn named<'a>(containers: &'a Value, name: &str) -> Option<&'a Value> {
    let mut all = containers.as_array().into_iter().flatten();
    all.find(|container| container["name"].as_str() == Some(name))
}

/// Whether all that is wanted is there.
fn has(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => wanted
            .iter()
            .all(|(field, value)| has(there.get(field).unwrap_or(&Value::Null), value)),
        (Value::Array(there), Value::Array(wanted)) if wanted.iter().all(Value::is_object) => {
            let is_there = |item: &Value| there.iter().any(|other| has(other, item));
            wanted.iter().all(is_there)
        }
        (there, wanted) => there == wanted,
    }
}

/// The wanted spec with the images and the sizes that the pod has now.
pub(super) fn with_what_changes_of(pod: &Value, wanted: &Value) -> Value {
    let mut spec = wanted.clone();
    let annotations = &pod["metadata"]["annotations"];
    let is_completed = annotations.get(LIMIT_RANGER).is_some();
    for (list, _) in LISTS {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or_default();
            let Some(there) = named(&pod["spec"][list], name) else {
                continue;
            };
            container["image"] = there["image"].clone();
            take_sizes(container, there, is_completed);
        }
    }
    take_sizes(&mut spec, &pod["spec"], is_completed);
    spec
}

/// Where the server has completed sizes, those that nobody asked for are not to be changed.
fn take_sizes(into: &mut Value, from: &Value, is_completed: bool) {
    let mut sizes = from.get("resources").cloned().unwrap_or(Value::Null);
    let wanted = into.get("resources").cloned().unwrap_or(Value::Null);
    if is_completed && let Some(lists) = sizes.as_object_mut() {
        for (list, amounts) in lists {
            if let Some(amounts) = amounts.as_object_mut() {
                amounts.retain(|name, _| wanted[list].get(name).is_some());
            }
        }
    }
    let says_nothing = |sizes: &Value| {
        let lists: Option<&Map<String, Value>> = sizes.as_object();
        lists.is_none_or(|lists| {
            lists
                .values()
                .all(|list| list.as_object().is_some_and(Map::is_empty))
        })
    };
    match (says_nothing(&sizes), into.as_object_mut()) {
        (true, Some(into)) => drop(into.remove("resources")),
        (false, Some(into)) => drop(into.insert("resources".to_owned(), sizes)),
        (_, None) => {}
    }
}

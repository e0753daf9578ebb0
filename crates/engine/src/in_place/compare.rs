//! The comparison of two templates, field by field.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    Changes, ImageChange, List, Platform, ResizeChange, Why,
    resources::{RESIZABLE, Resources, qos, restarts_on},
};
use crate::{
    image::Reference,
    json::{Object, items, object, text},
    revision::{Form, canonical_form},
};

/// What changes in place, and what cannot.
pub(super) fn compare(old: &Value, new: &Value, platform: &Platform) -> (Changes, Vec<Why>) {
    let mut comparison = Comparison {
        platform,
        old: &old["spec"],
        new: &new["spec"],
        changes: Changes::default(),
        why: Vec::new(),
    };
    let canonical = [old, new].map(|template| canonical_form(Form::PodTemplate, template));
    let [was, is] = canonical.each_ref().map(|template| &template["spec"]);
    comparison.others(&canonical[0], &canonical[1]);
    comparison.spec(was, is);
    comparison.pod_resources(was, is);
    comparison.nothing_is_lost(was == is);
    comparison.qos();
    comparison.changes.metadata = metadata(old, new);
    comparison.variables();
    comparison.restarts();
    (comparison.changes, comparison.why)
}

struct Comparison<'a> {
    platform: &'a Platform,
    /// The specs as they are written: what is left out there is what the API server fills in.
    old: &'a Value,
    new: &'a Value,
    changes: Changes,
    why: Vec<Why>,
}

impl Comparison<'_> {
    /// Whatever else a template has.
    fn others(&mut self, was: &Value, is: &Value) {
        let others = differing(was, is).into_iter();
        let others = others.filter(|field| !["metadata", "spec"].contains(&field.as_str()));
        self.why.extend(others.map(Why::Immutable));
    }

    /// A difference that nothing above has understood must not pass for none.
    fn nothing_is_lost(&mut self, is_same: bool) {
        let understood = !self.changes.images.is_empty() || !self.changes.resizes.is_empty();
        if !is_same && !understood && self.why.is_empty() {
            self.why.push(Why::Immutable("spec".to_owned()));
        }
    }

    /// Compares canonical specs.
    fn spec(&mut self, was: &Value, is: &Value) {
        let lists = List::ALL.map(List::name);
        let comparable = |list: &str| {
            [was, is]
                .iter()
                .all(|spec| spec.get(list).is_none_or(Value::is_array))
        };
        for field in differing(was, is) {
            let is_list = lists.contains(&field.as_str()) && comparable(&field);
            if field != "resources" && !is_list {
                self.why.push(Why::Immutable(joined("spec", &field)));
            }
        }
        for list in List::ALL {
            self.containers(list, items(was, list.name()), items(is, list.name()));
        }
    }

    fn containers(&mut self, list: List, was: &[Value], is: &[Value]) {
        let names = |containers: &[Value]| -> Vec<Option<String>> {
            let name = |it: &Value| it.get("name").and_then(Value::as_str).map(str::to_owned);
            containers.iter().map(name).collect()
        };
        if names(was) != names(is) {
            return self.why.push(Why::Containers(list));
        }
        for (index, (was, is)) in was.iter().zip(is).enumerate() {
            let Some(name) = is.get("name").and_then(Value::as_str) else {
                // what has no name cannot be patched by it
                if was != is {
                    self.why.push(Why::Containers(list));
                }
                continue;
            };
            self.container(list, index, name, was, is);
        }
    }

    fn container(&mut self, list: List, index: usize, name: &str, was: &Value, is: &Value) {
        let differing = differing(was, is);
        for field in &differing {
            if !["image", "imagePullPolicy", "resources"].contains(&field.as_str()) {
                let path = format!("spec.{}[{name}]", list.name());
                self.why.push(Why::Immutable(joined(&path, field)));
            }
        }
        if !differing.is_empty() && pull_policies_differ(was, is) {
            let path = format!("spec.{}[{name}].imagePullPolicy", list.name());
            self.why.push(Why::Immutable(path));
        }
        let ordinary_init = list == List::InitContainers && !is_sidecar(is);
        let touched = differing.contains("image") || differing.contains("resources");
        if ordinary_init && touched {
            let container = name.to_owned();
            return self.why.push(Why::InitContainer { container });
        }
        if differing.contains("image") {
            self.image(list, name, text(is, "image"));
        }
        if differing.contains("resources") {
            let (was, is) = (&was["resources"], &is["resources"]);
            self.resources(list, index, name, differing_but_amounts(was, is));
        }
    }

    fn image(&mut self, list: List, name: &str, image: &str) {
        let container = name.to_owned();
        match image {
            "" => self.why.push(Why::NoImage { container }),
            image => self.changes.images.push(ImageChange {
                list,
                container,
                image: image.to_owned(),
            }),
        }
    }

    fn resources(&mut self, list: List, index: usize, name: &str, others: BTreeSet<String>) {
        let path = format!("spec.{}[{name}].resources", list.name());
        let (old, new) = (self.old, self.new);
        let written = |spec| items(spec, list.name()).get(index);
        let read = |spec| written(spec).and_then(Resources::of_container);
        let (Some(from), Some(to), Some(is)) = (read(old), read(new), written(new)) else {
            return self.why.push(Why::Immutable(path));
        };
        let resources = from.differing(&to);
        if resources.is_empty() && others.is_empty() {
            self.why.push(Why::Immutable(path.clone()));
        }
        let others = others.iter().map(|field| joined(&path, field));
        self.why.extend(others.map(Why::Immutable));
        if resources.is_empty() {
            return;
        }
        self.resizable(&format!("container {name}"), &resources, &from, &to);
        if is_sidecar(is) && list == List::InitContainers && !self.platform.resizes_sidecars {
            let container = name.to_owned();
            self.why.push(Why::CannotResizeSidecar { container });
        }
        if self.platform.memory_limits_restart && !restarts_on(is, "memory") {
            let (before, after) = (from.limits.get("memory"), to.limits.get("memory"));
            let unlimited_or_more =
                |after: &super::resources::Amount| before.is_none_or(|it| it.value > after.value);
            if after.is_some_and(unlimited_or_more) {
                let container = name.to_owned();
                self.why.push(Why::MemoryLimit { container });
            }
        }
        self.changes.resizes.push(ResizeChange {
            container: Some((list, name.to_owned())),
            restarts: resources.iter().any(|name| restarts_on(is, name)),
            from,
            to,
        });
    }

    fn resizable(&mut self, of: &str, names: &BTreeSet<String>, from: &Resources, to: &Resources) {
        let mut once = |why: Why| {
            if !self.why.contains(&why) {
                self.why.push(why);
            }
        };
        if self.platform.resize.is_none() {
            once(Why::CannotResize);
        }
        if self.new.pointer("/os/name").and_then(Value::as_str) == Some("windows") {
            once(Why::CannotResizeOnWindows);
        }
        for resource in names {
            let (of, resource) = (of.to_owned(), resource.clone());
            if !RESIZABLE.contains(&resource.as_str()) {
                once(Why::OtherResource { of, resource });
            } else if from.has_more_keys_than(to, &resource) {
                once(Why::ResourceRemoved { of, resource });
            }
        }
    }

    fn pod_resources(&mut self, was: &Value, is: &Value) {
        let (was, is) = (&was["resources"], &is["resources"]);
        if was == is {
            return;
        }
        let read = |resources: &Value| Resources::read(Some(resources));
        let (Some(from), Some(to)) = (read(&self.old["resources"]), read(&self.new["resources"]))
        else {
            return self.why.push(Why::Immutable("spec.resources".to_owned()));
        };
        let is_size = !was.is_null() && !is.is_null() && differing_but_amounts(was, is).is_empty();
        if !is_size || from.differing(&to).is_empty() {
            return self.why.push(Why::Immutable("spec.resources".to_owned()));
        }
        self.resizable("the pod", &from.differing(&to), &from, &to);
        if !self.platform.resizes_whole_pods {
            self.why.push(Why::CannotResizePod);
        }
        self.changes.resizes.push(ResizeChange {
            container: None,
            from,
            to,
            restarts: false,
        });
    }

    fn qos(&mut self) {
        if self.changes.resizes.is_empty() {
            return;
        }
        match (qos(self.old), qos(self.new)) {
            (Some(from), Some(to)) if from != to => self.why.push(Why::QosClass { from, to }),
            _ => {}
        }
    }

    /// Variables keep what metadata was when their container started.
    fn variables(&mut self) {
        let Some(metadata) = &self.changes.metadata else {
            return;
        };
        let changed: Vec<String> = ["labels", "annotations"]
            .iter()
            .flat_map(|map| {
                let keys = object(metadata, map).into_iter().flat_map(Object::keys);
                keys.map(move |key| format!("metadata.{map}['{key}']"))
            })
            .collect();
        let restarted: BTreeSet<&str> = self.changes.restarted().collect();
        let mut why = Vec::new();
        for list in List::ALL {
            for container in items(self.new, list.name()) {
                let name = text(container, "name");
                let is_left = list == List::Containers || is_sidecar(container);
                if restarted.contains(name) || !is_left {
                    continue;
                }
                let shown = items(container, "env").iter().filter_map(|variable| {
                    variable.pointer("/valueFrom/fieldRef/fieldPath")?.as_str()
                });
                why.extend(
                    shown
                        .filter(|it| changed.iter().any(|key| key == it))
                        .map(|key| Why::VariableFromMetadata {
                            container: name.to_owned(),
                            key: key.to_owned(),
                        }),
                );
            }
        }
        self.why.append(&mut why);
    }

    /// A restart that fails after the old container is gone is tried again only under Always.
    fn restarts(&mut self) {
        let mut why = Vec::new();
        for name in self.changes.restarted() {
            let containers = items(self.new, List::Containers.name()).iter();
            let container = containers.into_iter().find(|it| text(it, "name") == name);
            // a sidecar is one because its policy is Always
            let Some(container) = container else { continue };
            let own = text(container, "restartPolicy");
            let policy = match own {
                own if !own.is_empty() && self.platform.restart_policy_per_container => own,
                _ => text(self.new, "restartPolicy"),
            };
            let refusal = Why::RestartPolicy {
                container: name.to_owned(),
                policy: policy.to_owned(),
            };
            if !["", "Always"].contains(&policy) && !why.contains(&refusal) {
                why.push(refusal);
            }
        }
        self.why.append(&mut why);
    }
}

fn is_sidecar(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

/// The fields in which two objects differ; an empty name if they are not both objects and differ.
fn differing(was: &Value, is: &Value) -> BTreeSet<String> {
    let is_object = |value: &Value| value.is_object() || value.is_null();
    if !is_object(was) || !is_object(is) {
        let differs = was != is;
        return differs.then(String::new).into_iter().collect();
    }
    let objects = [was, is].into_iter().filter_map(Value::as_object);
    let keys = objects.flat_map(Object::keys);
    keys.filter(|key| was.get(*key) != is.get(*key))
        .cloned()
        .collect()
}

/// The fields of resources in which two differ, apart from requests and limits.
fn differing_but_amounts(was: &Value, is: &Value) -> BTreeSet<String> {
    let mut fields = differing(was, is);
    fields.retain(|field| !["requests", "limits"].contains(&field.as_str()));
    fields
}

/// Whether the pull policies that pods get differ for another reason than the image.
fn pull_policies_differ(was: &Value, is: &Value) -> bool {
    let written = |container: &Value| {
        let policy = container.get("imagePullPolicy").and_then(Value::as_str);
        policy.map(str::to_owned)
    };
    let effective = |container: &Value| {
        let default = Reference::of(text(container, "image")).default_pull_policy();
        written(container).unwrap_or_else(|| default.to_owned())
    };
    let none_written = written(was).is_none() && written(is).is_none();
    !none_written && effective(was) != effective(is)
}

/// Labels and annotations as a merge patch; nothing if they are the same.
fn metadata(old: &Value, new: &Value) -> Option<Value> {
    let mut patch = Object::new();
    for map in ["labels", "annotations"] {
        let [was, is] = [old, new].map(|template| &template["metadata"][map]);
        let changed: Object = differing(was, is)
            .into_iter()
            .map(|key| {
                let value = is.get(&key).cloned();
                (key, value.unwrap_or_default())
            })
            .collect();
        if !changed.is_empty() {
            patch.insert(map.to_owned(), changed.into());
        }
    }
    (!patch.is_empty()).then(|| json!(patch))
}

fn joined(path: &str, field: &str) -> String {
    match field {
        "" => path.to_owned(),
        field => format!("{path}.{field}"),
    }
}

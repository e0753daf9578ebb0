//! The pod, the service and the volume claims that a sandbox wants, and what tells them from those there are.

use std::collections::{BTreeMap, BTreeSet};

use api::sigs::shared::{Blueprint, PersistentVolumeClaimTemplate};
use engine::revision::name_hash;
use serde_json::{Map, Value, json};

use super::view::{Pod, Port, Sandbox, Service};
use crate::{
    meta::{Meta, Pairs},
    sigs::names,
};

/// Whose an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Owned,
    /// Nobody's, and free to be taken.
    Adoptable,
    /// Why it cannot be used.
    Barred(String),
}

/// `what` names the kind in the reason.
pub(super) fn standing(sandbox: &Sandbox, object: &Meta, what: &str) -> Standing {
    let name = &object.key.name;
    match &object.owner {
        Some(owner) if *owner.uid == *sandbox.meta.uid => Standing::Owned,
        Some(owner) => Standing::Barred(format!(
            "{what} {name:?} is controlled by {} {:?}",
            owner.kind, owner.name
        )),
        None if object.labels.get(names::ADOPTABLE) == Some("true")
            || has_hash(sandbox, &object.labels) =>
        {
            Standing::Adoptable
        }
        None => Standing::Barred(format!(
            "{what} {name:?} exists and is not marked as adoptable"
        )),
    }
}

pub(super) fn has_hash(sandbox: &Sandbox, labels: &Pairs) -> bool {
    labels.get(names::NAME_HASH) == Some(name_hash(sandbox.name()).as_str())
}

pub(super) fn owner(sandbox: &Sandbox) -> Value {
    sandbox.meta.as_owner(names::API_VERSION, "Sandbox")
}

/// The volume claims are named after the entry and the sandbox.
pub(super) fn volume_name(sandbox: &Sandbox, template: &PersistentVolumeClaimTemplate) -> String {
    format!("{}-{}", entry_name(template), sandbox.name())
}

fn entry_name(template: &PersistentVolumeClaimTemplate) -> &str {
    let metadata = template.metadata.as_ref();
    metadata
        .and_then(|metadata| metadata.name.as_deref())
        .unwrap_or_default()
}

pub(super) fn volume(sandbox: &Sandbox, template: &PersistentVolumeClaimTemplate) -> Value {
    let metadata = template.metadata.clone().unwrap_or_default();
    let mut labels = metadata.labels.unwrap_or_default();
    labels.insert(names::NAME_HASH.to_owned(), name_hash(sandbox.name()));
    let mut body = json!({
        "metadata": {
            "name": volume_name(sandbox, template),
            "labels": labels,
            "ownerReferences": [owner(sandbox)],
        },
        "spec": template.spec.json(),
    });
    if let Some(annotations) = metadata.annotations {
        body["metadata"]["annotations"] = json!(annotations);
    }
    body
}

/// What a pod must have, and what it must not.
pub(super) struct PodMetadata<'a> {
    labels: BTreeMap<&'a str, String>,
    annotations: BTreeMap<&'a str, String>,
}

/// Labels that follow the sandbox: they are taken off a pod when they no longer hold.
const FOLLOWING: [&str; 3] = [
    names::WARM_POOL,
    names::TEMPLATE_REF_HASH,
    names::CREATED_BY,
];

impl<'a> PodMetadata<'a> {
    pub(super) fn of(sandbox: &Sandbox, blueprint: &'a Blueprint) -> Self {
        let template = blueprint.pod_template.metadata.as_ref();
        let given = |map: Option<&'a BTreeMap<String, String>>| -> BTreeMap<&'a str, String> {
            map.into_iter()
                .flatten()
                .filter(|(key, _)| !names::is_reserved(key))
                .map(|(key, value)| (key.as_str(), value.clone()))
                .collect()
        };
        let mut labels = given(template.and_then(|template| template.labels.as_ref()));
        let mut annotations = given(template.and_then(|template| template.annotations.as_ref()));
        let keys = |map: &BTreeMap<&str, String>| map.keys().copied().collect::<Vec<_>>().join(",");
        let listed = [
            (names::PROPAGATED_LABELS, keys(&labels)),
            (names::PROPAGATED_ANNOTATIONS, keys(&annotations)),
        ];
        annotations.extend(listed.into_iter().filter(|(_, keys)| !keys.is_empty()));
        labels.insert(names::NAME_HASH, name_hash(sandbox.name()));
        for (key, value) in following(sandbox) {
            labels.insert(key, value);
        }
        Self {
            labels,
            annotations,
        }
    }

    /// The patch that a pod needs, if it needs one.
    pub(super) fn patch(&self, pod: &Meta) -> Option<Value> {
        let listed = |annotation| {
            pod.annotations
                .get(annotation)
                .unwrap_or_default()
                .split(',')
        };
        let labels = difference(
            &self.labels,
            &pod.labels,
            listed(names::PROPAGATED_LABELS).chain(FOLLOWING),
        );
        let lists = [names::PROPAGATED_LABELS, names::PROPAGATED_ANNOTATIONS];
        let annotations = difference(
            &self.annotations,
            &pod.annotations,
            listed(names::PROPAGATED_ANNOTATIONS).chain(lists),
        );
        let mut metadata = Map::new();
        for (field, patch) in [("labels", labels), ("annotations", annotations)] {
            if !patch.is_empty() {
                metadata.insert(field.to_owned(), patch.into());
            }
        }
        (!metadata.is_empty()).then(|| json!({"metadata": metadata}))
    }
}

fn following(sandbox: &Sandbox) -> impl Iterator<Item = (&'static str, String)> {
    let label = |key| sandbox.meta.labels.get(key);
    let owner = sandbox.meta.owner.as_ref();
    let is_extended = owner.is_some_and(|owner| owner.group() == names::EXTENSIONS);
    let is_pooled = is_extended && owner.is_some_and(|owner| &*owner.kind == "SandboxWarmPool");
    let labels = [
        (
            names::WARM_POOL,
            label(names::WARM_POOL).filter(|_| is_pooled),
        ),
        (
            names::TEMPLATE_REF_HASH,
            label(names::TEMPLATE_REF_HASH).filter(|_| is_extended),
        ),
        (
            names::CREATED_BY,
            label(names::CREATED_BY).map(names::known_client),
        ),
    ];
    let labels = labels.map(|(key, value)| Some((key, value?.to_owned())));
    labels.into_iter().flatten()
}

/// What makes `there` hold all of `wanted`, and none of `ours` besides.
fn difference<'a>(
    wanted: &BTreeMap<&str, String>,
    there: &Pairs,
    ours: impl Iterator<Item = &'a str>,
) -> Map<String, Value> {
    let unwanted = ours
        .filter(|key| !wanted.contains_key(key) && there.get(key).is_some())
        .map(|key| (key.to_owned(), Value::Null));
    let missing = wanted
        .iter()
        .filter(|(key, value)| there.get(key) != Some(value.as_str()))
        .map(|(key, value)| ((*key).to_owned(), json!(value)));
    unwanted.chain(missing).collect()
}

pub(super) fn pod(sandbox: &Sandbox, blueprint: &Blueprint) -> Value {
    let metadata = PodMetadata::of(sandbox, blueprint);
    let mut body = json!({
        "metadata": {
            "name": sandbox.name(),
            "labels": metadata.labels,
            "ownerReferences": [owner(sandbox)],
        },
        "spec": blueprint.pod_template.spec.json(),
    });
    if !metadata.annotations.is_empty() {
        body["metadata"]["annotations"] = json!(metadata.annotations);
    }
    let claimed = blueprint.volume_claim_templates.iter().flatten();
    let claimed = claimed.map(|template| {
        let claim = json!({"claimName": volume_name(sandbox, template)});
        json!({"name": entry_name(template), "persistentVolumeClaim": claim})
    });
    mount(&mut body["spec"], claimed);
    body
}

/// A volume of the same name gives way in its place; others are appended.
fn mount(spec: &mut Value, claimed: impl Iterator<Item = Value>) {
    for volume in claimed {
        let volumes = &mut spec["volumes"];
        match volumes.as_array_mut() {
            None => *volumes = json!([volume]),
            Some(volumes) => match volumes.iter_mut().find(|old| old["name"] == volume["name"]) {
                Some(old) => *old = volume,
                None => volumes.push(volume),
            },
        }
    }
}

/// The patch that takes a pod over.
pub(super) fn adoption(sandbox: &Sandbox, blueprint: &Blueprint, pod: &Pod) -> Value {
    let metadata = PodMetadata::of(sandbox, blueprint);
    let mut patch = metadata.patch(&pod.meta).unwrap_or_else(|| json!({}));
    patch["metadata"]["ownerReferences"] = json!([owner(sandbox)]);
    patch
}

/// The label and the owner that a volume claim lacks.
pub(super) fn volume_patch(sandbox: &Sandbox, is_adopted: bool) -> Value {
    let mut metadata = json!({"labels": {names::NAME_HASH: name_hash(sandbox.name())}});
    if is_adopted {
        metadata["ownerReferences"] = json!([owner(sandbox)]);
    }
    json!({"metadata": metadata})
}

pub(super) fn service(sandbox: &Sandbox, blueprint: &Blueprint) -> Value {
    let hash = json!({names::NAME_HASH: name_hash(sandbox.name())});
    let mut body = json!({
        "metadata": {
            "name": sandbox.name(),
            "labels": hash,
            "ownerReferences": [owner(sandbox)],
        },
        "spec": {"clusterIP": "None", "selector": hash},
    });
    let ports = ports(blueprint);
    if !ports.is_empty() {
        body["spec"]["ports"] = ports.iter().map(port_json).collect();
    }
    body
}

fn port_json(port: &Port) -> Value {
    json!({
        "name": port.name,
        "protocol": port.protocol,
        "port": port.port,
        "targetPort": port.target,
    })
}

/// What has to change of a service for it to serve this sandbox. Ports are nobody's to change where no service is asked
/// for.
pub(super) fn service_patch(
    sandbox: &Sandbox,
    blueprint: &Blueprint,
    service: &Service,
    is_adopted: bool,
) -> Option<Value> {
    let hash = name_hash(sandbox.name());
    let mut patch = json!({});
    if is_adopted {
        patch["metadata"]["ownerReferences"] = json!([owner(sandbox)]);
    }
    if !has_hash(sandbox, &service.meta.labels) {
        patch["metadata"]["labels"] = json!({names::NAME_HASH: hash});
    }
    if service
        .selector
        .iter()
        .ne([(names::NAME_HASH, hash.as_str())])
    {
        let others = service
            .selector
            .iter()
            .map(|(key, _)| (key.to_owned(), Value::Null));
        let mut selector: Map<String, Value> = others.collect();
        selector.insert(names::NAME_HASH.to_owned(), json!(hash));
        patch["spec"]["selector"] = selector.into();
    }
    let wanted = ports(blueprint);
    if blueprint.service == Some(true) && service.ports != wanted {
        patch["spec"]["ports"] = match wanted.is_empty() {
            true => Value::Null,
            false => wanted.iter().map(port_json).collect(),
        };
    }
    (patch != json!({})).then_some(patch)
}

/// The ports of all containers that run as long as the pod.
pub(super) fn ports(blueprint: &Blueprint) -> Vec<Port> {
    let spec = blueprint.pod_template.spec.json();
    let list = |field: &str| spec[field].as_array().into_iter().flatten();
    let sidecars = list("initContainers").filter(|init| init["restartPolicy"] == "Always");
    let given = list("containers")
        .chain(sidecars)
        .flat_map(|container| container["ports"].as_array().into_iter().flatten());
    let mut names: BTreeMap<(i64, &str), Option<&str>> = BTreeMap::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for port in given {
        let Some(number) = port["containerPort"].as_i64() else {
            continue;
        };
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        let name = port["name"].as_str().filter(|name| !name.is_empty());
        let known = names.entry((number, protocol)).or_default();
        if known.is_none()
            && let Some(name) = name
            && taken.insert(name.to_owned())
        {
            *known = Some(name);
        }
    }
    let named = names.into_iter().map(|((port, protocol), name)| Port {
        name: match name {
            Some(name) => name.to_owned(),
            None => invent(port, protocol, &mut taken),
        },
        protocol: protocol.to_owned(),
        port,
        target: json!(port),
    });
    named.collect()
}

fn invent(port: i64, protocol: &str, taken: &mut BTreeSet<String>) -> String {
    let base = format!("p-{port}-{}", protocol.to_lowercase());
    let mut name = base.clone();
    for number in 2.. {
        if taken.insert(name.clone()) {
            break;
        }
        name = format!("{base}-{number}");
    }
    name
}

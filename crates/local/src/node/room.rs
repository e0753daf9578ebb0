//! What pods ask for of the machine, and what it has. Pure.
//!
//! One machine is shared by whoever is on it: only who could not even have it alone is refused.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use k8s_openapi::{
    api::core::v1::{Container, Pod},
    apimachinery::pkg::api::resource,
};
use quantity::Quantity;

use super::{facts::Facts, plan::is_same};
use crate::kubelet::resize::wanted;

pub(crate) type Resources = BTreeMap<String, resource::Quantity>;
/// How an amount of something is counted.
type Unit = fn(&Quantity) -> i64;

/// Something of which a pod asks for more than there is: millicores of cpu, or bytes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    pub(crate) resource: &'static str,
    requested: i64,
    capacity: i64,
}

/// As a kubelet says it of a resize.
impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource,
            requested,
            capacity,
        } = self;
        write!(
            f,
            "Node didn't have enough capacity: {resource}, requested: {requested}, capacity: {capacity}"
        )
    }
}

/// What the whole machine has too little of for all containers of the pod together.
pub(crate) fn lack(pod: &Pod, allocatable: &Resources) -> Option<Lack> {
    let units: [(&str, Unit); 2] = [
        ("memory", |amount| amount.value()),
        ("cpu", |amount| amount.milli_value()),
    ];
    units.into_iter().find_map(|(resource, unit)| {
        let amount = |of: Option<&Resources>| Quantity::parse(&of?.get(resource)?.0).ok();
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let asked = containers.filter_map(|one| amount(one.resources.as_ref()?.requests.as_ref()));
        let requested = asked
            .map(|amount| unit(&amount))
            .fold(0, i64::saturating_add);
        let capacity = unit(&amount(Some(allocatable))?);
        (requested > capacity).then_some(Lack {
            resource,
            requested,
            capacity,
        })
    })
}

/// The pod as it may be. If it asks for more than there is, its containers go on with what they have, and it is said of what
/// there is too little.
pub(crate) fn granted<'a>(
    pod: &'a Pod,
    facts: &Facts,
    allocatable: &Resources,
) -> (Cow<'a, Pod>, Option<Lack>) {
    let Some(lack) = lack(pod, allocatable) else {
        return (Cow::Borrowed(pod), None);
    };
    let mut granted = pod.clone();
    let mut is_refused = false;
    for container in containers(&mut granted) {
        let inmate = facts.containers.get(&container.name);
        let Some(run) = inmate.and_then(|inmate| inmate.run.as_ref()) else {
            continue;
        };
        if !is_same(&wanted(container), &run.made.resources) {
            container.resources = Some(run.made.resources.clone());
            is_refused = true;
        }
    }
    match is_refused {
        true => (Cow::Owned(granted), Some(lack)),
        false => (Cow::Borrowed(pod), None),
    }
}

fn containers(pod: &mut Pod) -> impl Iterator<Item = &mut Container> {
    let spec = pod.spec.iter_mut();
    spec.flat_map(|spec| {
        let inits = spec.init_containers.iter_mut().flatten();
        inits.chain(&mut spec.containers)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Pod, lack};

    #[test]
    fn who_wants_no_more_than_the_whole_machine_is_taken() {
        let here = serde_json::from_value(json!({"cpu": "2", "memory": "1Gi"})).unwrap();
        let table = [
            (json!([{}]), None),
            (json!([{"cpu": "2", "memory": "1Gi"}]), None),
            (json!([{"cpu": "1500m"}, {"cpu": "500m"}]), None),
            (
                json!([{"cpu": "1500m"}, {"cpu": "501m"}]),
                Some("cpu, requested: 2001, capacity: 2000"),
            ),
            (
                json!([{"memory": "1073741825"}]),
                Some("memory, requested: 1073741825, capacity: 1073741824"),
            ),
            // nothing else is looked at
            (json!([{"example.com/thing": "1"}]), None),
        ];
        for (requests, expected) in table {
            let each = requests.as_array().unwrap().iter();
            let containers: Vec<Value> = each
                .map(|requests| json!({"name": "c", "resources": {"requests": requests}}))
                .collect();
            let pod = json!({"metadata": {}, "spec": {"containers": containers}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let said = lack(&pod, &here).map(|lack| lack.to_string());
            let expected = expected.map(|what| format!("Node didn't have enough capacity: {what}"));
            assert_eq!(said, expected, "{requests}");
        }
    }
}

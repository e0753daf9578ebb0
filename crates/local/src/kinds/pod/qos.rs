//! How dear a pod is to its node: the class that follows from what its containers ask for.

use quantity::Quantity;
use serde_json::Value;

use crate::kinds::access::{child, items};

const COUNTED: [&str; 2] = ["cpu", "memory"];

/// The class of a pod.
pub(super) fn class(spec: &Value) -> &'static str {
    let of_pod = child(spec, "resources");
    let of_containers = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| items(spec, list))
        .map(|container| container.get("resources").unwrap_or(&Value::Null));
    let (mut requests, mut limits) = ([None; 2], [None; 2]);
    let mut limited = true;
    match of_pod {
        Some(resources) => {
            add(&mut requests, resources.get("requests"));
            add(&mut limits, resources.get("limits"));
            limited = resources.get("limits").is_none() || limits.iter().all(Option::is_some);
        }
        None => {
            for resources in of_containers {
                add(&mut requests, resources.get("requests"));
                limited &= add(&mut limits, resources.get("limits"));
            }
        }
    }
    match (requests, limits) {
        ([None, None], [None, None]) => "BestEffort",
        _ if limited && requests == limits => "Guaranteed",
        _ => "Burstable",
    }
}

/// Adds what is asked for to the sums; returns whether it is some of everything.
fn add(sums: &mut [Option<i128>; 2], amounts: Option<&Value>) -> bool {
    let mut all = true;
    for (sum, name) in sums.iter_mut().zip(COUNTED) {
        let amount = amounts
            .and_then(|amounts| Quantity::parse(amounts.get(name)?.as_str()?).ok())
            .map(|amount| i128::from(amount.milli_value()))
            .filter(|amount| *amount > 0);
        match amount {
            Some(amount) => *sum = Some(sum.map_or(amount, |sum| sum + amount)),
            None => all = false,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::class;

    fn of(resources: &[Value]) -> &'static str {
        let containers: Vec<_> = resources
            .iter()
            .map(|resources| json!({"name": "c", "resources": resources}))
            .collect();
        class(&json!({"containers": containers}))
    }

    #[test]
    fn a_class_follows_from_requests_and_limits() {
        let whole = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
        let half = json!({"requests": {"cpu": "1"}});
        let none = json!({});
        assert_eq!(of(std::slice::from_ref(&none)), "BestEffort");
        assert_eq!(of(std::slice::from_ref(&whole)), "Guaranteed");
        assert_eq!(of(&[half]), "Burstable");
        assert_eq!(of(&[whole, none]), "Burstable");
    }

    #[test]
    fn a_pod_with_limits_of_its_own_is_judged_by_them() {
        let spec = json!({
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            "containers": [{"name": "c"}],
        });
        assert_eq!(class(&spec), "Guaranteed");
    }
}

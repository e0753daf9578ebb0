//! How much of the machine a container may use, and how soon it is killed when memory runs out.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use quantity::Quantity;

/// Enough for what builds and tests start, too few to fill the machine's table of processes.
pub(crate) const PIDS: u64 = 4096;

/// What the kernel takes for shares.
const SHARES: std::ops::RangeInclusive<u64> = 2..=262_144;
/// Of one core.
const SHARES_PER_CORE: u64 = 1024;

/// Microseconds over which a quota counts, when none is given to `container`.
const PERIOD: u64 = 100_000;
/// Microseconds; the kernel takes no smaller quota.
const LEAST_QUOTA: u64 = 1000;

/// Those of a container. The share follows from the limit where there is no request.
pub(crate) fn limits(resources: Option<&ResourceRequirements>) -> container::Limits {
    let requests = resources.and_then(|it| it.requests.as_ref());
    let limits = resources.and_then(|it| it.limits.as_ref());
    let cpu_limit = amount(limits, "cpu").map_or(0, |it| positive(it.milli_value()));
    let cpu_request = amount(requests, "cpu").map(|it| positive(it.milli_value()));
    let shares = cpu_request
        .unwrap_or(cpu_limit)
        .saturating_mul(SHARES_PER_CORE)
        / 1000;
    let quota = cpu_limit.saturating_mul(PERIOD) / 1000;
    let memory = amount(limits, "memory").map(|it| positive(it.value()));
    container::Limits {
        cpu_shares: Some(shares.clamp(*SHARES.start(), *SHARES.end())),
        cpu_quota: (cpu_limit > 0).then_some(quota.max(LEAST_QUOTA)),
        cpu_period: None,
        memory: memory.filter(|memory| *memory > 0),
        pids: Some(PIDS),
    }
}

/// The more memory a container has asked for, the later it is killed. A guaranteed one is treated as the node itself:
/// below that nobody can go.
pub(super) fn oom_score_adj(
    pod: &Pod,
    container: &Container,
    allocatable: &BTreeMap<String, Amount>,
) -> Option<i32> {
    let class = pod.status.as_ref().and_then(|it| it.qos_class.as_deref());
    match class {
        Some("Guaranteed") => return None,
        Some("BestEffort") => return Some(1000),
        _ => {}
    }
    let resources = container.resources.as_ref();
    let request = amount(resources.and_then(|it| it.requests.as_ref()), "memory");
    let request = request.map_or(0, |it| it.value());
    let all = amount(Some(allocatable), "memory").map_or(0, |it| it.value());
    let part = match all {
        ..=0 => 0,
        all => i128::from(request) * 1000 / i128::from(all),
    };
    i32::try_from((1000 - part).clamp(3, 999)).ok()
}

fn amount(of: Option<&BTreeMap<String, Amount>>, name: &str) -> Option<Quantity> {
    Quantity::parse(&of?.get(name)?.0).ok()
}

fn positive(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, Pod};
    use serde_json::{Value, json};

    use super::{PIDS, limits, oom_score_adj};

    #[test]
    fn limits_are_those_of_a_kubelet() {
        const MI: u64 = 1 << 20;
        for (resources, shares, quota, memory) in [
            (Value::Null, 2, None, None),
            (json!({}), 2, None, None),
            (json!({"requests": {"cpu": "1"}}), 1024, None, None),
            (json!({"requests": {"cpu": "250m"}}), 256, None, None),
            (json!({"requests": {"cpu": "1m"}}), 2, None, None),
            (
                json!({"requests": {"cpu": "0"}, "limits": {"cpu": "1"}}),
                2,
                Some(100_000),
                None,
            ),
            (json!({"limits": {"cpu": "500m"}}), 512, Some(50_000), None),
            (json!({"limits": {"cpu": "1m"}}), 2, Some(1000), None),
            (json!({"limits": {"cpu": "0"}}), 2, None, None),
            (json!({"requests": {"cpu": "1000"}}), 262_144, None, None),
            (json!({"requests": {"memory": "1Gi"}}), 2, None, None),
            (
                json!({"limits": {"memory": "64Mi"}}),
                2,
                None,
                Some(64 * MI),
            ),
            (json!({"limits": {"memory": "0"}}), 2, None, None),
            (
                json!({"limits": {"cpu": "nonsense", "memory": "-1"}}),
                2,
                None,
                None,
            ),
        ] {
            let parsed: Option<_> = serde_json::from_value(resources.clone()).unwrap();
            let limits = limits(parsed.as_ref());
            let expected = container::Limits {
                cpu_shares: Some(shares),
                cpu_quota: quota,
                cpu_period: None,
                memory,
                pids: Some(PIDS),
            };
            assert_eq!(limits, expected, "{resources}");
        }
    }

    #[test]
    fn who_has_asked_for_less_memory_is_killed_earlier() {
        let of = |class: &str, memory: Value| {
            let pod: Pod = serde_json::from_value(json!({"status": {"qosClass": class}})).unwrap();
            let container = json!({"name": "c", "resources": {"requests": memory}});
            let container: Container = serde_json::from_value(container).unwrap();
            let allocatable = serde_json::from_value(json!({"memory": "4Gi"})).unwrap();
            oom_score_adj(&pod, &container, &allocatable)
        };
        assert_eq!(of("Guaranteed", json!({"memory": "1Gi"})), None);
        assert_eq!(of("BestEffort", json!({})), Some(1000));
        assert_eq!(of("Burstable", json!({})), Some(999));
        assert_eq!(of("Burstable", json!({"memory": "1Gi"})), Some(750));
        assert_eq!(of("Burstable", json!({"memory": "8Gi"})), Some(3));
    }
}

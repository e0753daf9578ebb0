//! What a container's resources are, and how they may change. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ResourceRequirements};

pub(crate) fn wanted(spec: &Container) -> ResourceRequirements {
    spec.resources.clone().unwrap_or_default()
}

/// Whether the container has to start anew to have the other resources.
pub(crate) fn needs_restart(
    spec: &Container,
    old: Option<&ResourceRequirements>,
    new: &ResourceRequirements,
) -> bool {
    let changes = |name: &String| {
        let of = |resources: &ResourceRequirements| {
            let part = |part: &Option<BTreeMap<_, _>>| {
                part.as_ref().and_then(|part| part.get(name)).cloned()
            };
            (part(&resources.requests), part(&resources.limits))
        };
        old.map(of) != Some(of(new))
    };
    let mut policies = spec.resize_policy.iter().flatten();
    policies
        .any(|policy| policy.restart_policy == "RestartContainer" && changes(&policy.resource_name))
}

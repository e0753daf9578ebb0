//! Containers that want more processes or more memory than they may have. The kernel refuses the former, ends processes for the
//! latter and counts both, and tells nobody.

use std::{sync::Arc, time::Duration};

use container::{Crowds, Refusals};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tokio::task::spawn_blocking;

use super::{events::Events, keep::Crew, machine, settings::PIDS, site::Site};
use crate::clock::after;

/// How often it is looked who was refused. A look is two small files for each container that runs, and for who is not root one
/// at all processes that he has.
const LOOK: Duration = Duration::from_secs(10);
/// Where the kernel does not tell whom it has refused: of so many some have just ended, because they could start no others.
const CROWD: u64 = PIDS - PIDS / 64;

/// Warns of those that run. How it was with those that have ended is told with their end.
pub(super) async fn watch(site: Arc<Site>, crew: Crew) {
    let refusals = Refusals::of(&site.cgroup_parent);
    loop {
        let next = after(site.clock.now(), LOOK);
        drop(site.clock.sleep_until(next).await);
        // without cgroups the kernel counts for all containers of a pod together
        let crowds = match site.is_isolated && !site.is_root {
            true => spawn_blocking(Crowds::now).await.ok(),
            false => None,
        };
        for (pod, containers) in crew.living() {
            let tenant = site.tenants.get(&pod.uid().unwrap_or_default());
            let shim = tenant.and_then(|tenant| tenant.pod);
            if let (Some(crowds), Some(shim)) = (&crowds, shim)
                && crowds.around(shim.pid()) >= CROWD
            {
                warn_of_crowd(&site.events, &pod);
            }
            let cgroup = machine::pod_cgroup(&pod.uid().unwrap_or_default());
            for name in containers {
                if refusals.processes(&cgroup, &name) > 0 {
                    warn_of_processes(&site.events, &pod, &name);
                }
                if refusals.memory(&cgroup, &name) > 0 {
                    let message = out_of_memory(&pod, &name);
                    site.events.warn(&pod, "OutOfMemory", message);
                }
            }
        }
    }
}

pub(super) fn warn_of_processes(events: &Events, pod: &Pod, container: &str) {
    let message = format!(
        "container {container} has reached its limit of {PIDS} processes: no more can be started in it until some of them end"
    );
    events.warn(pod, "ProcessLimitReached", message);
}

fn warn_of_crowd(events: &Events, pod: &Pod) {
    let message = format!(
        "the containers of the pod have reached their limit of {PIDS} processes: no more can be started in them until some end"
    );
    events.warn(pod, "ProcessLimitReached", message);
}

/// A container goes on if the kernel ends only some of its processes; then nothing else tells of it.
fn out_of_memory(pod: &Pod, name: &str) -> String {
    let containers = pod.spec.iter().flat_map(|spec| {
        let inits = spec.init_containers.iter().flatten();
        inits.chain(&spec.containers)
    });
    let mut limits = containers
        .filter(|container| container.name == name)
        .filter_map(|container| container.resources.as_ref()?.limits.as_ref()?.get("memory"));
    match limits.next() {
        Some(limit) => format!(
            "container {name} has reached its limit of {} of memory: the kernel has ended processes in it",
            limit.0
        ),
        None => format!(
            "the machine was out of memory: the kernel has ended processes in container {name}, which has no limit"
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Pod, out_of_memory};

    #[test]
    fn who_was_out_of_memory_is_told_whose_limit_it_was() {
        let pod = json!({"spec": {
            "initContainers": [{"name": "before", "resources": {"limits": {"memory": "1Gi"}}}],
            "containers": [{"name": "main", "resources": {"limits": {"memory": "64Mi"}}}, {"name": "free"}],
        }});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        for (name, expected) in [
            ("before", "limit of 1Gi of memory"),
            ("main", "limit of 64Mi of memory"),
            ("free", "the machine was out of memory"),
        ] {
            let message = out_of_memory(&pod, name);
            assert!(message.contains(expected), "{message}");
            assert!(message.contains(&format!("container {name}")), "{message}");
        }
    }
}

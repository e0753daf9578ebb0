//! What the node does next about one pod. Pure: time and the state of the world are arguments.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::core::v1::{Container, ContainerStatus, HostIP, Pod, PodIP, PodSpec, PodStatus},
    jiff::Timestamp,
};

use super::{
    Options,
    container::Subject,
    failure::{Causes, Rule, start_delay},
    resize::{self, Order},
};
use crate::{
    clock::after,
    kubelet::{
        container::{self, KILLED, Role, View, exactly, stamp},
        plan::{Act, Plan, change, pod_label, restart_policy},
        resize::wanted,
        status::{Resize, conditions, has_run, is_initialized, is_own, phase, role_of_init},
    },
};

/// What the node remembers of a pod beyond what the pod tells. All of it can be lost: a node that
/// starts anew goes on from what the pods say, to the second.
#[derive(Debug, Default)]
pub(super) struct Memory {
    started: Option<Timestamp>,
    stopping: Option<Timestamp>,
    resizing: Option<Timestamp>,
    /// When each container last changed.
    moments: BTreeMap<String, Timestamp>,
}

pub(super) struct World<'a> {
    pub(super) now: Timestamp,
    pub(super) options: &'a Options,
    pub(super) rules: &'a [Rule],
}

/// Where a pod runs.
pub(super) struct Place<'a> {
    pub(super) host_ip: &'a str,
    pub(super) pod_ip: &'a str,
}

/// What to do about a pod on this node.
pub(super) fn run(pod: &Pod, memory: &mut Memory, world: &World<'_>, place: &Place<'_>) -> Plan {
    let (Some(spec), old) = (&pod.spec, pod.status.clone().unwrap_or_default()) else {
        return Plan::default();
    };
    let is_over = matches!(old.phase.as_deref(), Some("Succeeded" | "Failed"));
    match (&pod.metadata.deletion_timestamp, is_over) {
        (None, true) => Plan::default(),
        (None, false) if is_news(pod, spec, &old) => Plan {
            act: change(pod, &old, &observed(pod, &old)),
            wake: None,
        },
        (None, false) => {
            let (new, wake) = live(pod, spec, &old, memory, world, place);
            Plan {
                act: change(pod, &old, &new),
                wake,
            }
        }
        (Some(_), true) => Plan {
            // one whose time is up already stays only for its finalizers
            act: (pod.metadata.deletion_grace_period_seconds != Some(0)).then_some(Act::Remove),
            wake: None,
        },
        (Some(_), false) => stop(pod, spec, &old, memory, world),
    }
}

/// Whether the pod has been told to change an image and not yet said that it knows.
fn is_news(pod: &Pod, spec: &PodSpec, old: &PodStatus) -> bool {
    let mut apps = old.container_statuses.iter().flatten();
    old.observed_generation != pod.metadata.generation
        && apps.any(|app| {
            let mut specs = spec.containers.iter();
            matches!(View::of(app), View::Running(_))
                && specs
                    .any(|spec| spec.name == app.name && spec.image.as_ref() != Some(&app.image))
        })
}

/// The same status, of a newer generation. Kubelets say so in a write of its own, while the old
/// containers still run: who takes this for the end of a change must be found out.
fn observed(pod: &Pod, old: &PodStatus) -> PodStatus {
    let mut status = old.clone();
    status.observed_generation = pod.metadata.generation;
    for condition in status.conditions.iter_mut().flatten() {
        if is_own(&condition.type_) {
            condition.observed_generation = pod.metadata.generation;
        }
    }
    status
}

/// The status of a pod that is meant to live, and when it changes by itself.
fn live(
    pod: &Pod,
    spec: &PodSpec,
    old: &PodStatus,
    memory: &mut Memory,
    world: &World<'_>,
    place: &Place<'_>,
) -> (PodStatus, Option<Timestamp>) {
    let now = world.now;
    let mut status = old.clone();
    let started = exactly(old.start_time.as_ref(), memory.started, now);
    if status.start_time.is_none() {
        memory.started = Some(now);
        status.start_time = Some(stamp(now));
    }
    let start_at = after(
        started,
        start_delay(pod).unwrap_or(world.options.start_delay),
    );
    let has_sandbox = has_run(old) || now >= start_at;
    settle_down(&mut status, spec, place, has_sandbox);
    let (resizing, resized_at) = resize_in_place(pod, spec, &mut status, memory, world);
    let mut crew = Crew {
        pod,
        spec,
        world,
        memory,
        start_at: Some(start_at),
        keeps_resources: matches!(resizing, Resize::Pending { .. }),
        wake: resized_at,
    };
    crew.advance(&mut status);
    let wake = crew.wake;
    let lives =
        |status: &ContainerStatus, role| container::lives(status, role, restart_policy(spec));
    let mut apps = status.container_statuses.iter().flatten();
    if !apps.any(|app| lives(app, Role::App)) {
        for init in status.init_container_statuses.iter_mut().flatten() {
            if matches!(View::of(init), View::Running(_)) {
                *init = container::terminated(init, 0, None, now);
            }
        }
    }
    status.phase = Some(phase(spec, &status, lives).to_owned());
    status.observed_generation = pod.metadata.generation;
    status.conditions = Some(conditions(pod, &status, has_sandbox, &resizing, now));
    (status, wake)
}

fn settle_down(status: &mut PodStatus, spec: &PodSpec, place: &Place<'_>, has_sandbox: bool) {
    status
        .host_ip
        .get_or_insert_with(|| place.host_ip.to_owned());
    status.host_ips.get_or_insert_with(|| {
        vec![HostIP {
            ip: place.host_ip.to_owned(),
        }]
    });
    let on_host = spec.host_network == Some(true);
    if status.pod_ip.is_none() && (on_host || has_sandbox) {
        let ip = if on_host { place.host_ip } else { place.pod_ip };
        status.pod_ip = Some(ip.to_owned());
        status.pod_ips = Some(vec![PodIP { ip: ip.to_owned() }]);
    }
}

fn resize_in_place(
    pod: &Pod,
    spec: &PodSpec,
    status: &mut PodStatus,
    memory: &mut Memory,
    world: &World<'_>,
) -> (Resize, Option<Timestamp>) {
    let inits = spec.init_containers.iter().flatten();
    let containers: Vec<&Container> = inits.chain(&spec.containers).collect();
    let order = Order {
        containers: &containers,
        refused: Causes::of_pod(pod, world.rules).resize,
        delay: world.options.resize_delay,
    };
    resize::resize(&order, status, &mut memory.resizing, world.now)
}

/// The containers of a pod, in the order in which they start.
struct Crew<'a> {
    pod: &'a Pod,
    spec: &'a PodSpec,
    world: &'a World<'a>,
    memory: &'a mut Memory,
    /// None from the first init container on that is not through.
    start_at: Option<Timestamp>,
    /// A resize was refused: who starts now starts with what it had.
    keeps_resources: bool,
    wake: Option<Timestamp>,
}

impl Crew<'_> {
    fn advance(&mut self, status: &mut PodStatus) {
        let label = pod_label(self.pod);
        let old = status.init_container_statuses.take().unwrap_or_default();
        let mut inits = Vec::new();
        for spec in self.spec.init_containers.iter().flatten() {
            let role = role_of_init(self.spec, &spec.name);
            let new = self.step(spec, role, &old, &label);
            if !is_initialized(&new, role) {
                self.start_at = None;
            }
            inits.push(new);
        }
        status.init_container_statuses = (!inits.is_empty()).then_some(inits);
        let old = status.container_statuses.take().unwrap_or_default();
        let apps = self.spec.containers.iter();
        let mut apps: Vec<_> = apps
            .map(|spec| self.step(spec, Role::App, &old, &label))
            .collect();
        apps.sort_by(|one, other| one.name.cmp(&other.name));
        status.container_statuses = Some(apps);
    }

    fn step(
        &mut self,
        spec: &Container,
        role: Role,
        old: &[ContainerStatus],
        label: &str,
    ) -> ContainerStatus {
        let old = old.iter().find(|status| status.name == spec.name);
        let kept = old
            .filter(|_| self.keeps_resources)
            .and_then(|status| status.resources.clone());
        let subject = Subject {
            pod_uid: self.pod.metadata.uid.as_deref().unwrap_or_default(),
            pod_label: label,
            spec,
            role,
            restart_policy: restart_policy(self.spec),
            causes: Causes::of_container(self.pod, spec, role != Role::App, self.world.rules),
            start_at: self.start_at,
            restart_delay: self.world.options.restart_delay,
            waits_for: if self.spec.init_containers.is_some() {
                "PodInitializing"
            } else {
                "ContainerCreating"
            },
            allocated: kept.unwrap_or_else(|| wanted(spec)),
        };
        let mut moment = self.memory.moments.get(&spec.name).copied();
        let (new, wake) = subject.step(old, self.world.now, &mut moment);
        if let Some(moment) = moment {
            self.memory.moments.insert(spec.name.clone(), moment);
        }
        self.wake = self.wake.into_iter().chain(wake).min();
        new
    }
}

/// What to do about a pod that is being deleted.
fn stop(
    pod: &Pod,
    spec: &PodSpec,
    old: &PodStatus,
    memory: &mut Memory,
    world: &World<'_>,
) -> Plan {
    let now = world.now;
    let grace = pod
        .metadata
        .deletion_grace_period_seconds
        .unwrap_or_default();
    let grace = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
    let apps = old.container_statuses.as_deref().unwrap_or_default();
    let runs = |app: &ContainerStatus| matches!(View::of(app), View::Running(_));
    let asked = *memory.stopping.get_or_insert(now);
    let end = after(asked, world.options.stop_delay.min(grace));
    if apps.iter().any(runs) && now < end {
        return Plan {
            act: None,
            wake: Some(end),
        };
    }
    let in_time = world.options.stop_delay <= grace;
    let new = ended(pod, spec, old, if in_time { 0 } else { KILLED }, now);
    Plan {
        act: change(pod, old, &new),
        wake: None,
    }
}

/// The last status of a pod.
fn ended(pod: &Pod, spec: &PodSpec, old: &PodStatus, code: i32, now: Timestamp) -> PodStatus {
    let mut status = old.clone();
    if has_run(old) {
        let inits = status.init_container_statuses.iter_mut().flatten();
        let apps = status.container_statuses.iter_mut().flatten();
        for container in inits.chain(apps) {
            if !matches!(View::of(container), View::Terminated(_)) {
                *container = container::terminated(container, code, None, now);
            }
        }
    }
    let phase = match phase(spec, &status, |_, _| false) {
        "Succeeded" => "Succeeded",
        _ => "Failed",
    };
    status.phase = Some(phase.to_owned());
    status.observed_generation = pod.metadata.generation;
    status.conditions = Some(conditions(pod, &status, false, &Resize::None, now));
    status
}

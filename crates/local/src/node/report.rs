//! What is told of a pod on this machine: its status, as it follows from what is known. Pure.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
        ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodIP, PodSpec, PodStatus,
    },
    jiff::Timestamp,
};

use super::{
    facts::{Busy, End, Facts, Inmate, Run, START_ERROR, Setback, Shell},
    place::container_id,
    plan::{is_finished, is_late, is_same, resting_until},
    room::{Resources, granted},
    trouble::Trouble,
};
use crate::{
    clock::after,
    kubelet::{
        container::{self, Role, go_duration, lives, mounts, restarts, stamp},
        plan::{Act, Plan, change, pod_label, restart_policy},
        resize::wanted,
        status::{Resize, conditions, has_run, phase, role_of_init},
    },
};

/// How long a failed pull, or start, is reported as such before it becomes a back-off.
pub(crate) const PULL_ERROR: Duration = Duration::from_secs(2);

/// The machine, as far as statuses tell of it.
#[derive(Clone, Copy)]
pub(crate) struct Host<'a> {
    pub(crate) ip: &'a str,
    pub(crate) allocatable: &'a Resources,
}

/// What to tell the API server about a pod.
pub(crate) fn plan(pod: &Pod, facts: &Facts, host: &Host<'_>, now: Timestamp) -> Plan {
    let (Some(spec), old) = (&pod.spec, pod.status.clone().unwrap_or_default()) else {
        return Plan::default();
    };
    let is_over = matches!(old.phase.as_deref(), Some("Succeeded" | "Failed"));
    let is_gone = matches!(facts.shell, Shell::Absent | Shell::Ended | Shell::Broken(_));
    let teller = Teller {
        pod,
        spec,
        facts,
        host: *host,
        now,
    };
    let act = match (&pod.metadata.deletion_timestamp, is_over) {
        (None, true) => None,
        (None, false) => change(pod, &old, &teller.live(&old)),
        // its containers have their time to end, and some take it
        (Some(_), false) if matches!(facts.shell, Shell::Ending) => {
            change(pod, &old, &teller.live(&old))
        }
        (Some(_), _) if !is_gone => None,
        // one whose time is up already stays only for its finalizers
        (Some(_), true) => {
            (pod.metadata.deletion_grace_period_seconds != Some(0)).then_some(Act::Remove)
        }
        (Some(_), false) => change(pod, &old, &teller.last(&old)),
    };
    Plan { act, wake: None }
}

struct Teller<'a> {
    pod: &'a Pod,
    spec: &'a PodSpec,
    facts: &'a Facts,
    host: Host<'a>,
    now: Timestamp,
}

impl Teller<'_> {
    /// The status of a pod that is meant to live.
    fn live(&self, old: &PodStatus) -> PodStatus {
        if let Some(Trouble { reason, message }) = &self.facts.rejected {
            return self.conclude(PodStatus {
                phase: Some("Failed".to_owned()),
                reason: Some((*reason).to_owned()),
                message: Some(format!("Pod was rejected: {message}")),
                ..old.clone()
            });
        }
        let mut status = self.with_containers(old);
        let policy = restart_policy(self.spec);
        let is_finished = is_finished(self.spec, self.facts);
        let is_late = is_late(self.pod, self.spec, self.now);
        let is_ended = match self.facts.shell {
            Shell::Ended => true,
            // nothing is made for a pod that is over
            Shell::Absent | Shell::Broken(_) => is_finished || is_late,
            Shell::Making | Shell::Whole { .. } | Shell::Ending => false,
        };
        let computed = phase(self.spec, &status, |one, role| lives(one, role, policy));
        status.phase = match computed {
            // not before what it lived in is gone, and with it its sidecars
            "Succeeded" | "Failed" if !is_ended => {
                let was = old.phase.clone().unwrap_or_else(|| "Pending".to_owned());
                Some(if self.has_begun() {
                    "Running".to_owned()
                } else {
                    was
                })
            }
            "Running" | "Pending" if is_ended && !is_finished => Some("Failed".to_owned()),
            computed => Some(computed.to_owned()),
        };
        if is_ended && is_late && !is_finished {
            status.phase = Some("Failed".to_owned());
            status.reason = Some("DeadlineExceeded".to_owned());
            let message = "Pod was active on the node longer than the specified deadline";
            status.message = Some(message.to_owned());
        }
        if is_ended && let Some(message) = &self.facts.evicted {
            status.phase = Some("Failed".to_owned());
            status.reason = Some("Evicted".to_owned());
            status.message = Some(message.clone());
        }
        self.conclude(status)
    }

    /// The last status of a pod that is being deleted.
    fn last(&self, old: &PodStatus) -> PodStatus {
        let mut status = self.with_containers(old);
        if has_run(&status) {
            let inits = status.init_container_statuses.iter_mut().flatten();
            let apps = status.container_statuses.iter_mut().flatten();
            for one in inits.chain(apps) {
                let has_ended = |state: &ContainerState| state.terminated.is_some();
                if !one.state.as_ref().is_some_and(has_ended) {
                    *one = container::terminated(one, container::KILLED, None, self.now);
                }
            }
        }
        let phase = match phase(self.spec, &status, |_, _| false) {
            "Succeeded" => "Succeeded",
            _ => "Failed",
        };
        status.phase = Some(phase.to_owned());
        self.conclude(status)
    }

    /// Whether a program of one of the pod's own containers has been run.
    fn has_begun(&self) -> bool {
        let mut apps = self.spec.containers.iter();
        apps.any(|app| {
            let inmate = self.facts.containers.get(&app.name);
            let run = inmate.and_then(|inmate| inmate.run.as_ref());
            run.is_some_and(|run| run.end.as_ref().is_none_or(|end| end.reason != START_ERROR))
        })
    }

    fn conclude(&self, mut status: PodStatus) -> PodStatus {
        let has_shell = matches!(self.facts.shell, Shell::Whole { .. } | Shell::Ending);
        status.observed_generation = self.pod.metadata.generation;
        let resize = self.resize();
        status.conditions = Some(conditions(self.pod, &status, has_shell, &resize, self.now));
        status
    }

    fn resize(&self) -> Resize {
        let inits = self.spec.init_containers.iter().flatten();
        let under_way = inits.chain(&self.spec.containers).find_map(|container| {
            let inmate = self.facts.containers.get(&container.name)?;
            let run = inmate.alive()?;
            let differs = !is_same(&wanted(container), &run.made.resources);
            differs.then_some(inmate)
        });
        let Some(inmate) = under_way else {
            return Resize::None;
        };
        if let (_, Some(lack)) = granted(self.pod, self.facts, self.host.allocatable) {
            return Resize::Pending {
                reason: "Infeasible",
                message: lack.to_string(),
            };
        }
        match &inmate.setback {
            Some(setback) => Resize::Pending {
                reason: "Deferred",
                message: setback.trouble.message.clone(),
            },
            None => Resize::InProgress,
        }
    }

    fn with_containers(&self, old: &PodStatus) -> PodStatus {
        let mut status = old.clone();
        status.start_time.get_or_insert_with(|| stamp(self.now));
        let ip = self.host.ip.to_owned();
        status.host_ip.get_or_insert_with(|| ip.clone());
        status.host_ips.get_or_insert_with(|| vec![HostIP { ip }]);
        if let Shell::Whole { ip: Some(ip), .. } = &self.facts.shell {
            status.pod_ip = Some(ip.clone());
            status.pod_ips = Some(vec![PodIP { ip: ip.clone() }]);
        }
        let inits: Vec<_> = self
            .spec
            .init_containers
            .iter()
            .flatten()
            .map(|init| self.container(init, role_of_init(self.spec, &init.name)))
            .collect();
        status.init_container_statuses = (!inits.is_empty()).then_some(inits);
        let apps = self.spec.containers.iter();
        let mut apps: Vec<_> = apps.map(|app| self.container(app, Role::App)).collect();
        apps.sort_by(|one, other| one.name.cmp(&other.name));
        status.container_statuses = Some(apps);
        status
    }

    fn container(&self, spec: &Container, role: Role) -> ContainerStatus {
        let absent = Inmate::default();
        let inmate = self.facts.containers.get(&spec.name).unwrap_or(&absent);
        let image = spec.image.clone().unwrap_or_default();
        let mut status = ContainerStatus {
            name: spec.name.clone(),
            image,
            volume_mounts: mounts(spec),
            started: Some(false),
            ..ContainerStatus::default()
        };
        let uid = self.pod.metadata.uid.as_deref().unwrap_or_default();
        let Some(run) = &inmate.run else {
            status.state = Some(waiting(match (&inmate.setback, &self.facts.shell) {
                (Some(setback), _) => self.setback(setback, spec),
                (None, Shell::Broken(setback)) => {
                    (self.first_wait(), Some(setback.trouble.message.clone()))
                }
                (None, _) => (self.first_wait(), None),
            }));
            return status;
        };
        status.image.clone_from(&run.made.image);
        status.image_id.clone_from(&run.made.image_id);
        status.container_id = Some(container_id(uid, &spec.name, run.made.attempt));
        status.restart_count = i32::try_from(run.made.attempt).unwrap_or(i32::MAX);
        status
            .allocated_resources
            .clone_from(&run.made.resources.requests);
        status.resources = Some(run.made.resources.clone());
        status.last_state = inmate.before.clone().map(terminated);
        match &run.end {
            None => {
                status.state = Some(running(run));
                status.ready = inmate.health.ready && role != Role::Init;
                status.started = Some(inmate.health.started);
            }
            Some(end) => {
                let ended = run.terminated(uid, &spec.name).map(terminated);
                match self.rest(spec, role, inmate, run, end) {
                    Some(rest) => {
                        status.last_state = ended;
                        status.state = Some(waiting(rest));
                    }
                    None => status.state = ended,
                }
                status.ready = role == Role::Init && end.code == 0;
            }
        }
        status
    }

    /// Why a container that has ended waits, if it is not simply over or about to start.
    fn rest(
        &self,
        spec: &Container,
        role: Role,
        inmate: &Inmate,
        run: &Run,
        end: &End,
    ) -> Option<(String, Option<String>)> {
        // nothing starts again in a pod that is deleted
        if self.pod.metadata.deletion_timestamp.is_some() {
            return None;
        }
        if let Some(setback) = &inmate.setback {
            return Some(self.setback(setback, spec));
        }
        if !restarts(role, restart_policy(self.spec), end.code) {
            return None;
        }
        let until = resting_until(run, end);
        let is_resting = inmate.busy != Some(Busy::Starting) && until > self.now;
        // told as such at first, like a failed pull, and never as if something had run
        if end.reason == START_ERROR && !(is_resting && after(end.at, PULL_ERROR) <= self.now) {
            return Some(("RunContainerError".to_owned(), end.message.clone()));
        }
        is_resting.then(|| {
            let wait = until.duration_since(end.at).unsigned_abs();
            let message = format!(
                "back-off {} restarting failed container={} pod={}",
                go_duration(wait),
                spec.name,
                pod_label(self.pod)
            );
            ("CrashLoopBackOff".to_owned(), Some(message))
        })
    }

    fn setback(&self, setback: &Setback, spec: &Container) -> (String, Option<String>) {
        let trouble = &setback.trouble;
        if trouble.reason == "ErrImagePull" && after(setback.at, PULL_ERROR) <= self.now {
            let image = spec.image.as_deref().unwrap_or_default();
            let message = format!(
                "Back-off pulling image {image:?}: ErrImagePull: {}",
                trouble.message
            );
            return ("ImagePullBackOff".to_owned(), Some(message));
        }
        (trouble.reason.to_owned(), Some(trouble.message.clone()))
    }

    fn first_wait(&self) -> String {
        let reason = match self.spec.init_containers {
            Some(_) => "PodInitializing",
            None => "ContainerCreating",
        };
        reason.to_owned()
    }
}

fn waiting((reason, message): (String, Option<String>)) -> ContainerState {
    ContainerState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(reason),
            message,
        }),
        ..ContainerState::default()
    }
}

fn running(run: &Run) -> ContainerState {
    ContainerState {
        running: Some(ContainerStateRunning {
            started_at: Some(stamp(run.started_at)),
        }),
        ..ContainerState::default()
    }
}

fn terminated(end: ContainerStateTerminated) -> ContainerState {
    ContainerState {
        terminated: Some(end),
        ..ContainerState::default()
    }
}

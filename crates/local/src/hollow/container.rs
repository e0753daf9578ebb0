//! The life of one pretended container.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
        ContainerStatus, ResourceRequirements,
    },
    jiff::Timestamp,
};
use sha2::{Digest as _, Sha256};

use super::failure::Causes;
use crate::{
    clock::after,
    kubelet::container::{
        Role, View, back_off, exactly, go_duration, is_replaced, mounts, replaced, restarts, stamp,
        terminated, waiting_for,
    },
};

/// How long a failed pull is reported as such before it becomes a back-off.
const PULL_RETRY: Duration = Duration::from_secs(10);

/// What does not change while a container passes from state to state.
pub(super) struct Subject<'a> {
    pub(super) pod_uid: &'a str,
    /// As the kubelet names pods in messages: `name_namespace(uid)`.
    pub(super) pod_label: &'a str,
    pub(super) spec: &'a Container,
    pub(super) role: Role,
    pub(super) restart_policy: &'a str,
    pub(super) causes: Causes,
    /// None while something else must happen first.
    pub(super) start_at: Option<Timestamp>,
    pub(super) restart_delay: Duration,
    /// Why a container that was never started waits.
    pub(super) waits_for: &'static str,
    pub(super) allocated: ResourceRequirements,
}

enum Next {
    Stay(Option<Timestamp>),
    Become(Box<ContainerStatus>),
}

impl Subject<'_> {
    /// The container's status at `now`, and when it changes by itself. `moment` remembers when it
    /// last changed, more exactly than the status can tell.
    pub(super) fn step(
        &self,
        old: Option<&ContainerStatus>,
        now: Timestamp,
        moment: &mut Option<Timestamp>,
    ) -> (ContainerStatus, Option<Timestamp>) {
        let mut status = old.cloned().unwrap_or_else(|| self.waiting());
        loop {
            match self.next(&status, now, moment) {
                Next::Stay(wake) => {
                    self.judge(&mut status);
                    return (status, wake);
                }
                Next::Become(next) => {
                    *moment = Some(now);
                    status = *next;
                }
            }
        }
    }

    fn next(
        &self,
        status: &ContainerStatus,
        now: Timestamp,
        moment: &mut Option<Timestamp>,
    ) -> Next {
        match View::of(status) {
            View::Waiting("CrashLoopBackOff") => self.next_backing_off(status, now, *moment),
            View::Waiting("ErrImagePull") if self.causes.pull => {
                let retry = after(*moment.get_or_insert(now), PULL_RETRY);
                if now < retry {
                    return Next::Stay(Some(retry));
                }
                let message = format!(
                    "Back-off pulling image {:?}: ErrImagePull: {}",
                    self.image(),
                    self.pull_error()
                );
                turn(waiting_for(status, "ImagePullBackOff", Some(message)))
            }
            View::Waiting("ImagePullBackOff") if self.causes.pull => Next::Stay(None),
            View::Waiting("ErrImagePull" | "ImagePullBackOff") => self.launch(status, now),
            View::Waiting(_) => match self.start_at {
                Some(start) if start <= now => self.launch(status, now),
                start => Next::Stay(start),
            },
            View::Running(running) => self.next_running(status, running, now, *moment),
            View::Terminated(end) => self.next_terminated(status, end, now, *moment),
        }
    }

    fn next_running(
        &self,
        status: &ContainerStatus,
        running: &ContainerStateRunning,
        now: Timestamp,
        moment: Option<Timestamp>,
    ) -> Next {
        if self.causes.crash {
            return turn(terminated(status, 1, None, now));
        }
        if self.role == Role::Init {
            return turn(terminated(status, 0, None, now));
        }
        if status.image != self.image() {
            return turn(replaced(status, now));
        }
        match (self.role, self.causes.exit) {
            (Role::App, Some((time, code))) => {
                let end = after(exactly(running.started_at.as_ref(), moment, now), time);
                if now < end {
                    return Next::Stay(Some(end));
                }
                turn(terminated(status, code, None, now))
            }
            _ => Next::Stay(None),
        }
    }

    fn next_terminated(
        &self,
        status: &ContainerStatus,
        end: &ContainerStateTerminated,
        now: Timestamp,
        moment: Option<Timestamp>,
    ) -> Next {
        let ended = exactly(end.finished_at.as_ref(), moment, now);
        if is_replaced(end) {
            let restart = after(ended, self.restart_delay);
            if now < restart {
                return Next::Stay(Some(restart));
            }
            return self.launch(status, now);
        }
        if !restarts(self.role, self.restart_policy, end.exit_code) {
            return Next::Stay(None);
        }
        let wait = back_off(status.restart_count, end);
        if after(ended, wait) <= now {
            return self.launch(status, now);
        }
        let message = format!(
            "back-off {} restarting failed container={} pod={}",
            go_duration(wait),
            self.spec.name,
            self.pod_label
        );
        let mut next = waiting_for(status, "CrashLoopBackOff", Some(message));
        next.last_state.clone_from(&status.state);
        turn(next)
    }

    fn next_backing_off(
        &self,
        status: &ContainerStatus,
        now: Timestamp,
        moment: Option<Timestamp>,
    ) -> Next {
        let end = status
            .last_state
            .as_ref()
            .and_then(|state| state.terminated.as_ref());
        let ill = self.causes.crash || self.causes.exit.is_some();
        match end {
            Some(end) if ill => {
                let ended = exactly(end.finished_at.as_ref(), moment, now);
                let restart = after(ended, back_off(status.restart_count, end));
                if now < restart {
                    return Next::Stay(Some(restart));
                }
                self.launch(status, now)
            }
            _ => self.launch(status, now),
        }
    }

    fn launch(&self, status: &ContainerStatus, now: Timestamp) -> Next {
        let ended = status
            .state
            .clone()
            .filter(|state| state.terminated.is_some());
        let last_state = ended.or_else(|| status.last_state.clone());
        if self.causes.pull {
            let mut next = waiting_for(status, "ErrImagePull", Some(self.pull_error()));
            next.last_state = last_state;
            return turn(next);
        }
        let restart_count = if status.container_id.is_some() {
            status.restart_count.saturating_add(1)
        } else {
            0
        };
        turn(ContainerStatus {
            image: self.image().to_owned(),
            image_id: format!("sha256:{}", sha256(&[self.image()])),
            container_id: Some(format!(
                "hollow://{}",
                sha256(&[self.pod_uid, &self.spec.name, &restart_count.to_string()])
            )),
            restart_count,
            last_state,
            state: Some(ContainerState {
                running: Some(ContainerStateRunning {
                    started_at: Some(stamp(now)),
                }),
                ..ContainerState::default()
            }),
            allocated_resources: self.allocated.requests.clone(),
            resources: Some(self.allocated.clone()),
            ..status.clone()
        })
    }

    /// Readiness follows from the state.
    fn judge(&self, status: &mut ContainerStatus) {
        let (ready, started) = match View::of(status) {
            View::Running(_) => (!self.causes.never_ready, true),
            View::Terminated(end) => (self.role == Role::Init && end.exit_code == 0, false),
            View::Waiting(_) => (false, false),
        };
        status.ready = ready;
        status.started = Some(started);
    }

    fn waiting(&self) -> ContainerStatus {
        let status = ContainerStatus {
            name: self.spec.name.clone(),
            image: self.image().to_owned(),
            volume_mounts: mounts(self.spec),
            ..ContainerStatus::default()
        };
        waiting_for(&status, self.waits_for, None)
    }

    fn image(&self) -> &str {
        self.spec.image.as_deref().unwrap_or_default()
    }

    fn pull_error(&self) -> String {
        format!("failed to pull image {:?}: not found", self.image())
    }
}

fn turn(status: ContainerStatus) -> Next {
    Next::Become(Box::new(status))
}

fn sha256(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
        hash.update(b"/");
    }
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

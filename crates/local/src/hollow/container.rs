//! The life of one pretended container.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
        ContainerStateWaiting, ContainerStatus, ResourceRequirements, VolumeMountStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use sha2::{Digest as _, Sha256};

use super::failure::Causes;
use crate::clock::after;

/// Marks a container that the node itself stopped and will start again, whatever its restart
/// policy says and without back-off.
const REPLACED: &str = "stopped by the node for a change in place";
/// How long a failed pull is reported as such before it becomes a back-off.
const PULL_RETRY: Duration = Duration::from_secs(10);
const FIRST_BACK_OFF: u64 = 10;
const LONGEST_BACK_OFF: u64 = 300;
/// A container that ran so long restarts without back-off.
const BACK_OFF_FORGOTTEN: Duration = Duration::from_secs(600);
pub(super) const KILLED: i32 = 137;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    App,
    Init,
    Sidecar,
}

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
        let mounts = self.spec.volume_mounts.iter().flatten();
        let mounts: Vec<_> = mounts
            .map(|mount| VolumeMountStatus {
                name: mount.name.clone(),
                mount_path: mount.mount_path.clone(),
                read_only: mount.read_only,
                recursive_read_only: (mount.read_only == Some(true)).then(|| "Disabled".to_owned()),
                ..VolumeMountStatus::default()
            })
            .collect();
        let status = ContainerStatus {
            name: self.spec.name.clone(),
            image: self.image().to_owned(),
            volume_mounts: (!mounts.is_empty()).then_some(mounts),
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

/// Whether a container runs, or will.
pub(super) fn lives(status: &ContainerStatus, role: Role, policy: &str) -> bool {
    match View::of(status) {
        View::Waiting(_) | View::Running(_) => true,
        View::Terminated(end) => is_replaced(end) || restarts(role, policy, end.exit_code),
    }
}

fn is_replaced(end: &ContainerStateTerminated) -> bool {
    end.message.as_deref() == Some(REPLACED)
}

/// Whether a container that ended by itself starts again.
fn restarts(role: Role, policy: &str, exit_code: i32) -> bool {
    match (role, policy) {
        (Role::Sidecar, _) => true,
        (_, "Never") => false,
        (Role::Init, _) | (_, "OnFailure") => exit_code != 0,
        _ => true,
    }
}

fn turn(status: ContainerStatus) -> Next {
    Next::Become(Box::new(status))
}

/// What of a container's state matters here.
pub(super) enum View<'a> {
    Waiting(&'a str),
    Running(&'a ContainerStateRunning),
    Terminated(&'a ContainerStateTerminated),
}

impl<'a> View<'a> {
    pub(super) fn of(status: &'a ContainerStatus) -> Self {
        let Some(state) = &status.state else {
            return Self::Waiting("");
        };
        match state {
            ContainerState {
                running: Some(running),
                ..
            } => Self::Running(running),
            ContainerState {
                terminated: Some(end),
                ..
            } => Self::Terminated(end),
            ContainerState { waiting, .. } => {
                let reason = waiting
                    .as_ref()
                    .and_then(|waiting| waiting.reason.as_deref());
                Self::Waiting(reason.unwrap_or_default())
            }
        }
    }
}

fn waiting_for(status: &ContainerStatus, reason: &str, message: Option<String>) -> ContainerStatus {
    ContainerStatus {
        state: Some(ContainerState {
            waiting: Some(ContainerStateWaiting {
                reason: Some(reason.to_owned()),
                message,
            }),
            ..ContainerState::default()
        }),
        ..status.clone()
    }
}

/// The container as one that has exited. One that never ran could not be found.
pub(super) fn terminated(
    status: &ContainerStatus,
    exit_code: i32,
    message: Option<&str>,
    now: Timestamp,
) -> ContainerStatus {
    let end = match View::of(status) {
        View::Running(running) => ContainerStateTerminated {
            container_id: status.container_id.clone(),
            exit_code,
            reason: Some(if exit_code == 0 { "Completed" } else { "Error" }.to_owned()),
            message: message.map(str::to_owned),
            started_at: running.started_at.clone(),
            finished_at: Some(stamp(now)),
            ..ContainerStateTerminated::default()
        },
        View::Waiting(_) | View::Terminated(_) => ContainerStateTerminated {
            exit_code: KILLED,
            reason: Some("ContainerStatusUnknown".to_owned()),
            message: Some(
                "The container could not be located when the pod was terminated".to_owned(),
            ),
            ..ContainerStateTerminated::default()
        },
    };
    ContainerStatus {
        ready: false,
        started: Some(false),
        state: Some(ContainerState {
            terminated: Some(end),
            ..ContainerState::default()
        }),
        ..status.clone()
    }
}

/// The container as one that the node has asked to end, to start it anew.
pub(super) fn replaced(status: &ContainerStatus, now: Timestamp) -> ContainerStatus {
    terminated(status, 0, Some(REPLACED), now)
}

fn back_off(restarts: i32, end: &ContainerStateTerminated) -> Duration {
    let ran = match (&end.started_at, &end.finished_at) {
        (Some(start), Some(end)) => end.0.duration_since(start.0).unsigned_abs(),
        _ => Duration::ZERO,
    };
    let Some(doublings) = u32::try_from(restarts).ok().and_then(|n| n.checked_sub(1)) else {
        return Duration::ZERO;
    };
    if ran >= BACK_OFF_FORGOTTEN {
        return Duration::ZERO;
    }
    let seconds = FIRST_BACK_OFF
        .checked_shl(doublings)
        .filter(|_| doublings < 32)
        .unwrap_or(LONGEST_BACK_OFF);
    Duration::from_secs(seconds.min(LONGEST_BACK_OFF))
}

fn go_duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..60 => format!("{seconds}s"),
        seconds => format!("{}m{}s", seconds / 60, seconds % 60),
    }
}

/// A time as the API keeps it, in whole seconds.
pub(super) fn stamp(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// The moment that a stamp stands for, if it is still remembered.
pub(super) fn exactly(
    stamped: Option<&Time>,
    remembered: Option<Timestamp>,
    now: Timestamp,
) -> Timestamp {
    let Some(stamped) = stamped else { return now };
    remembered
        .filter(|moment| stamp(*moment) == *stamped)
        .unwrap_or(stamped.0)
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

#[cfg(test)]
mod tests {
    use super::{ContainerStateTerminated, Duration, back_off, go_duration};

    #[test]
    fn the_first_restart_is_immediate_and_the_others_wait_ever_longer() {
        let end = ContainerStateTerminated::default();
        let waits: Vec<String> = (0..9)
            .map(|restarts| go_duration(back_off(restarts, &end)))
            .collect();
        let expected = [
            "0s", "10s", "20s", "40s", "1m20s", "2m40s", "5m0s", "5m0s", "5m0s",
        ];
        assert_eq!(waits, expected);
        assert_eq!(back_off(i32::MAX, &end), Duration::from_secs(300));
    }
}

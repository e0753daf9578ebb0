//! The states of a container, and what follows from them.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
        ContainerStateWaiting, ContainerStatus, VolumeMountStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

/// Marks a container that the node itself stopped and will start again, whatever its restart
/// policy says and without back-off.
const REPLACED: &str = "stopped by the node for a change in place";
const FIRST_BACK_OFF: u64 = 10;
const LONGEST_BACK_OFF: u64 = 300;
/// A container that ran so long restarts without back-off.
const BACK_OFF_FORGOTTEN: Duration = Duration::from_secs(600);
pub(crate) const KILLED: i32 = 137;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    App,
    Init,
    Sidecar,
}

/// Whether a container runs, or will.
pub(crate) fn lives(status: &ContainerStatus, role: Role, policy: &str) -> bool {
    match View::of(status) {
        View::Waiting(_) | View::Running(_) => true,
        View::Terminated(end) => is_replaced(end) || restarts(role, policy, end.exit_code),
    }
}

pub(crate) fn is_replaced(end: &ContainerStateTerminated) -> bool {
    end.message.as_deref() == Some(REPLACED)
}

/// Whether a container that ended by itself starts again.
pub(crate) fn restarts(role: Role, policy: &str, exit_code: i32) -> bool {
    match (role, policy) {
        (Role::Sidecar, _) => true,
        (_, "Never") => false,
        (Role::Init, _) | (_, "OnFailure") => exit_code != 0,
        _ => true,
    }
}

/// What of a container's state matters here.
pub(crate) enum View<'a> {
    Waiting(&'a str),
    Running(&'a ContainerStateRunning),
    Terminated(&'a ContainerStateTerminated),
}

impl<'a> View<'a> {
    pub(crate) fn of(status: &'a ContainerStatus) -> Self {
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

pub(crate) fn waiting_for(
    status: &ContainerStatus,
    reason: &str,
    message: Option<String>,
) -> ContainerStatus {
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
pub(crate) fn terminated(
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
pub(crate) fn replaced(status: &ContainerStatus, now: Timestamp) -> ContainerStatus {
    terminated(status, 0, Some(REPLACED), now)
}

/// The volumes of a container as its status lists them.
pub(crate) fn mounts(spec: &Container) -> Option<Vec<VolumeMountStatus>> {
    let mounts = spec.volume_mounts.iter().flatten();
    let mounts: Vec<_> = mounts
        .map(|mount| VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only,
            recursive_read_only: (mount.read_only == Some(true)).then(|| "Disabled".to_owned()),
            ..VolumeMountStatus::default()
        })
        .collect();
    (!mounts.is_empty()).then_some(mounts)
}

/// Whether a container has run for so long that nothing is held against it.
pub(crate) fn is_forgiven(end: &ContainerStateTerminated) -> bool {
    let both = end.started_at.as_ref().zip(end.finished_at.as_ref());
    both.is_some_and(|(start, end)| {
        end.0.duration_since(start.0).unsigned_abs() >= BACK_OFF_FORGOTTEN
    })
}

pub(crate) fn back_off(restarts: i32, end: &ContainerStateTerminated) -> Duration {
    let Some(doublings) = u32::try_from(restarts).ok().and_then(|n| n.checked_sub(1)) else {
        return Duration::ZERO;
    };
    if is_forgiven(end) {
        return Duration::ZERO;
    }
    let seconds = FIRST_BACK_OFF
        .checked_shl(doublings)
        .filter(|_| doublings < 32)
        .unwrap_or(LONGEST_BACK_OFF);
    Duration::from_secs(seconds.min(LONGEST_BACK_OFF))
}

pub(crate) fn go_duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..60 => format!("{seconds}s"),
        seconds => format!("{}m{}s", seconds / 60, seconds % 60),
    }
}

/// A time as the API keeps it, in whole seconds.
pub(crate) fn stamp(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// The moment that a stamp stands for, if it is still remembered.
pub(crate) fn exactly(
    stamped: Option<&Time>,
    remembered: Option<Timestamp>,
    now: Timestamp,
) -> Timestamp {
    let Some(stamped) = stamped else { return now };
    remembered
        .filter(|moment| stamp(*moment) == *stamped)
        .unwrap_or(stamped.0)
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

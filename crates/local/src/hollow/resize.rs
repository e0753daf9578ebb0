//! Resources that change while a container runs.

use k8s_openapi::{
    api::core::v1::{Container, ContainerStatus, PodCondition, PodStatus},
    jiff::Timestamp,
};

use crate::{
    clock::after,
    kubelet::{
        container::{View, exactly, replaced},
        resize::{needs_restart, wanted},
        status::Resize,
    },
};

pub(super) struct Order<'a> {
    pub(super) containers: &'a [&'a Container],
    /// Why the resize is not taken up, if it is not.
    pub(super) refused: Option<&'static str>,
    pub(super) delay: std::time::Duration,
}

/// Takes the resize as far as it is at `now`, and tells when it goes on. `since` remembers when it
/// began.
pub(super) fn resize(
    order: &Order<'_>,
    status: &mut PodStatus,
    since: &mut Option<Timestamp>,
    now: Timestamp,
) -> (Resize, Option<Timestamp>) {
    let began = began(
        status.conditions.as_deref().unwrap_or_default(),
        *since,
        now,
    );
    let mut changed: Vec<(&Container, &mut ContainerStatus)> = status
        .init_container_statuses
        .iter_mut()
        .chain(status.container_statuses.iter_mut())
        .flatten()
        .filter_map(|status| {
            let spec = order
                .containers
                .iter()
                .find(|spec| spec.name == status.name)?;
            let is_running = matches!(View::of(status), View::Running(_));
            let differs = wanted(spec) != status.resources.clone().unwrap_or_default();
            (is_running && differs).then_some((*spec, status))
        })
        .collect();
    if changed.is_empty() {
        *since = None;
        return (Resize::None, None);
    }
    if let Some(reason) = order.refused {
        *since = None;
        let message = "Node didn't have enough resource: cpu".to_owned();
        return (Resize::Pending { reason, message }, None);
    }
    *since = Some(began);
    let done = after(began, order.delay);
    for (spec, status) in &mut changed {
        let wanted = wanted(spec);
        status.allocated_resources.clone_from(&wanted.requests);
        if now >= done {
            let restart = needs_restart(spec, status.resources.as_ref(), &wanted);
            status.resources = Some(wanted);
            if restart {
                **status = replaced(status, now);
            }
        }
    }
    if now >= done {
        *since = None;
        return (Resize::None, None);
    }
    (Resize::InProgress, Some(done))
}

fn began(conditions: &[PodCondition], since: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let condition = conditions
        .iter()
        .find(|condition| condition.type_ == "PodResizeInProgress");
    match condition {
        Some(condition) => exactly(condition.last_transition_time.as_ref(), since, now),
        None => now,
    }
}

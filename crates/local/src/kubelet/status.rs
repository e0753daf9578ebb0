//! A pod's phase and conditions, as they follow from its containers.

use k8s_openapi::{
    api::core::v1::{Container, ContainerStatus, Pod, PodCondition, PodSpec, PodStatus},
    jiff::Timestamp,
};

use super::container::{Role, View, stamp};

/// The conditions a node answers for, in the order in which it lists them after all others.
const OWN: [&str; 7] = [
    "PodResizePending",
    "PodResizeInProgress",
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
];

/// Whether the node answers for conditions of this type.
pub(crate) fn is_own(kind: &str) -> bool {
    OWN.contains(&kind)
}

pub(crate) fn role_of_init(spec: &PodSpec, name: &str) -> Role {
    let mut all = spec.init_containers.iter().flatten();
    all.find(|container| container.name == name)
        .map_or(Role::Init, role_of)
}

pub(crate) fn is_init(pod: &Pod, name: &str) -> bool {
    let inits = pod.spec.iter().flat_map(|spec| &spec.init_containers);
    let mut inits = inits.flatten();
    inits.any(|init| init.name == name)
}

/// The role of a container among the init containers.
fn role_of(init: &Container) -> Role {
    match init.restart_policy.as_deref() {
        Some("Always") => Role::Sidecar,
        _ => Role::Init,
    }
}

/// Whether the containers after this one may start.
pub(crate) fn is_initialized(status: &ContainerStatus, role: Role) -> bool {
    match role {
        Role::Sidecar => status.started == Some(true),
        Role::Init | Role::App => status.ready,
    }
}

/// Whether the pod got as far as its own containers.
pub(crate) fn has_run(status: &PodStatus) -> bool {
    let mut apps = status.container_statuses.iter().flatten();
    apps.any(|app| app.container_id.is_some())
}

/// The phase of a pod of whose containers those live that `lives` says.
pub(crate) fn phase(
    spec: &PodSpec,
    status: &PodStatus,
    lives: impl Fn(&ContainerStatus, Role) -> bool,
) -> &'static str {
    for init in status.init_container_statuses.iter().flatten() {
        let role = role_of_init(spec, &init.name);
        if role == Role::Init && exit_code(init).is_some_and(|code| code != 0) && !lives(init, role)
        {
            return "Failed";
        }
        if !is_initialized(init, role) && !has_run(status) {
            return "Pending";
        }
    }
    let apps = status.container_statuses.as_deref().unwrap_or_default();
    let waits = |app: &ContainerStatus| {
        matches!(View::of(app), View::Waiting(_)) && exit_code(app).is_none()
    };
    if apps.is_empty() || apps.iter().any(waits) {
        "Pending"
    } else if apps.iter().any(|app| lives(app, Role::App)) {
        "Running"
    } else if apps.iter().all(|app| exit_code(app) == Some(0)) {
        "Succeeded"
    } else {
        "Failed"
    }
}

/// How a container that does not run now ended last.
fn exit_code(status: &ContainerStatus) -> Option<i32> {
    match View::of(status) {
        View::Running(_) => None,
        View::Terminated(end) => Some(end.exit_code),
        View::Waiting(_) => {
            let last = status.last_state.as_ref()?.terminated.as_ref()?;
            Some(last.exit_code)
        }
    }
}

/// A condition without its times.
struct Finding {
    kind: &'static str,
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Finding {
    fn new(kind: &'static str, holds: bool) -> Self {
        Self {
            kind,
            holds,
            reason: None,
            message: None,
        }
    }

    fn because(self, reason: &'static str, message: Option<String>) -> Self {
        Self {
            reason: Some(reason),
            message,
            ..self
        }
    }
}

/// What a node knows about a resize in place that is not done.
pub(crate) enum Resize {
    None,
    Pending {
        reason: &'static str,
        message: String,
    },
    InProgress,
}

/// All conditions of the pod: those of others as they are, then those of the node.
pub(crate) fn conditions(
    pod: &Pod,
    status: &PodStatus,
    sandbox: bool,
    resize: &Resize,
    now: Timestamp,
) -> Vec<PodCondition> {
    let old = status.conditions.as_deref().unwrap_or_default();
    let mut all: Vec<PodCondition> = old
        .iter()
        .filter(|condition| !is_own(&condition.type_))
        .cloned()
        .collect();
    let containers_ready = containers_ready(pod, status);
    let ready = ready(pod, &all, &containers_ready);
    let findings = resizing(resize).into_iter().chain([
        Finding::new("PodReadyToStartContainers", sandbox),
        initialized(pod, status),
        ready,
        containers_ready,
        Finding::new("PodScheduled", true),
    ]);
    for finding in findings {
        let before = old.iter().find(|condition| condition.type_ == finding.kind);
        all.push(with_times(finding, before, pod.metadata.generation, now));
    }
    all
}

fn with_times(
    finding: Finding,
    before: Option<&PodCondition>,
    generation: Option<i64>,
    now: Timestamp,
) -> PodCondition {
    let status = if finding.holds { "True" } else { "False" };
    let since = before
        .filter(|before| before.status == status)
        .and_then(|before| before.last_transition_time.clone());
    let since = since.or_else(|| Some(stamp(now)));
    let is_probed = finding.kind.starts_with("PodResize");
    PodCondition {
        type_: finding.kind.to_owned(),
        status: status.to_owned(),
        reason: finding.reason.map(str::to_owned),
        message: finding.message,
        observed_generation: generation,
        last_probe_time: since.clone().filter(|_| is_probed),
        last_transition_time: since,
    }
}

fn resizing(resize: &Resize) -> Option<Finding> {
    match resize {
        Resize::None => None,
        Resize::Pending { reason, message } => {
            let finding = Finding::new("PodResizePending", true);
            Some(finding.because(reason, Some(message.clone())))
        }
        Resize::InProgress => Some(Finding::new("PodResizeInProgress", true)),
    }
}

fn initialized(pod: &Pod, status: &PodStatus) -> Finding {
    let finding = |holds| Finding::new("Initialized", holds);
    if status.phase.as_deref() == Some("Succeeded") {
        return finding(true).because("PodCompleted", None);
    }
    let Some(spec) = pod.spec.as_ref().filter(|_| !has_run(status)) else {
        return finding(true);
    };
    let inits = status.init_container_statuses.iter().flatten();
    let incomplete: Vec<&str> = inits
        .filter(|init| !is_initialized(init, role_of_init(spec, &init.name)))
        .map(|init| init.name.as_str())
        .collect();
    if incomplete.is_empty() {
        return finding(true);
    }
    let message = format!(
        "containers with incomplete status: [{}]",
        incomplete.join(" ")
    );
    finding(false).because("ContainersNotInitialized", Some(message))
}

fn containers_ready(pod: &Pod, status: &PodStatus) -> Finding {
    let finding = |holds| Finding::new("ContainersReady", holds);
    match status.phase.as_deref() {
        Some("Succeeded") => return finding(false).because("PodCompleted", None),
        Some("Failed") => return finding(false).because("PodFailed", None),
        _ => {}
    }
    let is_ready = |name: &str| {
        let inits = status.init_container_statuses.iter().flatten();
        let mut all = inits.chain(status.container_statuses.iter().flatten());
        all.any(|status| status.name == name && status.ready)
    };
    let inits = pod.spec.iter().flat_map(|spec| &spec.init_containers);
    let sidecars = inits
        .flatten()
        .filter(|init| role_of(init) == Role::Sidecar);
    let apps = pod.spec.iter().flat_map(|spec| &spec.containers);
    let unready: Vec<&str> = sidecars
        .chain(apps)
        .map(|container| container.name.as_str())
        .filter(|name| !is_ready(name))
        .collect();
    if unready.is_empty() {
        return finding(true);
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    finding(false).because("ContainersNotReady", Some(message))
}

fn ready(pod: &Pod, foreign: &[PodCondition], containers: &Finding) -> Finding {
    if !containers.holds {
        return Finding {
            kind: "Ready",
            holds: false,
            reason: containers.reason,
            message: containers.message.clone(),
        };
    }
    let gates = pod.spec.iter().flat_map(|spec| &spec.readiness_gates);
    let closed: Vec<String> = gates
        .flatten()
        .filter_map(|gate| {
            let gate = &gate.condition_type;
            match foreign.iter().find(|condition| condition.type_ == *gate) {
                None => Some(format!(
                    "corresponding condition of pod readiness gate {gate:?} does not exist."
                )),
                Some(condition) if condition.status != "True" => Some(format!(
                    "the status of pod readiness gate {gate:?} is not \"True\", but {}",
                    condition.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    if closed.is_empty() {
        return Finding::new("Ready", true);
    }
    Finding::new("Ready", false).because("ReadinessGatesNotReady", Some(closed.join(", ")))
}

/// The conditions of a pod for which no node was found.
pub(crate) fn unschedulable(
    pod: &Pod,
    status: &PodStatus,
    message: String,
    now: Timestamp,
) -> Vec<PodCondition> {
    let mut all = status.conditions.clone().unwrap_or_default();
    let finding = Finding::new("PodScheduled", false).because("Unschedulable", Some(message));
    let place = all
        .iter()
        .position(|condition| condition.type_ == finding.kind);
    let before = place.and_then(|place| all.get(place));
    let condition = with_times(finding, before, pod.metadata.generation, now);
    match place.and_then(|place| all.get_mut(place)) {
        Some(before) => *before = condition,
        None => all.push(condition),
    }
    all
}

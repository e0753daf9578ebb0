//! What is told about a sandbox, in the words that its users match on.

use std::time::Duration;

use api::sigs::v1beta1::SandboxStatus;
use engine::revision::name_hash;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use serde_json::Value;

use super::view::{Pod, Sandbox};
pub(super) use crate::conditions::{FINISHED, READY};
use crate::{
    conditions::{self, RECONCILER_ERROR, Verdict, verdict},
    events::News,
    sigs::names,
};

pub(super) const SUSPENDED: &str = "Suspended";
pub(super) const POD_SCHEDULED: &str = "PodScheduled";

pub(crate) const EXPIRED: &str = "SandboxExpired";
pub(super) const MULTIPLE_PODS: &str = "MultiplePods";
const NOT_READY: &str = "DependenciesNotReady";
/// A fenced member will not become what it was fenced for.
pub(crate) const CANNOT_UPDATE: &str = "InPlaceUpdateImpossible";
pub(super) const POD_TERMINATED: &str = "PodTerminated";

/// What a pass has found.
#[derive(Debug)]
pub(super) struct Findings<'a> {
    pub(super) errors: Vec<String>,
    pub(super) pod: PodState<'a>,
    pub(super) updating: Updating,
    pub(super) service: ServiceState,
}

impl Findings<'_> {
    /// A pod that is to be changed and still runs as before: there is nothing to tell until that ends.
    pub(super) fn is_the_old_pod_still_good(&self) -> bool {
        let PodState::Owned(pod) = self.pod else {
            return false;
        };
        let is_ongoing = matches!(self.updating, Updating::Ongoing(_));
        is_ongoing && self.errors.is_empty() && pod.is_ready && &*pod.phase == "Running"
    }
}

/// How it stands with a change of a running pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Updating {
    /// None is asked for.
    No,
    /// There is so much time left.
    Ongoing(Duration),
    /// The pod is as the sandbox asks.
    Done,
    Impossible(String),
}

impl Updating {
    pub(super) fn deadline(&self) -> Option<Duration> {
        match self {
            Self::Ongoing(left) => Some(*left),
            Self::No | Self::Done | Self::Impossible(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum PodState<'a> {
    Missing,
    Owned(&'a Pod),
    /// One is in the place of ours.
    NotOwned,
    Many(usize),
    /// It could not be found out.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceState {
    NotRequired,
    Exists,
    Missing,
    /// Nobody looked.
    Untouched,
}

pub(super) fn condition<'a>(status: &'a SandboxStatus, kind: &str) -> Option<&'a Condition> {
    conditions::find(status.conditions.as_ref(), kind)
}

pub(super) fn has_reason(sandbox: &Sandbox, kind: &str, reason: &str) -> bool {
    let condition = sandbox.status.find(kind);
    condition.is_some_and(|condition| condition.reason() == reason)
}

/// It is not ready, and nothing is wrong with that.
pub(super) fn is_coming(status: &SandboxStatus) -> bool {
    let ready = condition(status, READY);
    ready.is_none_or(|ready| ready.status != "True" && ready.reason == NOT_READY)
}

/// What is worth an event when it is told for the first time.
pub(super) fn news(sandbox: &Sandbox, status: &SandboxStatus) -> Option<News> {
    let ready = conditions::find(status.conditions.as_ref(), READY)?;
    let old = sandbox.status.find(READY);
    let generation = sandbox.meta.generation;
    let (reason, is_told, occasion) = match ready.reason.as_str() {
        MULTIPLE_PODS => (
            MULTIPLE_PODS,
            old.is_some_and(|old| old.reason() == MULTIPLE_PODS),
            old.map(|old| format!("{}@{}", old.reason(), old.since))
                .unwrap_or_default(),
        ),
        // once for each generation, however often it comes and goes
        RECONCILER_ERROR => (
            RECONCILER_ERROR,
            old.is_some_and(|old| {
                (old.reason(), old.generation) == (RECONCILER_ERROR, Some(generation))
            }),
            generation.to_string(),
        ),
        _ => return None,
    };
    (!is_told).then(|| News {
        is_warning: true,
        reason,
        action: "Reconcile",
        message: ready.message.clone(),
        occasion,
    })
}

pub(super) fn multiple_pods(count: usize) -> String {
    format!(
        "multiple Pods ({count}) are controlled by this Sandbox; refusing to choose or create a Pod"
    )
}

/// The status of a sandbox that has not expired.
pub(super) fn current(
    sandbox: &Sandbox,
    findings: &Findings<'_>,
    domain: &str,
    now: Timestamp,
) -> SandboxStatus {
    let old = sandbox.status.whole();
    let suspended = suspended(sandbox.is_suspended, findings.pod);
    let finished = finished(&old, findings.pod);
    let ready = ready(sandbox, findings, suspended.0 == "True", finished.as_ref());
    let mut status = SandboxStatus {
        conditions: Some(conditions::with(
            old.conditions.as_ref(),
            [
                (SUSPENDED, Some(suspended)),
                (FINISHED, finished),
                (POD_SCHEDULED, scheduled(findings.pod)),
                (READY, Some(ready)),
            ],
            sandbox.meta.generation,
            now,
        )),
        ..old
    };
    match findings.pod {
        PodState::Owned(pod) => {
            let ips = pod.ips.iter().map(ToString::to_string).collect::<Vec<_>>();
            status.pod_ips = Some(ips).filter(|ips| !ips.is_empty());
            status.node_name = pod.node_name.as_deref().map(str::to_owned);
            let hash = name_hash(sandbox.name());
            status.selector = Some(format!("{}={hash}", names::NAME_HASH));
        }
        PodState::Missing | PodState::NotOwned | PodState::Many(_) => {
            status.pod_ips = None;
            status.node_name = None;
        }
        PodState::Unknown => {}
    }
    let (namespace, name) = (&sandbox.meta.key.namespace, sandbox.name());
    match findings.service {
        ServiceState::Exists => {
            status.service = Some(name.to_owned());
            status.service_fqdn = Some(format!("{name}.{namespace}.svc.{domain}"));
        }
        ServiceState::NotRequired | ServiceState::Missing => {
            status.service = None;
            status.service_fqdn = None;
        }
        ServiceState::Untouched => {}
    }
    status
}

/// The first word about the end of a sandbox.
pub(super) fn expired(sandbox: &Sandbox, now: Timestamp) -> SandboxStatus {
    let old = sandbox.status.whole();
    let kept = |kind| {
        let condition = condition(&old, kind)?;
        Some((
            status_of(condition),
            condition.reason.clone(),
            condition.message.clone(),
        ))
    };
    let ready = verdict("False", EXPIRED, "Sandbox has expired");
    SandboxStatus {
        conditions: Some(conditions::with(
            old.conditions.as_ref(),
            [
                (SUSPENDED, kept(SUSPENDED)),
                (FINISHED, kept(FINISHED)),
                (POD_SCHEDULED, None),
                (READY, Some(ready)),
            ],
            sandbox.meta.generation,
            now,
        )),
        ..old
    }
}

/// The last word: only the conditions stay.
pub(super) fn retained(sandbox: &Sandbox, now: Timestamp) -> SandboxStatus {
    SandboxStatus {
        conditions: expired(sandbox, now).conditions,
        ..SandboxStatus::default()
    }
}

fn status_of(condition: &Condition) -> &'static str {
    match condition.status.as_str() {
        "True" => "True",
        "False" => "False",
        _ => "Unknown",
    }
}

fn suspended(is_wanted: bool, pod: PodState<'_>) -> Verdict {
    if !is_wanted {
        return verdict("False", "NotSuspended", "Sandbox is not suspended");
    }
    match pod {
        PodState::Missing => verdict(
            "True",
            POD_TERMINATED,
            "Pod has been terminated. Sandbox is suspended",
        ),
        PodState::Owned(_) => verdict(
            "False",
            "PodTerminating",
            "Pod is terminating. Sandbox is suspending",
        ),
        PodState::NotOwned => verdict(
            "False",
            "PodNotOwned",
            "Refused to delete pod because it is not owned by this sandbox",
        ),
        PodState::Many(_) | PodState::Unknown => verdict(
            "Unknown",
            "PodStateUnknown",
            "Pod state is unknown. Sandbox suspension cannot be confirmed",
        ),
    }
}

/// A pod that is being deleted ends in a terminal phase too; that is not the end of its work.
fn finished(old: &SandboxStatus, pod: PodState<'_>) -> Option<Verdict> {
    let PodState::Owned(pod) = pod else {
        return None;
    };
    if pod.meta.is_deleting && condition(old, FINISHED).is_none() {
        return None;
    }
    match &*pod.phase {
        "Succeeded" => Some(verdict(
            "True",
            "PodSucceeded",
            "Pod completed successfully",
        )),
        "Failed" => Some(verdict("True", "PodFailed", "Pod failed")),
        _ => None,
    }
}

fn scheduled(pod: PodState<'_>) -> Option<Verdict> {
    const UNKNOWN: &str = "PodSchedulingUnknown";
    let pod = match pod {
        PodState::Owned(pod) => pod,
        PodState::Unknown => {
            let message = "Pod state is unknown. Pod scheduling cannot be determined";
            return Some(verdict("Unknown", UNKNOWN, message));
        }
        PodState::Missing | PodState::NotOwned | PodState::Many(_) => return None,
    };
    let Some(own) = &pod.scheduled else {
        let message = "Pod has not reported a PodScheduled condition yet";
        return Some(verdict("Unknown", UNKNOWN, message));
    };
    let status = match &*own.status {
        "True" => "True",
        "False" => "False",
        _ => "Unknown",
    };
    let reason = match (&*own.reason, status) {
        ("", "True") => POD_SCHEDULED,
        ("", _) => UNKNOWN,
        (reason, _) => reason,
    };
    Some(verdict(status, reason, &*own.message))
}

fn ready(
    sandbox: &Sandbox,
    findings: &Findings<'_>,
    has_been_suspended: bool,
    finished: Option<&Verdict>,
) -> Verdict {
    if let PodState::Many(count) = findings.pod {
        return verdict("False", MULTIPLE_PODS, multiple_pods(count));
    }
    if !findings.errors.is_empty() {
        let message = format!("Error seen: {}", findings.errors.join("\n"));
        return verdict("False", RECONCILER_ERROR, message);
    }
    if sandbox.is_suspended {
        let message = match has_been_suspended {
            true => "Sandbox is suspended",
            false => "Sandbox is suspending",
        };
        return verdict("False", "SandboxSuspended", message);
    }
    if let Some((_, reason, message)) = finished {
        return verdict("False", reason, message.as_str());
    }
    match &findings.updating {
        Updating::No | Updating::Done => {}
        Updating::Ongoing(_) => return verdict("False", NOT_READY, "Pod is updating in place"),
        Updating::Impossible(why) => {
            let message = format!("Pod cannot be updated in place: {why}");
            return verdict("False", CANNOT_UPDATE, message);
        }
    }
    let (is_ready, mut message) = match findings.pod {
        PodState::Owned(pod) => match (&*pod.phase, pod.is_ready, pod.ips.is_empty()) {
            ("Running", true, false) => (true, "Pod is Ready".to_owned()),
            ("Running", true, true) => (false, "Pod is Ready but has no podIPs yet".to_owned()),
            ("Running", false, _) => (false, "Pod is Running but not Ready".to_owned()),
            (phase, ..) => (false, format!("Pod exists with phase: {phase}")),
        },
        _ => (false, "Pod does not exist".to_owned()),
    };
    let has_service = match findings.service {
        ServiceState::Exists => {
            message.push_str("; Service Exists");
            true
        }
        ServiceState::Missing => {
            message.push_str("; Service does not exist");
            false
        }
        ServiceState::NotRequired | ServiceState::Untouched => true,
    };
    match is_ready && has_service {
        true => verdict("True", "DependenciesReady", message),
        false => verdict("False", NOT_READY, message),
    }
}

/// The merge patch of the status, if it is worth a write. Which generation it speaks of is, where somebody waits for that.
pub(super) fn patch(
    old: &SandboxStatus,
    new: &SandboxStatus,
    is_generation_news: bool,
) -> Option<Value> {
    let generation = |status| condition(status, READY).and_then(|ready| ready.observed_generation);
    let is_news = is_generation_news && generation(old) != generation(new);
    conditions::patch(old, new, |field| match field {
        "conditions" => {
            let (old, new) = (old.conditions.as_ref(), new.conditions.as_ref());
            is_news || !conditions::say_the_same(old, new)
        }
        "nodeName" => conditions::is_true(new.conditions.as_ref(), READY),
        _ => true,
    })
}

//! What is told about a claim, in the words that its users match on.

use std::time::Duration;

use api::sigs::shared::{ClaimedSandbox, SandboxClaimStatus};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use serde_json::{Value, json};

use super::view::Claim;
use crate::{
    conditions::{self, FINISHED, READY, verdict},
    events::News,
    queue::Next,
    sigs::sandbox::view::Sandbox,
    store::Change,
};

pub(super) const CLAIM_EXPIRED: &str = "ClaimExpired";
pub(super) const WARM_POOL_NOT_FOUND: &str = "WarmPoolNotFound";
pub(super) const TEMPLATE_NOT_FOUND: &str = "TemplateNotFound";
const SANDBOX_EXPIRED: &str = "SandboxExpired";
/// How often a claim looks for what its pool or template lacks, if no watch tells.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Why a claim has no sandbox, or none to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) next: Next,
}

impl Problem {
    /// Only a change of the claim mends it. Clients that see one of these reasons give up.
    pub(super) fn lasting(reason: &'static str, message: String) -> Self {
        Self {
            reason,
            message,
            next: Next::Never,
        }
    }

    /// Somebody else can mend it.
    pub(super) fn waiting(reason: &'static str, message: String) -> Self {
        Self {
            reason,
            message,
            next: Next::In(LOOK_AGAIN),
        }
    }

    /// Something failed that may work the next time.
    pub(super) fn error(why: impl std::fmt::Display) -> Self {
        Self {
            reason: "ReconcilerError",
            message: format!("Error seen: {why}"),
            next: Next::Retry,
        }
    }

    /// The pod of a claim cannot be given what the claim asks for, as long as something is missing.
    pub(super) fn out_of_step(missing: &Self) -> Self {
        let why = &missing.message;
        Self {
            next: missing.next,
            ..Self::error(format!(
                "additionalPodMetadata cannot be kept in step: {why}"
            ))
        }
    }

    pub(super) fn no_pool(claim: &Claim) -> Self {
        let name = &claim.spec.warm_pool_ref.name;
        Self::waiting(
            WARM_POOL_NOT_FOUND,
            format!("SandboxWarmPool {name:?} not found"),
        )
    }

    pub(super) fn no_template(name: &str) -> Self {
        Self::waiting(
            TEMPLATE_NOT_FOUND,
            format!("SandboxTemplate {name:?} not found"),
        )
    }

    /// Whether the claim says so already.
    pub(super) fn is_told(&self, claim: &Claim) -> bool {
        let ready = conditions::find(claim.status.conditions.as_ref(), READY);
        ready.is_some_and(|ready| ready.reason == self.reason && ready.message == self.message)
    }

    /// Whether the claim has not said so of what it asks for now.
    pub(super) fn is_news(&self, claim: &Claim) -> bool {
        let ready = conditions::find(claim.status.conditions.as_ref(), READY);
        let told = ready.map(|ready| (&*ready.reason, ready.observed_generation));
        told != Some((self.reason, Some(claim.meta.generation)))
    }

    pub(super) fn news(&self, claim: &Claim) -> News {
        News {
            is_warning: true,
            reason: self.reason,
            action: "Provision",
            message: self.message.clone(),
            occasion: claim.meta.generation.to_string(),
        }
    }
}

/// The end that a claim comes to; what it asks for must change before it can come to another.
pub(super) fn news_of_end(claim: &Claim, action: &'static str) -> News {
    News {
        is_warning: false,
        reason: CLAIM_EXPIRED,
        action,
        message: "Claim expired".to_owned(),
        occasion: format!("{action} {}", claim.meta.generation),
    }
}

/// The status of a claim that has this sandbox.
pub(super) fn bound(claim: &Claim, sandbox: &Sandbox, now: Timestamp) -> SandboxClaimStatus {
    let ready = match forwarded(claim, sandbox, READY) {
        Some(ready) if ready.reason == SANDBOX_EXPIRED => {
            let message = "Underlying Sandbox resource has expired independently of the Claim.";
            own(claim, SANDBOX_EXPIRED, message, now)
        }
        Some(ready) => Some(ready),
        None => own(claim, "SandboxNotReady", "Sandbox is not ready", now),
    };
    held(claim, sandbox, ready)
}

/// The status of a claim that has this sandbox, but not as it asks for it.
pub(super) fn out_of_step(
    claim: &Claim,
    sandbox: &Sandbox,
    problem: &Problem,
    now: Timestamp,
) -> SandboxClaimStatus {
    let ready = own(claim, problem.reason, &problem.message, now);
    held(claim, sandbox, ready)
}

fn forwarded(claim: &Claim, sandbox: &Sandbox, kind: &str) -> Option<Condition> {
    let theirs = sandbox.status.find(kind)?;
    Some(Condition {
        observed_generation: Some(claim.meta.generation),
        ..theirs.whole()
    })
}

fn own(claim: &Claim, reason: &str, message: &str, now: Timestamp) -> Option<Condition> {
    let ready = verdict("False", reason, message);
    let old = claim.status.conditions.as_ref();
    let all = conditions::with(old, [(READY, Some(ready))], claim.meta.generation, now);
    conditions::find(Some(&all), READY).cloned()
}

fn held(claim: &Claim, sandbox: &Sandbox, ready: Option<Condition>) -> SandboxClaimStatus {
    let finished = forwarded(claim, sandbox, FINISHED);
    SandboxClaimStatus {
        conditions: replaced(claim, [(READY, ready), (FINISHED, finished)]),
        sandbox: Some(ClaimedSandbox {
            name: Some(sandbox.name().to_owned()),
            pod_ips: sandbox.status.whole().pod_ips,
        }),
    }
}

/// The status of a claim that has a problem. The sandbox that it had stays named until it is known to be gone.
pub(super) fn troubled(
    claim: &Claim,
    problem: &Problem,
    has_lost: bool,
    now: Timestamp,
) -> SandboxClaimStatus {
    not_ready(claim, problem.reason, &problem.message, has_lost, now)
}

/// The status of a claim that is over.
pub(super) fn expired(claim: &Claim, end: End<'_>, now: Timestamp) -> SandboxClaimStatus {
    let (message, has_lost) = match end {
        End::Begun => (BEGUN.to_owned(), false),
        End::Done => (BEGUN.to_owned(), true),
        End::NotOurs(name) => (
            format!(
                "Claim expired. sandbox {name:?} is not controlled by this claim; deletion skipped."
            ),
            true,
        ),
    };
    not_ready(claim, CLAIM_EXPIRED, &message, has_lost, now)
}

const BEGUN: &str = "Claim expired. Sandbox cleanup initiated.";

/// How far the end of a claim has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End<'a> {
    Begun,
    /// Its sandbox is gone.
    Done,
    /// The sandbox of this name is somebody else's.
    NotOurs(&'a str),
}

fn not_ready(
    claim: &Claim,
    reason: &str,
    message: &str,
    has_lost: bool,
    now: Timestamp,
) -> SandboxClaimStatus {
    SandboxClaimStatus {
        conditions: replaced(claim, [(READY, own(claim, reason, message, now))]),
        sandbox: claim.status.sandbox.clone().filter(|_| !has_lost),
    }
}

fn replaced<'a>(
    claim: &Claim,
    wanted: impl IntoIterator<Item = (&'a str, Option<Condition>)>,
) -> Option<Vec<Condition>> {
    let mut all = claim.status.conditions.clone().unwrap_or_default();
    for (kind, condition) in wanted {
        all.retain(|old| old.type_ != kind);
        all.extend(condition);
    }
    Some(sorted(all))
}

fn sorted(mut conditions: Vec<Condition>) -> Vec<Condition> {
    conditions.sort_by(|one, other| one.type_.cmp(&other.type_));
    conditions
}

pub(super) fn is_expired(claim: &Claim) -> bool {
    let ready = conditions::find(claim.status.conditions.as_ref(), READY);
    ready.is_some_and(|ready| ready.reason == CLAIM_EXPIRED)
}

/// The merge patch of the status, if it is worth a write.
pub(super) fn patch(old: &SandboxClaimStatus, new: &SandboxClaimStatus) -> Option<Value> {
    conditions::patch(old, new, |field| match field {
        "conditions" => told(old) != told(new),
        _ => true,
    })
}

/// Everything but which generation it is about. The times count: they are the sandbox's, and ends are reckoned from one.
fn told(status: &SandboxClaimStatus) -> Vec<Value> {
    let conditions = status.conditions.iter().flatten();
    conditions
        .map(|one| {
            json!([
                one.type_,
                one.status,
                one.reason,
                one.message,
                one.last_transition_time
            ])
        })
        .collect()
}

/// Whether a change of a sandbox is one that its claim tells.
pub(crate) fn concerns(change: &Change<'_, Sandbox>) -> bool {
    let (Some(before), Some(after)) = (change.before, change.after) else {
        return true;
    };
    let is_told = |kind: &str| match (before.status.find(kind), after.status.find(kind)) {
        (Some(before), Some(after)) => before.says_the_same(after),
        (before, after) => before.is_none() && after.is_none(),
    };
    before.meta.owner != after.meta.owner
        || before.meta.is_deleting != after.meta.is_deleting
        || before.status.pod_ips != after.status.pod_ips
        || !is_told(READY)
        || !is_told(FINISHED)
}

//! What is told about a pool.

use api::sigs::v1beta1::SandboxWarmPoolStatus;
use engine::{
    member::{Revision, Time},
    revision::name_hash,
    rollout::{self, Plan, Progress, Reason, Settings},
};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::{member::time, settings::Invalid, view::Pool};
use crate::{
    conditions::{self, RECONCILER_ERROR, Verdict, verdict},
    sigs::names,
};

pub(super) const PROGRESSING: &str = "Progressing";
pub(super) const STALLED: &str = "Stalled";
/// There only if it is false.
const HISTORY_KEPT: &str = "HistoryKept";
const TEMPLATE_NOT_FOUND: &str = "TemplateNotFound";
const INVALID_SPEC: &str = "InvalidSpec";

/// What a pass has to tell.
pub(super) enum Report<'a> {
    Planned {
        plan: &'a Plan,
        invalid: Option<&'a Invalid>,
        /// What the server would not do.
        refused: Option<&'a str>,
        /// Why the pods of members are not made.
        no_pods: Option<&'a str>,
        /// Why revisions are not stored.
        no_history: Option<&'a str>,
    },
    /// Without a template nothing can be said about revisions.
    NoTemplate { replicas: u32, ready: u32 },
}

pub(super) fn current(pool: &Pool, report: &Report<'_>, now: Timestamp) -> SandboxWarmPoolStatus {
    let hash = name_hash(&pool.meta.key.name);
    let mut status = SandboxWarmPoolStatus {
        selector: Some(format!("{}={hash}", names::WARM_POOL)),
        observed_generation: Some(pool.meta.generation),
        ..pool.status.clone()
    };
    let mut history = None;
    let (progressing, stalled) = match report {
        Report::NoTemplate { replicas, ready } => {
            status.replicas = Some(number(*replicas));
            status.ready_replicas = Some(number(*ready));
            let name = &pool.spec.sandbox_template_ref.name;
            let message = format!("SandboxTemplate {name:?} not found");
            let verdict = |status| verdict(status, TEMPLATE_NOT_FOUND, message.as_str());
            (verdict("False"), verdict("True"))
        }
        Report::Planned {
            plan,
            invalid,
            refused,
            no_pods,
            no_history,
        } => {
            history = no_history.map(|why| {
                let message =
                    format!("revisions cannot be stored, and a rollout cannot be undone: {why}");
                verdict("False", "Forbidden", message)
            });
            count(&mut status, &plan.status);
            told(plan, *invalid, *refused, *no_pods)
        }
    };
    let wanted = [
        (PROGRESSING, Some(progressing)),
        (STALLED, Some(stalled)),
        (HISTORY_KEPT, history),
    ];
    let old = pool.status.conditions.as_ref();
    status.conditions = Some(conditions::with(old, wanted, pool.meta.generation, now));
    status
}

fn count(status: &mut SandboxWarmPoolStatus, counts: &rollout::Status) {
    status.replicas = Some(number(counts.replicas));
    status.ready_replicas = Some(number(counts.ready));
    status.updated_replicas = Some(number(counts.updated));
    status.updated_available_replicas = Some(number(counts.updated_available));
    status.current_revision = Some(counts.current_revision.to_string());
    status.update_revision = Some(counts.update_revision.to_string());
}

fn told(
    plan: &Plan,
    invalid: Option<&Invalid>,
    refused: Option<&str>,
    no_pods: Option<&str>,
) -> (Verdict, Verdict) {
    let why = no_pods.map(|why| format!(": {why}")).unwrap_or_default();
    let plain = |condition: &rollout::Condition| {
        let status = if condition.status { "True" } else { "False" };
        let message = format!("{}{why}", condition.message);
        verdict(status, condition.reason.as_str(), message)
    };
    if let Some(invalid) = invalid {
        let message = invalid.to_string();
        let verdict = |status| verdict(status, INVALID_SPEC, message.as_str());
        return (verdict("False"), verdict("True"));
    }
    let stalled = match refused {
        Some(refused) => verdict("True", RECONCILER_ERROR, format!("Error seen: {refused}")),
        None => plain(&plan.conditions.stalled),
    };
    (plain(&plan.conditions.progressing), stalled)
}

/// Why somebody has to do something, if so.
pub(super) fn stall(report: &Report<'_>) -> Option<&'static str> {
    match report {
        Report::NoTemplate { .. } => Some(TEMPLATE_NOT_FOUND),
        Report::Planned {
            invalid: Some(_), ..
        } => Some(INVALID_SPEC),
        Report::Planned {
            refused: Some(_), ..
        } => Some(RECONCILER_ERROR),
        Report::Planned { plan, .. } => {
            let stalled = &plan.conditions.stalled;
            stalled.status.then(|| stalled.reason.as_str())
        }
    }
}

/// Whether the status as it is stored says this of what is asked for now.
pub(super) fn says_stalled(
    old: &SandboxWarmPoolStatus,
    new: &SandboxWarmPoolStatus,
    reason: &str,
) -> bool {
    let stalled = conditions::find(old.conditions.as_ref(), STALLED);
    stalled.is_some_and(|stalled| stalled.status == "True" && stalled.reason == reason)
        && old.observed_generation == new.observed_generation
        && old.update_revision == new.update_revision
}

pub(super) fn stalled_message(status: &SandboxWarmPoolStatus) -> String {
    let stalled = conditions::find(status.conditions.as_ref(), STALLED);
    stalled
        .map(|stalled| stalled.message.clone())
        .unwrap_or_default()
}

fn number(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The merge patch of the status, if there is anything to tell.
pub(super) fn patch(old: &SandboxWarmPoolStatus, new: &SandboxWarmPoolStatus) -> Option<Value> {
    conditions::patch(old, new, |field| match field {
        "conditions" => !conditions::say_the_same(old.conditions.as_ref(), new.conditions.as_ref()),
        _ => true,
    })
}

/// Whether somebody may be waiting for this very change: an answer to an edit, or a verdict that turned.
pub(super) fn is_urgent(old: &SandboxWarmPoolStatus, new: &SandboxWarmPoolStatus) -> bool {
    let turned = |kind| {
        let is_true = |status: &SandboxWarmPoolStatus| {
            conditions::find(status.conditions.as_ref(), kind).map(|it| it.status.clone())
        };
        is_true(old) != is_true(new)
    };
    old.observed_generation != new.observed_generation
        || old.update_revision != new.update_revision
        || old.current_revision != new.current_revision
        || turned(PROGRESSING)
        || turned(STALLED)
}

/// How far a rollout had come, as the status of a former process tells it: a deadline that was missed stays missed.
pub(super) fn progress(pool: &Pool, target: &Revision, settings: &Settings) -> Option<Progress> {
    let status = &pool.status;
    let progressing = conditions::find(status.conditions.as_ref(), PROGRESSING)?;
    let is_late = progressing.reason == Reason::DeadlineExceeded.as_str();
    let rollout::Strategy::RollingUpdate(rolling) = &settings.strategy else {
        return None;
    };
    let deadline = rolling.progress_deadline.filter(|_| is_late)?;
    if status.update_revision.as_deref() != Some(target.as_str()) {
        return None;
    }
    let count = |count: Option<i32>| u32::try_from(count.unwrap_or_default()).unwrap_or_default();
    let since = time(progressing.last_transition_time.0);
    let deadline = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
    Some(Progress {
        target: target.clone(),
        best_available: count(status.updated_available_replicas),
        fewest_old: count(status.replicas).saturating_sub(count(status.updated_replicas)),
        at: Time(since.0.saturating_sub(deadline)),
        stable: None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::{
        member::Revision,
        rollout::{Progress, Rolling, Settings, Strategy},
    };
    use serde_json::json;

    use super::{Pool, progress, time};
    use crate::testing::view;

    #[test]
    fn a_deadline_that_was_missed_stays_missed_for_the_next_process() {
        let mut rolling = Rolling::new(1, 1);
        rolling.progress_deadline = Some(Duration::from_secs(60));
        let settings = Settings::new(Strategy::RollingUpdate(rolling));
        let target = Revision::from("two");
        let restored = |reason: &str, revision: &str| {
            let progressing = json!({
                "type": "Progressing", "status": "False", "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-31T12:01:00Z",
            });
            let pool = json!({
                "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
                "kind": "SandboxWarmPool",
                "metadata": {"name": "pool"},
                "spec": {"sandboxTemplateRef": {"name": "one"}},
                "status": {
                    "replicas": 5, "updatedReplicas": 3, "updatedAvailableReplicas": 2,
                    "updateRevision": revision, "conditions": [progressing],
                },
            });
            let pool: Pool = view(pool, &json!({}));
            progress(&pool, &target, &settings)
        };
        let begun = "2026-01-31T12:00:00Z".parse().map(time).unwrap();
        let missed = Progress {
            target: target.clone(),
            best_available: 2,
            fewest_old: 2,
            at: begun,
            stable: None,
        };
        assert_eq!(restored("DeadlineExceeded", "two"), Some(missed));
        assert_eq!(restored("DeadlineExceeded", "one"), None);
        assert_eq!(restored("ImagePull", "two"), None);
        assert_eq!(restored("Rolling", "two"), None);
    }
}

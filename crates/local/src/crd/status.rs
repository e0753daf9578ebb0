//! The status of CRDs: which names they get, whether they are served, and how far their deletion is.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::approval::Approval;
use super::{items, object, text};

/// Keeps a definition until its objects are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A condition without its time.
struct Condition {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// The status that a definition should have beside all others, itself among them; none if it has it. `now` is a time
/// as objects have it.
pub fn next_status<'a>(
    definition: &Value,
    all: impl IntoIterator<Item = &'a Value>,
    now: &str,
) -> Option<Value> {
    let before = definition.get("status").unwrap_or(&Value::Null);
    let mut status = before.clone();
    object(&mut status);
    let wanted = &definition["spec"]["names"];
    let named = condition(&status, "NamesAccepted").is_some_and(|found| found["status"] == "True");
    if !named || *wanted != status["acceptedNames"] {
        let (names, accepted) = accept(definition, all);
        status["acceptedNames"] = names;
        set(&mut status, accepted, now);
    }
    if let Some(established) = establish(&status) {
        set(&mut status, established, now);
    }
    if let Some(approval) = Approval::of(definition) {
        let (said, reason, message) = approval.condition(definition);
        let conformant = Condition {
            kind: "KubernetesAPIApprovalPolicyConformant",
            status: said,
            reason,
            message,
        };
        set(&mut status, conformant, now);
    }
    (status != *before).then_some(status)
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = items(status.get("conditions"));
    conditions.iter().find(|found| found["type"] == kind)
}

/// Once established, always established.
fn establish(status: &Value) -> Option<Condition> {
    let is_true = |kind| condition(status, kind).is_some_and(|found| found["status"] == "True");
    if is_true("Established") {
        return None;
    }
    let (status, reason, message) = match is_true("NamesAccepted") {
        true => (
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted",
        ),
        false => ("False", "NotAccepted", "not all names are accepted"),
    };
    Some(Condition {
        kind: "Established",
        status,
        reason,
        message: message.to_owned(),
    })
}

/// Names that are taken within a group: resources share one space, kinds another.
#[derive(Default)]
struct Taken {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Taken {
    fn in_group<'a>(group: &str, all: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut taken = Self::default();
        for other in all {
            if text(other.get("spec"), "group") != group {
                continue;
            }
            let names = other.pointer("/status/acceptedNames");
            let short = items(names.and_then(|names| names.get("shortNames"))).iter();
            taken.resources.extend(
                [text(names, "plural"), text(names, "singular")]
                    .into_iter()
                    .chain(short.filter_map(Value::as_str))
                    .map(str::to_owned),
            );
            for name in ["kind", "listKind"] {
                taken.kinds.insert(text(names, name).to_owned());
            }
        }
        taken
    }
}

/// The names that a definition gets, and what is said of it; the last conflict found is the one that is told.
fn accept<'a>(definition: &Value, all: impl IntoIterator<Item = &'a Value>) -> (Value, Condition) {
    let wanted = definition.pointer("/spec/names").unwrap_or(&Value::Null);
    let accepted = definition.pointer("/status/acceptedNames");
    let taken = Taken::in_group(text(definition.get("spec"), "group"), all);
    let mut names = accepted.cloned().unwrap_or_else(|| json!({}));
    let mut conflict: Option<(&'static str, String)> = None;
    let single = [
        ("plural", "PluralConflict"),
        ("singular", "SingularConflict"),
        ("shortNames", "ShortNamesConflict"),
        ("kind", "KindConflict"),
        ("listKind", "ListKindConflict"),
    ];
    for (name, reason) in single {
        let refused = match name {
            "shortNames" => short_names(wanted, accepted, &taken.resources),
            "kind" | "listKind" => {
                in_use(text(Some(wanted), name), text(accepted, name), &taken.kinds)
            }
            _ => in_use(
                text(Some(wanted), name),
                text(accepted, name),
                &taken.resources,
            ),
        };
        match refused {
            Some(message) => conflict = Some((reason, message)),
            None => copy(wanted, &mut names, name),
        }
    }
    copy(wanted, &mut names, "categories");
    for name in ["kind", "plural"] {
        let names = object(&mut names);
        names.entry(name).or_insert_with(|| json!(""));
    }
    let (status, reason, message) = match conflict {
        None => ("True", "NoConflicts", "no conflicts found".to_owned()),
        Some((reason, message)) => ("False", reason, message),
    };
    let condition = Condition {
        kind: "NamesAccepted",
        status,
        reason,
        message,
    };
    (names, condition)
}

fn copy(from: &Value, to: &mut Value, name: &str) {
    let to = object(to);
    match from.get(name) {
        Some(value) => _ = to.insert(name.to_owned(), value.clone()),
        None => _ = to.remove(name),
    }
}

fn in_use(wanted: &str, accepted: &str, taken: &BTreeSet<String>) -> Option<String> {
    (wanted != accepted && taken.contains(wanted)).then(|| format!("{wanted:?} is already in use"))
}

/// Short names are accepted all together or not at all.
fn short_names(
    wanted: &Value,
    accepted: Option<&Value>,
    taken: &BTreeSet<String>,
) -> Option<String> {
    let own = items(accepted.and_then(|accepted| accepted.get("shortNames")));
    let wanted = items(wanted.get("shortNames"));
    let mut refused: Vec<String> = Vec::new();
    for name in wanted.iter().filter(|name| !own.contains(name)) {
        let name = name.as_str().unwrap_or_default();
        if let Some(problem) = in_use(name, "", taken)
            && !refused.contains(&problem)
        {
            refused.push(problem);
        }
    }
    match refused.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

/// Sets a condition; its time changes with its status only.
fn set(status: &mut Value, condition: Condition, now: &str) {
    let Condition {
        kind,
        status: said,
        reason,
        message,
    } = condition;
    let conditions = object(status)
        .entry("conditions")
        .or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Value::Array(conditions) = conditions else {
        return;
    };
    let found = conditions.iter_mut().find(|found| found["type"] == kind);
    match found {
        None => conditions.push(json!({
            "type": kind, "status": said, "lastTransitionTime": now, "reason": reason, "message": message,
        })),
        Some(found) => {
            if found["status"] != said {
                found["lastTransitionTime"] = json!(now);
            }
            found["status"] = json!(said);
            found["reason"] = json!(reason);
            found["message"] = json!(message);
        }
    }
}

/// How far the deletion of a definition's objects is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    InProgress,
    /// Not all objects could be asked to go.
    Failed,
    /// Some objects are still there, held by their finalizers.
    Waiting,
    Done,
    /// There was never anything to delete.
    NeverEstablished,
}

/// Marks a definition for deletion: the finalizer holds it until its objects are gone.
pub fn begin_deletion(definition: &mut Value, now: &str) {
    let metadata = object(&mut definition["metadata"]);
    metadata
        .entry("deletionTimestamp")
        .or_insert_with(|| json!(now));
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if let Value::Array(finalizers) = finalizers
        && !finalizers.iter().any(|finalizer| finalizer == FINALIZER)
    {
        finalizers.push(json!(FINALIZER));
    }
    let pending = Condition {
        kind: "Terminating",
        status: "True",
        reason: "InstanceDeletionPending",
        message:
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
                .to_owned(),
    };
    set(&mut definition["status"], pending, now);
}

/// Notes how far the deletion is. When it is done the finalizer goes, and with it the definition.
pub fn set_cleanup(definition: &mut Value, cleanup: Cleanup, now: &str) {
    let (status, reason, message) = match cleanup {
        Cleanup::InProgress => (
            "True",
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
        ),
        Cleanup::Failed => (
            "True",
            "InstanceDeletionFailed",
            "could not issue all deletes",
        ),
        Cleanup::Waiting => (
            "True",
            "InstanceDeletionCheck",
            "could not confirm zero CustomResources remaining: timed out waiting for the condition",
        ),
        Cleanup::Done => (
            "False",
            "InstanceDeletionCompleted",
            "removed all instances",
        ),
        Cleanup::NeverEstablished => (
            "False",
            "NeverEstablished",
            "resource was never established",
        ),
    };
    let terminating = Condition {
        kind: "Terminating",
        status,
        reason,
        message: message.to_owned(),
    };
    set(&mut definition["status"], terminating, now);
    if matches!(cleanup, Cleanup::Done | Cleanup::NeverEstablished)
        && let Some(Value::Array(finalizers)) = definition.pointer_mut("/metadata/finalizers")
    {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        if finalizers.is_empty() {
            object(&mut definition["metadata"]).remove("finalizers");
        }
    }
}

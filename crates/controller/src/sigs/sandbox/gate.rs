//! A gate in front of a pod's readiness.
//!
//! A claim goes by the sandbox and its fence, so that idle members need none. A pod that others reach by a Service does: a quick
//! restart never shows as not ready, and requests would go to a container that is being exchanged. Who names the gate
//! among the `readinessGates` of a template has it closed before a pod is changed in place, and open otherwise.

use std::ops::ControlFlow::{self, Break, Continue};

use k8s_openapi::{api::core::v1::PodCondition, jiff::Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    decide::{Act, World},
    view::Pod,
};

pub const GATE: &str = "sandbar.dev/in-place-update-ready";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadinessGate {
    condition_type: String,
}

/// Whether the gate is open; nothing if there is none.
pub(super) fn state(gates: &[ReadinessGate], conditions: &[PodCondition]) -> Option<bool> {
    gates.iter().find(|gate| gate.condition_type == GATE)?;
    let gate = conditions.iter().find(|condition| condition.type_ == GATE);
    Some(gate.is_some_and(|gate| gate.status == "True"))
}

impl World<'_> {
    /// Written over exactly what was seen: an old leader that is late must not open what another has closed.
    pub(super) fn keep_gate(&self, pod: &Pod, shall_be_open: bool) -> ControlFlow<Act> {
        match pod.gate {
            Some(is_open) if is_open != shall_be_open && !pod.meta.is_deleting => {
                let status = status(shall_be_open, self.now);
                Break(Act::Gate(pod.meta.clone(), status))
            }
            _ => Continue(()),
        }
    }
}

/// A node may be slow to draw the conclusion, so that a closed gate says itself that the pod is not ready.
fn status(is_open: bool, now: Timestamp) -> Value {
    let condition = |of: &str, is_true: bool, reason: &str, message: &str| {
        json!({
            "type": of, "status": if is_true { "True" } else { "False" },
            "reason": reason, "message": message, "lastTransitionTime": now.to_string(),
        })
    };
    let conditions = match is_open {
        true => vec![condition(GATE, true, "NoUpdate", "")],
        false => vec![
            condition(GATE, false, "InPlaceUpdate", "the pod is changed in place"),
            condition(
                "Ready",
                false,
                "ReadinessGatesNotReady",
                "the pod is changed in place",
            ),
        ],
    };
    json!({"status": {"conditions": conditions}})
}

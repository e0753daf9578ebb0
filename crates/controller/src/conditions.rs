//! Conditions, and patches of the status they are in.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use serde::Serialize;
use serde_json::Value;

use crate::merge;

pub const READY: &str = "Ready";
pub const FINISHED: &str = "Finished";
/// The reason of whatever the server would not do.
pub const RECONCILER_ERROR: &str = "ReconcilerError";

/// Status, reason and message of a condition.
pub type Verdict = (&'static str, String, String);

pub fn verdict(status: &'static str, reason: &str, message: impl Into<String>) -> Verdict {
    (status, reason.to_owned(), message.into())
}

pub fn find<'a>(conditions: Option<&'a Vec<Condition>>, kind: &str) -> Option<&'a Condition> {
    let mut all = conditions.into_iter().flatten();
    all.find(|condition| condition.type_ == kind)
}

pub fn is_true(conditions: Option<&Vec<Condition>>, kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "True")
}

/// The conditions with these kinds as wanted, or without them. Those of other kinds are somebody else's and stay. The time
/// of a transition is that of a change of status, not of a reason.
pub fn with<'a>(
    old: Option<&Vec<Condition>>,
    wanted: impl IntoIterator<Item = (&'a str, Option<Verdict>)>,
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = old.cloned().unwrap_or_default();
    for (kind, verdict) in wanted {
        let place = conditions
            .iter()
            .position(|condition| condition.type_ == kind);
        let Some((status, reason, message)) = verdict else {
            place.map(|place| conditions.remove(place));
            continue;
        };
        let since = place
            .map(|place| &conditions[place])
            .filter(|old| old.status == status)
            .map_or_else(|| seconds(now), |old| old.last_transition_time.clone());
        let new = Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason,
            message,
            last_transition_time: since,
            observed_generation: Some(generation),
        };
        match place {
            Some(place) => conditions[place] = new,
            None => conditions.push(new),
        }
    }
    conditions
}

/// The API keeps whole seconds.
pub fn seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// Whether both say the same. Which generation they speak of is told with the next thing there is to tell.
pub fn say_the_same(old: Option<&Vec<Condition>>, new: Option<&Vec<Condition>>) -> bool {
    let told = |one: Option<&Vec<Condition>>| {
        let all = one.cloned().unwrap_or_default().into_iter();
        all.map(|one| (one.type_, one.status, one.reason, one.message))
            .collect::<Vec<_>>()
    };
    told(old) == told(new)
}

/// The merge patch from one status to another, if any of the fields that differ is worth a write.
pub fn patch<S: Serialize>(old: &S, new: &S, is_worth_it: impl Fn(&str) -> bool) -> Option<Value> {
    // what came as JSON goes as JSON
    let json = |status: &S| serde_json::to_value(status).unwrap_or_default();
    let patch = merge::patch(&json(old), &json(new))?;
    let mut fields = patch.as_object()?.keys();
    fields.any(|field| is_worth_it(field)).then_some(patch)
}

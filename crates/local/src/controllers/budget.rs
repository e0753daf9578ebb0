//! What a disruption budget says about the pods it covers. Nothing here acts.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

/// How long a pod whose eviction was granted is taken for gone although it is not.
const PATIENCE: SignedDuration = SignedDuration::from_secs(120);
const CONDITION: &str = "DisruptionAllowed";

/// What a budget knows about its pods.
pub(super) struct Counts {
    /// How many there should be.
    pub(super) expected: i64,
    /// How many of them must be healthy.
    pub(super) desired: i64,
}

/// Whether the number of pods must be asked of their controllers.
pub(super) fn needs_scale(spec: &Value) -> bool {
    !spec["maxUnavailable"].is_null() || spec["minAvailable"].is_string()
}

/// `scale` is the sum of what the pods' controllers want.
pub(super) fn counts(spec: &Value, pods: usize, scale: i64) -> Result<Counts, String> {
    if !spec["maxUnavailable"].is_null() {
        let may_miss = share(&spec["maxUnavailable"], scale)?;
        return Ok(Counts {
            expected: scale,
            desired: (scale - may_miss).max(0),
        });
    }
    if spec["minAvailable"].is_string() {
        return Ok(Counts {
            expected: scale,
            desired: share(&spec["minAvailable"], scale)?,
        });
    }
    let expected = match spec["minAvailable"].is_null() {
        true => 0,
        false => i64::try_from(pods).unwrap_or(i64::MAX),
    };
    Ok(Counts {
        expected,
        desired: spec["minAvailable"].as_i64().unwrap_or(0),
    })
}

/// A number, or a percentage of `whole`, rounded up.
fn share(value: &Value, whole: i64) -> Result<i64, String> {
    if let Some(number) = value.as_i64() {
        return Ok(number);
    }
    let text = value.as_str().unwrap_or_default();
    let percent = text
        .strip_suffix('%')
        .and_then(|digits| digits.parse::<i64>().ok());
    match percent {
        Some(percent) => {
            let hundredths = percent.saturating_mul(whole);
            Ok(hundredths.div_euclid(100) + i64::from(hundredths.rem_euclid(100) > 0))
        }
        None => Err("invalid type: string is not a percentage".to_owned()),
    }
}

/// The pods whose eviction was granted and that have not begun to end, and when to look at them again.
pub(super) fn disrupted(
    status: &Value,
    pods: &[Value],
    now: Timestamp,
) -> (Map<String, Value>, Option<Timestamp>) {
    let granted = status["disruptedPods"].as_object();
    let mut kept = Map::new();
    let mut recheck: Option<Timestamp> = None;
    for (name, at) in granted.into_iter().flatten() {
        let alive = |pod: &&Value| {
            pod["metadata"]["name"] == **name && pod["metadata"]["deletionTimestamp"].is_null()
        };
        let granted_at = at.as_str().and_then(|at| at.parse::<Timestamp>().ok());
        let until = granted_at.and_then(|at| at.checked_add(PATIENCE).ok());
        let (Some(_), Some(until)) = (pods.iter().find(alive), until) else {
            continue;
        };
        if until >= now {
            kept.insert(name.clone(), at.clone());
            recheck = Some(recheck.map_or(until, |other| other.min(until)));
        }
    }
    // one moment later, so that it is over by then
    let later = |time: Timestamp| {
        time.checked_add(SignedDuration::from_secs(1))
            .unwrap_or(time)
    };
    (kept, recheck.map(later))
}

pub(super) fn healthy(pods: &[Value], disrupted: &Map<String, Value>) -> i64 {
    let is_healthy = |pod: &&Value| {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let conditions = pod["status"]["conditions"].as_array();
        let is_ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
        pod["metadata"]["deletionTimestamp"].is_null()
            && !disrupted.contains_key(name)
            && conditions.is_some_and(|conditions| conditions.iter().any(is_ready))
    };
    i64::try_from(pods.iter().filter(is_healthy).count()).unwrap_or(i64::MAX)
}

/// Brings the status of a budget up to date.
pub(super) fn tell(
    budget: &mut Value,
    counts: &Counts,
    healthy: i64,
    disrupted: &Map<String, Value>,
    now: &str,
) {
    let allowed = match counts.expected > 0 {
        true => (healthy - counts.desired).max(0),
        false => 0,
    };
    let generation = budget["metadata"]["generation"].as_i64().unwrap_or(0);
    let conditions = budget["status"].get_mut("conditions").map(Value::take);
    let mut status = json!({
        "currentHealthy": healthy,
        "desiredHealthy": counts.desired,
        "expectedPods": counts.expected,
        "disruptionsAllowed": allowed,
        "observedGeneration": generation,
    });
    if !disrupted.is_empty() {
        status["disruptedPods"] = Value::Object(disrupted.clone());
    }
    if let Some(conditions @ Value::Array(_)) = conditions {
        status["conditions"] = conditions;
    }
    budget["status"] = status;
    let said = match allowed > 0 {
        true => ("True", "SufficientPods"),
        false => ("False", "InsufficientPods"),
    };
    set_condition(budget, said, "", generation, now);
}

/// Allows nothing, since it cannot be known what would be left.
pub(super) fn tell_failure(budget: &mut Value, why: &str, now: &str) {
    budget["status"]["disruptionsAllowed"] = json!(0);
    let observed = budget["status"]["observedGeneration"].as_i64().unwrap_or(0);
    set_condition(budget, ("False", "SyncFailed"), why, observed, now);
}

fn set_condition(
    budget: &mut Value,
    (status, reason): (&str, &str),
    message: &str,
    generation: i64,
    now: &str,
) {
    let conditions = &mut budget["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    let known = conditions.iter_mut().find(|one| one["type"] == CONDITION);
    let since = match &known {
        Some(known) if known["status"] == status => known["lastTransitionTime"].clone(),
        _ => json!(now),
    };
    let mut condition = json!({
        "type": CONDITION, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since,
    });
    if generation != 0 {
        condition["observedGeneration"] = json!(generation);
    }
    match known {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{Counts, counts, disrupted, healthy, tell, tell_failure};

    fn counted(spec: &Value, pods: usize, scale: i64) -> (i64, i64) {
        let Counts { expected, desired } = counts(spec, pods, scale).unwrap();
        (expected, desired)
    }

    fn pod(name: &str, ready: &str) -> Value {
        json!({
            "metadata": {"name": name},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        })
    }

    #[test]
    fn numbers_and_percentages_say_how_many_must_be_healthy() {
        assert_eq!(counted(&json!({"minAvailable": 2}), 3, 9), (3, 2));
        assert_eq!(counted(&json!({"minAvailable": "50%"}), 3, 5), (5, 3));
        assert_eq!(counted(&json!({"maxUnavailable": 1}), 3, 5), (5, 4));
        assert_eq!(counted(&json!({"maxUnavailable": "30%"}), 3, 5), (5, 3));
        assert_eq!(counted(&json!({"maxUnavailable": 9}), 3, 5), (5, 0));
        assert_eq!(counted(&json!({}), 3, 5), (0, 0));
        assert!(counts(&json!({"minAvailable": "half"}), 3, 5).is_err());
    }

    #[test]
    fn only_ready_pods_that_stay_are_healthy() {
        let mut ending = pod("c", "True");
        ending["metadata"]["deletionTimestamp"] = json!("2026-01-31T12:00:00Z");
        let pods = [
            pod("a", "True"),
            pod("b", "False"),
            ending,
            pod("d", "True"),
        ];
        assert_eq!(healthy(&pods, &Map::new()), 2);
        let granted = json!({"d": "2026-01-31T12:00:00Z"});
        assert_eq!(healthy(&pods, granted.as_object().unwrap()), 1);
    }

    #[test]
    fn a_granted_eviction_counts_for_two_minutes() {
        let status =
            json!({"disruptedPods": {"a": "2026-01-31T12:00:00Z", "gone": "2026-01-31T12:00:00Z"}});
        let at = |now: &str| disrupted(&status, &[pod("a", "True")], now.parse().unwrap());
        let (kept, recheck) = at("2026-01-31T12:01:00Z");
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(recheck, Some("2026-01-31T12:02:01Z".parse().unwrap()));
        let (kept, recheck) = at("2026-01-31T12:02:01Z");
        assert!(kept.is_empty() && recheck.is_none());
    }

    #[test]
    fn the_status_says_what_is_allowed_and_why() {
        let mut budget = json!({"metadata": {"generation": 3}});
        let wanted = Counts {
            expected: 3,
            desired: 2,
        };
        tell(&mut budget, &wanted, 3, &Map::new(), "noon");
        assert_eq!(
            budget["status"],
            json!({
                "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3, "disruptionsAllowed": 1,
                "observedGeneration": 3,
                "conditions": [{
                    "type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods", "message": "",
                    "lastTransitionTime": "noon", "observedGeneration": 3,
                }],
            })
        );
        let before = budget.clone();
        tell(&mut budget, &wanted, 3, &Map::new(), "one");
        assert_eq!(budget, before);
        tell(&mut budget, &wanted, 2, &Map::new(), "two");
        let condition = &budget["status"]["conditions"][0];
        assert_eq!(condition["reason"], "InsufficientPods");
        assert_eq!(condition["lastTransitionTime"], "two");
    }

    #[test]
    fn a_budget_that_covers_nothing_allows_nothing() {
        let mut budget = json!({"metadata": {"generation": 1}});
        let wanted = Counts {
            expected: 0,
            desired: 0,
        };
        tell(&mut budget, &wanted, 1, &Map::new(), "noon");
        assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    }

    #[test]
    fn a_failure_allows_nothing_and_says_why() {
        let mut budget =
            json!({"metadata": {"generation": 2}, "status": {"disruptionsAllowed": 1}});
        tell_failure(&mut budget, "no idea", "noon");
        assert_eq!(
            budget["status"],
            json!({
                "disruptionsAllowed": 0,
                "conditions": [{
                    "type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed",
                    "message": "no idea", "lastTransitionTime": "noon",
                }],
            })
        );
    }
}

//! What the spec of a pool asks for, in the engine's terms.

use std::time::Duration;

use api::{
    open::known,
    sigs::rolling_update::{self as spec, ClaimPolicy, RollingUpdate, UpdateStrategyType},
};
use engine::{
    budget::{Defaults, Field, InvalidAmount, Pace, partition},
    member::Policy,
    rollout::{
        InPlace, Operator, Priority, Replenish, Requirement, Rolling, ScatterTerm, Settings,
        Strategy, Weight,
    },
};
use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};

use super::{run::Options, view::Pool};

/// As that of a Deployment.
const PROGRESS_DEADLINE: Duration = Duration::from_secs(600);

/// A field that says something nobody can follow. Nothing is rolled until it is mended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("spec.updateStrategy.rollingUpdate.{0}")]
    Amount(#[from] InvalidAmount),
    #[error(
        "spec.updateStrategy.rollingUpdate.priorityStrategy: weightPriority and orderPriority exclude each other; \
         remove one of them"
    )]
    TwoPriorities,
    #[error(
        "spec.updateStrategy.rollingUpdate.priorityStrategy.weightPriority[{index}].matchSelector: {problem}; \
         accepted are In and NotIn with values, Exists and DoesNotExist without"
    )]
    Selector { index: usize, problem: String },
}

pub fn replicas(pool: &Pool) -> u32 {
    u32::try_from(pool.spec.replicas.unwrap_or(1)).unwrap_or_default()
}

pub fn policy(pool: &Pool) -> Policy {
    known(&pool.spec.claim_policy).map_or(Policy::default(), policy_of)
}

pub fn policy_of(policy: ClaimPolicy) -> Policy {
    match policy {
        ClaimPolicy::PreferNewest => Policy::PreferNewest,
        ClaimPolicy::RequireNewest => Policy::RequireNewest,
        ClaimPolicy::DrainOld => Policy::DrainOld,
    }
}

/// The settings, and what is wrong with the spec. A spec that is wrong in part is followed as if it were paused, so that
/// claims are served and nothing is replaced by mistake.
pub fn settings(pool: &Pool, options: &Options) -> (Settings, Option<Invalid>) {
    let update = pool.spec.update_strategy.as_ref();
    let rolling = update.and_then(|update| update.rolling_update.clone());
    let rolling = rolling.unwrap_or_default();
    let (strategy, invalid) = match update.and_then(|update| known(&update.type_)) {
        Some(UpdateStrategyType::Recreate) => (Strategy::Recreate, None),
        Some(UpdateStrategyType::RollingUpdate) => match strategy(&rolling, replicas(pool)) {
            Ok(rolling) => (Strategy::RollingUpdate(rolling), None),
            Err(invalid) => (Strategy::RollingUpdate(Rolling::new(0, 0)), Some(invalid)),
        },
        Some(UpdateStrategyType::OnReplenish) | None => (Strategy::OnReplenish, None),
    };
    let is_rolling = matches!(strategy, Strategy::RollingUpdate(_));
    let mut settings = Settings::new(strategy);
    settings.ready_grace = Some(options.ready_grace);
    settings.create_limit = options.batch;
    settings.delete_limit = options.batch;
    if is_rolling {
        settings.paused = rolling.paused.unwrap_or(false) || invalid.is_some();
        settings.min_ready = seconds(rolling.min_ready_seconds).unwrap_or_default();
    }
    (settings, invalid)
}

fn strategy(spec: &RollingUpdate, replicas: u32) -> Result<Rolling, Invalid> {
    let read = |field: Field, value: &Option<IntOrString>| {
        field.read(serde_json::to_value(value).ok().as_ref())
    };
    let pace = Pace {
        max_unavailable: read(Field::MaxUnavailable, &spec.max_unavailable)?,
        max_surge: read(Field::MaxSurge, &spec.max_surge)?,
        paused: false,
    };
    let floor = read(Field::Floor, &spec.floor)?;
    let budget = pace.budget(replicas, &Defaults::SANDBOX_WARM_POOL);
    let mut rolling = Rolling::new(budget.unavailable, budget.surge);
    rolling.partition = partition(read(Field::Partition, &spec.partition)?, replicas);
    rolling.floor = floor.map(|floor| floor.rounded_up(replicas));
    rolling.in_place = match known(&spec.in_place) {
        Some(spec::InPlace::Never) => InPlace::Never,
        Some(spec::InPlace::Only) => InPlace::Only,
        Some(spec::InPlace::IfPossible) | None => InPlace::IfPossible,
    };
    rolling.progress_deadline =
        Some(seconds(spec.progress_deadline_seconds).unwrap_or(PROGRESS_DEADLINE));
    rolling.priority = priority(spec)?;
    let terms = spec.scatter_strategy.iter().flatten();
    rolling.scatter = terms
        .map(|term| ScatterTerm {
            key: term.key.as_str().into(),
            value: term.value.as_str().into(),
        })
        .collect();
    rolling.replenish = Replenish::LastGood;
    Ok(rolling)
}

fn seconds(seconds: Option<i32>) -> Option<Duration> {
    seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map(Duration::from_secs)
}

fn priority(spec: &RollingUpdate) -> Result<Option<Priority>, Invalid> {
    let Some(priority) = &spec.priority_strategy else {
        return Ok(None);
    };
    let weights = priority.weight_priority.as_deref().unwrap_or_default();
    let orders = priority.order_priority.as_deref().unwrap_or_default();
    match (weights, orders) {
        ([], []) => Ok(None),
        ([], orders) => {
            let keys = orders.iter().map(|order| order.ordered_key.as_str().into());
            Ok(Some(Priority::Order(keys.collect())))
        }
        (weights, []) => {
            let weights = weights.iter().enumerate().map(|(index, weight)| {
                let selector = weight
                    .match_selector
                    .typed()
                    .map_err(|error| error.to_string());
                let selector = selector.and_then(requirements);
                Ok(Weight {
                    weight: weight.weight,
                    selector: selector.map_err(|problem| Invalid::Selector { index, problem })?,
                })
            });
            Ok(Some(Priority::Weight(
                weights.collect::<Result<_, Invalid>>()?,
            )))
        }
        _ => Err(Invalid::TwoPriorities),
    }
}

fn requirements(selector: LabelSelector) -> Result<Vec<Requirement>, String> {
    let labels = selector.match_labels.into_iter().flatten();
    let labels = labels.map(|(key, value)| {
        Ok(Requirement {
            key: key.into(),
            operator: Operator::In(vec![value.into()]),
        })
    });
    let expressions = selector.match_expressions.into_iter().flatten();
    let expressions = expressions.map(|expression| {
        let values: Vec<Box<str>> = expression
            .values
            .into_iter()
            .flatten()
            .map(Into::into)
            .collect();
        let operator = match (expression.operator.as_str(), values.is_empty()) {
            ("In", false) => Operator::In(values),
            ("NotIn", false) => Operator::NotIn(values),
            ("Exists", true) => Operator::Exists,
            ("DoesNotExist", true) => Operator::DoesNotExist,
            (operator, true) => return Err(format!("operator {operator:?} without values")),
            (operator, false) => return Err(format!("operator {operator:?} with values")),
        };
        Ok(Requirement {
            key: expression.key.into(),
            operator,
        })
    });
    labels.chain(expressions).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::{
        member::Policy,
        rollout::{
            InPlace, Operator, Priority, Replenish, Requirement, Rolling, ScatterTerm, Settings,
            Strategy, Weight,
        },
    };
    use serde_json::{Value, json};

    use super::{Options, Pool, policy, settings};
    use crate::testing::view;

    fn pool(spec: &Value) -> Pool {
        let base = json!({
            "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
            "kind": "SandboxWarmPool",
            "metadata": {"name": "pool"},
            "spec": {"replicas": 10, "sandboxTemplateRef": {"name": "one"}},
        });
        view(base, &json!({"spec": spec}))
    }

    fn followed(kind: &str, rolling: &Value) -> Settings {
        let strategy = json!({"type": kind, "rollingUpdate": rolling});
        let (settings, invalid) = settings(
            &pool(&json!({"updateStrategy": strategy})),
            &Options::default(),
        );
        assert_eq!(invalid, None);
        settings
    }

    fn rolling(fields: &Value) -> Rolling {
        match followed("RollingUpdate", fields).strategy {
            Strategy::RollingUpdate(rolling) => rolling,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_number_of_a_rolling_update_is_followed() {
        let fields = json!({
            "maxUnavailable": "15%", "maxSurge": "15%", "partition": "25%", "floor": "45%",
            "progressDeadlineSeconds": 90,
        });
        let expected = Rolling {
            partition: 3,
            floor: Some(5),
            progress_deadline: Some(Duration::from_secs(90)),
            replenish: Replenish::LastGood,
            ..Rolling::new(1, 2)
        };
        assert_eq!(rolling(&fields), expected);
        let without_surge = rolling(&json!({"maxUnavailable": "15%", "maxSurge": 0}));
        assert_eq!(
            (without_surge.max_unavailable, without_surge.max_surge),
            (2, 0)
        );
        let default = Rolling {
            progress_deadline: Some(Duration::from_secs(600)),
            replenish: Replenish::LastGood,
            ..Rolling::new(2, 2)
        };
        assert_eq!(rolling(&json!({})), default);
    }

    #[test]
    fn members_change_in_place_as_the_spec_says() {
        let in_place = |field: Value| rolling(&json!({"inPlace": field})).in_place;
        assert_eq!(in_place(Value::Null), InPlace::IfPossible);
        assert_eq!(in_place(json!("IfPossible")), InPlace::IfPossible);
        assert_eq!(in_place(json!("Never")), InPlace::Never);
        assert_eq!(in_place(json!("Only")), InPlace::Only);
    }

    #[test]
    fn members_go_in_the_order_that_the_spec_asks_for() {
        let ordered = json!({
            "priorityStrategy": {"orderPriority": [{"orderedKey": "rank"}, {"orderedKey": "zone"}]},
            "scatterStrategy": [{"key": "role", "value": "leader"}],
        });
        let ordered = rolling(&ordered);
        assert_eq!(
            ordered.priority,
            Some(Priority::Order(vec!["rank".into(), "zone".into()]))
        );
        let apart = ScatterTerm {
            key: "role".into(),
            value: "leader".into(),
        };
        assert_eq!(ordered.scatter, [apart]);
        let selector = json!({
            "matchLabels": {"tier": "low"},
            "matchExpressions": [{"key": "canary", "operator": "Exists"}],
        });
        let weighed = json!({"priorityStrategy": {
            "weightPriority": [{"weight": 7, "matchSelector": selector}],
        }});
        let requirement = |key: &str, operator| Requirement {
            key: key.into(),
            operator,
        };
        let weight = Weight {
            weight: 7,
            selector: vec![
                requirement("tier", Operator::In(vec!["low".into()])),
                requirement("canary", Operator::Exists),
            ],
        };
        assert_eq!(
            rolling(&weighed).priority,
            Some(Priority::Weight(vec![weight]))
        );
    }

    #[test]
    fn only_rolling_updates_are_paused_and_wait_for_members_to_be_ready_for_long() {
        let fields = json!({"paused": true, "minReadySeconds": 60});
        let held = |kind| {
            let settings = followed(kind, &fields);
            (settings.paused, settings.min_ready)
        };
        assert_eq!(held("RollingUpdate"), (true, Duration::from_secs(60)));
        assert_eq!(held("Recreate"), (false, Duration::ZERO));
        assert_eq!(held("OnReplenish"), (false, Duration::ZERO));
    }

    #[test]
    fn a_spec_that_is_wrong_in_part_is_followed_as_if_it_were_paused() {
        let rolling = json!({"maxUnavailable": "half", "paused": false});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        let (settings, invalid) = settings(
            &pool(&json!({"updateStrategy": strategy})),
            &Options::default(),
        );
        let told = invalid.map(|invalid| invalid.to_string());
        assert!(
            told.as_ref()
                .is_some_and(|told| told.contains("rollingUpdate.maxUnavailable")),
            "{told:?}"
        );
        assert!(settings.paused);
    }

    #[test]
    fn claims_are_served_by_the_policy_of_the_pool() {
        let of = |field: Value| policy(&pool(&json!({"claimPolicy": field})));
        assert_eq!(of(Value::Null), Policy::PreferNewest);
        assert_eq!(of(json!("PreferNewest")), Policy::PreferNewest);
        assert_eq!(of(json!("RequireNewest")), Policy::RequireNewest);
        assert_eq!(of(json!("DrainOld")), Policy::DrainOld);
    }
}

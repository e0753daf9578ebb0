//! Deployments, and the budgets that say how many of their pods may be missing.

use api::structural::{FieldError, Reason};
use serde_json::{Value, json};

use super::access::{
    as_map, child, entries, fill, fill_text, int, items, made, made_in, take_from, text, text_at,
};
use super::check::{Errors, FIXED, Path};
use super::{Part, Rules, keep_all_but_status, keep_status, pod, selectors};

pub(super) const DEPLOYMENT: Rules = Rules {
    generation: true,
    default,
    prepare_create: |deployment| _ = as_map(deployment).insert("status".to_owned(), json!({})),
    validate: |deployment| Errors::of(|errors| check(&deployment["spec"], errors)),
    prepare_update: |new, old, part| match part {
        Part::Status => {
            keep_all_but_status(new, old);
            take_from(made(new, "metadata"), &old["metadata"], "labels");
        }
        _ => keep_status(new, old),
    },
    validate_update: |new, old, part| match part {
        Part::Status => Errors::of(|errors| check_status(&new["status"], &old["status"], errors)),
        _ => Errors::of(|errors| check_update(&new["spec"], &old["spec"], errors)),
    },
    ..Rules::PLAIN
};

pub(super) const BUDGET: Rules = Rules {
    generation: true,
    prepare_create: |budget| {
        let none = json!({
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "disruptionsAllowed": 0,
            "expectedPods": 0,
        });
        as_map(budget).insert("status".to_owned(), none);
    },
    validate: |budget| Errors::of(|errors| check_budget(&budget["spec"], errors)),
    validate_update: |new, _, part| match part {
        Part::Status => Errors::of(|errors| {
            let status = Path::new("status");
            for field in [
                "disruptionsAllowed",
                "currentHealthy",
                "desiredHealthy",
                "expectedPods",
            ] {
                errors.not_negative(&status.field(field), int(&new["status"], field));
            }
        }),
        _ => Errors::of(|errors| check_budget(&new["spec"], errors)),
    },
    ..Rules::PLAIN
};

fn default(deployment: &mut Value) {
    let spec = made(deployment, "spec");
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "progressDeadlineSeconds", 600);
    let strategy = made_in(spec, "strategy");
    fill_text(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = made_in(strategy, "rollingUpdate");
        fill(rolling, "maxUnavailable", "25%");
        fill(rolling, "maxSurge", "25%");
    }
    let template = made_in(spec, "template");
    made_in(template, "metadata");
    pod::default_spec(made_in(template, "spec"));
}

fn check(spec: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    errors.not_negative(&path.field("replicas"), int(spec, "replicas"));
    let selector = child(spec, "selector");
    let at = path.field("selector");
    let before = errors.len();
    match selector {
        None => errors.required(&at, ""),
        Some(selector) => {
            selectors::check(selector, &at, errors);
            if selectors::is_empty(selector) {
                let detail = "empty selector is invalid for deployment";
                let shown = selectors::shown(Some(selector));
                errors.push(FieldError::with_shown(at.to_string(), shown, detail));
            }
        }
    }
    match selector {
        Some(selector) if errors.len() > before && !selectors::is_empty(selector) => {
            let shown = selectors::shown(Some(selector));
            let error = FieldError::with_shown(at.to_string(), shown, "invalid label selector");
            errors.push(error);
        }
        selector => check_template(&spec["template"], selector, &path.field("template"), errors),
    }
    check_strategy(&spec["strategy"], &path.field("strategy"), errors);
    for field in [
        "minReadySeconds",
        "revisionHistoryLimit",
        "progressDeadlineSeconds",
    ] {
        errors.not_negative(&path.field(field), int(spec, field));
    }
    if let Some(deadline) = int(spec, "progressDeadlineSeconds")
        && deadline <= int(spec, "minReadySeconds").unwrap_or(0)
    {
        let detail = "must be greater than minReadySeconds";
        errors.invalid(&path.field("progressDeadlineSeconds"), deadline, detail);
    }
}

fn check_template(template: &Value, selector: Option<&Value>, path: &Path, errors: &mut Errors) {
    let metadata = path.field("metadata");
    let labels = template.pointer("/metadata/labels");
    let selected =
        selector.is_some_and(|it| selectors::is_empty(it) || selectors::matches(it, labels));
    if !selected {
        let labels = labels.cloned().unwrap_or_default();
        let detail = "`selector` does not match template `labels`";
        errors.invalid(&metadata.field("labels"), labels, detail);
    }
    errors.labels(
        &metadata.field("labels"),
        entries(&template["metadata"], "labels"),
    );
    let spec = &template["spec"];
    let path = path.field("spec");
    pod::check_spec(spec, false, &path, errors);
    if !items(spec, "ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.forbidden(&path.field("ephemeralContainers"), detail);
    }
    let policy = text(spec, "restartPolicy");
    if policy != "Always" {
        errors.not_supported(&path.field("restartPolicy"), policy, &["Always"]);
    }
    if spec.get("activeDeadlineSeconds").is_some() {
        let detail = "activeDeadlineSeconds in ReplicaSet is not Supported";
        errors.forbidden(&path.field("activeDeadlineSeconds"), detail);
    }
}

fn check_strategy(strategy: &Value, path: &Path, errors: &mut Errors) {
    let rolling = child(strategy, "rollingUpdate");
    match (text(strategy, "type"), rolling) {
        ("Recreate", None) => {}
        ("Recreate", Some(_)) => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.forbidden(&path.field("rollingUpdate"), detail);
        }
        ("RollingUpdate", Some(rolling)) => {
            let path = path.field("rollingUpdate");
            let (missing, more) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            let at = path.field("maxUnavailable");
            selectors::check_share(missing, &at, errors);
            selectors::check_share(more, &path.field("maxSurge"), errors);
            if selectors::is_zero(missing) && selectors::is_zero(more) {
                let missing = missing.cloned().unwrap_or(0.into());
                errors.invalid(&at, missing, "may not be 0 when `maxSurge` is 0");
            }
            selectors::check_at_most_all(missing, &at, errors);
        }
        ("RollingUpdate", None) => {
            let detail = "this should be defaulted and never be nil";
            errors.required(&path.field("rollingUpdate"), detail);
        }
        (other, _) => errors.push(FieldError {
            field: path.to_string(),
            reason: Reason::NotSupported,
            message: format!(
                "Unsupported value: {{\"Type\":{},\"RollingUpdate\":null}}: supported values: \"Recreate\", \
                 \"RollingUpdate\"",
                json!(other)
            ),
        }),
    }
}

fn check_update(spec: &Value, was: &Value, errors: &mut Errors) {
    check(spec, errors);
    if spec.get("selector") != was.get("selector") {
        let shown = selectors::shown(spec.get("selector"));
        errors.push(FieldError::with_shown("spec.selector", shown, FIXED));
    }
}

fn check_status(status: &Value, was: &Value, errors: &mut Errors) {
    let path = Path::new("status");
    for field in [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ] {
        errors.not_negative(&path.field(field), int(status, field));
    }
    let count = |field: &str| int(status, field).unwrap_or(0);
    for field in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
        if count(field) > count("replicas") {
            let detail = "cannot be greater than status.replicas";
            errors.invalid(&path.field(field), count(field), detail);
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        let detail = "cannot be greater than readyReplicas";
        errors.invalid(
            &path.field("availableReplicas"),
            count("availableReplicas"),
            detail,
        );
    }
    if int(was, "collisionCount").is_some_and(|was| count("collisionCount") < was) {
        let detail = "cannot be decremented";
        errors.invalid(
            &path.field("collisionCount"),
            count("collisionCount"),
            detail,
        );
    }
}

fn check_budget(spec: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let (least, most) = (spec.get("minAvailable"), spec.get("maxUnavailable"));
    let policy = spec.get("unhealthyPodEvictionPolicy");
    if let (Some(least), Some(most)) = (least, most) {
        let shown = format!(
            "{{\"MinAvailable\":{least},\"Selector\":{},\"MaxUnavailable\":{most},\"UnhealthyPodEvictionPolicy\":{}}}",
            selectors::shown(spec.get("selector")),
            policy.unwrap_or(&Value::Null),
        );
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::with_shown(path.to_string(), shown, detail));
    }
    for (field, share) in [("minAvailable", least), ("maxUnavailable", most)] {
        selectors::check_share(share, &path.field(field), errors);
        selectors::check_at_most_all(share, &path.field(field), errors);
    }
    if let Some(selector) = child(spec, "selector") {
        selectors::check(selector, &path.field("selector"), errors);
    }
    let known = ["AlwaysAllow", "IfHealthyBudget"];
    let policy = text_at(spec, "/unhealthyPodEvictionPolicy");
    if !policy.is_empty() && !known.contains(&policy) {
        errors.not_supported(&path.field("unhealthyPodEvictionPolicy"), policy, &known);
    }
}

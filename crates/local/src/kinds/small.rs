//! Kinds that have few rules.

use serde_json::{Value, json};

use super::Rules;
use super::access::{as_map, int, text};
use super::check::{Errors, FIXED, Path};

pub(super) const LEASE: Rules = Rules {
    validate: |lease| Errors::of(|errors| check_lease(&lease["spec"], errors)),
    validate_update: |new, _, _| Errors::of(|errors| check_lease(&new["spec"], errors)),
    ..Rules::PLAIN
};

pub(super) const CONTROLLER_REVISION: Rules = Rules {
    validate: |revision| {
        Errors::of(|errors| {
            check_revision(revision, errors);
            let path = Path::new("data");
            match revision.get("data") {
                None | Some(Value::Null) => errors.required(&path, "data is mandatory"),
                Some(Value::Object(_)) => {}
                Some(_) => errors.required(&path, "data must be a valid JSON object"),
            }
        })
    },
    validate_update: |new, old, _| {
        Errors::of(|errors| {
            check_revision(new, errors);
            let data = new.get("data");
            if data != old.get("data") {
                errors.invalid(&Path::new("data"), data.cloned().unwrap_or_default(), FIXED);
            }
        })
    },
    ..Rules::PLAIN
};

pub(super) const SERVICE_ACCOUNT: Rules = Rules {
    prepare_create: name_secrets_only,
    prepare_update: |new, _, _| name_secrets_only(new),
    ..Rules::PLAIN
};

fn check_lease(spec: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    if let Some(seconds) = int(spec, "leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        let path = path.field("leaseDurationSeconds");
        errors.invalid(&path, seconds, "must be greater than 0");
    }
    errors.not_negative(
        &path.field("leaseTransitions"),
        int(spec, "leaseTransitions"),
    );
    let strategy = text(spec, "strategy");
    if !text(spec, "preferredHolder").is_empty() && strategy.is_empty() {
        let detail = "may only be specified if `strategy` is defined";
        errors.forbidden(&path.field("preferredHolder"), detail);
    }
}

fn check_revision(revision: &Value, errors: &mut Errors) {
    errors.not_negative(&Path::new("revision"), int(revision, "revision"));
}

/// Of a secret, an account knows no more than the name.
fn name_secrets_only(account: &mut Value) {
    if let Some(Value::Array(secrets)) = as_map(account).get_mut("secrets") {
        for secret in secrets {
            *secret = json!({"name": text(secret, "name")});
        }
    }
}

//! Which amounts the fields of a rolling update take.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use api::{
    crds::{Conversion, Family, Versions, render},
    structural::Schema,
};
use serde_json::{Value, json};

const ALL: [&str; 4] = ["maxUnavailable", "maxSurge", "partition", "floor"];

fn pool_schema() -> Schema {
    let crds = render(&[Family::Sigs], Versions::V1beta1, Conversion::None).unwrap();
    let mut pools = crds
        .iter()
        .filter(|crd| crd.spec.names.kind == "SandboxWarmPool");
    let version = &pools.next().unwrap().spec.versions[0];
    let schema = serde_json::to_value(&version.schema).unwrap()["openAPIV3Schema"].take();
    Schema::compile(&schema).unwrap()
}

fn problems(schema: &Schema, field: &str, amount: &Value) -> Vec<String> {
    let mut pool = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool",
        "metadata": {"name": "pool"},
        "spec": {
            "sandboxTemplateRef": {"name": "one"},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {field: amount}},
        },
    });
    schema.admit(&mut pool).unwrap();
    let errors = schema.validate(&pool);
    errors.iter().map(|error| format!("{error:?}")).collect()
}

#[test]
fn each_field_takes_the_amounts_that_mean_something_and_no_others() {
    let schema = pool_schema();
    for (amount, takers) in [
        (json!(0), &ALL[..]),
        (json!(7), &ALL),
        (json!("0%"), &ALL),
        (json!("5%"), &ALL),
        (json!("05%"), &ALL),
        (json!("100%"), &ALL),
        (json!("101%"), &["maxSurge"]),
        (json!("150%"), &["maxSurge"]),
        (json!("33.3%"), &["partition"]),
        (json!("0.1%"), &["partition"]),
        (json!("99.999999999%"), &["partition"]),
        // parser traps: each of them would mean something else than it says
        (json!("0100%"), &[]),
        (json!("100.0%"), &[]),
        (json!("100.5%"), &[]),
        (json!("0.1234567891%"), &[]),
        (json!(".5%"), &[]),
        (json!("5.%"), &[]),
        (json!("12x5%"), &[]),
        (json!("-5%"), &[]),
        (json!("5"), &[]),
        (json!("%"), &[]),
        (json!("half"), &[]),
        (json!("1000000000%"), &[]),
        (json!(true), &[]),
    ] {
        for field in ALL {
            let problems = problems(&schema, field, &amount);
            let is_taken = takers.contains(&field);
            assert_eq!(
                problems.is_empty(),
                is_taken,
                "{field}: {amount} {problems:?}"
            );
        }
    }
}

//! Objects of our own kinds, good and bad, for the recorder of schema cases.

use anyhow::{Result, bail};
use serde_json::{Value, json};
use suite::objects::{change, minimal};

/// The inputs that the real suite expects to be refused.
const BAD_INPUT: &str = include_str!("../../tests/real/bad_input.tsv");

/// The objects of a kind: what they are, and themselves. The first is good.
pub(crate) fn objects(api_version: &str, kind: &str) -> Result<Vec<(String, Value)>> {
    let good = minimal(api_version, kind, "default")?;
    let mut objects = vec![(String::from("the smallest object"), good.clone())];
    for row in BAD_INPUT.lines().skip(1) {
        let [of, changed, to, ..] = row.split('\t').collect::<Vec<_>>()[..] else {
            bail!("{row}");
        };
        if of == format!("{api_version} {kind}") {
            let mut bad = good.clone();
            change(&mut bad, changed, &serde_json::from_str(to)?)?;
            objects.push((format!("{changed} = {to}"), bad));
        }
    }
    for (index, (_, object)) in objects.iter_mut().enumerate() {
        object["metadata"]["name"] = json!(format!("one-{index}"));
    }
    Ok(objects)
}

/// Changes that a kind does not allow: where, from what, to what.
pub(crate) fn immutable(api_version: &str, kind: &str) -> Vec<(&'static str, Value, Value)> {
    let templates = |size: &str| json!([{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": size}}}}]);
    const TEMPLATES: &str = "/spec/volumeClaimTemplates";
    match (api_version, kind) {
        ("agents.x-k8s.io/v1beta1", "Sandbox") => vec![
            (TEMPLATES, templates("1Gi"), templates("2Gi")),
            (TEMPLATES, templates("1Gi"), Value::Null),
            (TEMPLATES, Value::Null, templates("1Gi")),
            (TEMPLATES, templates("1Gi"), templates("1Gi")),
        ],
        ("agents.kruise.io/v1alpha1", "SandboxClaim") => {
            vec![("/spec/replicas", json!(2), json!(3))]
        }
        _ => Vec::new(),
    }
}

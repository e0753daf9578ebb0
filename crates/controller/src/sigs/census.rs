//! How many objects there are, counted whenever somebody asks.

use std::collections::BTreeMap;

use super::{
    names,
    pool::member,
    sandbox::{self, compact::Condition, view::Sandbox},
    stores::Stores,
};
use crate::{
    conditions,
    metrics::{Metrics, text::Text},
};

const SANDBOXES: &str = "agent_sandboxes";
const LABELS: [&str; 7] = [
    "namespace",
    "ready_condition",
    "expired",
    "launch_type",
    "sandbox_template",
    "owned_by",
    "created_by",
];
const WATCHED: &str = "sandbar_watched_objects";

/// Tells of what is in the stores until the answer is dropped.
pub(super) fn tell(metrics: &Metrics, stores: &Stores) -> impl Drop + use<> {
    let stores = stores.clone();
    metrics.collect("sigs", move |text| {
        write_sandboxes(text, &stores);
        write_watched(text, &stores);
    })
}

fn write_sandboxes(text: &mut Text, stores: &Stores) {
    let sandboxes = stores.sandboxes.all();
    let mut counts = BTreeMap::<[&str; 7], usize>::new();
    for sandbox in &sandboxes {
        *counts.entry(labels(sandbox)).or_default() += 1;
    }
    if counts.is_empty() {
        return;
    }
    text.head(SANDBOXES, "Sandboxes that there are.", "gauge");
    for (values, count) in counts {
        let mut labels = LABELS.map(|label| (label, ""));
        for ((_, text), value) in labels.iter_mut().zip(values) {
            *text = value;
        }
        text.sample(SANDBOXES, &labels, None, count);
    }
}

fn labels(sandbox: &Sandbox) -> [&str; 7] {
    let meta = &sandbox.meta;
    let ready = sandbox.status.find(conditions::READY);
    let is = |what: bool| if what { "true" } else { "false" };
    let label = |key: &str| meta.labels.get(key).unwrap_or("unknown");
    let owned_by = ["SandboxClaim", member::KIND]
        .into_iter()
        .find(|kind| meta.is_controlled_by_a(names::EXTENSIONS, kind));
    [
        &meta.key.namespace,
        is(ready.is_some_and(Condition::is_true)),
        is(ready.is_some_and(|ready| ready.reason() == sandbox::EXPIRED)),
        label(names::LAUNCH_TYPE),
        meta.annotations
            .get(names::TEMPLATE_REF)
            .unwrap_or("unknown"),
        owned_by.unwrap_or("None"),
        names::known_client(label(names::CREATED_BY)),
    ]
}

fn write_watched(text: &mut Text, stores: &Stores) {
    text.head(WATCHED, "Objects in the caches.", "gauge");
    for (kind, count) in [
        ("Sandbox", stores.sandboxes.len()),
        ("Pod", stores.pods.len()),
        ("Service", stores.services.len()),
        ("PersistentVolumeClaim", stores.volumes.len()),
        ("SandboxTemplate", stores.templates.len()),
        ("NetworkPolicy", stores.policies.len()),
        ("SandboxWarmPool", stores.pools.len()),
        ("SandboxClaim", stores.claims.len()),
    ] {
        text.sample(WATCHED, &[("kind", kind)], None, count);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::write_sandboxes;
    use crate::{
        metrics::text::Text,
        sigs::{sandbox::view::Sandbox, stores::Stores},
        store::View,
    };

    fn sandbox(
        name: &str,
        metadata: Value,
        ready: &str,
        reason: &str,
    ) -> <Sandbox as View>::Object {
        let mut object = json!({
            "metadata": metadata,
            "spec": {"podTemplate": {"spec": {"containers": []}}},
            "status": {"conditions": [{
                "type": "Ready", "status": ready, "reason": reason, "message": "",
                "lastTransitionTime": "2026-11-16T12:00:00Z",
            }]},
        });
        object["metadata"]["name"] = json!(name);
        object["metadata"]["namespace"] = json!("ns");
        object["metadata"]["resourceVersion"] = json!("7");
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn sandboxes_are_counted_by_what_they_say() {
        let stores = Stores::default();
        let owned = json!({
            "labels": {
                "agents.x-k8s.io/launch-type": "warm",
                "agents.x-k8s.io/created-by": "go-client",
            },
            "annotations": {"agents.x-k8s.io/sandbox-template-ref": "python"},
            "ownerReferences": [{
                "apiVersion": "extensions.agents.x-k8s.io/v1alpha1", "kind": "SandboxClaim",
                "name": "c", "uid": "1", "controller": true,
            }],
        });
        for object in [
            sandbox("a", owned.clone(), "True", "DependenciesReady"),
            sandbox("b", owned, "True", "DependenciesReady"),
            sandbox("c", json!({}), "False", "SandboxExpired"),
        ] {
            stores.sandboxes.learn(object, "test");
        }
        let mut text = Text::default();
        write_sandboxes(&mut text, &stores);
        assert_eq!(
            text.into_string(),
            "# HELP agent_sandboxes Sandboxes that there are.\n\
             # TYPE agent_sandboxes gauge\n\
             agent_sandboxes{namespace=\"ns\",ready_condition=\"false\",expired=\"true\",\
             launch_type=\"unknown\",sandbox_template=\"unknown\",owned_by=\"None\",created_by=\"unknown\"} 1\n\
             agent_sandboxes{namespace=\"ns\",ready_condition=\"true\",expired=\"false\",\
             launch_type=\"warm\",sandbox_template=\"python\",owned_by=\"SandboxClaim\",created_by=\"go-client\"} 2\n"
        );
    }
}

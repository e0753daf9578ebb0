#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod complete;
mod diff;
mod properties;
mod sizes;

use serde_json::{Value, json};

use super::{Platform, Verdict, Why};

fn platform() -> Platform {
    Platform::of(36, true)
}

/// A pod with a container, a sidecar and an init container, all with the same size.
fn template() -> Value {
    let size =
        json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}});
    json!({
        "metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"n": "x"}},
        "spec": {
            "initContainers": [
                {"name": "once", "image": "once:1", "resources": size},
                {"name": "side", "image": "side:1", "restartPolicy": "Always", "resources": size},
            ],
            "containers": [
                {"name": "main", "image": "main:1", "resources": size,
                    "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}}],
                    "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]},
                {"name": "help", "image": "help:1", "resources": size},
            ],
            "volumes": [{"name": "v"}],
        },
    })
}

/// The template with something else at each pointer; null removes it.
fn with(changes: &[(&str, Value)]) -> Value {
    let mut template = template();
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = template.pointer_mut(parent).unwrap();
        match (parent, value) {
            (Value::Object(parent), Value::Null) => {
                parent.remove(key);
            }
            (Value::Object(parent), value) => {
                parent.insert(key.to_owned(), value.clone());
            }
            (parent, value) => parent[key.parse::<usize>().unwrap()] = value.clone(),
        }
    }
    template
}

fn verdict(changes: &[(&str, Value)], platform: &Platform) -> Verdict {
    super::diff(&template(), &with(changes), platform)
}

fn why(changes: &[(&str, Value)], platform: &Platform) -> Vec<Why> {
    match verdict(changes, platform) {
        Verdict::Recreate { why } => why,
        other => panic!("{changes:?}: {other:?}"),
    }
}

//! Objects of our own kinds, for the suite and for recorders.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// Sets a value, or removes it for null.
pub fn change(object: &mut Value, pointer: &str, value: &Value) -> Result<()> {
    let (parent, name) = pointer.rsplit_once('/').context("a pointer")?;
    let parent = object.pointer_mut(parent).context("a place")?;
    match (parent, value) {
        (Value::Object(fields), Value::Null) => _ = fields.remove(name),
        (Value::Object(fields), value) => _ = fields.insert(name.to_owned(), value.clone()),
        (Value::Array(items), value) => items[name.parse::<usize>()?] = value.clone(),
        (other, _) => bail!("{pointer} leads into {other}"),
    }
    Ok(())
}

/// The smallest valid object of one of our kinds.
pub fn minimal(api_version: &str, kind: &str, namespace: &str) -> Result<Value> {
    let pod = json!({"spec": {"containers": [{"name": "runtime", "image": "busybox:1.36"}]}});
    let spec = match (api_version, kind) {
        ("agents.kruise.io/v1alpha1", "Sandbox" | "SandboxTemplate") => json!({"template": pod}),
        ("agents.kruise.io/v1alpha1", "SandboxSet") => json!({"replicas": 1, "template": pod}),
        ("agents.kruise.io/v1alpha1", "SandboxClaim") => json!({"templateName": "pool"}),
        ("agents.kruise.io/v1alpha1", "SandboxUpdateOps") => {
            json!({"selector": {"matchLabels": {"app": "x"}}})
        }
        ("agents.kruise.io/v1alpha1", "Checkpoint") => json!({}),
        (_, "Sandbox" | "SandboxTemplate") => json!({"podTemplate": pod}),
        ("extensions.agents.x-k8s.io/v1alpha1", "SandboxClaim") => {
            json!({"sandboxTemplateRef": {"name": "python-template"}})
        }
        (_, "SandboxClaim") => json!({"warmPoolRef": {"name": "python-pool"}}),
        ("extensions.agents.x-k8s.io/v1alpha1", "SandboxWarmPool") => {
            json!({"replicas": 1, "sandboxTemplateRef": {"name": "python-template"}})
        }
        (_, "SandboxWarmPool") => json!({"sandboxTemplateRef": {"name": "python-template"}}),
        other => bail!("no minimal object for {other:?}"),
    };
    Ok(json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "one", "namespace": namespace},
        "spec": spec,
    }))
}

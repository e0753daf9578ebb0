//! Distils Kubernetes' OpenAPI v3 documents into the table `crates/api/src/core_schema.json`.
//!
//! The table keeps what a structural schema, a strategic merge and an apply need (types, list keys,
//! patch strategies, defaults) and leaves descriptions out, because two PodSpecs with descriptions
//! exceed what `kubectl apply` can store in its annotation.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

/// Types the table starts from; everything they refer to follows. First the parts of ours, then the
/// kinds that the embedded API server serves, and what its OpenAPI documents name beside them.
const ROOTS: &[&str] = &[
    "io.k8s.api.core.v1.PersistentVolumeClaimSpec",
    "io.k8s.api.core.v1.PodSpec",
    "io.k8s.api.networking.v1.NetworkPolicyEgressRule",
    "io.k8s.api.networking.v1.NetworkPolicyIngressRule",
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    "io.k8s.api.apps.v1.ControllerRevision",
    "io.k8s.api.apps.v1.Deployment",
    "io.k8s.api.coordination.v1.Lease",
    "io.k8s.api.core.v1.ConfigMap",
    "io.k8s.api.core.v1.Event",
    "io.k8s.api.core.v1.Namespace",
    "io.k8s.api.core.v1.Node",
    "io.k8s.api.core.v1.PersistentVolume",
    "io.k8s.api.core.v1.PersistentVolumeClaim",
    "io.k8s.api.core.v1.Pod",
    "io.k8s.api.core.v1.Secret",
    "io.k8s.api.core.v1.Service",
    "io.k8s.api.core.v1.ServiceAccount",
    "io.k8s.api.events.v1.Event",
    "io.k8s.api.networking.v1.NetworkPolicy",
    "io.k8s.api.policy.v1.PodDisruptionBudget",
    "io.k8s.api.storage.v1.StorageClass",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    WHOLE_OBJECT_META,
    "io.k8s.api.authentication.v1.SelfSubjectReview",
    "io.k8s.api.authentication.v1.TokenRequest",
    "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.api.core.v1.Binding",
    "io.k8s.api.policy.v1.Eviction",
    "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroup",
    "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList",
    "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList",
    "io.k8s.apimachinery.pkg.apis.meta.v1.APIVersions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
    "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent",
    "io.k8s.apimachinery.pkg.version.Info",
];

/// Documents (as the API server names their paths) in which the roots are found.
pub const DOCUMENTS: &[&str] = &[
    "api",
    "api/v1",
    "apis",
    "apis/apiextensions.k8s.io/v1",
    "apis/apps",
    "apis/apps/v1",
    "apis/authentication.k8s.io/v1",
    "apis/authorization.k8s.io/v1",
    "apis/coordination.k8s.io/v1",
    "apis/events.k8s.io/v1",
    "apis/networking.k8s.io/v1",
    "apis/policy/v1",
    "apis/storage.k8s.io/v1",
    "version",
];

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// ObjectMeta as it stands in a kind, beside the short one that stands in the CRDs' pod templates.
const WHOLE_OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta#whole";

/// Marks a field that the server writes even when it is empty, because its type is a plain struct.
/// The documents say so by the default `{}`.
const ALWAYS_THERE: &str = "x-always-there";

/// What stands beside a reference and changes how the field is merged.
const BESIDE_REFERENCES: &[&str] = &[
    "x-kubernetes-map-type",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-patch-merge-key",
];

/// Defaults that the API server's own types take from a constant by reference. CRD generators do
/// not follow those references, so stored sandboxes never carried these values and must not start to.
const DEFAULTS_BY_REFERENCE: &[(&str, &str)] = &[
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", "cachingMode"),
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", "kind"),
];

const DROPPED: &[&str] = &["description", "enum", "x-kubernetes-unions"];

const KINDS: &str = "x-kubernetes-group-version-kind";

/// Renders the table from OpenAPI documents: one type a line, sorted.
pub fn table(documents: &[Value]) -> Result<String> {
    Ok(lines(&types(documents)?))
}

/// Renders the values that fields of the table's types can have, by type and field. Only a running server publishes
/// them: the files of a release have none.
pub fn values(documents: &[Value]) -> Result<String> {
    let mut values = BTreeMap::new();
    for name in types(documents)?.into_keys() {
        let properties = documented(&name, documents)?["properties"].as_object();
        let of_type: Map<String, Value> = properties
            .into_iter()
            .flatten()
            .filter_map(|(field, property)| Some((field.clone(), values_of(property)?.clone())))
            .collect();
        if !of_type.is_empty() {
            values.insert(name, Value::Object(of_type));
        }
    }
    Ok(lines(&values))
}

fn values_of(property: &Value) -> Option<&Value> {
    let holders = ["/enum", "/items/enum", "/additionalProperties/enum"];
    holders.iter().find_map(|holder| property.pointer(holder))
}

fn types(documents: &[Value]) -> Result<BTreeMap<String, Value>> {
    let mut types = BTreeMap::new();
    for root in ROOTS {
        collect(root, documents, &mut types)?;
    }
    Ok(types)
}

fn lines(entries: &BTreeMap<String, Value>) -> String {
    let lines: Vec<String> = entries
        .iter()
        .map(|(name, entry)| format!("{}:{entry}", Value::from(name.as_str())))
        .collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

fn documented<'a>(name: &str, documents: &'a [Value]) -> Result<&'a Value> {
    let name = name.split('#').next().unwrap_or(name);
    documents
        .iter()
        .find_map(|document| document.pointer("/components/schemas")?.get(name))
        .with_context(|| format!("no OpenAPI document defines {name}"))
}

fn collect(name: &str, documents: &[Value], types: &mut BTreeMap<String, Value>) -> Result<()> {
    if types.contains_key(name) {
        return Ok(());
    }
    let schema = documented(name, documents)?;
    let mut references = Vec::new();
    let distilled = match name {
        OBJECT_META => embedded_object_meta(schema)?,
        _ => distil(name, schema, &mut references)?,
    };
    types.insert(name.to_owned(), distilled);
    references
        .iter()
        .try_for_each(|reference| collect(reference, documents, types))
}

/// Metadata inside a spec (an ephemeral volume's claim template) means only these five; the rest of
/// ObjectMeta belongs to the server and would be noise in a template.
fn embedded_object_meta(schema: &Value) -> Result<Value> {
    let all = schema["properties"]
        .as_object()
        .context("ObjectMeta has no properties")?;
    let kept = ["annotations", "finalizers", "labels", "name", "namespace"];
    let mut properties = Map::new();
    for key in kept {
        let property = all
            .get(key)
            .with_context(|| format!("ObjectMeta has no {key}"))?;
        properties.insert(
            key.to_owned(),
            distil(OBJECT_META, property, &mut Vec::new())?,
        );
    }
    Ok(serde_json::json!({"type": "object", "properties": properties}))
}

fn distil(owner: &str, schema: &Value, references: &mut Vec<String>) -> Result<Value> {
    let object = schema
        .as_object()
        .with_context(|| format!("{owner}: schema is no object"))?;
    if let Some(reference) = reference(object) {
        references.push(reference.clone());
        let mut out = Map::from_iter([("$ref".to_owned(), Value::from(reference))]);
        for key in BESIDE_REFERENCES {
            if let Some(value) = object.get(*key) {
                out.insert((*key).to_owned(), value.clone());
            }
        }
        return Ok(Value::Object(out));
    }
    let mut out = Map::new();
    for (key, value) in object {
        match key.as_str() {
            key if DROPPED.contains(&key) => {}
            // some types belong to every group of the server
            KINDS if value.as_array().is_some_and(|kinds| kinds.len() != 1) => {}
            // kept by the property that owns it, where it is known whether the field is required
            "default" => {}
            "properties" => {
                out.insert(key.clone(), properties(owner, object, value, references)?);
            }
            "items" | "additionalProperties" if value.is_object() => {
                out.insert(key.clone(), distil(owner, value, references)?);
            }
            "allOf" => bail!("{owner}: allOf of more than one reference"),
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    Ok(Value::Object(out))
}

fn properties(
    owner: &str,
    parent: &Map<String, Value>,
    properties: &Value,
    references: &mut Vec<String>,
) -> Result<Value> {
    let required = parent.get("required").and_then(Value::as_array);
    let mut out = Map::new();
    for (name, property) in properties.as_object().context("properties is no object")? {
        let mut schema = distil(owner, property, references)?;
        let is_required =
            required.is_some_and(|list| list.iter().any(|entry| entry.as_str() == Some(name)));
        if let Some(default) = real_default(owner, name, property, is_required) {
            schema["default"] = default.clone();
        }
        if schema.get("$ref").is_some() && is_zero_struct(property) {
            schema[ALWAYS_THERE] = true.into();
        }
        out.insert(name.clone(), schema);
    }
    Ok(Value::Object(out))
}

/// The generator of these documents writes Go's zero value as the default of every required field.
/// Taken literally that would make `name: ""` out of a missing container name.
fn real_default<'a>(
    owner: &str,
    name: &str,
    property: &'a Value,
    is_required: bool,
) -> Option<&'a Value> {
    let default = property.get("default")?;
    let by_reference = DEFAULTS_BY_REFERENCE.contains(&(owner, name));
    (!is_required && !is_zero_struct(property) && !by_reference).then_some(default)
}

fn is_zero_struct(property: &Value) -> bool {
    property["default"].as_object().is_some_and(Map::is_empty)
}

/// `{"$ref": …}` or the `{"allOf": [{"$ref": …}]}` that carries a default beside it.
fn reference(schema: &Map<String, Value>) -> Option<String> {
    let holder = match schema
        .get("allOf")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
    {
        Some([only]) => only,
        _ => return name_of(schema.get("$ref")?),
    };
    name_of(holder.get("$ref")?)
}

fn name_of(reference: &Value) -> Option<String> {
    reference
        .as_str()?
        .strip_prefix("#/components/schemas/")
        .map(str::to_owned)
}

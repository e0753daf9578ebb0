//! One sandbox: what runs, when it pauses and ends, how it is upgraded.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::shared::{Lifecycle, PauseStrategy, Runtime, TemplateReference};
use crate::{core::Raw, schema};

/// One isolated sandbox, idle in a pool or claimed.
#[skip_serializing_none]
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "agents.kruise.io",
    version = "v1alpha1",
    kind = "Sandbox",
    plural = "sandboxes",
    shortname = "sbx",
    namespaced,
    status = "SandboxStatus",
    schema = "disabled",
    derive = "PartialEq",
    printcolumn(name = "Status", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Claimed",
        type_ = "string",
        json_path = r".metadata.labels.agents\.kruise\.io/sandbox-claimed"
    ),
    printcolumn(
        name = "shutdown_time",
        type_ = "string",
        json_path = ".spec.shutdownTime"
    ),
    printcolumn(name = "pause_time", type_ = "string", json_path = ".spec.pauseTime"),
    printcolumn(
        name = "RecycledCount",
        type_ = "integer",
        json_path = ".status.recycledCount"
    ),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message")
)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSpec {
    /// Whether the sandbox should be paused.
    pub paused: Option<bool>,
    pub pause_strategy: Option<PauseStrategy>,
    /// What a pause should preserve: `ip`, `memory`, `filesystem`.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub persistent_contents: Option<Vec<String>>,
    /// The moment at which the sandbox is deleted.
    #[serde(default)]
    #[schemars(schema_with = "schema::date_time")]
    pub shutdown_time: Option<Time>,
    /// The moment at which the sandbox is paused.
    #[serde(default)]
    #[schemars(schema_with = "schema::date_time")]
    pub pause_time: Option<Time>,
    /// Runtimes injected into the pod.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub runtimes: Option<Vec<Runtime>>,
    pub lifecycle: Option<Lifecycle>,
    pub upgrade_policy: Option<UpgradePolicy>,
    /// The template to run; the inline one wins if both are given.
    pub template_ref: Option<TemplateReference>,
    /// The pod to run, as a pod template.
    #[serde(default)]
    #[schemars(schema_with = "schema::schemaless")]
    pub template: Option<Raw<PodTemplateSpec>>,
    /// Volume claims, one of each per sandbox.
    #[serde(default)]
    #[schemars(schema_with = "schema::schemaless")]
    pub volume_claim_templates: Option<Raw<Vec<PersistentVolumeClaim>>>,
}

/// How a change of the template reaches this sandbox; without a type it is changed in place.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct UpgradePolicy {
    #[serde(rename = "type")]
    pub type_: Option<UpgradePolicyType>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradePolicyType {
    Recreate,
    CheckpointRestore,
}

#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SandboxStatus {
    pub observed_generation: Option<i64>,
    pub phase: Option<String>,
    pub message: Option<String>,
    #[serde(default)]
    #[schemars(schema_with = "schema::condition_map")]
    pub conditions: Option<Vec<Condition>>,
    pub pod_info: Option<PodInfo>,
    pub node_name: Option<String>,
    /// Address of the sandbox; keeps its last value while paused.
    pub sandbox_ip: Option<String>,
    /// Hash of this sandbox's own template.
    pub update_revision: Option<String>,
    /// How often the sandbox was cleaned and returned to its pool.
    pub recycled_count: Option<i32>,
}

/// The pod behind the sandbox.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PodInfo {
    pub annotations: Option<BTreeMap<String, String>>,
    pub labels: Option<BTreeMap<String, String>>,
    pub node_name: Option<String>,
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    #[serde(rename = "podUID")]
    pub pod_uid: Option<String>,
}

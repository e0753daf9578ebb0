//! A saved state of a sandbox; an object contract without an executor so far.

use k8s_openapi::{api::core::v1::PodTemplateSpec, apimachinery::pkg::apis::meta::v1::Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{core::Raw, schema};

/// A saved state of a sandbox.
#[skip_serializing_none]
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "agents.kruise.io",
    version = "v1alpha1",
    kind = "Checkpoint",
    shortname = "cp",
    namespaced,
    status = "CheckpointStatus",
    schema = "disabled",
    derive = "PartialEq",
    printcolumn(name = "Status", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointSpec {
    pub sandbox_name: Option<String>,
    pub pod_name: Option<String>,
    /// Whether the sandbox goes on running meanwhile.
    pub keep_running: Option<bool>,
    /// What is saved: `podInfo`, `memory`, `filesystem`.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub persistent_contents: Option<Vec<String>>,
    /// How long the checkpoint is kept, such as `30s`, `30m` or `30d`.
    pub ttl_after_finished: Option<String>,
}

#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointStatus {
    pub observed_generation: Option<i64>,
    /// `Pending`, `Creating`, `Succeeded`, `Failed` or `Terminating`.
    pub phase: Option<String>,
    pub message: Option<String>,
    pub checkpoint_id: Option<String>,
    #[serde(default)]
    #[schemars(schema_with = "schema::date_time")]
    pub completion_time: Option<Time>,
    /// What a restored pod needs beyond its template, as a strategic merge patch on the pod.
    #[serde(default)]
    #[schemars(schema_with = "schema::schemaless")]
    pub pod_template_delta: Option<Raw<PodTemplateSpec>>,
}

//! A pool of idle sandboxes.

use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PodTemplateSpec},
    apimachinery::pkg::{apis::meta::v1::Condition, util::intstr::IntOrString},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::shared::{PauseStrategy, Runtime, TemplateReference};
use crate::{core::Raw, schema};

/// A pool of idle sandboxes.
#[skip_serializing_none]
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "agents.kruise.io",
    version = "v1alpha1",
    kind = "SandboxSet",
    shortname = "sbs",
    namespaced,
    status = "SandboxSetStatus",
    schema = "disabled",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(
        name = "Available",
        type_ = "integer",
        json_path = ".status.availableReplicas"
    ),
    printcolumn(
        name = "UpdatedReplicas",
        type_ = "integer",
        json_path = ".status.updatedReplicas"
    ),
    printcolumn(
        name = "UpdatedAvailableReplicas",
        type_ = "integer",
        json_path = ".status.updatedAvailableReplicas"
    ),
    printcolumn(
        name = "UpdateRevision",
        type_ = "string",
        json_path = ".status.updateRevision"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSetSpec {
    /// How many unclaimed sandboxes to keep, those still starting included.
    #[schemars(range(min = 0))]
    pub replicas: i32,
    pub pause_strategy: Option<PauseStrategy>,
    /// What a pause of a member should preserve.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub persistent_contents: Option<Vec<String>>,
    /// Runtimes injected into the members.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub runtimes: Option<Vec<Runtime>>,
    /// The template of the members; give this or `template`.
    pub template_ref: Option<TemplateReference>,
    /// The pod of the members, as a pod template.
    #[serde(default)]
    #[schemars(schema_with = "schema::schemaless")]
    pub template: Option<Raw<PodTemplateSpec>>,
    /// Volume claims, one of each per member.
    #[serde(default)]
    #[schemars(schema_with = "schema::schemaless")]
    pub volume_claim_templates: Option<Raw<Vec<PersistentVolumeClaim>>>,
    pub scale_strategy: Option<ScaleStrategy>,
    pub update_strategy: Option<SetUpdateStrategy>,
}

/// How the pool grows.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ScaleStrategy {
    /// How many members may be starting at once; no limit if left out.
    #[serde(default)]
    #[schemars(schema_with = "schema::int_or_percent")]
    pub max_unavailable: Option<IntOrString>,
}

/// How the pool follows a change of its template.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SetUpdateStrategy {
    /// How many members may be missing because of the update; a percentage rounds up.
    #[serde(default)]
    #[schemars(schema_with = "schema::int_or_percent")]
    pub max_unavailable: Option<IntOrString>,
}

#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSetStatus {
    pub observed_generation: Option<i64>,
    /// Unclaimed members, starting or available.
    pub replicas: i32,
    pub available_replicas: i32,
    /// Revision the members are brought to.
    pub update_revision: Option<String>,
    /// Template object that holds the current revision.
    pub current_revision: Option<String>,
    pub updated_replicas: Option<i32>,
    pub updated_available_replicas: Option<i32>,
    #[serde(default)]
    #[schemars(schema_with = "schema::condition_map")]
    pub conditions: Option<Vec<Condition>>,
    /// Label selector that finds the unclaimed members.
    pub selector: Option<String>,
}

//! A template, kept as a revision.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodTemplateSpec};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::shared::{PauseStrategy, Runtime};
use crate::{core::Raw, schema};

/// A revision of a sandbox's template.
#[skip_serializing_none]
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "agents.kruise.io",
    version = "v1alpha1",
    kind = "SandboxTemplate",
    shortname = "sbt",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct SandboxTemplateSpec {
    /// The pod to run, as a pod template.
    #[serde(default)]
    #[schemars(schema_with = "schema::schemaless")]
    pub template: Option<Raw<PodTemplateSpec>>,
    /// Volume claims, one of each per sandbox.
    #[serde(default)]
    #[schemars(schema_with = "schema::schemaless")]
    pub volume_claim_templates: Option<Raw<Vec<PersistentVolumeClaim>>>,
    /// What a pause should preserve.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub persistent_contents: Option<Vec<String>>,
    /// Runtimes injected into the pod.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub runtimes: Option<Vec<Runtime>>,
    pub pause_strategy: Option<PauseStrategy>,
}

//! An upgrade of claimed sandboxes.

use k8s_openapi::{
    api::core::v1::PodTemplateSpec,
    apimachinery::pkg::{
        apis::meta::v1::{Condition, LabelSelector},
        util::intstr::IntOrString,
    },
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{sandbox::UpgradePolicyType, shared::Lifecycle};
use crate::{core::Raw, schema};

/// One upgrade of the claimed sandboxes that a selector finds.
#[skip_serializing_none]
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[kube(
    group = "agents.kruise.io",
    version = "v1alpha1",
    kind = "SandboxUpdateOps",
    plural = "sandboxupdateops",
    singular = "sandboxupdateops",
    shortname = "suo",
    namespaced,
    status = "SandboxUpdateOpsStatus",
    schema = "disabled",
    derive = "PartialEq",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Total", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(
        name = "Updated",
        type_ = "integer",
        json_path = ".status.updatedReplicas"
    ),
    printcolumn(
        name = "Updating",
        type_ = "integer",
        json_path = ".status.updatingReplicas"
    ),
    printcolumn(
        name = "Failed",
        type_ = "integer",
        json_path = ".status.failedReplicas"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SandboxUpdateOpsSpec {
    /// The sandboxes to upgrade; members that a pool still owns are left out.
    pub selector: Raw<LabelSelector>,
    pub update_strategy: Option<OpsUpdateStrategy>,
    /// Strategic merge patch on the pod template of each sandbox.
    #[serde(default)]
    #[schemars(schema_with = "schema::schemaless")]
    pub patch: Option<Raw<PodTemplateSpec>>,
    pub lifecycle: Option<Lifecycle>,
    /// While true, no further sandbox is started; those under way finish.
    pub paused: Option<bool>,
    pub state_filter: Option<StateFilter>,
}

/// How the sandboxes are upgraded and how many at a time.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OpsUpdateStrategy {
    /// Recreate if left out.
    #[serde(rename = "type")]
    pub type_: Option<UpgradePolicyType>,
    /// How many sandboxes may be out at a time; one if left out, a percentage rounds up.
    #[serde(default)]
    #[schemars(schema_with = "schema::int_or_percent")]
    pub max_unavailable: Option<IntOrString>,
}

/// Which of the selected sandboxes take part.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct StateFilter {
    /// `Running`, `Paused`, or both; running ones if left out.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub states: Option<Vec<String>>,
}

#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SandboxUpdateOpsStatus {
    pub observed_generation: Option<i64>,
    /// `Pending`, `Updating`, `Completed` or `Failed`.
    pub phase: Option<String>,
    /// Sandboxes that take part.
    pub replicas: i32,
    pub updated_replicas: i32,
    pub failed_replicas: i32,
    pub updating_replicas: i32,
    #[serde(default)]
    #[schemars(schema_with = "schema::condition_map")]
    pub conditions: Option<Vec<Condition>>,
}

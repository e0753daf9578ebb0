//! A request for sandboxes out of a pool.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition, Time},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::shared::Runtime;
use crate::schema;

/// A request for sandboxes out of a pool.
#[skip_serializing_none]
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "agents.kruise.io",
    version = "v1alpha1",
    kind = "SandboxClaim",
    shortname = "sbc",
    namespaced,
    status = "SandboxClaimStatus",
    schema = "disabled",
    derive = "PartialEq",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Template", type_ = "string", json_path = ".spec.templateName"),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(
        name = "Claimed",
        type_ = "integer",
        json_path = ".status.claimedReplicas"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SandboxClaimSpec {
    /// The SandboxSet to take from.
    pub template_name: String,
    /// How many sandboxes to take.
    #[schemars(
        range(min = 1),
        extend(
            "default" = 1,
            "x-kubernetes-validations" =
                [{"rule": "self == oldSelf", "message": "replicas is immutable"}]
        )
    )]
    pub replicas: Option<i32>,
    /// Given to each sandbox: the moment at which it is deleted.
    #[serde(default)]
    #[schemars(schema_with = "schema::date_time")]
    pub shutdown_time: Option<Time>,
    /// How long to try.
    #[schemars(extend(
        "default" = "1m",
        "x-kubernetes-validations" = [{
            "rule": "duration(self) >= duration('1s')",
            "message": "claimTimeout must be at least 1 second",
        }]
    ))]
    pub claim_timeout: Option<String>,
    /// How long the finished claim object is kept; a negative duration keeps it for good.
    #[schemars(extend("default" = "60m"))]
    pub ttl_after_completed: Option<String>,
    /// Labels for the sandboxes and their pods.
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations for the sandboxes and their pods.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Variables handed to the runtime in the sandbox.
    pub env_vars: Option<BTreeMap<String, String>>,
    pub inplace_update: Option<InplaceUpdate>,
    /// Volumes mounted once the sandboxes are claimed.
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["mountPath"]
    ))]
    pub dynamic_volumes_mount: Option<Vec<DynamicVolumeMount>>,
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub runtimes: Option<Vec<Runtime>>,
    /// Keeps sandboxes that could not be handed out, for a look at them.
    pub reserve_failed_sandbox: Option<bool>,
    /// Whether a sandbox is made when the pool is empty.
    #[schemars(extend("default" = true))]
    pub create_on_no_stock: Option<bool>,
    /// How long a sandbox may take to become ready.
    #[schemars(extend(
        "default" = "30s",
        "x-kubernetes-validations" = [{
            "rule": "duration(self) >= duration('1s')",
            "message": "waitReadyTimeout must be at least 1 second",
        }]
    ))]
    pub wait_ready_timeout: Option<String>,
    /// Leaves out the first call to the runtime.
    #[schemars(extend("default" = false))]
    pub skip_init_runtime: Option<bool>,
}

/// What is changed in a sandbox as it is handed out.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct InplaceUpdate {
    /// New image of the first container.
    pub image: Option<String>,
    pub resources: Option<InplaceUpdateResources>,
}

/// New resources of the first container.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct InplaceUpdateResources {
    #[serde(default)]
    #[schemars(schema_with = "schema::quantities")]
    pub requests: Option<BTreeMap<String, Quantity>>,
    #[serde(default)]
    #[schemars(schema_with = "schema::quantities")]
    pub limits: Option<BTreeMap<String, Quantity>>,
}

/// A volume mounted into a running sandbox.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct DynamicVolumeMount {
    #[serde(rename = "mountID")]
    pub mount_id: Option<String>,
    /// The PersistentVolume to mount.
    pub pv_name: String,
    pub mount_path: String,
    pub sub_path: Option<String>,
    pub read_only: Option<bool>,
    pub attributes: Option<BTreeMap<String, String>>,
}

#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SandboxClaimStatus {
    pub observed_generation: Option<i64>,
    /// `Claiming` or `Completed`.
    pub phase: Option<String>,
    pub message: Option<String>,
    pub claimed_replicas: Option<i32>,
    #[serde(default)]
    #[schemars(schema_with = "schema::date_time")]
    pub claim_start_time: Option<Time>,
    #[serde(default)]
    #[schemars(schema_with = "schema::date_time")]
    pub completion_time: Option<Time>,
    #[serde(default)]
    #[schemars(schema_with = "schema::condition_map")]
    pub conditions: Option<Vec<Condition>>,
}

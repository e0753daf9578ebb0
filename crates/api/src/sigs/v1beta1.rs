//! The stored version.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{
    rolling_update::{ClaimPolicy, UpdateStrategy},
    shared::{
        Blueprint, ClaimRequest, LocalReference, PersistentVolumeClaimTemplate, SandboxClaimStatus,
        SandboxLifetime, TemplatePolicies,
    },
};
use crate::{open::Open, schema};

/// One isolated sandbox: a pod with its service and volumes.
#[skip_serializing_none]
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[kube(
    group = "agents.x-k8s.io",
    version = "v1beta1",
    kind = "Sandbox",
    plural = "sandboxes",
    shortname = "sandbox",
    namespaced,
    status = "SandboxStatus",
    schema = "disabled",
    derive = "PartialEq",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.volumeClaimTemplates) == has(oldSelf.volumeClaimTemplates) && (!has(self.volumeClaimTemplates) || self.volumeClaimTemplates == oldSelf.volumeClaimTemplates)",
    "message": "volumeClaimTemplates is immutable",
}]))]
pub struct SandboxSpec {
    #[serde(flatten)]
    pub blueprint: Blueprint,
    #[serde(flatten)]
    pub lifetime: SandboxLifetime,
    /// Whether the sandbox should run or be suspended.
    #[schemars(extend("default" = "Running"))]
    pub operating_mode: Option<Open<OperatingMode>>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatingMode {
    Running,
    Suspended,
}

#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SandboxStatus {
    /// Name of the headless Service, if there is one.
    pub service: Option<String>,
    /// Name under which the Service resolves in the cluster.
    #[serde(rename = "serviceFQDN")]
    pub service_fqdn: Option<String>,
    #[serde(default)]
    #[schemars(schema_with = "schema::condition_list")]
    pub conditions: Option<Vec<Condition>>,
    /// Label selector that finds the pod.
    pub selector: Option<String>,
    #[serde(rename = "podIPs")]
    pub pod_ips: Option<Vec<String>>,
    /// Node the pod runs on.
    pub node_name: Option<String>,
}

/// A request for one sandbox out of a pool.
#[skip_serializing_none]
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[kube(
    group = "extensions.agents.x-k8s.io",
    version = "v1beta1",
    kind = "SandboxClaim",
    shortname = "sandboxclaim",
    namespaced,
    status = "SandboxClaimStatus",
    schema = "disabled",
    derive = "PartialEq",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Sandbox", type_ = "string", json_path = ".status.sandbox.name"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SandboxClaimSpec {
    /// The pool to draw from; its template serves cold starts too.
    pub warm_pool_ref: LocalReference,
    #[serde(flatten)]
    pub request: ClaimRequest,
    /// Volume claims beside or instead of the template's, as far as the template allows them.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub volume_claim_templates: Option<Vec<PersistentVolumeClaimTemplate>>,
}

/// What pools make their sandboxes from.
#[skip_serializing_none]
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[kube(
    group = "extensions.agents.x-k8s.io",
    version = "v1beta1",
    kind = "SandboxTemplate",
    shortname = "sandboxtemplate",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct SandboxTemplateSpec {
    #[serde(flatten)]
    pub blueprint: Blueprint,
    #[serde(flatten)]
    pub policies: TemplatePolicies,
    /// Whether claims may bring volume claims of their own.
    #[schemars(extend("default" = "Disallowed"))]
    pub volume_claim_templates_policy: Option<Open<VolumeClaimTemplatesPolicy>>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeClaimTemplatesPolicy {
    Disallowed,
    Allowed,
    Overrides,
}

/// A stock of idle sandboxes, ready to be claimed.
#[skip_serializing_none]
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[kube(
    group = "extensions.agents.x-k8s.io",
    version = "v1beta1",
    kind = "SandboxWarmPool",
    shortname = "swp",
    namespaced,
    status = "SandboxWarmPoolStatus",
    schema = "disabled",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SandboxWarmPoolSpec {
    /// How many idle sandboxes to keep.
    #[schemars(range(min = 0), extend("default" = 1))]
    pub replicas: Option<i32>,
    /// The template the members are made from.
    pub sandbox_template_ref: LocalReference,
    pub update_strategy: Option<UpdateStrategy>,
    /// Which revision a claim gets while members differ.
    pub claim_policy: Option<Open<ClaimPolicy>>,
}

#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SandboxWarmPoolStatus {
    /// Members, ready or on their way.
    pub replicas: Option<i32>,
    /// Members that are ready.
    pub ready_replicas: Option<i32>,
    /// Label selector that finds the members.
    pub selector: Option<String>,
    /// Generation of the spec that this status speaks of.
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// Members of the newest revision.
    pub updated_replicas: Option<i32>,
    /// Members of the newest revision that can be claimed.
    pub updated_available_replicas: Option<i32>,
    /// The revision that all members had when the last rollout ended.
    pub current_revision: Option<String>,
    /// The revision that members are to have.
    pub update_revision: Option<String>,
    #[serde(default)]
    #[schemars(schema_with = "schema::condition_list")]
    pub conditions: Option<Vec<Condition>>,
}

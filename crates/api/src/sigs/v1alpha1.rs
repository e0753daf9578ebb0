//! The deprecated version: served beside v1beta1 through the conversion webhook.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::shared::{
    Blueprint, ClaimRequest, LocalReference, SandboxClaimStatus, SandboxLifetime, TemplatePolicies,
    UpdateStrategy,
};
use crate::schema;

/// One isolated sandbox: a pod with its service and volumes.
#[skip_serializing_none]
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[kube(
    group = "agents.x-k8s.io",
    version = "v1alpha1",
    kind = "Sandbox",
    plural = "sandboxes",
    shortname = "sandbox",
    namespaced,
    status = "SandboxStatus",
    schema = "disabled",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSpec {
    #[serde(flatten)]
    pub blueprint: Blueprint,
    #[serde(flatten)]
    pub lifetime: SandboxLifetime,
    /// 1 runs the sandbox, 0 suspends it.
    #[schemars(range(min = 0, max = 1), extend("default" = 1))]
    pub replicas: Option<i32>,
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
    /// Pods that exist: 0 or 1.
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
}

/// A request for one sandbox.
#[skip_serializing_none]
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[kube(
    group = "extensions.agents.x-k8s.io",
    version = "v1alpha1",
    kind = "SandboxClaim",
    shortname = "sandboxclaim",
    namespaced,
    status = "SandboxClaimStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct SandboxClaimSpec {
    /// The template the sandbox is made from.
    pub sandbox_template_ref: LocalReference,
    /// Where a warm sandbox may come from: `none`, `default` (any pool of the template), or a pool.
    #[schemars(extend("default" = "default"))]
    pub warmpool: Option<String>,
    #[serde(flatten)]
    pub request: ClaimRequest,
}

/// What pools make their sandboxes from.
#[skip_serializing_none]
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[kube(
    group = "extensions.agents.x-k8s.io",
    version = "v1alpha1",
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
}

/// A stock of idle sandboxes, ready to be claimed.
#[skip_serializing_none]
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[kube(
    group = "extensions.agents.x-k8s.io",
    version = "v1alpha1",
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
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// The template the members are made from.
    pub sandbox_template_ref: LocalReference,
    pub update_strategy: Option<UpdateStrategy>,
}

#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SandboxWarmPoolStatus {
    /// Members, ready or on their way.
    pub replicas: Option<i32>,
    /// Members that are ready.
    pub ready_replicas: Option<i32>,
    /// Label selector that finds the members.
    pub selector: Option<String>,
}

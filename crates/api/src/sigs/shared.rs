//! Sub-objects that v1alpha1 and v1beta1 have in common.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::{PersistentVolumeClaimSpec, PodSpec},
        networking::v1::{NetworkPolicyEgressRule, NetworkPolicyIngressRule},
    },
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{core::Raw, open::Open, schema};

/// What a Sandbox is made of; a Sandbox and a SandboxTemplate have these fields in common.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Blueprint {
    /// The pod to run.
    pub pod_template: PodTemplate,
    /// Volume claims created for each sandbox and mounted by their names.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub volume_claim_templates: Option<Vec<PersistentVolumeClaimTemplate>>,
    /// Whether a headless Service is wanted (true), refused (false), or left as it is (unset).
    pub service: Option<bool>,
}

/// A pod and the metadata it gets.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplate {
    pub metadata: Option<PodMetadata>,
    pub spec: Raw<PodSpec>,
}

/// The metadata a user may give a pod.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PodMetadata {
    pub labels: Option<BTreeMap<String, String>>,
    pub annotations: Option<BTreeMap<String, String>>,
}

/// A volume claim made once per sandbox.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PersistentVolumeClaimTemplate {
    pub metadata: Option<ClaimTemplateMetadata>,
    pub spec: Raw<PersistentVolumeClaimSpec>,
}

/// Name and metadata of a volume claim.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimTemplateMetadata {
    /// The volume's name in the pod; the claim is called `<name>-<sandbox>`.
    pub name: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    pub annotations: Option<BTreeMap<String, String>>,
}

/// When a Sandbox ends by itself.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SandboxLifetime {
    /// The moment after which the sandbox is shut down.
    #[serde(default)]
    #[schemars(schema_with = "schema::date_time")]
    pub shutdown_time: Option<Time>,
    /// Whether the Sandbox object outlives its shutdown.
    #[schemars(extend("default" = "Retain"))]
    pub shutdown_policy: Option<Open<SandboxShutdownPolicy>>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxShutdownPolicy {
    Delete,
    Retain,
}

/// A reference to an object of the same namespace.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct LocalReference {
    pub name: String,
}

/// What both versions of a claim ask for, apart from where the sandbox comes from.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRequest {
    /// When the claim ends and what becomes of it.
    pub lifecycle: Option<ClaimLifecycle>,
    /// Labels and annotations added to the pod of the sandbox.
    pub additional_pod_metadata: Option<PodMetadata>,
    /// Variables set in a container. Asking for any starts a fresh sandbox, as far as the template
    /// allows it.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub env: Option<Vec<ClaimEnvVar>>,
}

/// When a claim ends and what becomes of it.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimLifecycle {
    /// The moment after which the claim has expired.
    #[serde(default)]
    #[schemars(schema_with = "schema::date_time")]
    pub shutdown_time: Option<Time>,
    /// Seconds after the sandbox has finished until the claim expires.
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,
    /// What an expired claim takes with it.
    #[schemars(extend("default" = "Retain"))]
    pub shutdown_policy: Option<Open<ClaimShutdownPolicy>>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimShutdownPolicy {
    Delete,
    DeleteForeground,
    Retain,
}

/// A variable for one container of the sandbox.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimEnvVar {
    pub name: String,
    pub value: String,
    /// The container to set it in; the first one if left out.
    pub container_name: Option<String>,
}

#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SandboxClaimStatus {
    #[serde(default)]
    #[schemars(schema_with = "schema::condition_list")]
    pub conditions: Option<Vec<Condition>>,
    /// The sandbox the claim got.
    pub sandbox: Option<ClaimedSandbox>,
}

#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimedSandbox {
    pub name: Option<String>,
    #[serde(rename = "podIPs")]
    pub pod_ips: Option<Vec<String>>,
}

/// What both versions of a template say beyond the blueprint.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TemplatePolicies {
    /// Rules for the sandboxes' traffic; without them the built-in policy isolates the sandboxes.
    pub network_policy: Option<NetworkRules>,
    /// Whether a NetworkPolicy is kept for the sandboxes of this template.
    #[schemars(extend("default" = "Managed"))]
    pub network_policy_management: Option<Open<NetworkPolicyManagement>>,
    /// Whether claims may set variables.
    #[schemars(extend("default" = "Disallowed"))]
    pub env_vars_injection_policy: Option<Open<EnvVarsInjectionPolicy>>,
}

/// Rules for traffic to and from sandboxes.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct NetworkRules {
    pub ingress: Option<Vec<Raw<NetworkPolicyIngressRule>>>,
    pub egress: Option<Vec<Raw<NetworkPolicyEgressRule>>>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkPolicyManagement {
    Managed,
    Unmanaged,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvVarsInjectionPolicy {
    Allowed,
    Overrides,
    Disallowed,
}

/// How a pool follows a change of its template.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct UpdateStrategy {
    /// Recreate replaces every idle member at once; OnReplenish only renews what is used up.
    #[serde(rename = "type")]
    #[schemars(extend("default" = "OnReplenish"))]
    pub type_: Option<Open<UpdateStrategyType>>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateStrategyType {
    Recreate,
    OnReplenish,
}

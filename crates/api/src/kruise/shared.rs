//! Sub-objects that several kinds of the family have in common.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// How a sandbox is paused.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PauseStrategy {
    #[serde(rename = "type")]
    pub type_: Option<PauseStrategyType>,
    pub hibernate_strategy: Option<HibernateStrategy>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseStrategyType {
    Stop,
    Hibernate,
}

/// The medium of a hibernation.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct HibernateStrategy {
    #[serde(rename = "type")]
    pub type_: Option<String>,
}

/// A runtime injected into the pod, by its name.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    pub name: String,
}

/// A SandboxTemplate of the same namespace.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TemplateReference {
    pub name: String,
    /// Not read: the reference always means a SandboxTemplate.
    pub kind: Option<String>,
    /// Not read: the reference always means a SandboxTemplate.
    pub api_version: Option<String>,
}

/// Commands run around an upgrade.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// Runs in the old pod; the upgrade goes on only if it succeeds.
    pub pre_upgrade: Option<UpgradeAction>,
    /// Runs in the new pod.
    pub post_upgrade: Option<UpgradeAction>,
}

/// One command and how long it may take.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeAction {
    pub exec: Option<ExecAction>,
    /// Seconds until the command counts as failed; zero or less means 60.
    #[schemars(extend("default" = 60))]
    pub timeout_seconds: Option<i32>,
}

#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecAction {
    /// Program and arguments; no shell is put around them.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub command: Option<Vec<String>>,
}

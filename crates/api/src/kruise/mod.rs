//! The family of OpenKruise Agents: `agents.kruise.io/v1alpha1`.
//!
//! Pod templates, volume claim templates and patches have no schema in this family; they are kept
//! as they were written and mean the Kubernetes types that [`Raw`](crate::core::Raw) names.

mod checkpoint;
mod claim;
mod sandbox;
mod sandbox_set;
mod shared;
mod template;
mod update_ops;

pub use checkpoint::{Checkpoint, CheckpointSpec, CheckpointStatus};
pub use claim::{
    DynamicVolumeMount, InplaceUpdate, InplaceUpdateResources, SandboxClaim, SandboxClaimSpec,
    SandboxClaimStatus,
};
pub use sandbox::{PodInfo, Sandbox, SandboxSpec, SandboxStatus, UpgradePolicy, UpgradePolicyType};
pub use sandbox_set::{
    SandboxSet, SandboxSetSpec, SandboxSetStatus, ScaleStrategy, SetUpdateStrategy,
};
pub use shared::{
    ExecAction, HibernateStrategy, Lifecycle, PauseStrategy, PauseStrategyType, Runtime,
    TemplateReference, UpgradeAction,
};
pub use template::{SandboxTemplate, SandboxTemplateSpec};
pub use update_ops::{
    OpsUpdateStrategy, SandboxUpdateOps, SandboxUpdateOpsSpec, SandboxUpdateOpsStatus, StateFilter,
};

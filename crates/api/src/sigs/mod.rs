//! The family of kubernetes-sigs/agent-sandbox: `agents.x-k8s.io` (Sandbox) and
//! `extensions.agents.x-k8s.io` (SandboxClaim, SandboxTemplate, SandboxWarmPool).
//!
//! v1beta1 is stored; v1alpha1 is served for those who have not moved yet. [`shared`] holds what the
//! two versions have in common, [`conversion`] turns one into the other. [`rolling_update`] is what Sandbar adds to a pool.

pub mod conversion;
pub mod rolling_update;
pub mod shared;
pub mod v1alpha1;
pub mod v1beta1;

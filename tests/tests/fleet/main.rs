//! Pools, claims and sandboxes with real containers: kube-apiserver, kubelet and containerd.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod claims;
mod endings;
mod fleet;
mod ground;
mod pools;
mod quota;
mod sandboxes;
mod sdk;
mod steady;
mod takeover;

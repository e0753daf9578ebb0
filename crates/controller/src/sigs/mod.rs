//! The controllers of `agents.x-k8s.io` and `extensions.agents.x-k8s.io`.

pub mod names;
pub mod sandbox;

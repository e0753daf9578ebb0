//! The controllers of `agents.x-k8s.io` and `extensions.agents.x-k8s.io`.
//!
//! [`run`](run::run) watches once for all of them. [`stock`] is what pools have to give; claims take from it.

pub mod blueprint;
mod census;
pub mod claim;
pub mod names;
pub mod pool;
mod run;
pub mod sandbox;
pub mod stock;
mod stores;
pub mod template;

pub use run::{Options, run};
pub use stores::Stores;

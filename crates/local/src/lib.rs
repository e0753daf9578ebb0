//! The embedded cluster: a Kubernetes API in one process.

pub mod clock;
mod cluster;
mod controllers;
pub mod crd;
pub mod fault;
pub mod hollow;
pub mod image;
pub mod kinds;
mod kubelet;
pub mod network;
pub mod node;
pub mod selector;
pub mod serve;
pub mod server;
pub mod status;
pub mod store;
pub mod table;

pub use cluster::{Cluster, Options};

//! The Kubernetes API over the store.

pub mod registry;
pub mod resource;

//! The Kubernetes API over the store.

pub mod resource;

//! The embedded cluster: a Kubernetes API in one process.

pub mod fault;
pub mod selector;
pub mod status;
pub mod store;
pub mod table;

//! The embedded cluster: a Kubernetes API in one process.

pub mod fault;
pub mod kinds;
pub mod selector;
pub mod server;
pub mod status;
pub mod store;
pub mod table;

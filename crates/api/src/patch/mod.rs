//! How a request changes an object: the four patch types of the Kubernetes API, as pure functions
//! over JSON. The embedded API server calls them; the controllers use `strategic` for pod templates.
//!
//! Errors carry the words and codes of kube-apiserver, because clients read and match them.

pub mod apply;
mod error;
pub mod go;
pub mod json;
pub mod merge;
pub mod strategic;
pub mod types;

pub use error::PatchError;

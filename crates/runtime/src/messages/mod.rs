//! What is said to the daemon and what it answers: E2B's messages, those of agent-sandbox's `sandboxd` and a few of ours, in
//! protobuf and in its JSON form, and of CSI's the one that mounts a volume.
//!
//! A protobuf `oneof` is a struct of optional fields here: both encodings are the same, and no wrapper type is needed.

pub mod csi;
pub mod filesystem;
mod json;
pub mod once;
pub mod process;
pub mod sandboxd;

/// A message without fields.
#[derive(Clone, Copy, PartialEq, prost::Message, serde::Serialize, serde::Deserialize)]
pub struct Empty {}

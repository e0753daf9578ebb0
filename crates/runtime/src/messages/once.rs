//! Service `sandbar.Once`, which E2B does not have: commands that must run once, whatever becomes of whoever starts them.

use bytes::Bytes;
use prost::Message;
use serde::{Deserialize, Serialize};

use super::json;
use super::process::EndEvent;

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct OutcomeRequest {
    #[prost(string, tag = "1")]
    pub tag: String,
    /// Whether to answer only when the process has ended.
    #[prost(bool, tag = "2")]
    pub wait: bool,
}

/// How a process ended, and the last that it wrote. Without an end, it runs.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct Outcome {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<EndEvent>,
    /// That of a terminal, too.
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<Tail>,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<Tail>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct Tail {
    #[prost(bytes = "bytes", optional, tag = "1")]
    #[serde(serialize_with = "json::base64")]
    pub last: Option<Bytes>,
    /// How much was written before it, which is gone.
    #[prost(uint64, tag = "2")]
    #[serde(serialize_with = "json::long")]
    pub dropped: u64,
}

/// From now on the tag may be used for another command.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct AcknowledgeRequest {
    #[prost(string, tag = "1")]
    pub tag: String,
}

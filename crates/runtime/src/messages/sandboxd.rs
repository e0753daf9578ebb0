//! Package `process.v1`: commands as agent-sandbox's `sandboxd` runs them.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use serde::{Deserialize, Serialize};

use super::Empty;
use super::json;

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ProcessConfig {
    /// The program and its arguments.
    #[prost(string, repeated, tag = "1")]
    pub command: Vec<String>,
    #[prost(btree_map = "string, string", tag = "2")]
    pub env_vars: BTreeMap<String, String>,
    #[prost(string, optional, tag = "3")]
    pub cwd: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct Pty {
    #[prost(uint32, tag = "1")]
    pub cols: u32,
    #[prost(uint32, tag = "2")]
    pub rows: u32,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct StartRequest {
    #[prost(message, optional, tag = "1")]
    pub config: Option<ProcessConfig>,
    #[prost(message, optional, tag = "2")]
    pub pty: Option<Pty>,
}

/// One of the four.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct StartResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init: Option<InitEvent>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    #[serde(
        serialize_with = "json::base64",
        skip_serializing_if = "Option::is_none"
    )]
    pub stdout: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    #[serde(
        serialize_with = "json::base64",
        skip_serializing_if = "Option::is_none"
    )]
    pub stderr: Option<Bytes>,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitEvent>,
}

#[derive(Clone, Copy, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InitEvent {
    #[prost(int32, tag = "1")]
    pub process_id: i32,
}

#[derive(Clone, Copy, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitEvent {
    #[prost(int32, tag = "1")]
    pub exit_code: i32,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct ExecuteRequest {
    #[prost(message, optional, tag = "1")]
    pub config: Option<ProcessConfig>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecuteResponse {
    #[prost(int32, tag = "1")]
    pub exit_code: i32,
    #[prost(bytes = "bytes", optional, tag = "2")]
    #[serde(serialize_with = "json::base64")]
    pub stdout: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    #[serde(serialize_with = "json::base64")]
    pub stderr: Option<Bytes>,
}

/// One of input and end.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WriteStdinRequest {
    #[prost(int32, tag = "1")]
    pub process_id: i32,
    #[prost(bytes = "bytes", optional, tag = "2")]
    #[serde(deserialize_with = "json::optional_bytes")]
    pub input: Option<Bytes>,
    #[prost(message, optional, tag = "3")]
    pub eof: Option<Empty>,
}

#[derive(Clone, Copy, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SendSignalRequest {
    #[prost(int32, tag = "1")]
    pub process_id: i32,
    /// An enumeration of SIGINT, SIGKILL and SIGTERM by their numbers.
    #[prost(int32, tag = "2")]
    pub signal: i32,
}

#[derive(Clone, Copy, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResizeTtyRequest {
    #[prost(int32, tag = "1")]
    pub process_id: i32,
    #[prost(uint32, tag = "2")]
    pub cols: u32,
    #[prost(uint32, tag = "3")]
    pub rows: u32,
}

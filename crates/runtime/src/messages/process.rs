//! Package `process`: commands, their input and their events.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use serde::{Deserialize, Serialize};

use super::Empty;
use super::json;

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessConfig {
    #[prost(string, tag = "1")]
    pub cmd: String,
    #[prost(string, repeated, tag = "2")]
    pub args: Vec<String>,
    #[prost(btree_map = "string, string", tag = "3")]
    pub envs: BTreeMap<String, String>,
    #[prost(string, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct ProcessInfo {
    #[prost(message, optional, tag = "1")]
    pub config: Option<ProcessConfig>,
    #[prost(uint32, tag = "2")]
    pub pid: u32,
    #[prost(string, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct ListResponse {
    #[prost(message, repeated, tag = "1")]
    pub processes: Vec<ProcessInfo>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct StartRequest {
    #[prost(message, optional, tag = "1")]
    pub process: Option<ProcessConfig>,
    #[prost(message, optional, tag = "2")]
    pub pty: Option<Pty>,
    #[prost(string, optional, tag = "3")]
    pub tag: Option<String>,
    /// Absent means a pipe, as clients older than the field expect.
    #[prost(bool, optional, tag = "4")]
    pub stdin: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct Pty {
    #[prost(message, optional, tag = "1")]
    pub size: Option<PtySize>,
}

#[derive(Clone, Copy, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct PtySize {
    #[prost(uint32, tag = "1")]
    #[serde(deserialize_with = "json::number")]
    pub cols: u32,
    #[prost(uint32, tag = "2")]
    #[serde(deserialize_with = "json::number")]
    pub rows: u32,
}

/// One of the two.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct ProcessSelector {
    #[prost(uint32, optional, tag = "1")]
    #[serde(deserialize_with = "json::optional_number")]
    pub pid: Option<u32>,
    #[prost(string, optional, tag = "2")]
    pub tag: Option<String>,
}

/// `Connect` and `CloseStdin`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct SelectRequest {
    #[prost(message, optional, tag = "1")]
    pub process: Option<ProcessSelector>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct UpdateRequest {
    #[prost(message, optional, tag = "1")]
    pub process: Option<ProcessSelector>,
    #[prost(message, optional, tag = "2")]
    pub pty: Option<Pty>,
}

/// One of the two.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct ProcessInput {
    #[prost(bytes = "bytes", optional, tag = "1")]
    #[serde(deserialize_with = "json::optional_bytes")]
    pub stdin: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    #[serde(deserialize_with = "json::optional_bytes")]
    pub pty: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct SendInputRequest {
    #[prost(message, optional, tag = "1")]
    pub process: Option<ProcessSelector>,
    #[prost(message, optional, tag = "2")]
    pub input: Option<ProcessInput>,
}

/// One of the two; a third, that the client is still there, means nothing.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct StreamInputRequest {
    #[prost(message, optional, tag = "1")]
    pub start: Option<SelectRequest>,
    #[prost(message, optional, tag = "2")]
    pub data: Option<StreamInputData>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct StreamInputData {
    #[prost(message, optional, tag = "2")]
    pub input: Option<ProcessInput>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Signal {
    Unspecified = 0,
    Kill = 9,
    Terminate = 15,
}

impl Signal {
    pub(crate) const NAMES: [(&'static str, i32); 3] = [
        ("SIGNAL_UNSPECIFIED", Self::Unspecified as i32),
        ("SIGNAL_SIGKILL", Self::Kill as i32),
        ("SIGNAL_SIGTERM", Self::Terminate as i32),
    ];
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct SendSignalRequest {
    #[prost(message, optional, tag = "1")]
    pub process: Option<ProcessSelector>,
    #[prost(enumeration = "Signal", tag = "2")]
    #[serde(deserialize_with = "json::signal")]
    pub signal: i32,
}

/// What `Start` and `Connect` answer, again and again.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct EventResponse {
    #[prost(message, optional, tag = "1")]
    pub event: Option<ProcessEvent>,
}

/// One of the four.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct ProcessEvent {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<StartEvent>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<DataEvent>,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<EndEvent>,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Empty>,
}

#[derive(Clone, Copy, PartialEq, Message, Serialize)]
pub struct StartEvent {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
}

/// One of the three.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct DataEvent {
    #[prost(bytes = "bytes", optional, tag = "1")]
    #[serde(
        serialize_with = "json::base64",
        skip_serializing_if = "Option::is_none"
    )]
    pub stdout: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    #[serde(
        serialize_with = "json::base64",
        skip_serializing_if = "Option::is_none"
    )]
    pub stderr: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    #[serde(
        serialize_with = "json::base64",
        skip_serializing_if = "Option::is_none"
    )]
    pub pty: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndEvent {
    #[prost(sint32, tag = "1")]
    pub exit_code: i32,
    #[prost(bool, tag = "2")]
    pub exited: bool,
    #[prost(string, tag = "3")]
    pub status: String,
    #[prost(string, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

//! Package `filesystem`: entries and what happens to them.

use std::collections::BTreeMap;

use prost::Message;
use serde::{Deserialize, Serialize};

use super::{Empty, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum FileType {
    Unspecified = 0,
    File = 1,
    Directory = 2,
    Symlink = 3,
}

impl FileType {
    pub(crate) const NAMES: [&'static str; 4] = [
        "FILE_TYPE_UNSPECIFIED",
        "FILE_TYPE_FILE",
        "FILE_TYPE_DIRECTORY",
        "FILE_TYPE_SYMLINK",
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum EventType {
    Unspecified = 0,
    Create = 1,
    Write = 2,
    Remove = 3,
    Rename = 4,
    Chmod = 5,
}

impl EventType {
    pub(crate) const NAMES: [&'static str; 6] = [
        "EVENT_TYPE_UNSPECIFIED",
        "EVENT_TYPE_CREATE",
        "EVENT_TYPE_WRITE",
        "EVENT_TYPE_REMOVE",
        "EVENT_TYPE_RENAME",
        "EVENT_TYPE_CHMOD",
    ];
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Timestamp {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryInfo {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(enumeration = "FileType", tag = "2")]
    #[serde(serialize_with = "json::file_type")]
    pub r#type: i32,
    #[prost(string, tag = "3")]
    pub path: String,
    #[prost(int64, tag = "4")]
    #[serde(serialize_with = "json::long")]
    pub size: i64,
    #[prost(uint32, tag = "5")]
    pub mode: u32,
    #[prost(string, tag = "6")]
    pub permissions: String,
    #[prost(string, tag = "7")]
    pub owner: String,
    #[prost(string, tag = "8")]
    pub group: String,
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified_time: Option<Timestamp>,
    #[prost(string, optional, tag = "10")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symlink_target: Option<String>,
    #[prost(btree_map = "string, string", tag = "11")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    #[prost(bool, tag = "12")]
    #[serde(skip_serializing_if = "json::is_false")]
    pub is_symlink: bool,
}

/// `Stat`, `MakeDir` and `Remove`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct PathRequest {
    #[prost(string, tag = "1")]
    pub path: String,
}

/// What `Stat`, `MakeDir` and `Move` answer.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct EntryResponse {
    #[prost(message, optional, tag = "1")]
    pub entry: Option<EntryInfo>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct MoveRequest {
    #[prost(string, tag = "1")]
    pub source: String,
    #[prost(string, tag = "2")]
    pub destination: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct ListDirRequest {
    #[prost(string, tag = "1")]
    pub path: String,
    #[prost(uint32, tag = "2")]
    #[serde(deserialize_with = "json::number")]
    pub depth: u32,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct ListDirResponse {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<EntryInfo>,
}

/// `WatchDir` and `CreateWatcher`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct WatchRequest {
    #[prost(string, tag = "1")]
    pub path: String,
    #[prost(bool, tag = "2")]
    pub recursive: bool,
    #[prost(bool, tag = "3")]
    #[serde(alias = "includeEntry")]
    pub include_entry: bool,
    #[prost(bool, tag = "4")]
    #[serde(alias = "allowNetworkMounts")]
    pub allow_network_mounts: bool,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct FilesystemEvent {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(enumeration = "EventType", tag = "2")]
    #[serde(serialize_with = "json::event_type")]
    pub r#type: i32,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryInfo>,
}

/// One of the three.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct WatchDirResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Empty>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<FilesystemEvent>,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Empty>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateWatcherResponse {
    #[prost(string, tag = "1")]
    pub watcher_id: String,
}

/// `GetWatcherEvents` and `RemoveWatcher`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct WatcherRequest {
    #[prost(string, tag = "1")]
    #[serde(alias = "watcherId")]
    pub watcher_id: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct WatcherEventsResponse {
    #[prost(message, repeated, tag = "1")]
    pub events: Vec<FilesystemEvent>,
}

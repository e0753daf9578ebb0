//! What one daemon leaves to the next. Only ever added to: fields keep their numbers, and a reader takes what is absent for
//! what it was before the field was there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use prost::Message;

use crate::daemon::rights::Rights;
use crate::messages::filesystem::FilesystemEvent;
use crate::messages::once::Outcome;
use crate::messages::process::{EndEvent, ProcessConfig};

/// The newest that is understood here.
pub(in crate::daemon) const VERSION: u32 = 1;

#[derive(Clone, PartialEq, Message)]
pub(in crate::daemon) struct State {
    /// The lowest that can express what is said, so that an older daemon can take over, too.
    #[prost(uint32, tag = "1")]
    pub(in crate::daemon) version: u32,
    #[prost(message, repeated, tag = "2")]
    pub(in crate::daemon) listeners: Vec<Listener>,
    #[prost(message, required, tag = "3")]
    pub(in crate::daemon) settings: Settings,
    #[prost(message, required, tag = "4")]
    pub(in crate::daemon) processes: Processes,
    #[prost(message, required, tag = "5")]
    pub(in crate::daemon) watches: Watches,
    /// The listeners of published ports.
    #[prost(int32, repeated, tag = "6")]
    pub(in crate::daemon) published: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::daemon) struct Listener {
    /// 0 for E2B's, 1 for the older runtime's, 2 for sandboxd's.
    #[prost(uint32, tag = "1")]
    pub(in crate::daemon) api: u32,
    #[prost(int32, tag = "2")]
    pub(in crate::daemon) fd: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::daemon) struct Settings {
    #[prost(btree_map = "string, string", tag = "1")]
    pub(in crate::daemon) variables: BTreeMap<String, String>,
    #[prost(string, optional, tag = "2")]
    pub(in crate::daemon) token: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(in crate::daemon) default_user: Option<String>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(in crate::daemon) default_workdir: Option<Vec<u8>>,
    /// In nanoseconds.
    #[prost(int64, optional, tag = "5")]
    pub(in crate::daemon) accepted: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::daemon) struct Processes {
    #[prost(message, repeated, tag = "1")]
    pub(in crate::daemon) live: Vec<Live>,
    #[prost(uint64, tag = "2")]
    pub(in crate::daemon) started: u64,
    #[prost(message, repeated, tag = "3")]
    pub(in crate::daemon) ended: Vec<Ended>,
    #[prost(message, repeated, tag = "4")]
    pub(in crate::daemon) outcomes: Vec<Kept>,
    /// Pipes of which nothing is wanted, but that must be read.
    #[prost(int32, repeated, tag = "5")]
    pub(in crate::daemon) abandoned: Vec<i32>,
}

/// Descriptors have the numbers that they are inherited by.
#[derive(Clone, PartialEq, Message)]
pub(in crate::daemon) struct Live {
    #[prost(uint64, tag = "1")]
    pub(in crate::daemon) number: u64,
    #[prost(uint32, tag = "2")]
    pub(in crate::daemon) pid: u32,
    #[prost(string, optional, tag = "3")]
    pub(in crate::daemon) tag: Option<String>,
    #[prost(message, required, tag = "4")]
    pub(in crate::daemon) config: ProcessConfig,
    #[prost(int32, optional, tag = "5")]
    pub(in crate::daemon) stdin: Option<i32>,
    #[prost(int32, optional, tag = "6")]
    pub(in crate::daemon) stdout: Option<i32>,
    #[prost(int32, optional, tag = "7")]
    pub(in crate::daemon) stderr: Option<i32>,
    #[prost(int32, optional, tag = "8")]
    pub(in crate::daemon) terminal: Option<i32>,
    /// Whether its output can still be read, if it has a terminal.
    #[prost(bool, tag = "9")]
    pub(in crate::daemon) terminal_is_read: bool,
    #[prost(uint64, optional, tag = "10")]
    pub(in crate::daemon) millis_left: Option<u64>,
    #[prost(bool, tag = "12")]
    pub(in crate::daemon) cut_off: bool,
    /// The last of its output, without an end.
    #[prost(message, required, tag = "13")]
    pub(in crate::daemon) tails: Outcome,
    /// As the kernel says it; set if it was reaped. 11 was the same in another form, and is not used again.
    #[prost(int32, optional, tag = "14")]
    pub(in crate::daemon) exit: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::daemon) struct Ended {
    #[prost(uint64, tag = "1")]
    pub(in crate::daemon) millis_ago: u64,
    #[prost(uint32, tag = "2")]
    pub(in crate::daemon) pid: u32,
    #[prost(string, optional, tag = "3")]
    pub(in crate::daemon) tag: Option<String>,
    #[prost(message, required, tag = "4")]
    pub(in crate::daemon) end: EndEvent,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::daemon) struct Kept {
    #[prost(uint64, tag = "1")]
    pub(in crate::daemon) millis_ago: u64,
    #[prost(string, tag = "2")]
    pub(in crate::daemon) tag: String,
    #[prost(uint64, tag = "3")]
    pub(in crate::daemon) number: u64,
    #[prost(message, required, tag = "4")]
    pub(in crate::daemon) outcome: Outcome,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::daemon) struct Watches {
    /// The kernel's end of all of them.
    #[prost(int32, tag = "1")]
    pub(in crate::daemon) kernel: i32,
    #[prost(uint64, tag = "2")]
    pub(in crate::daemon) started: u64,
    #[prost(message, repeated, tag = "3")]
    pub(in crate::daemon) kept: Vec<Watch>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::daemon) struct Watch {
    #[prost(string, tag = "1")]
    pub(in crate::daemon) name: String,
    #[prost(uint64, tag = "2")]
    pub(in crate::daemon) id: u64,
    #[prost(bytes = "vec", tag = "3")]
    pub(in crate::daemon) root: Vec<u8>,
    #[prost(bool, tag = "4")]
    pub(in crate::daemon) recursive: bool,
    #[prost(bool, tag = "5")]
    pub(in crate::daemon) with_entries: bool,
    #[prost(message, repeated, tag = "6")]
    pub(in crate::daemon) waiting: Vec<FilesystemEvent>,
    #[prost(message, repeated, tag = "7")]
    pub(in crate::daemon) directories: Vec<Directory>,
    #[prost(message, optional, tag = "8")]
    pub(in crate::daemon) rights: Option<Rights>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::daemon) struct Directory {
    #[prost(int32, tag = "1")]
    pub(in crate::daemon) descriptor: i32,
    /// Seen from the watch's root.
    #[prost(bytes = "vec", tag = "2")]
    pub(in crate::daemon) below: Vec<u8>,
}

/// How times are told.
pub(in crate::daemon) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Not before the machine was started.
pub(in crate::daemon) fn ago(millis: u64) -> Instant {
    let now = Instant::now();
    now.checked_sub(Duration::from_millis(millis))
        .unwrap_or(now)
}

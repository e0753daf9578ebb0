//! Everything that can go wrong, said with the file or the object it happened to.

use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use super::key::Key;
use super::object::Entry;

/// Why a store cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("cannot use {path} as the data directory: {source}")]
    Directory {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the data directory {path} is in use by another process")]
    InUse { path: PathBuf },
    #[error("cannot open the database {path}: {source}")]
    Database {
        path: PathBuf,
        source: rusqlite::Error,
    },
    #[error("cannot start a log for the database {path}: it stays in journal mode {mode}")]
    NoLog { path: PathBuf, mode: String },
    #[error("{path} is a database of another program (application id {application_id:#x})")]
    Foreign { path: PathBuf, application_id: i32 },
    #[error(
        "the database {path} has format {found}, which is newer than the {supported} this version reads: \
         use the version of sandbar that wrote it"
    )]
    Newer {
        path: PathBuf,
        found: i32,
        supported: i32,
    },
    #[error("the database {path} is damaged: {detail}")]
    Damaged { path: PathBuf, detail: String },
}

/// Why a write was not made.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The precondition did not hold, or there was nothing to delete.
    #[error("{}", conflict_text(key, current.as_deref()))]
    Conflict {
        key: Key,
        current: Option<Arc<Entry>>,
    },
    /// Nothing of the write is visible, and the next may succeed. After a crash it may turn out to have been
    /// stored, as with any write whose answer was lost.
    #[error(transparent)]
    Storage(#[from] Arc<StorageError>),
    #[error("the store is closed")]
    Closed,
}

fn conflict_text(key: &Key, current: Option<&Entry>) -> String {
    match current {
        Some(entry) => format!(
            "{key} is at revision {}, not as the write expects",
            entry.revision
        ),
        None => format!("{key} does not exist"),
    }
}

/// The database refused a batch of writes, one of which was the caller's.
#[derive(Debug, Error)]
#[error("cannot write to the database {path}: {source}")]
pub struct StorageError {
    pub path: PathBuf,
    pub source: rusqlite::Error,
}

/// Why a watch cannot start or go on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WatchError {
    /// Events after `requested` have been dropped: list again. A watch of the same resource may start at
    /// `oldest` or later.
    #[error("revision {requested} is too old: history begins at {oldest}")]
    Gone { requested: u64, oldest: u64 },
    /// Whoever asks has seen a revision that this store never gave. Only a watch's start can fail so.
    #[error("revision {requested} has not been reached: the current one is {current}")]
    Ahead { requested: u64, current: u64 },
}

//! The objects of the embedded cluster: stored, read, and watched. The Kubernetes API of `local` is built on it.
//!
//! There is one revision for everything, the `resourceVersion` of the API: each write gets the next. A write is
//! answered when it is on disk; reads come from memory and see exactly what is on disk. A list at the revision of
//! a snapshot and a watch after that revision together miss nothing.
//!
//! ```
//! # use local::store::{Change, Key, Options, Precondition, Scope, Store};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let store = Store::open(Options::ephemeral())?;
//! let snapshot = store.snapshot();
//! let mut watch = store.watch(Scope::all("pods"), snapshot.revision())?;
//! let key = Key::new("pods", "default", "one");
//! let build = |revision| format!(r#"{{"resourceVersion":"{revision}"}}"#).into_bytes();
//! let entry = store.write(Change::put(key.clone(), Precondition::Absent, build)).await?;
//! assert_eq!(store.get(&key).as_ref(), Some(&entry));
//! assert_eq!(watch.next().await.ok_or("closed")??.entry, entry);
//! # Ok(()) }) }
//! ```

mod database;
mod error;
mod follow;
mod key;
mod object;
mod pending;
mod snapshot;
mod value;
mod watch;
mod writer;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use database::Database;
use pending::{Answer, Shared};
use snapshot::Objects;
use watch::{History, Limits};

pub use error::{OpenError, StorageError, WatchError, WriteError};
pub use follow::Follow;
pub use key::{Key, Scope};
pub use object::{Change, Entry, Event, EventKind, Precondition};
pub use snapshot::Snapshot;
pub use value::{Pieces, Value, shared};
pub use watch::Watch;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// Nothing outlives the process.
    Ephemeral,
    /// Made if it is not there; one process at a time.
    Directory(PathBuf),
}

#[derive(Debug, Clone)]
pub struct Options {
    pub location: Location,
    /// How many events of each resource are kept for watches.
    pub history: usize,
    /// How many bytes these events may hold; the newest event is kept even if it alone is larger.
    pub history_bytes: usize,
    /// Makes a value of bytes on disk.
    pub read: Read,
}

type Read = fn(&[u8]) -> Value;

impl Options {
    pub fn ephemeral() -> Options {
        Options::at(Location::Ephemeral)
    }

    pub fn directory(path: impl Into<PathBuf>) -> Options {
        Options::at(Location::Directory(path.into()))
    }

    /// A resource's history then costs at most as much memory as 10,000 objects of 3 KiB.
    fn at(location: Location) -> Options {
        Options {
            location,
            history: 10_000,
            history_bytes: 32 << 20,
            read: |bytes| Value::whole(Bytes::copy_from_slice(bytes)),
        }
    }
}

/// What the store has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Writes made durable; an ephemeral store counts none.
    pub writes: u64,
    /// Transactions these took.
    pub commits: u64,
    /// Transactions that failed.
    pub failures: u64,
}

/// A handle; clones share the same objects. When it is closed, or the last one is dropped, what was accepted is
/// committed and the directory is free for another.
#[derive(Clone)]
pub struct Store {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    /// Taken by `close`; absent in an ephemeral store.
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Store {
    /// Reads everything into memory; blocks while it does.
    pub fn open(options: Options) -> Result<Store, OpenError> {
        let Options {
            location,
            history,
            history_bytes,
            read,
        } = options;
        let limits = Limits {
            events: history,
            bytes: history_bytes,
        };
        let (shared, writer) = match location {
            Location::Ephemeral => {
                let empty = Snapshot {
                    objects: Objects::new(),
                    revision: database::FIRST_REVISION,
                };
                let history = History::new(limits, empty.revision);
                (Arc::new(Shared::new(empty, history, false)), None)
            }
            Location::Directory(path) => {
                let (database, snapshot) = Database::open(&path, read)?;
                let history = History::new(limits, snapshot.revision);
                let shared = Arc::new(Shared::new(snapshot, history, true));
                let writer = writer::spawn(Arc::clone(&shared), database)
                    .map_err(|source| OpenError::Directory { path, source })?;
                (shared, Some(writer))
            }
        };
        Ok(Store {
            handle: Arc::new(Handle {
                shared,
                writer: Mutex::new(writer),
            }),
        })
    }

    /// All objects as of now.
    pub fn snapshot(&self) -> Snapshot {
        self.handle.shared.durable()
    }

    /// One object as of now.
    pub fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.handle
            .shared
            .read(|snapshot| snapshot.get(key).cloned())
    }

    /// The revision of the last write that is visible.
    pub fn revision(&self) -> u64 {
        self.handle.shared.read(Snapshot::revision)
    }

    /// Makes one change; when this returns `Ok`, the change is durable and visible. If the future is dropped
    /// after it was first polled, the change may still be made.
    pub async fn write(&self, change: Change) -> Result<Arc<Entry>, WriteError> {
        let Answer { result, settled } = self.handle.shared.accept(change);
        if let Some(settled) = settled {
            settled.await.map_err(|_| WriteError::Closed)??;
        }
        result
    }

    /// The events of `scope` with revisions greater than `after`, from now on and for ever.
    pub fn watch(&self, scope: Scope, after: u64) -> Result<Watch, WatchError> {
        let current = self.revision();
        if after > current {
            return Err(WatchError::Ahead {
                requested: after,
                current,
            });
        }
        self.handle.shared.history.watch(scope, after)
    }

    /// All objects as of now, and every event after that, of whatever resource.
    pub fn follow(&self) -> (Snapshot, Follow) {
        // in this order: readers see a write before followers are told of it, so none falls in between
        let events = self.handle.shared.history.followers.add();
        let snapshot = self.snapshot();
        let after = snapshot.revision();
        (snapshot, Follow { after, events })
    }

    /// Ends writes and watches whoever still has a handle; reads go on. Blocks until the directory is free.
    pub fn close(&self) {
        self.handle.close();
    }

    pub fn stats(&self) -> Stats {
        let counters = &self.handle.shared.counters;
        Stats {
            writes: counters.writes.load(Ordering::Relaxed),
            commits: counters.commits.load(Ordering::Relaxed),
            failures: counters.failures.load(Ordering::Relaxed),
        }
    }
}

impl Handle {
    fn close(&self) {
        self.shared.close();
        // held while the thread ends, so that a second caller too returns to a free directory
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = writer.take() {
            // it only fails if the thread panicked, which its callers have been told
            let _ = writer.join();
        }
        self.shared.history.close();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

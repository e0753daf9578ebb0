//! The thread that owns the database: everything that waits becomes one transaction with one sync.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use super::database::Database;
use super::object::Event;
use super::pending::Shared;

/// Runs until the store is closed and its queue is empty.
pub(super) fn spawn(
    shared: Arc<Shared>,
    mut database: Database,
) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new()
        .name("store-writer".into())
        .spawn(move || {
            let _abandon = Abandon(Arc::clone(&shared));
            while let Some(batch) = shared.next_batch() {
                let events: Vec<&Event> = batch
                    .waiting
                    .iter()
                    .filter_map(|waiting| waiting.event.as_ref())
                    .collect();
                let writes = events.len() as u64;
                let committed = match events.as_slice() {
                    [] => Ok(()),
                    events => database.commit(events, batch.result.revision),
                };
                match committed {
                    Ok(()) => {
                        shared.counters.writes.fetch_add(writes, Ordering::Relaxed);
                        shared
                            .counters
                            .commits
                            .fetch_add(u64::from(writes > 0), Ordering::Relaxed);
                        shared.settle(batch);
                    }
                    Err(error) => shared.undo(batch, error),
                }
            }
        })
}

/// Should the thread panic, its callers get an answer instead of waiting for ever.
struct Abandon(Arc<Shared>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

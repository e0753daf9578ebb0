//! Locks that the kernel releases when their holder dies, however it dies.

use std::fs::{File, OpenOptions};
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

/// A file lock, held until dropped. The descriptor is close-on-exec, so no child inherits it.
#[derive(Debug)]
pub(crate) struct FileLock(File);

impl FileLock {
    /// Waits until nobody else holds the lock in any way.
    pub(crate) fn exclusive(path: &Path) -> Result<Self> {
        Self::take(path, FlockOperation::LockExclusive)
    }

    /// Waits until nobody holds the lock exclusively.
    pub(crate) fn shared(path: &Path) -> Result<Self> {
        Self::take(path, FlockOperation::LockShared)
    }

    /// `None` if somebody else holds the lock, or held it and has just removed its file.
    pub(crate) fn try_exclusive(path: &Path) -> Result<Option<Self>> {
        let file = open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file)).filter(|lock| lock.is_still_at(path))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e).with_context(|| format!("locking {}", path.display())),
        }
    }

    fn take(path: &Path, operation: FlockOperation) -> Result<Self> {
        loop {
            let file = open(path)?;
            rustix::io::retry_on_intr(|| flock(&file, operation))
                .with_context(|| format!("locking {}", path.display()))?;
            let lock = Self(file);
            // the file may have been removed by the previous holder while we waited for it
            if lock.is_still_at(path) {
                return Ok(lock);
            }
        }
    }

    fn is_still_at(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        match (self.0.metadata(), path.metadata()) {
            (Ok(ours), Ok(there)) => ours.ino() == there.ino() && ours.dev() == there.dev(),
            _ => false,
        }
    }
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .with_context(|| format!("opening the lock file {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::FileLock;

    #[test]
    fn an_exclusive_lock_waits_for_every_shared_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lease");
        let (a, b) = (
            FileLock::shared(&path).unwrap(),
            FileLock::shared(&path).unwrap(),
        );
        assert!(FileLock::try_exclusive(&path).unwrap().is_none());
        drop(a);
        assert!(FileLock::try_exclusive(&path).unwrap().is_none());
        drop(b);
        assert!(FileLock::try_exclusive(&path).unwrap().is_some());
    }
}

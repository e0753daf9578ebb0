//! A shim that is being made is known of before it can be asked. Whoever sends for it holds a lock, hands it on with the
//! request, and the shim lets go of it once it has recorded itself. Whoever dies in between, the lock is held for exactly as
//! long as a shim may still come.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

const LOCK: &str = "birth.lock";

/// To be held by whoever makes a shim in this directory, and by whoever he asks to.
pub(crate) fn announce(dir: &Path) -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    let lock = options.create(true).append(true).open(dir.join(LOCK))?;
    lock.try_lock()?;
    Ok(lock.into())
}

/// Whether a shim may still come that has not recorded itself yet.
pub(crate) fn is_expected(dir: &Path) -> bool {
    let Ok(lock) = File::open(dir.join(LOCK)) else {
        return false;
    };
    matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
mod tests {
    use super::{announce, is_expected};

    #[test]
    fn a_shim_is_expected_until_the_last_who_knows_of_it_lets_go() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        assert!(!is_expected(dir));
        let birth = announce(dir).unwrap();
        let handed_on = birth.try_clone().unwrap();
        drop(birth);
        assert!(is_expected(dir));
        assert!(announce(dir).is_err());
        drop(handed_on);
        assert!(!is_expected(dir));
        announce(dir).unwrap();
    }
}

//! The data directory of a server: one process at a time, and files that are there as a whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::error::StartError;

/// A data directory, held until this is dropped.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    lock: File,
}

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Owner,
    Everybody,
}

impl Access {
    fn mode(self) -> u32 {
        match self {
            Access::Owner => 0o600,
            Access::Everybody => 0o644,
        }
    }
}

impl Home {
    /// Makes the directory if it is not there, and takes it; a directory that another process has taken is refused.
    pub fn open(path: impl AsRef<Path>) -> Result<Home, StartError> {
        let path = path.as_ref();
        let cannot = |source| StartError::Directory {
            path: path.to_owned(),
            source,
        };
        let path = std::path::absolute(path).map_err(cannot)?;
        make_private(&path).map_err(cannot)?;
        // an instance is known by it, however it is spelled
        let path = path.canonicalize().map_err(cannot)?;
        let mut lock = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path.join("process"))
            .map_err(cannot)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let process = holder(&mut lock);
                return Err(StartError::InUse { path, process });
            }
            Err(TryLockError::Error(source)) => return Err(cannot(source)),
        }
        sign(&mut lock).map_err(cannot)?;
        for part in ["pki", "store", "tokens"] {
            make_private(&path.join(part)).map_err(cannot)?;
        }
        Ok(Home { path, lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the objects belong.
    pub fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    /// Where the file of this name is, or would be.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The text of a file, if it is there.
    pub(super) fn read(&self, name: &str) -> Result<Option<String>, StartError> {
        let path = self.file(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StartError::Read { path, source }),
        }
    }

    /// As `read`, of a file that nobody else may read, which it then is.
    pub(super) fn read_secret(&self, name: &str) -> Result<Option<String>, StartError> {
        let text = self.read(name)?;
        if text.is_some() {
            let path = self.file(name);
            let mode = Permissions::from_mode(Access::Owner.mode());
            fs::set_permissions(&path, mode)
                .map_err(|source| StartError::Write { path, source })?;
        }
        Ok(text)
    }

    /// Replaces a file. Whenever the process dies, the file holds the old text or the new one; once this has
    /// returned, a loss of power leaves the new one.
    pub(super) fn write(&self, name: &str, text: &str, access: Access) -> Result<(), StartError> {
        let path = self.file(name);
        replace(&path, text, access).map_err(|source| StartError::Write { path, source })
    }
}

impl Drop for Home {
    /// Closing would not do: a process that another thread is just starting has the file open, too, until it has
    /// become its program.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn sign(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    writeln!(lock, "{}", std::process::id())
}

fn holder(lock: &mut File) -> Option<u32> {
    let mut text = String::new();
    lock.rewind().ok()?;
    lock.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn replace(path: &Path, text: &str, access: Access) -> io::Result<()> {
    let temporary = path.with_added_extension("new");
    // left by a process that died while it wrote, perhaps with another mode
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(access.mode())
        .open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

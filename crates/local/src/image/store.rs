//! The directory of images, which several processes may use at a time.
//!
//! ```text
//! lock             held for moments, by whoever changes what is listed below
//! names/           one record a name: which image it is
//! configs/         what an image says of itself, by its id
//! layers/          unpacked, by what they unpack to; made whole elsewhere and moved here
//! base/            the layer of the built-in image, by its recipe
//! holds/           which image each container runs
//! downloads/       parts of blobs, for whoever goes on with them
//! work/            one directory a process, with a lock that the kernel releases when it dies
//! ```
//!
//! Nobody but its owner may enter: programs in layers keep the bits for set-user-id.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::digest::Digest;
use super::document::ConfigFile;
use super::error::Error;
use super::root::{Root, remove_tree};

/// Parts of a blob that nobody has gone on with for so long are given up.
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) id: Digest,
    /// Of the manifest or index that the name led to.
    pub(super) digest: Option<Digest>,
    /// Seconds since 1970.
    pub(super) taken: u64,
}

/// An image that is whole, but not yet listed.
pub(super) struct Prepared {
    pub(super) id: Digest,
    pub(super) config: Vec<u8>,
    pub(super) digest: Option<Digest>,
    pub(super) names: Vec<String>,
    pub(super) staged: Staged,
}

/// New layers in the work directory, with the bytes of their archives. What is not put in place is removed.
#[derive(Debug, Default)]
pub(super) struct Staged(pub(super) BTreeMap<Digest, (PathBuf, u64)>);

impl Drop for Staged {
    fn drop(&mut self) {
        for (path, _) in self.0.values() {
            let _ = remove(path);
        }
    }
}

/// Whether a prepared image is now listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Commit {
    Done,
    /// Somebody removed a layer that was there when the image was prepared.
    Lacks(Digest),
}

#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    work: PathBuf,
    work_lock: File,
    counter: AtomicU64,
}

/// Unlocks explicitly: closing would not do while another thread starts a process, which has the file open, too.
struct Guard(File);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Store {
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        let dir = std::path::absolute(dir).map_err(|source| Error::io("find", dir, source))?;
        for part in [
            "names",
            "configs",
            "layers",
            "base",
            "holds",
            "downloads",
            "work",
        ] {
            let part = dir.join(part);
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&part);
            made.map_err(|source| Error::io("make", &part, source))?;
        }
        fs::set_permissions(&dir, Permissions::from_mode(0o700))
            .map_err(|source| Error::io("close to others", &dir, source))?;
        let guard = lock(&dir)?;
        sweep(&dir)?;
        let work = dir.join("work").join(Uuid::new_v4().to_string());
        let lock_path = work.with_extension("lock");
        let work_lock = File::create(&lock_path)
            .and_then(|file| file.lock().map(|()| file))
            .map_err(|source| Error::io("make", &lock_path, source))?;
        fs::create_dir(&work).map_err(|source| Error::io("make", &work, source))?;
        drop(guard);
        Ok(Self {
            dir,
            work,
            work_lock,
            counter: AtomicU64::new(0),
        })
    }

    /// A path in the work directory that nothing has.
    pub(super) fn scratch(&self) -> PathBuf {
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        self.work.join(number.to_string())
    }

    /// An empty directory that can become a layer.
    pub(super) fn scratch_directory(&self) -> Result<PathBuf, Error> {
        let path = self.scratch();
        fs::create_dir(&path)
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o755)))
            .map_err(|source| Error::io("make", &path, source))?;
        Ok(path)
    }

    pub(super) fn layer(&self, diff_id: &Digest) -> PathBuf {
        self.dir.join("layers").join(diff_id.hex())
    }

    pub(super) fn has_layer(&self, diff_id: &Digest) -> bool {
        self.layer(diff_id).is_dir()
    }

    /// Bytes of the archive that the layer was.
    pub(super) fn layer_bytes(&self, diff_id: &Digest) -> u64 {
        let text = fs::read_to_string(self.layer(diff_id).with_extension("bytes"));
        text.ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0)
    }

    pub(super) fn base(&self, key: &str) -> PathBuf {
        self.dir.join("base").join(key)
    }

    pub(super) fn download(&self, digest: &Digest) -> PathBuf {
        self.dir.join("downloads").join(digest.hex())
    }

    pub(super) fn config(&self, id: &Digest) -> Result<Option<Vec<u8>>, Error> {
        let path = self.config_path(id);
        match fs::read(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::io("read", &path, source)),
        }
    }

    fn config_path(&self, id: &Digest) -> PathBuf {
        self.dir.join("configs").join(id.hex())
    }

    fn name_path(&self, name: &str) -> PathBuf {
        let file = Digest::of(name.as_bytes());
        self.dir.join("names").join(file.hex())
    }

    pub(super) fn record(&self, name: &str) -> Result<Option<Record>, Error> {
        read_record(&self.name_path(name))
    }

    /// All names, in order.
    pub(super) fn records(&self) -> Result<Vec<Record>, Error> {
        let mut records = Vec::new();
        for path in files(&self.dir.join("names"))? {
            records.extend(read_record(&path)?);
        }
        records.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(records)
    }

    /// Lists an image under its names, and removes what its names stood for before if nothing else needs that.
    pub(super) fn commit(&self, image: &Prepared) -> Result<Commit, Error> {
        let config =
            ConfigFile::parse(&image.config).map_err(Error::document(&image.names.join(", ")))?;
        if !image.staged.0.is_empty() {
            // after a loss of power, a layer that is listed must have its content, not only its names
            let synced = File::open(&self.work).and_then(|work| Ok(rustix::fs::syncfs(work)?));
            synced.map_err(|source| Error::io("write", &self.work, source))?;
        }
        let guard = lock(&self.dir)?;
        for layer in config.diff_ids() {
            let target = self.layer(layer);
            if target.is_dir() {
                continue;
            }
            let Some((staged, bytes)) = image.staged.0.get(layer) else {
                return Ok(Commit::Lacks(layer.clone()));
            };
            let note = target.with_extension("bytes");
            fs::write(&note, bytes.to_string())
                .and_then(|()| fs::rename(staged, &target))
                .map_err(|source| Error::io("put in place", &target, source))?;
        }
        self.write(&self.config_path(&image.id), &image.config)?;
        let taken = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        for name in &image.names {
            let record = Record {
                name: name.clone(),
                id: image.id.clone(),
                digest: image.digest.clone(),
                taken: taken.as_ref().map_or(0, Duration::as_secs),
            };
            let text = serde_json::to_vec(&record).unwrap_or_default();
            self.write(&self.name_path(name), &text)?;
        }
        let waste = self.collect(None)?;
        drop(guard);
        self.discard(&waste)?;
        Ok(Commit::Done)
    }

    /// Takes a name away, and the image with it if it has no other name. The bytes that this frees.
    pub(super) fn remove(&self, name: &str) -> Result<u64, Error> {
        let guard = lock(&self.dir)?;
        let Some(record) = self.record(name)? else {
            return Err(Error::Absent(name.to_owned()));
        };
        let others = self.records()?;
        let is_last = !others
            .iter()
            .any(|other| other.id == record.id && other.name != name);
        let holds = self.holds()?;
        let holders: Vec<&String> = holds
            .iter()
            .filter(|(_, id)| **id == record.id)
            .map(|(holder, _)| holder)
            .collect();
        if let (true, Some(holder)) = (is_last, holders.first()) {
            return Err(Error::InUse {
                name: name.to_owned(),
                count: holders.len(),
                holder: (*holder).clone(),
            });
        }
        let path = self.name_path(name);
        fs::remove_file(&path).map_err(|source| Error::io("remove", &path, source))?;
        let before = self.total()?;
        let waste = self.collect(None)?;
        let freed = before.saturating_sub(self.total()?);
        drop(guard);
        self.discard(&waste)?;
        Ok(freed)
    }

    /// Removes the layers of built-in images other than these, unless a container runs on them.
    pub(super) fn keep_bases(&self, current: &[Digest]) -> Result<(), Error> {
        let guard = lock(&self.dir)?;
        let waste = self.collect(Some(current))?;
        drop(guard);
        self.discard(&waste)
    }

    /// Notes that a container runs on an image, which must be there: it stays until the note is gone.
    pub(super) fn hold(&self, holder: &str, id: &Digest, is_built_in: bool) -> Result<(), Error> {
        let path = self.hold_path(holder)?;
        let _guard = lock(&self.dir)?;
        let is_there = match is_built_in {
            true => self.base(id.hex()).is_dir(),
            false => self.config_path(id).is_file(),
        };
        if !is_there {
            return Err(Error::Vanished(id.to_string()));
        }
        self.write(&path, id.to_string().as_bytes())
    }

    pub(super) fn release(&self, holder: &str) -> Result<(), Error> {
        let path = self.hold_path(holder)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(Error::io("remove", &path, error))
            }
            _ => Ok(()),
        }
    }

    /// Which image each container runs on.
    pub(super) fn holds(&self) -> Result<BTreeMap<String, Digest>, Error> {
        let mut holds = BTreeMap::new();
        for path in files(&self.dir.join("holds"))? {
            let text = match fs::read_to_string(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                text => text.map_err(|source| Error::io("read", &path, source))?,
            };
            let holder = path.file_name().and_then(|name| name.to_str());
            if let (Some(holder), Ok(id)) = (holder, text.parse()) {
                holds.insert(holder.to_owned(), id);
            }
        }
        Ok(holds)
    }

    fn hold_path(&self, holder: &str) -> Result<PathBuf, Error> {
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_fine = !holder.is_empty()
            && holder.len() <= 200
            && !holder.starts_with('.')
            && holder.bytes().all(is_plain);
        match is_fine {
            true => Ok(self.dir.join("holds").join(holder)),
            false => Err(Error::Holder(holder.chars().take(200).collect())),
        }
    }

    fn total(&self) -> Result<u64, Error> {
        let layers = files(&self.dir.join("layers"))?;
        let names = layers.iter().filter_map(|path| path.file_stem()?.to_str());
        let ids: BTreeSet<Digest> = names
            .filter_map(|hex| format!("sha256:{hex}").parse().ok())
            .filter(|id| self.has_layer(id))
            .collect();
        Ok(ids.iter().map(|id| self.layer_bytes(id)).sum())
    }

    /// Moves what no name and no container needs out of the way. The lock is held.
    fn collect(&self, bases: Option<&[Digest]>) -> Result<Vec<PathBuf>, Error> {
        let holds = self.holds()?;
        let mut ids: BTreeSet<Digest> = holds.into_values().collect();
        ids.extend(self.records()?.into_iter().map(|record| record.id));
        let mut needed = BTreeSet::new();
        for id in &ids {
            if let Some(text) = self.config(id)? {
                let config = ConfigFile::parse(&text).map_err(Error::document(&id.to_string()))?;
                needed.extend(config.diff_ids().iter().map(|id| id.hex().to_owned()));
            }
        }
        let mut waste = Vec::new();
        let mut take = |part: &str, is_needed: &dyn Fn(&str) -> bool| -> Result<(), Error> {
            for path in files(&self.dir.join(part))? {
                let name = path.file_stem().and_then(|name| name.to_str());
                if name.is_some_and(is_needed) {
                    continue;
                }
                let target = self.scratch();
                fs::rename(&path, &target).map_err(|source| Error::io("remove", &path, source))?;
                waste.push(target);
            }
            Ok(())
        };
        take("configs", &|hex| ids.iter().any(|id| id.hex() == hex))?;
        take("layers", &|hex| hex == EMPTY || needed.contains(hex))?;
        if let Some(current) = bases {
            // the name ends with the id of the image that it is the layer of
            let kept = ids.iter().chain(current);
            take("base", &|name| {
                kept.clone().any(|id| name.ends_with(id.hex()))
            })?;
        }
        Ok(waste)
    }

    /// Removes what is in the work directory.
    pub(super) fn discard(&self, waste: &[PathBuf]) -> Result<(), Error> {
        waste.iter().try_for_each(|path| remove(path))
    }

    /// A directory for images without layers: an overlay needs one.
    pub(super) fn empty_layer(&self) -> Result<PathBuf, Error> {
        let path = self.dir.join("layers").join(EMPTY);
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&path);
        made.map_err(|source| Error::io("make", &path, source))?;
        Ok(path)
    }

    /// Writes a file that is there as a whole or not at all.
    fn write(&self, path: &Path, text: &[u8]) -> Result<(), Error> {
        let temporary = self.scratch();
        let written = File::create(&temporary).and_then(|mut file| {
            file.write_all(text)?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        });
        written.map_err(|source| Error::io("write", path, source))
    }
}

/// The layer without anything in it.
const EMPTY: &str = "empty";

impl Drop for Store {
    /// Whatever stays, the next process sweeps away.
    fn drop(&mut self) {
        let _ = remove(&self.work);
        let _ = fs::remove_file(self.work.with_extension("lock"));
        let _ = self.work_lock.unlock();
    }
}

fn lock(dir: &Path) -> Result<Guard, Error> {
    let path = dir.join("lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    let file = file.map_err(|source| Error::io("open", &path, source))?;
    file.lock()
        .map_err(|source| Error::io("lock", &path, source))?;
    Ok(Guard(file))
}

/// Removes what processes that died have left. The lock is held.
fn sweep(dir: &Path) -> Result<(), Error> {
    for path in files(&dir.join("work"))? {
        if path.extension().is_none_or(|extension| extension != "lock") {
            continue;
        }
        let lock = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            lock => lock.map_err(|source| Error::io("open", &path, source))?,
        };
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(source)) => return Err(Error::io("lock", &path, source)),
            Ok(()) => {}
        }
        remove(&path.with_extension(""))?;
        fs::remove_file(&path).map_err(|source| Error::io("remove", &path, source))?;
    }
    for path in files(&dir.join("downloads"))? {
        let age = fs::metadata(&path)
            .and_then(|file| file.modified())
            .map(|time| time.elapsed().unwrap_or_default());
        if age.is_ok_and(|age| age > FORGOTTEN) {
            let _ = fs::remove_file(&path);
        }
    }
    Ok(())
}

/// Removes a tree that a stranger may have made.
pub(super) fn remove(path: &Path) -> Result<(), Error> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    let removed = Root::open(parent).and_then(|parent| {
        let parent = parent.directory(b"")?;
        Ok(remove_tree(parent.as_fd(), name.as_bytes())?)
    });
    removed.map_err(|source| Error::io("remove", path, source))
}

fn files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let listed: io::Result<Vec<PathBuf>> = fs::read_dir(dir).and_then(|entries| {
        entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect()
    });
    listed.map_err(|source| Error::io("list", dir, source))
}

fn read_record(path: &Path) -> Result<Option<Record>, Error> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|source| Error::io("read", path, source))?,
    };
    match serde_json::from_slice(&text) {
        Ok(record) => Ok(Some(record)),
        Err(error) => Err(Error::io("understand", path, io::Error::from(error))),
    }
}

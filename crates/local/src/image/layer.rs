//! One layer of an image, from a tar archive that a stranger wrote into a directory that an overlay can use.
//!
//! Every name is resolved beneath the directory. Device nodes are left out, extended attributes too: one of
//! overlayfs's own would let a layer redirect names to other directories of the host.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use tar::{Archive, EntryType};

use super::digest::Digest;
use super::meter::{self, Excess, Limits, Meter, decompress};
use super::root::{Found, Root, look, make_opaque, open_directory, remove_tree};

/// Why a layer was refused.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error("the entry {0} points outside the layer")]
    Escapes(String),
    #[error("the entry {entry} is a hard link to {target}, which is no file of this layer")]
    Link { entry: String, target: String },
    #[error("the entry {0} is a sparse file in the format of PAX, which is not supported")]
    Sparse(String),
    #[error("the entry {0} belongs to a user or group whose number no system has")]
    Owner(String),
    #[error("cannot make the entry {entry}: {source}")]
    Entry { entry: String, source: io::Error },
    #[error("it is no tar archive that can be read: {0}")]
    Archive(io::Error),
    #[error("it has the digest {actual} instead of {expected}: the copy is damaged or forged")]
    Digest { expected: Digest, actual: Digest },
    #[error("it unpacks to more than {0} bytes, the most that one image may have")]
    Bytes(u64),
    #[error("it unpacks to more than {0} times its size, as an archive that is made to fill disks")]
    Ratio(u64),
    #[error("it has more than {0} entries, the most that one image may have")]
    Entries(u64),
    #[error("the names and attributes of one entry are longer than a megabyte")]
    Metadata,
    #[error("no space is left on the disk")]
    Full,
}

/// What a layer must be; what is absent is not checked.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// Of the blob as it is stored.
    pub digest: Option<Digest>,
    /// Of the archive without its compression.
    pub diff_id: Option<Digest>,
}

/// What a layer has become.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Bytes of the archive.
    pub bytes: u64,
    pub entries: u64,
    /// The first device nodes that were left out.
    pub left_out: Vec<String>,
}

/// How many of the entries that were left out are named.
const NAMED: usize = 20;

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Notes of an older union file system, to itself.
const AUFS: &[u8] = b".wh..wh.";

/// Unpacks a layer into an empty directory. Whatever comes, nothing outside of it changes; after an error, what is in it
/// counts for nothing.
pub fn unpack(
    blob: impl Read,
    expected: &Expected,
    into: &Path,
    limits: Limits,
) -> Result<Report, LayerError> {
    let meter = Meter::new(limits);
    let result = read_all(blob, expected, into, &meter, limits);
    match meter.excess() {
        Some(Excess::Bytes) => Err(LayerError::Bytes(limits.bytes)),
        Some(Excess::Ratio) => Err(LayerError::Ratio(limits.ratio)),
        Some(Excess::Metadata) => Err(LayerError::Metadata),
        None => result,
    }
}

fn read_all(
    blob: impl Read,
    expected: &Expected,
    into: &Path,
    meter: &Meter,
    limits: Limits,
) -> Result<Report, LayerError> {
    let is_root = rustix::process::geteuid().is_root();
    let mut unpacker = Unpacker {
        root: Root::open(into).map_err(LayerError::Archive)?,
        is_root,
        meter,
        ahead: Vec::new(),
        buffer: vec![0; 128 << 10],
        report: Report::default(),
    };
    let mut compressed = meter::compressed(blob, meter);
    let expanded = decompress(&mut compressed).map_err(LayerError::Archive)?;
    let mut archive = Archive::new(meter::expanded(expanded, meter));
    unpacker.entries(&mut archive, limits)?;
    meter.expect_content();
    let expanded = archive.into_inner();
    let diff_id = expanded.finish().map_err(LayerError::Archive)?;
    // the digest first: if it is wrong, so is everything else, and it says why
    let digest = compressed.finish().map_err(LayerError::Archive)?;
    same(expected.digest.as_ref(), digest)?;
    same(expected.diff_id.as_ref(), diff_id)?;
    unpacker.report.bytes = meter.expanded();
    Ok(unpacker.report)
}

fn same(expected: Option<&Digest>, actual: Digest) -> Result<(), LayerError> {
    match expected {
        Some(expected) if *expected != actual => Err(LayerError::Digest {
            expected: expected.clone(),
            actual,
        }),
        _ => Ok(()),
    }
}

/// What an entry says of itself.
struct Head {
    path: Vec<u8>,
    kind: EntryType,
    link: Vec<u8>,
    size: u64,
    mode: Mode,
    owner: (Uid, Gid),
    times: Timestamps,
}

struct Unpacker<'m> {
    root: Root,
    is_root: bool,
    meter: &'m Meter,
    /// Directories that later entries may still change, each in the one before it, with the times they shall have.
    ahead: Vec<(Vec<u8>, Timestamps)>,
    buffer: Vec<u8>,
    report: Report,
}

impl Unpacker<'_> {
    fn entries<R: Read>(
        &mut self,
        archive: &mut Archive<R>,
        limits: Limits,
    ) -> Result<(), LayerError> {
        let mut entries = archive.entries().map_err(LayerError::Archive)?;
        loop {
            self.meter.expect_metadata();
            let Some(entry) = entries.next() else {
                break;
            };
            let mut entry = entry.map_err(LayerError::Archive)?;
            self.meter.expect_content();
            self.report.entries += 1;
            if self.report.entries > limits.entries {
                return Err(LayerError::Entries(limits.entries));
            }
            self.entry(&mut entry, limits)?;
            // what is left of it would else count as what precedes the next one
            io::copy(&mut entry, &mut io::sink()).map_err(LayerError::Archive)?;
        }
        self.leave(None)
    }

    fn entry<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        limits: Limits,
    ) -> Result<(), LayerError> {
        if entry.header().entry_type().is_pax_global_extensions() {
            return Ok(());
        }
        if !self.meter.has_room(entry.size()) {
            return Err(LayerError::Bytes(limits.bytes));
        }
        let head = self.head(entry)?;
        self.leave(Some(&head.path))?;
        let (parent, name) = split(&head.path);
        let cannot = |error: rustix::io::Errno| failed(&head.path, error.into());
        let parent = self
            .root
            .make_directory(parent, self.is_root)
            .map_err(cannot)?;
        if name.is_empty() {
            return self.describe_root(&head);
        }
        if name.starts_with(WHITEOUT) {
            return self.whiteout(&head, &parent, name);
        }
        match head.kind {
            EntryType::Directory => self.directory(&head, &parent, name),
            EntryType::Symlink => self.symlink(&head, &parent, name),
            EntryType::Link => self.hard_link(&head, &parent, name),
            EntryType::Fifo => self.pipe(&head, &parent, name),
            EntryType::Char | EntryType::Block => {
                if self.report.left_out.len() < NAMED {
                    self.report.left_out.push(shown(&head.path));
                }
                Ok(())
            }
            // all that nobody knows is a file, as POSIX says
            _ => self.file(&head, &parent, name, entry),
        }
    }

    fn head<R: Read>(&self, entry: &mut tar::Entry<'_, R>) -> Result<Head, LayerError> {
        let raw = entry.path_bytes().into_owned();
        let link = entry.link_name_bytes().unwrap_or_default().into_owned();
        let records = entry.pax_extensions().map_err(LayerError::Archive)?;
        for record in records.into_iter().flatten() {
            let record = record.map_err(LayerError::Archive)?;
            if record.key_bytes().starts_with(b"GNU.sparse.") {
                return Err(LayerError::Sparse(shown(&raw)));
            }
        }
        let path = cleaned(&raw).ok_or_else(|| LayerError::Escapes(shown(&raw)))?;
        let header = entry.header();
        let fields = header.as_old();
        let id = |field: &[u8], number: io::Result<u64>| {
            // the largest number means "nobody"; a change of owner to it changes nothing
            match u32::try_from(or_zero(field, number)?) {
                Ok(number) if number != u32::MAX => Ok(number),
                _ => Err(LayerError::Owner(shown(&raw))),
            }
        };
        let owner = (
            Uid::from_raw(id(&fields.uid, header.uid())?),
            Gid::from_raw(id(&fields.gid, header.gid())?),
        );
        let mode = or_zero(&fields.mode, header.mode())? & 0o7777;
        let mtime = or_zero(&fields.mtime, header.mtime())?;
        let time = Timespec {
            tv_sec: i64::try_from(mtime).unwrap_or(0),
            tv_nsec: 0,
        };
        Ok(Head {
            path,
            // the oldest archives say it by the name alone
            kind: match header.entry_type() {
                EntryType::Regular if raw.ends_with(b"/") => EntryType::Directory,
                kind => kind,
            },
            link,
            size: entry.size(),
            mode: Mode::from_raw_mode(mode),
            owner,
            times: Timestamps {
                last_access: time,
                last_modification: time,
            },
        })
    }

    /// Gives the directories that the next entry is not in the times that the layer says.
    fn leave(&mut self, next: Option<&[u8]>) -> Result<(), LayerError> {
        while let Some((path, times)) = self.ahead.last() {
            let is_inside = |next: &[u8]| {
                let rest = next.strip_prefix(path.as_slice());
                rest.is_some_and(|rest| path.is_empty() || rest.starts_with(b"/"))
            };
            if next.is_some_and(is_inside) {
                return Ok(());
            }
            // it may have been replaced by something else since
            if let Ok(directory) = self.root.directory(path) {
                rustix::fs::futimens(&directory, times)
                    .map_err(|error| failed(path, error.into()))?;
            }
            self.ahead.pop();
        }
        Ok(())
    }

    fn describe_root(&mut self, head: &Head) -> Result<(), LayerError> {
        if head.kind != EntryType::Directory {
            return Err(LayerError::Escapes(shown(&head.path)));
        }
        let cannot = |error: rustix::io::Errno| failed(b".", error.into());
        let directory = self.root.directory(b"").map_err(cannot)?;
        self.describe(head, directory.as_fd())
    }

    fn whiteout(&mut self, head: &Head, parent: &OwnedFd, name: &[u8]) -> Result<(), LayerError> {
        let cannot = |error: rustix::io::Errno| failed(&head.path, error.into());
        if name == OPAQUE {
            return make_opaque(parent.as_fd(), self.is_root).map_err(cannot);
        }
        if name.starts_with(AUFS) {
            return Ok(());
        }
        let hidden = &name[WHITEOUT.len()..];
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(LayerError::Escapes(shown(&head.path)));
        }
        match look(parent.as_fd(), hidden).map_err(cannot)? {
            Found::Nothing => {
                let (kind, mode) = (FileType::CharacterDevice, Mode::empty());
                rustix::fs::mknodat(parent, hidden, kind, mode, 0).map_err(cannot)
            }
            // what this layer has under the name is newer than what it hides
            Found::Directory => {
                let directory = open_directory(parent.as_fd(), hidden).map_err(cannot)?;
                make_opaque(directory.as_fd(), self.is_root).map_err(cannot)
            }
            Found::Whiteout | Found::File | Found::Link | Found::Other => Ok(()),
        }
    }

    fn directory(&mut self, head: &Head, parent: &OwnedFd, name: &[u8]) -> Result<(), LayerError> {
        let cannot = |error: rustix::io::Errno| failed(&head.path, error.into());
        let found = look(parent.as_fd(), name).map_err(cannot)?;
        if found != Found::Directory {
            remove_tree(parent.as_fd(), name).map_err(cannot)?;
            rustix::fs::mkdirat(parent, name, Mode::RWXU).map_err(cannot)?;
        }
        let directory = open_directory(parent.as_fd(), name).map_err(cannot)?;
        if found == Found::Whiteout {
            make_opaque(directory.as_fd(), self.is_root).map_err(cannot)?;
        }
        self.describe(head, directory.as_fd())
    }

    /// Owner, mode and times of a directory.
    fn describe(&mut self, head: &Head, directory: BorrowedFd<'_>) -> Result<(), LayerError> {
        let cannot = |error: rustix::io::Errno| failed(&head.path, error.into());
        let mode = match self.is_root {
            true => {
                let (user, group) = head.owner;
                rustix::fs::fchown(directory, Some(user), Some(group)).map_err(cannot)?;
                head.mode
            }
            // others can neither fill nor remove a directory that they have locked themselves out of
            false => head.mode | Mode::RWXU,
        };
        rustix::fs::fchmod(directory, mode).map_err(cannot)?;
        self.ahead.push((head.path.clone(), head.times.clone()));
        Ok(())
    }

    fn file<R: Read>(
        &mut self,
        head: &Head,
        parent: &OwnedFd,
        name: &[u8],
        content: &mut tar::Entry<'_, R>,
    ) -> Result<(), LayerError> {
        let cannot = |error: rustix::io::Errno| failed(&head.path, error.into());
        remove_tree(parent.as_fd(), name).map_err(cannot)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let made = rustix::fs::openat(parent, name, flags | OFlags::CLOEXEC, mode);
        let mut made = File::from(made.map_err(cannot)?);
        let is_sparse = head.kind.is_gnu_sparse();
        let mut left = head.size;
        while left > 0 {
            let count = content
                .read(&mut self.buffer)
                .map_err(LayerError::Archive)?;
            if count == 0 {
                return Err(LayerError::Archive(ErrorKind::UnexpectedEof.into()));
            }
            if is_sparse {
                self.meter
                    .charge(count as u64)
                    .map_err(LayerError::Archive)?;
            }
            made.write_all(&self.buffer[..count])
                .map_err(|error| failed(&head.path, error))?;
            left = left.saturating_sub(count as u64);
        }
        if self.is_root {
            let (user, group) = head.owner;
            rustix::fs::fchown(&made, Some(user), Some(group)).map_err(cannot)?;
        }
        // after the owner: a change of owner takes the bits for set-user-id away
        rustix::fs::fchmod(&made, head.mode).map_err(cannot)?;
        rustix::fs::futimens(&made, &head.times).map_err(cannot)
    }

    fn symlink(&mut self, head: &Head, parent: &OwnedFd, name: &[u8]) -> Result<(), LayerError> {
        let cannot = |error: rustix::io::Errno| failed(&head.path, error.into());
        remove_tree(parent.as_fd(), name).map_err(cannot)?;
        rustix::fs::symlinkat(head.link.as_slice(), parent, name).map_err(cannot)?;
        self.describe_node(head, parent, name)
    }

    fn pipe(&mut self, head: &Head, parent: &OwnedFd, name: &[u8]) -> Result<(), LayerError> {
        let cannot = |error: rustix::io::Errno| failed(&head.path, error.into());
        remove_tree(parent.as_fd(), name).map_err(cannot)?;
        rustix::fs::mknodat(parent, name, FileType::Fifo, Mode::empty(), 0).map_err(cannot)?;
        rustix::fs::chmodat(parent, name, head.mode, AtFlags::empty()).map_err(cannot)?;
        self.describe_node(head, parent, name)
    }

    /// Owner and times of what cannot be opened.
    fn describe_node(&self, head: &Head, parent: &OwnedFd, name: &[u8]) -> Result<(), LayerError> {
        let cannot = |error: rustix::io::Errno| failed(&head.path, error.into());
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if self.is_root {
            let (user, group) = head.owner;
            rustix::fs::chownat(parent, name, Some(user), Some(group), flags).map_err(cannot)?;
        }
        rustix::fs::utimensat(parent, name, &head.times, flags).map_err(cannot)
    }

    fn hard_link(&mut self, head: &Head, parent: &OwnedFd, name: &[u8]) -> Result<(), LayerError> {
        let wrong = || LayerError::Link {
            entry: shown(&head.path),
            target: shown(&head.link),
        };
        let target = cleaned(&head.link).ok_or_else(wrong)?;
        if target == head.path {
            return Ok(());
        }
        let (directory, file) = split(&target);
        let directory = self.root.directory(directory).map_err(|_| wrong())?;
        let found = match file {
            b"" => Found::Directory,
            file => look(directory.as_fd(), file).map_err(|_| wrong())?,
        };
        match found {
            Found::File | Found::Link => {}
            // a pipe, too: nothing that packs layers links those
            Found::Nothing | Found::Directory | Found::Whiteout | Found::Other => {
                return Err(wrong());
            }
        }
        let cannot = |error: rustix::io::Errno| failed(&head.path, error.into());
        remove_tree(parent.as_fd(), name).map_err(cannot)?;
        rustix::fs::linkat(&directory, file, parent, name, AtFlags::empty()).map_err(cannot)
    }
}

/// The directory of a path, and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&path[..0], path),
    }
}

/// A number of a header. Some leave out those that are zero.
fn or_zero<T: Default>(field: &[u8], number: io::Result<T>) -> Result<T, LayerError> {
    match field.iter().all(|byte| matches!(byte, 0 | b' ')) {
        true => Ok(T::default()),
        false => number.map_err(LayerError::Archive),
    }
}

/// A path of the archive as one beneath the root, or nothing if it could lead elsewhere.
fn cleaned(raw: &[u8]) -> Option<Vec<u8>> {
    let mut path = Vec::with_capacity(raw.len());
    for part in raw.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return None,
            part => {
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(part);
            }
        }
    }
    Some(path)
}

fn failed(entry: &[u8], source: io::Error) -> LayerError {
    match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => LayerError::Full,
        // the answer of the kernel to a way that leads out of the root
        ErrorKind::CrossesDevices => LayerError::Escapes(shown(entry)),
        _ => LayerError::Entry {
            entry: shown(entry),
            source,
        },
    }
}

/// A name as one can print it.
fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let mut short: String = text.chars().take(200).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}

#[cfg(test)]
mod tests {
    use super::cleaned;

    #[test]
    fn paths_are_taken_as_if_the_layer_were_the_whole_disk() {
        for (raw, path) in [
            ("a/b", Some("a/b")),
            ("./a//b/.", Some("a/b")),
            ("/etc/passwd", Some("etc/passwd")),
            ("./", Some("")),
            ("..", None),
            ("a/../b", None),
            ("/..", None),
            ("a..b/...", Some("a..b/...")),
        ] {
            assert_eq!(
                cleaned(raw.as_bytes()).as_deref(),
                path.map(str::as_bytes),
                "{raw}"
            );
        }
    }
}

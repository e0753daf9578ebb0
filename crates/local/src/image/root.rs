//! A directory that nothing leads out of: whatever a path says, the kernel resolves it beneath the root.
//!
//! Nobody else writes in such a directory while it is being filled.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, XattrFlags};
use rustix::io::Errno;

const TRUSTED_OPAQUE: &str = "trusted.overlay.opaque";
const USER_OPAQUE: &str = "user.overlay.opaque";

/// An open directory and all beneath it.
pub(super) struct Root {
    fd: OwnedFd,
}

/// What is at a place, looked at without following it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Directory,
    /// The mark of overlayfs that a name of the layers below is gone: a character device with the number 0/0.
    Whiteout,
    File,
    Link,
    Other,
}

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Self { fd })
    }

    /// Opens a directory at a path without `..` and without a leading slash; an empty one is the root itself.
    pub(super) fn directory(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens a file for reading; it may turn out to be anything.
    pub(super) fn file(&self, path: &[u8]) -> Result<File, Errno> {
        // a pipe without a writer must not stop the reader
        self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
            .map(File::from)
    }

    fn resolve(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        loop {
            match rustix::fs::openat2(&self.fd, path, flags, Mode::empty(), resolve) {
                // something was renamed somewhere, and the kernel could not tell whether it mattered
                Err(Errno::AGAIN | Errno::INTR) => {}
                answer => return answer,
            }
        }
    }

    /// Opens a directory and makes those on the way that are not there.
    pub(super) fn make_directory(&self, path: &[u8], is_root: bool) -> Result<OwnedFd, Errno> {
        match self.directory(path) {
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            answer => return answer,
        }
        let mut at = self.directory(b"")?;
        let mut start = 0;
        for name in path.split(|byte| *byte == b'/') {
            let end = start + name.len();
            let so_far = &path[..end];
            at = match self.directory(so_far) {
                Err(Errno::NOENT | Errno::NOTDIR) => {
                    make_one(at.as_fd(), name, is_root)?;
                    self.directory(so_far)?
                }
                answer => answer?,
            };
            start = end + 1;
        }
        Ok(at)
    }
}

/// Makes a directory where nothing is, or where a whiteout is: then what lies below stays hidden.
fn make_one(parent: BorrowedFd<'_>, name: &[u8], is_root: bool) -> Result<(), Errno> {
    let found = look(parent, name)?;
    if found == Found::Whiteout {
        rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
    }
    rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
    let made = open_directory(parent, name)?;
    rustix::fs::fchmod(&made, Mode::from_raw_mode(0o755))?;
    match found {
        Found::Whiteout => make_opaque(made.as_fd(), is_root),
        _ => Ok(()),
    }
}

pub(super) fn open_directory(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// What is in a directory under this name.
pub(super) fn look(parent: BorrowedFd<'_>, name: &[u8]) -> Result<Found, Errno> {
    let stat = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(Found::Nothing),
        stat => stat?,
    };
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Found::Directory,
        FileType::RegularFile => Found::File,
        FileType::Symlink => Found::Link,
        FileType::CharacterDevice if stat.st_rdev == 0 => Found::Whiteout,
        _ => Found::Other,
    })
}

/// Hides what the layers below have in a directory. Overlays of root read the one attribute, those of other users the
/// other: with both, a layer serves either.
pub(super) fn make_opaque(directory: BorrowedFd<'_>, is_root: bool) -> Result<(), Errno> {
    let set = |name: &str| rustix::fs::fsetxattr(directory, name, b"y", XattrFlags::empty());
    let user = set(USER_OPAQUE);
    match is_root {
        true => set(TRUSTED_OPAQUE).or(user),
        false => user,
    }
}

pub(super) fn is_opaque(directory: BorrowedFd<'_>) -> bool {
    [TRUSTED_OPAQUE, USER_OPAQUE].iter().any(|name| {
        let mut value = [0; 1];
        let length = rustix::fs::fgetxattr(directory, *name, value.as_mut_slice());
        length == Ok(1) && value == *b"y"
    })
}

/// Removes whatever is at a name. It needs two open files and no recursion, however deep the tree: a layer can be deeper
/// than a process may have files open, and the walk of the standard library would end half way.
pub(super) fn remove_tree(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    match look(parent, name)? {
        Found::Nothing => return Ok(()),
        Found::Directory => {}
        _ => return rustix::fs::unlinkat(parent, name, AtFlags::empty()),
    }
    let mut at = open_directory(parent, name)?;
    let mut way: Vec<Vec<u8>> = Vec::new();
    loop {
        if let Some(below) = remove_files(at.as_fd())? {
            at = open_directory(at.as_fd(), &below)?;
            way.push(below);
            continue;
        }
        let Some(done) = way.pop() else {
            return rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
        };
        at = open_directory(at.as_fd(), b"..")?;
        rustix::fs::unlinkat(&at, done.as_slice(), AtFlags::REMOVEDIR)?;
    }
}

/// Removes the files and empty directories of a directory up to the first directory that has something in it.
fn remove_files(directory: BorrowedFd<'_>) -> Result<Option<Vec<u8>>, Errno> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {}
            removed => {
                removed?;
                continue;
            }
        }
        match rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(Some(name.to_bytes().to_vec())),
            removed => removed?,
        }
    }
    Ok(None)
}

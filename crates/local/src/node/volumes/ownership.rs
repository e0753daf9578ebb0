//! `fsGroup`: volumes that a group of the pod may read and write. Only root can give files away; who is not root runs
//! containers of one user, whose files they all are.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags};

/// What its group may do with a directory, and that new files are of this group, too.
const DIRECTORY: u32 = 0o2770;
const FILE: u32 = 0o660;
/// Of what nobody writes to.
const READ_ONLY_FILE: u32 = 0o440;
/// Files that lie deeper keep their group: nobody may make the node open as many directories as they like.
const DEEPEST: u32 = 64;

/// The group to which the volumes of a pod are to belong.
pub(super) fn group(pod: &Pod) -> Option<u32> {
    let context = pod.spec.as_ref()?.security_context.as_ref()?;
    let group = u32::try_from(context.fs_group?).ok()?;
    rustix::process::geteuid().is_root().then_some(group)
}

/// The mode of a file that is written here, with what a group adds to it.
pub(super) fn file_mode(mode: u32, group: Option<u32>) -> u32 {
    mode | group.map_or(0, |_| READ_ONLY_FILE)
}

/// For a directory that only this process has seen.
pub(super) fn set_directory(path: &Path, mode: u32, group: Option<u32>) -> io::Result<()> {
    if let Some(group) = group {
        chown(path, None, Some(group))?;
    }
    let mode = mode | group.map_or(0, |_| DIRECTORY);
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Gives a directory that containers have written to, and everything in it, to a group. What the directory itself says is
/// believed, and changed last: who was interrupted begins again.
pub(super) fn give(top: &Path, group: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = rustix::fs::open(top, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&top)?;
    if stat.st_gid == group && stat.st_mode & DIRECTORY == DIRECTORY {
        return Ok(());
    }
    let group = Gid::from_raw(group);
    give_content(top.as_fd(), group, DEEPEST)?;
    change(&top, group, DIRECTORY)
}

fn give_content(directory: BorrowedFd<'_>, group: Gid, depth: u32) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => continue,
            found => found?,
        };
        match FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) {
            FileType::Symlink => {
                rustix::fs::chownat(&found, "", None, Some(group), AtFlags::EMPTY_PATH)?;
            }
            FileType::Directory => {
                if let Some(depth) = depth.checked_sub(1) {
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                    let opened = rustix::fs::openat(&found, ".", flags, Mode::empty())?;
                    give_content(opened.as_fd(), group, depth)?;
                }
                change(&found, group, DIRECTORY)?;
            }
            _ => change(&found, group, FILE)?,
        }
    }
    Ok(())
}

/// By its descriptor: the name may mean something else by now.
fn change(found: &OwnedFd, group: Gid, more: u32) -> io::Result<()> {
    rustix::fs::chownat(found, "", None, Some(group), AtFlags::EMPTY_PATH)?;
    let mode = rustix::fs::fstat(found)?.st_mode & 0o1777;
    let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
    rustix::fs::chmod(itself, Mode::from_raw_mode(mode | more))?;
    Ok(())
}

//! `emptyDir` in memory: a file system of its own for each volume, which holds no more than it may.
//!
//! They are mounted where the machine sees them, as those of a kubelet: whoever comes after a crash finds them there.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, Pod};
use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, unmount,
};

use super::ownership;
use crate::node::{settings::limits, storage};

/// The smaller one of what the volume and what its pod may hold. Without either it is the kernel's own: half of the memory
/// that the machine has.
pub(super) fn size(pod: &Pod, wish: &EmptyDirVolumeSource) -> Option<u64> {
    let own = wish.size_limit.as_ref().and_then(storage::bytes);
    own.into_iter().chain(of_pod(pod)).min()
}

/// What the containers of a pod may have together, if none of them may have any amount.
fn of_pod(pod: &Pod) -> Option<u64> {
    let spec = pod.spec.as_ref()?;
    let limit = |container: &Container| limits(container.resources.as_ref()).memory;
    let stays = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let inits = spec.init_containers.iter().flatten();
    let sidecars = inits.filter(stays);
    let mut all = spec.containers.iter().chain(sidecars).map(limit);
    all.try_fold(0, |sum: u64, limit| Some(sum.saturating_add(limit?)))
}

/// Everyone's, unless it is there: then it stays as it is. It appears only when it is ready.
pub(super) fn make(
    parent: &Path,
    name: &str,
    size: Option<u64>,
    group: Option<u32>,
) -> io::Result<PathBuf> {
    let path = parent.join(name);
    fs::create_dir_all(&path)?;
    if is_mounted(&path, parent)? {
        return Ok(path);
    }
    let file_system = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    if let Some(size) = size {
        fsconfig_set_string(file_system.as_fd(), "size", size.to_string())?;
    }
    fsconfig_create(file_system.as_fd())?;
    let safe = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = fsmount(file_system.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, safe)?;
    let itself = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
    ownership::set_directory(&itself, 0o777, group)?;
    let whole = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&mount, "", CWD, &path, whole)?;
    Ok(path)
}

fn is_mounted(path: &Path, parent: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.dev() != fs::metadata(parent)?.dev())
}

/// Removes the volumes in memory of one pod.
pub(crate) fn remove(of_pod: &Path) -> io::Result<()> {
    let volumes = match fs::read_dir(of_pod) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        volumes => volumes?,
    };
    for volume in volumes {
        let path = volume?.path();
        // lazily: who looks at it does not keep it. Where nothing is mounted it is a directory, and removed as one
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        while unmount(&path, flags).is_ok() {}
    }
    container::remove_tree(of_pod)
}

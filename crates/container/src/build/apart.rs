//! Containers with users of their own that root has started. What they see on disk belongs to them through mounts that map
//! ids; on disk it all stays as it was. Their builder enters their user namespace once everything is mounted.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags};
use rustix::process::{Gid, Uid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::{BuildError, Stdio, during};
use crate::settings::{IdMap, User, UserNamespace};
use crate::{sys, user_namespace};

/// What the last steps before a container need of the machine as it is.
const NEEDED: [&str; 3] = ["proc", "sys", "dev"];

/// The users of a pod that are not those of the machine, though root has started it.
#[derive(Clone, Copy)]
pub(crate) struct Users<'a> {
    pub(crate) namespace: &'a OwnedFd,
    pub(crate) ids: &'a UserNamespace,
}

impl Users<'_> {
    /// Who a user of the container is on the machine.
    fn outside(&self, user: &User) -> Option<User> {
        Some(User {
            uid: outside(&self.ids.uids, user.uid)?,
            gid: outside(&self.ids.gids, user.gid)?,
            additional_gids: Vec::new(),
        })
    }

    fn root(&self) -> Result<User, BuildError> {
        let root = self.outside(&User::default());
        root.ok_or_else(|| BuildError::Refused("root of the container is nobody".to_owned()))
    }

    /// The same file or directory, in a mount that shows who it belongs to in ids of the container.
    pub(crate) fn map(&self, file: &OwnedFd, what: &Path) -> Result<OwnedFd, BuildError> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE;
        let doing = format!("mapping the users of {}", what.display());
        let tree = during(&doing, rustix::mount::open_tree(file, "", flags))?;
        during(doing, sys::map_users(&tree, self.namespace))?;
        Ok(tree)
    }

    /// Gives a directory that was made for the container to its root.
    pub(super) fn give(&self, directory: &Path) -> Result<(), BuildError> {
        let User { uid, gid, .. } = self.root()?;
        let given = std::os::unix::fs::chown(directory, Some(uid), Some(gid));
        during(format!("giving {} away", directory.display()), given)
    }

    pub(super) fn hand_over(&self, stdio: &Stdio, user: &User) -> Result<(), BuildError> {
        let outside = self.outside(user).ok_or_else(|| {
            BuildError::Refused(format!(
                "user {} and group {} are not among the users that the pod has",
                user.uid, user.gid
            ))
        })?;
        super::hand_over(stdio, &outside)
    }

    /// Leaves nothing of the machine's but what has been mounted. The container's directory stays where it is, though root alone
    /// may go there.
    pub(super) fn move_in(&self, dir: &Path) -> Result<(), BuildError> {
        let opened = super::mounts::open(dir)?;
        let tree = self.map(&opened, dir)?;
        uncover(dir)?;
        place(&tree, dir)
    }

    /// Makes this process root of the container.
    pub(super) fn become_root(&self) -> Result<(), BuildError> {
        let doing = "entering the users of the pod";
        let namespace = Some(LinkNameSpaceType::User);
        during(
            doing,
            move_into_link_name_space(self.namespace.as_fd(), namespace),
        )?;
        let (uid, gid) = (Uid::from_raw(0), Gid::from_raw(0));
        during(doing, rustix::thread::set_thread_res_gid(gid, gid, gid))?;
        during(doing, rustix::thread::set_thread_res_uid(uid, uid, uid))?;
        during(
            "making a mount namespace",
            sys::unshare(UnshareFlags::NEWNS | UnshareFlags::NEWCGROUP),
        )
    }
}

fn outside(maps: &[IdMap], inside: u32) -> Option<u32> {
    maps.iter().find_map(|map| {
        let offset = inside.checked_sub(map.inside)?;
        (offset < map.count).then(|| map.outside.checked_add(offset))?
    })
}

/// Puts a mount that is nowhere yet at a place.
pub(super) fn place(tree: &OwnedFd, at: &Path) -> Result<(), BuildError> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    let moved = rustix::mount::move_mount(tree, "", CWD, at, flags);
    during(format!("mounting at {}", at.display()), moved)
}

/// Makes a way to a directory that everybody may go, in this mount namespace: all else beside it vanishes.
fn uncover(dir: &Path) -> Result<(), BuildError> {
    let first = dir.components().find_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        _ => None,
    });
    let first = first.filter(|name| !NEEDED.iter().any(|needed| name == needed));
    let Some(first) = first else {
        let text = format!("a pod with users of its own cannot be in {}", dir.display());
        return Err(BuildError::Refused(text));
    };
    let top = PathBuf::from("/").join(first);
    let mounted = rustix::mount::mount(
        "tmpfs",
        &top,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        Some(c"mode=755"),
    );
    during(format!("covering {}", top.display()), mounted)?;
    during(format!("making {}", dir.display()), fs::create_dir_all(dir))
}

/// Makes a user namespace and a network, names and ipc that belong to it. This process joins the latter and keeps the former.
///
/// They are made by a child, which lives until they are joined: whoever enters a user namespace is nobody outside of it.
pub(crate) fn make(
    ids: &UserNamespace,
    furnish: impl FnOnce() -> Result<(), String>,
) -> Result<OwnedFd, String> {
    let failed = |error: io::Error| format!("making the pod's user namespace: {error}");
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
    let (heard, said) = pipe().map_err(|error| failed(error.into()))?;
    let (wait, joined) = pipe().map_err(|error| failed(error.into()))?;
    let Some(child) = sys::fork().map_err(failed)? else {
        drop((heard, joined));
        let made = user_namespace::enter(ids).map_err(failed);
        if let Err(reason) = made.and_then(|()| furnish()) {
            let _ = rustix::io::write(&said, reason.as_bytes());
        }
        drop(said);
        let _ = rustix::io::read(&wait, &mut [0_u8]);
        sys::exit_child(0);
    };
    drop((said, wait));
    let reason = io::read_to_string(fs::File::from(heard)).map_err(failed)?;
    if !reason.is_empty() {
        return Err(reason);
    }
    let open = |kind: &str| {
        let path = format!("/proc/{}/ns/{kind}", child.as_raw_pid());
        fs::File::open(path).map_err(failed)
    };
    let kinds = [
        ("net", LinkNameSpaceType::Network),
        ("ipc", LinkNameSpaceType::InterProcessCommunication),
        ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
    ];
    for (name, kind) in kinds {
        let joined = move_into_link_name_space(open(name)?.as_fd(), Some(kind));
        joined.map_err(|error| failed(error.into()))?;
    }
    Ok(open("user")?.into())
}

#[cfg(test)]
mod tests {
    use super::outside;
    use crate::settings::IdMap;

    #[test]
    fn users_of_a_container_are_others_on_the_machine_or_nobody() {
        let map = [IdMap {
            inside: 0,
            outside: 1000,
            count: 10,
        }];
        assert_eq!(outside(&map, 0), Some(1000));
        assert_eq!(outside(&map, 9), Some(1009));
        assert_eq!(outside(&map, 10), None);
    }
}

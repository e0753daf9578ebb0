//! File systems made ready in the builder's own mount namespace, for the container library to put in their places.
//!
//! Layers and volumes are opened first and mounted by descriptor: no path that a sandbox can change is looked up twice, and
//! paths of any length fit into the options of an overlay.

use std::fs;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use pathrs::Root as SafeRoot;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::mount::MountFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::{BuildError, Place, apart, during, library};
use crate::settings::{ContainerSettings, MountSource};

/// Where everything was put, in the order of the settings.
#[derive(Default)]
pub(super) struct Staged {
    pub(super) root: PathBuf,
    pub(super) overlays: Vec<PathBuf>,
    /// None for what is not a bind mount.
    pub(super) mounts: Vec<Option<PathBuf>>,
    /// Where its cgroups will be, if it has any.
    pub(super) cgroups: Option<PathBuf>,
}

/// Mounts the root file system, overlays and volumes under the container's directory.
pub(super) fn stage(
    context: &Place<'_>,
    settings: &ContainerSettings,
) -> Result<Staged, BuildError> {
    let dir = context.dir;
    let root = dir.join("rootfs");
    let upper = Some(dir.join("upper"));
    overlay(&settings.root.layers, upper.as_deref(), &root, context)?;
    let mut overlays = Vec::new();
    for (index, wanted) in settings.overlays.iter().enumerate() {
        let place = dir.join(format!("overlay-{index}"));
        let upper = (!wanted.read_only).then(|| dir.join(format!("overlay-{index}-upper")));
        overlay(&wanted.layers, upper.as_deref(), &place, context)?;
        overlays.push(place);
    }
    let mut mounts = Vec::new();
    for (index, mount) in settings.mounts.iter().enumerate() {
        mounts.push(match &mount.source {
            MountSource::Tmpfs { .. } => None,
            MountSource::Bind { path, sub_path } => {
                let place = dir.join(format!("volume-{index}"));
                bind(path, sub_path.as_deref(), &place, context)?;
                Some(place)
            }
        });
    }
    let cgroups = match context.cgroups.shown(context.leaf).is_empty() {
        true => None,
        false => Some(dir.join("cgroups")),
    };
    cgroups.as_deref().map_or(Ok(()), make_dir)?;
    Ok(Staged {
        root,
        overlays,
        mounts,
        cgroups,
    })
}

/// Mounts what limits the container at the place that was made for it. Its whole tree is shown to the container read-only, and
/// nothing of it is above the container's own cgroups.
pub(super) fn cgroups(context: &Place<'_>, staged: &Staged) -> Result<(), BuildError> {
    let Some(place) = &staged.cgroups else {
        return Ok(());
    };
    let shown = context.cgroups.shown(context.leaf);
    if shown.iter().any(|(_, name)| !name.as_os_str().is_empty()) {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let options = Some(c"mode=755,size=64k");
        let mounted = rustix::mount::mount("tmpfs", place, "tmpfs", flags, options);
        during("mounting a place for cgroups", mounted)?;
    }
    for (own, name) in shown {
        let at = place.join(&name);
        make_dir(&at)?;
        let doing = format!("showing cgroup {}", own.display());
        during(doing, rustix::mount::mount_bind(&own, &at))?;
        for link in links(&name) {
            during("naming a cgroup", symlink(&name, place.join(link)))?;
        }
    }
    Ok(())
}

/// A hierarchy of several controllers, such as `cpu,cpuacct`, is found by each of them.
fn links(name: &Path) -> Vec<&str> {
    let parts: Vec<&str> = name.to_str().unwrap_or_default().split(',').collect();
    match parts.len() {
        1 => Vec::new(),
        _ => parts,
    }
}

/// Mounts layers, the lowest first, at a place that is made for it. Without a writable layer nothing in it can change.
fn overlay(
    layers: &[PathBuf],
    upper: Option<&Path>,
    place: &Path,
    context: &Place<'_>,
) -> Result<(), BuildError> {
    make_dir(place)?;
    let layer = |(index, layer): (usize, &PathBuf)| {
        let opened = open(layer)?;
        let Some(users) = context.users else {
            return Ok(opened);
        };
        let mapped = users.map(&opened, layer)?;
        // older kernels make no overlay of what is mounted nowhere
        let somewhere = place.with_extension(format!("layer-{index}"));
        make_dir(&somewhere)?;
        apart::place(&mapped, &somewhere)?;
        Ok(mapped)
    };
    let lower: Vec<OwnedFd> = layers
        .iter()
        .enumerate()
        .rev()
        .map(layer)
        .collect::<Result<_, _>>()?;
    if let ([single], None) = (lower.as_slice(), upper) {
        // the kernel makes no overlay of one layer
        return during(
            format!("mounting {}", layers[0].display()),
            rustix::mount::mount_bind(by_descriptor(single), place),
        );
    }
    let names: Vec<String> = lower.iter().map(by_descriptor).collect();
    let mut options = format!("lowerdir={}", names.join(":"));
    let mut kept = Vec::new();
    if let Some(upper) = upper {
        let work = upper.with_extension("work");
        for (option, dir) in [("upperdir", upper), ("workdir", &work)] {
            make_dir(dir)?;
            if let Some(users) = context.users {
                users.give(dir)?;
            }
            let fd = open(dir)?;
            options = format!("{options},{option}={}", by_descriptor(&fd));
            kept.push(fd);
        }
    }
    if context.user_namespace {
        options.push_str(",userxattr");
    }
    let options = std::ffi::CString::new(options).map_err(io::Error::from);
    let options = during("mounting layers", options)?;
    let mounted = rustix::mount::mount(
        "overlay",
        place,
        "overlay",
        MountFlags::NODEV,
        Some(options.as_c_str()),
    );
    during(
        format!("mounting {} layers at {}", layers.len(), place.display()),
        mounted,
    )
}

/// Mounts a volume, or a path in it that a sandbox may have made, at a place that is made for it.
fn bind(
    source: &Path,
    sub_path: Option<&Path>,
    place: &Path,
    context: &Place<'_>,
) -> Result<(), BuildError> {
    let opened = match sub_path {
        None => open(source)?,
        Some(sub_path) => within(source, sub_path)?,
    };
    let doing = format!("mounting volume {}", source.display());
    let kind = during(&doing, rustix::fs::fstat(&opened))?;
    if FileType::from_raw_mode(kind.st_mode) == FileType::Directory {
        make_dir(place)?;
    } else {
        during(&doing, fs::write(place, ""))?;
    }
    if let Some(users) = context.users {
        return apart::place(&users.map(&opened, source)?, place);
    }
    let mounted = rustix::mount::mount_bind_recursive(by_descriptor(&opened), place);
    during(doing, mounted)
}

/// A path below a volume, with the volume as the root of every symbolic link on the way. A directory that is not there is made.
fn within(volume: &Path, sub_path: &Path) -> Result<OwnedFd, BuildError> {
    // what is in the volume may change, so this is not the end of the container
    let failed = |error: pathrs::error::Error| {
        BuildError::Refused(library("resolving a path in a volume", &error).to_string())
    };
    let root = SafeRoot::open(volume).map_err(failed)?;
    let handle = match root.resolve(sub_path) {
        Ok(handle) => handle,
        Err(_) => root
            .mkdir_all(sub_path, &fs::Permissions::from_mode(0o750))
            .map_err(failed)?,
    };
    Ok(handle.into())
}

/// A container starts where it was told to, even if nobody made the directory. An error if something else lies there, which is the
/// reason if the container cannot be made: a volume may hide it.
pub(super) fn make_cwd(root: &Path, cwd: &Path) -> Result<(), String> {
    let Ok(root) = SafeRoot::open(root) else {
        return Ok(());
    };
    let made = root.mkdir_all(cwd, &fs::Permissions::from_mode(0o755));
    match made.map_err(|error| error.kind()) {
        Err(pathrs::error::ErrorKind::OsError(Some(libc::ENOTDIR | libc::EEXIST))) => {
            let cwd = cwd.display();
            Err(format!("entering working directory {cwd}: not a directory"))
        }
        _ => Ok(()),
    }
}

/// A descriptor that came over a socket without any frame around it.
pub(super) fn receive_fd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut bytes = [0_u8; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    recvmsg(
        socket.as_fd(),
        &mut buffers,
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    fd.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
}

pub(super) fn open(path: &Path) -> Result<OwnedFd, BuildError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    during(format!("opening {}", path.display()), opened)
}

fn by_descriptor(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn make_dir(path: &Path) -> Result<(), BuildError> {
    during(
        format!("making {}", path.display()),
        fs::create_dir_all(path),
    )
}

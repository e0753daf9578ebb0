//! Mounts: the volumes that `/init` names, and those of `storage`. What is mounted as it should be is left alone.

use std::ffi::{CString, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};
use serde::Deserialize;

use super::error::Error;
use crate::code::Code;

/// As the NFS servers behind `/init` want it.
const OPTIONS_OF_INIT: &str =
    "vers=3,proto=tcp,port=2049,mountproto=tcp,mountport=2049,nolock,noacl";

#[derive(Deserialize)]
pub(super) struct VolumeMount {
    /// `<address>:<directory>`.
    nfs_target: String,
    path: String,
}

/// Mounts what is not mounted yet.
pub(super) fn mount_all(volumes: &[VolumeMount]) -> Result<(), Error> {
    volumes.iter().try_for_each(|volume| {
        let mount = Mount {
            source: Source::nfs(&volume.nfs_target, OPTIONS_OF_INIT)?,
            target: volume.path.clone().into(),
            flags: MountFlags::empty(),
        };
        mount.ensure()
    })
}

#[derive(Debug)]
pub(super) struct Mount {
    pub(super) source: Source,
    pub(super) target: PathBuf,
    pub(super) flags: MountFlags,
}

#[derive(Debug)]
pub(super) enum Source {
    /// Of the sandbox itself.
    Directory(PathBuf),
    Nfs {
        /// `<address>:<directory>`.
        export: String,
        options: CString,
    },
}

impl Source {
    pub(super) fn nfs(export: &str, options: &str) -> Result<Self, Error> {
        let address = server(export).ok_or_else(|| {
            Error::invalid(format!(
                "NFS target '{export}' is not <address>:<directory>"
            ))
        })?;
        let options = CString::new(format!("addr={address},{options}"))
            .map_err(|_| Error::invalid("the options of the mount contain a zero byte"))?;
        Ok(Self::Nfs {
            export: export.to_owned(),
            options,
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(directory) => write!(out, "{}", directory.display()),
            Self::Nfs { export, .. } => out.write_str(export),
        }
    }
}

/// The kernel does not resolve names.
fn server(export: &str) -> Option<IpAddr> {
    let (host, directory) = export.rsplit_once(":/")?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!directory.contains('\0')).then(|| host.parse().ok())?
}

impl Mount {
    /// Mounts it unless it is mounted. Refuses if something else is, or if it is not as it should be.
    pub(super) fn ensure(&self) -> Result<(), Error> {
        if let Source::Directory(directory) = &self.source {
            fs::read_dir(directory).map_err(|e| Error::of_path("reading", directory, &e))?;
        }
        let of_target = |e: io::Error| Error::of_path("making", &self.target, &e);
        fs::create_dir_all(&self.target).map_err(of_target)?;
        let target = fs::canonicalize(&self.target).map_err(of_target)?;
        if self.is_at(&target)? {
            return Ok(());
        }
        // Whoever asks for the same at the same time waits here. Behind a mount that came in between there may be no locks; then
        // it is seen below.
        let directory = File::open(&target).map_err(of_target)?;
        let _ = directory.lock();
        if self.is_at(&target)? {
            return Ok(());
        }
        self.make(&target)
    }

    fn is_at(&self, target: &Path) -> Result<bool, Error> {
        let mounts = fs::read("/proc/self/mountinfo")
            .map_err(|e| Error::internal(format!("cannot read what is mounted: {e}")))?;
        let Some(there) = Mounted::at(target, &mounts) else {
            return Ok(false);
        };
        let place = target.display();
        let taken = |message| Err(Error::new(Code::AlreadyExists, message));
        if !self.is_same(&there, target) {
            let Mounted { root, device, .. } = there;
            return taken(format!(
                "cannot mount {} at '{place}': '{root}' of {device} is mounted there",
                self.source
            ));
        }
        match (self.becomes_read_only(), is_read_only(target)) {
            (true, false) => taken(format!(
                "{} is mounted at '{place}', but writable",
                self.source
            )),
            (false, true) => taken(format!(
                "{} is mounted at '{place}', but read-only",
                self.source
            )),
            _ => Ok(true),
        }
    }

    fn is_same(&self, there: &Mounted, target: &Path) -> bool {
        match &self.source {
            Source::Nfs { export, .. } => {
                // the kernel leaves slashes at the end away
                let without_slash = |export: &str| export.trim_end_matches('/').to_owned();
                there.kind.starts_with("nfs")
                    && without_slash(&there.device) == without_slash(export)
            }
            Source::Directory(directory) => {
                let identity = |path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
                identity(directory.as_path()) == identity(target)
            }
        }
    }

    /// What is bound from a read-only place is so without being asked.
    fn becomes_read_only(&self) -> bool {
        let inherited = match &self.source {
            Source::Directory(directory) => is_read_only(directory),
            Source::Nfs { .. } => false,
        };
        inherited || self.flags.contains(MountFlags::RDONLY)
    }

    fn make(&self, target: &Path) -> Result<(), Error> {
        let made = match &self.source {
            Source::Directory(directory) => bind(directory, target, self.flags),
            Source::Nfs { export, options } => {
                mount(export, target, "nfs", self.flags, options.as_c_str())
            }
        };
        made.map_err(|error| {
            let doing = format!("cannot mount {} at '{}'", self.source, target.display());
            match error {
                Errno::NODEV => Error::new(
                    Code::Unimplemented,
                    format!("{doing}: this kernel has no NFS"),
                ),
                Errno::PERM => Error::new(Code::PermissionDenied, format!("{doing}: {error}")),
                _ => Error::internal(format!("{doing}: {error}")),
            }
        })
    }
}

/// The kernel binds first and takes flags second.
fn bind(directory: &Path, target: &Path, flags: MountFlags) -> Result<(), Errno> {
    mount_bind(directory, target)?;
    if flags.is_empty() {
        return Ok(());
    }
    let flagged = inherited(target)
        .and_then(|inherited| mount_remount(target, MountFlags::BIND | inherited | flags, ""));
    if flagged.is_err() {
        let _ = unmount(target, UnmountFlags::DETACH);
    }
    flagged
}

/// Those flags that a mount loses if they are not said again.
fn inherited(target: &Path) -> Result<MountFlags, Errno> {
    let set = statvfs(target)?.f_flag;
    let kept = [
        (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    ];
    Ok(kept
        .into_iter()
        .filter_map(|(seen, flag)| set.contains(seen).then_some(flag))
        .collect())
}

fn is_read_only(path: &Path) -> bool {
    statvfs(path).is_ok_and(|system| system.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// What the kernel says of a mount.
#[derive(Debug, PartialEq)]
struct Mounted {
    /// The directory of the file system that is seen.
    root: String,
    kind: String,
    device: String,
}

impl Mounted {
    /// Of several mounts at one place the last is seen.
    fn at(target: &Path, mountinfo: &[u8]) -> Option<Self> {
        mountinfo
            .rsplit(|byte| *byte == b'\n')
            .find_map(|line| Self::of_line(target, line))
    }

    fn of_line(target: &Path, line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ').map(unescape);
        let root = fields.nth(3)?;
        if Path::new(&fields.next()?) != target {
            return None;
        }
        // between the options and the dash stand as many fields as the kernel likes
        fields.find(|field| field == "-")?;
        let mut text = || Some(fields.next()?.to_string_lossy().into_owned());
        Some(Self {
            kind: text()?,
            device: text()?,
            root: root.to_string_lossy().into_owned(),
        })
    }
}

/// Spaces and the like are written as `\040`.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, others)) = rest.split_first() {
        let octal = others.get(..3).filter(|_| first == b'\\');
        let code = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(code.unwrap_or(first));
        rest = if code.is_some() { &others[3..] } else { others };
    }
    OsString::from_vec(plain)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::mount::MountFlags;

    use super::{Mount, Mounted, Source, server};

    const MOUNTINFO: &[u8] = b"\
21 1 254:1 / / rw,relatime - ext4 /dev/root rw\n\
40 21 0:40 / /mnt/a\\040b rw shared:7 master:2 - nfs4 10.0.0.1:/data rw,vers=4.1\n\
41 40 0:41 /old /mnt/twice rw - tmpfs first rw\n\
42 41 0:42 /new /mnt/twice rw - tmpfs second rw\n";

    #[test]
    fn a_mount_is_known_by_its_place() {
        let at = |target| {
            let Mounted { root, kind, device } = Mounted::at(Path::new(target), MOUNTINFO)?;
            Some((root, kind, device))
        };
        let seen = |root: &str, kind: &str, device: &str| {
            Some((root.to_owned(), kind.to_owned(), device.to_owned()))
        };
        assert_eq!(at("/"), seen("/", "ext4", "/dev/root"));
        assert_eq!(at("/mnt/a b"), seen("/", "nfs4", "10.0.0.1:/data"));
        assert_eq!(at("/mnt/twice"), seen("/new", "tmpfs", "second"));
        assert_eq!(at("/mnt"), None);
    }

    #[test]
    fn an_export_is_mounted_only_if_it_is_that_of_the_same_server() {
        let target = Path::new("/mnt/a b");
        let there = Mounted::at(target, MOUNTINFO).unwrap();
        for (export, same) in [
            ("10.0.0.1:/data", true),
            ("10.0.0.1:/data/", true),
            ("10.0.0.2:/data", false),
            ("10.0.0.1:/data/sub", false),
        ] {
            let mount = Mount {
                source: Source::nfs(export, "").unwrap(),
                target: target.into(),
                flags: MountFlags::empty(),
            };
            assert_eq!(mount.is_same(&there, target), same, "{export}");
        }
    }

    #[test]
    fn a_target_names_the_address_of_its_server() {
        assert_eq!(server("10.0.0.1:/data"), "10.0.0.1".parse().ok());
        assert_eq!(server("[fd00::1]:/data"), "fd00::1".parse().ok());
        assert_eq!(server("storage:/data"), None);
        assert_eq!(server("10.0.0.1"), None);
    }
}

//! Which cgroup file systems the machine has, and what each of them is asked for.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::in_dir;
use super::limits::{self, Setting};
use crate::settings::Limits;

/// What is limited, and so what version 1 needs a directory for.
const CONTROLLERS: [&str; 4] = ["cpu", "memory", "pids", "devices"];
/// What a container may want to know its limits of.
const SHOWN: [&str; 3] = ["cpu", "memory", "pids"];
/// Where systemd, if it runs here, looks up which service a process belongs to.
const SYSTEMD: &str = "name=systemd";
/// The devices of every container: null, zero, full, tty, random, urandom, terminals. `m` is for making them.
const DEVICES: [&str; 9] = [
    "c 1:3 rwm",
    "c 1:5 rwm",
    "c 1:7 rwm",
    "c 1:8 rwm",
    "c 1:9 rwm",
    "c 5:0 rwm",
    "c 5:1 rwm",
    "c 5:2 rwm",
    "c 136:* rwm",
];

/// One mounted cgroup file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hierarchy {
    V1 {
        root: PathBuf,
        controllers: Vec<String>,
    },
    V2 {
        root: PathBuf,
        /// Whether limits live here, because version 1 does not have them.
        limits: bool,
    },
}

impl Hierarchy {
    /// What this process sees mounted.
    pub(crate) fn mounted() -> io::Result<Vec<Self>> {
        Ok(parse(&fs::read_to_string("/proc/self/mountinfo")?))
    }

    pub(crate) fn root(&self) -> &Path {
        match self {
            Self::V1 { root, .. } | Self::V2 { root, .. } => root,
        }
    }

    /// Whether it is mounted where systems mount it.
    pub(super) fn is_in_sys(&self) -> bool {
        self.root().starts_with("/sys")
    }

    /// Whether both are the same file system: no controller is in two.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::V1 { controllers: a, .. }, Self::V1 { controllers: b, .. }) => a == b,
            (Self::V2 { .. }, Self::V2 { .. }) => true,
            _ => false,
        }
    }

    /// Version 2 gives a directory only the controllers that its parent passes on.
    pub(super) fn enable_controllers(&self, parent: &str, pod: &str) {
        let Self::V2 { root, limits: true } = self else {
            return;
        };
        let parent = root.join(parent);
        let pod = parent.join(pod);
        for dir in [root, &parent, &pod] {
            for controller in ["+cpu", "+memory", "+pids"] {
                // what is missing shows when a limit cannot be written
                let _ = fs::write(dir.join("cgroup.subtree_control"), controller);
            }
        }
    }

    pub(super) fn apply(&self, dir: &Path, wanted: &Limits) -> io::Result<()> {
        let settings = match self {
            Self::V1 { controllers, .. } => limits::v1(wanted, controllers),
            Self::V2 { limits: true, .. } => limits::v2(wanted),
            Self::V2 { limits: false, .. } => Vec::new(),
        };
        // a limit of memory cannot pass the one of memory and swap, in whichever direction both move: what is refused
        // now is tried again after the others
        let mut refused = Vec::new();
        for setting in settings {
            if write(dir, &setting).is_err() {
                refused.push(setting);
            }
        }
        refused.iter().try_for_each(|setting| write(dir, setting))
    }

    pub(super) fn restrict_devices(&self, dir: &Path) -> io::Result<()> {
        match self {
            Self::V1 { controllers, .. } if controllers.iter().any(|c| c == "devices") => {
                in_dir(dir, fs::write(dir.join("devices.deny"), "a"))?;
                DEVICES.iter().try_for_each(|device| {
                    in_dir(dir, fs::write(dir.join("devices.allow"), device))
                })
            }
            // version 2 has no such file; there nobody gets the capability to make a device
            Self::V1 { .. } | Self::V2 { .. } => Ok(()),
        }
    }

    /// What the hierarchy is called where containers look for it: nothing for version 2, which has one place for everything. None
    /// if it limits nothing.
    pub(super) fn shown_as(&self) -> Option<PathBuf> {
        match self {
            Self::V1 { root, controllers } => {
                let is_shown = controllers.iter().any(|c| SHOWN.contains(&c.as_str()));
                root.file_name().filter(|_| is_shown).map(PathBuf::from)
            }
            Self::V2 { limits, .. } => limits.then(PathBuf::new),
        }
    }

    pub(super) fn oom_kills(&self, dir: &Path) -> Option<u64> {
        let file = match self {
            Self::V1 { .. } => "memory.oom_control",
            Self::V2 { .. } => "memory.events",
        };
        count(&dir.join(file), "oom_kill ")
    }

    /// Version 1 counts where it limits, and version 2 has a file for it in every directory that is limited.
    pub(super) fn refused_processes(&self, dir: &Path) -> Option<u64> {
        count(&dir.join("pids.events"), "max ")
    }
}

/// The number behind a word, in a file that counts one thing per line.
fn count(file: &Path, what: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let number = text.lines().find_map(|line| line.strip_prefix(what))?;
    number.trim().parse().ok()
}

/// A missing file is no error where nothing is asked for, or where the kernel was built without it.
fn write(dir: &Path, setting: &Setting) -> io::Result<()> {
    let file = dir.join(setting.file);
    match fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&file)
    {
        Err(error) if error.kind() == io::ErrorKind::NotFound && setting.optional => Ok(()),
        Err(error) => in_dir(&file, Err(error)),
        Ok(mut open) => in_dir(
            &file,
            io::Write::write_all(&mut open, setting.value.as_bytes()),
        ),
    }
}

/// With any useful controller in version 1, limits live there; version 2 beside it still kills whole trees at once.
pub(super) fn parse(mountinfo: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in mountinfo.lines() {
        let Some((mount, details)) = line.split_once(" - ") else {
            continue;
        };
        let mut details = details.split(' ');
        let (kind, options) = (details.next(), details.nth(1).unwrap_or_default());
        let fields: Vec<&str> = mount.split(' ').collect();
        let (Some(inside), Some(root)) = (fields.get(3), fields.get(4)) else {
            continue;
        };
        // a part of a hierarchy mounted elsewhere is somebody's container, not ours to build in
        if *inside != "/" || found.iter().any(|h| h.root() == Path::new(root)) {
            continue;
        }
        let root = PathBuf::from(root);
        match kind {
            Some("cgroup2") => found.push(Hierarchy::V2 { root, limits: true }),
            Some("cgroup") => {
                let ours = |o: &&str| CONTROLLERS.contains(o) || *o == SYSTEMD;
                let controllers: Vec<String> =
                    options.split(',').filter(ours).map(str::to_owned).collect();
                if !controllers.is_empty() {
                    found.push(Hierarchy::V1 { root, controllers });
                }
            }
            _ => {}
        }
    }
    let hybrid = found.iter().any(|h| matches!(h, Hierarchy::V1 { .. }));
    for hierarchy in &mut found {
        if let Hierarchy::V2 { limits, .. } = hierarchy {
            *limits = !hybrid;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{Hierarchy, parse};

    fn v1(root: &str, controllers: &[&str]) -> Hierarchy {
        Hierarchy::V1 {
            root: root.into(),
            controllers: controllers.iter().map(|&c| c.to_owned()).collect(),
        }
    }

    #[test]
    fn version_1_is_used_for_what_it_limits_and_version_2_beside_it() {
        let mounts = "\
30 25 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw shared:4 - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer
34 30 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
35 30 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
36 30 0:28 /other /somewhere rw - cgroup cgroup rw,memory";
        let expected = [
            v1("/sys/fs/cgroup/cpu,cpuacct", &["cpu"]),
            v1("/sys/fs/cgroup/memory", &["memory"]),
            v1("/sys/fs/cgroup/systemd", &["name=systemd"]),
            Hierarchy::V2 {
                root: "/sys/fs/cgroup/unified".into(),
                limits: false,
            },
        ];
        assert_eq!(parse(mounts), expected);
    }

    #[test]
    fn containers_are_shown_what_limits_them_where_they_look_for_it() {
        let v2 = |limits| Hierarchy::V2 {
            root: "/sys/fs/cgroup/unified".into(),
            limits,
        };
        for (hierarchy, expected) in [
            (
                v1("/sys/fs/cgroup/cpu,cpuacct", &["cpu"]),
                Some("cpu,cpuacct"),
            ),
            (v1("/sys/fs/cgroup/memory", &["memory"]), Some("memory")),
            (v1("/sys/fs/cgroup/systemd", &["name=systemd"]), None),
            (v1("/sys/fs/cgroup/devices", &["devices"]), None),
            (v2(false), None),
            (v2(true), Some("")),
        ] {
            let expected = expected.map(PathBuf::from);
            assert_eq!(hierarchy.shown_as(), expected, "{hierarchy:?}");
        }
    }

    #[test]
    fn version_2_alone_is_found() {
        let mounts =
            "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        let root = "/sys/fs/cgroup".into();
        assert_eq!(parse(mounts), [Hierarchy::V2 { root, limits: true }]);
    }
}

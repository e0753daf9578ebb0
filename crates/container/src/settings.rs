//! What callers say about pods, containers and commands. Plain data; `check` refuses what could never work.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A pod: namespaces, a cgroup and a directory that its containers share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PodSettings {
    /// Absolute, existing, and of this pod alone. Sockets and states live here.
    pub dir: PathBuf,
    pub hostname: String,
    /// The cgroup of the whole instance, directly below the root of each hierarchy.
    pub cgroup_parent: String,
    /// The pod's cgroup below `cgroup_parent`.
    pub cgroup: String,
    /// A user namespace that everything in the pod lives in. Who is not root cannot go without, and the shim lives in it, too.
    /// Root may give a pod ids of its own; files are then shown to its containers through mounts that map them.
    pub user_namespace: Option<UserNamespace>,
    /// The container that will be started first, if that is known: part of its start is done before it is asked for.
    pub first: Option<String>,
    /// Without it containers are plain processes of the caller, with everything of the machine before them: root file systems,
    /// mounts, users, capabilities and filters mean nothing then. Such pods are started by [`crate::helper::run_plain`] only.
    pub isolated: bool,
}

/// Which ids inside the pod are which outside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UserNamespace {
    pub uids: Vec<IdMap>,
    pub gids: Vec<IdMap>,
}

impl UserNamespace {
    /// Whether root of the machine is somebody inside.
    pub(crate) fn has_root(&self) -> bool {
        let mut maps = self.uids.iter().chain(&self.gids);
        maps.any(|map| map.outside == 0 && map.count > 0)
    }

    /// The only mapping that needs no privilege: the caller becomes root inside.
    pub fn of_caller() -> Self {
        let map = |outside| IdMap {
            inside: 0,
            outside,
            count: 1,
        };
        Self {
            uids: vec![map(rustix::process::geteuid().as_raw())],
            gids: vec![map(rustix::process::getegid().as_raw())],
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct IdMap {
    pub inside: u32,
    pub outside: u32,
    pub count: u32,
}

/// A container. `ContainerSettings::new` gives one with everything optional left out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContainerSettings {
    /// Letters, digits and `-`, as Kubernetes names containers.
    pub name: String,
    /// Counts restarts; a container's directory is `<pod>/containers/<name>/<attempt>`.
    pub attempt: u32,
    pub args: Vec<String>,
    /// `NAME=value`.
    pub env: Vec<String>,
    /// Made in the root file system if it is not there.
    pub cwd: PathBuf,
    pub user: User,
    pub root: Root,
    /// Further overlays, mounted before `mounts`.
    pub overlays: Vec<Overlay>,
    /// In the order in which they are mounted.
    pub mounts: Vec<Mount>,
    pub capabilities: Capabilities,
    /// Refused: nothing of the machine is given away.
    pub privileged: bool,
    pub seccomp: Seccomp,
    pub limits: Limits,
    /// The most files a process may have open; never more than the shim itself may.
    pub open_files: Option<u64>,
    /// Only ever raised.
    pub oom_score_adj: Option<i32>,
    /// Whether standard input is a pipe that `attach` writes to. Otherwise it is empty.
    pub stdin: bool,
    /// Whether standard input ends when the first who attached leaves.
    pub stdin_once: bool,
    pub tty: bool,
    /// Absolute path of the log; rotated files are beside it.
    pub log: PathBuf,
    /// What `stop` sends first; `SIGTERM` unless the image says otherwise.
    pub stop_signal: Option<i32>,
}

impl ContainerSettings {
    pub fn new(
        name: impl Into<String>,
        root: Root,
        args: Vec<String>,
        log: impl Into<PathBuf>,
    ) -> Self {
        Self {
            name: name.into(),
            attempt: 0,
            args,
            env: Vec::new(),
            cwd: PathBuf::from("/"),
            user: User::default(),
            root,
            overlays: Vec::new(),
            mounts: Vec::new(),
            capabilities: Capabilities::default(),
            privileged: false,
            seccomp: Seccomp::Default,
            limits: Limits::default(),
            open_files: None,
            oom_score_adj: None,
            stdin: false,
            stdin_once: false,
            tty: false,
            log: log.into(),
            stop_signal: None,
        }
    }

    /// Refuses what is wrong whatever the machine.
    pub(crate) fn check(&self) -> Result<(), String> {
        check_name("container name", &self.name)?;
        if self.privileged {
            return Err(format!(
                "container {} asks to be privileged, which is never granted here: ask for single capabilities instead",
                self.name
            ));
        }
        check_command(&self.args, &self.env, &self.cwd)?;
        if self.root.layers.is_empty() {
            return Err(format!(
                "container {} has a root file system without layers",
                self.name
            ));
        }
        check_absolute("log", &self.log)?;
        let overlays = self.overlays.iter().map(|o| &o.destination);
        let mounts = self.mounts.iter().map(|m| &m.destination);
        for destination in overlays.chain(mounts) {
            check_absolute("mount destination", destination)?;
        }
        Ok(())
    }
}

/// A command in a running container.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExecSettings {
    pub args: Vec<String>,
    /// Added to the container's own; a name given here replaces it.
    pub env: Vec<String>,
    /// The container's own unless given.
    pub cwd: Option<PathBuf>,
    /// The container's own unless given.
    pub user: Option<User>,
    pub stdin: bool,
    /// One terminal instead of three pipes.
    pub tty: bool,
}

impl ExecSettings {
    pub(crate) fn check(&self) -> Result<(), String> {
        let root = Path::new("/");
        check_command(&self.args, &self.env, self.cwd.as_deref().unwrap_or(root))
    }
}

/// Numeric, as the image's files say; names are the caller's to resolve.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub additional_gids: Vec<u32>,
}

/// The root file system: layers, the lowest first, under one that the container writes to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Root {
    pub layers: Vec<PathBuf>,
    pub read_only: bool,
}

/// Layers mounted at a path of the container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Overlay {
    pub destination: PathBuf,
    /// The lowest first.
    pub layers: Vec<PathBuf>,
    pub read_only: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mount {
    pub destination: PathBuf,
    pub source: MountSource,
    pub read_only: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MountSource {
    /// A directory or file. `sub_path` is what a sandbox may have put there, and is resolved without ever leaving `path`.
    Bind {
        path: PathBuf,
        sub_path: Option<PathBuf>,
    },
    Tmpfs {
        size: Option<u64>,
    },
}

/// Names with or without `CAP_`, and `ALL`. `add` is what Kubernetes calls it: beyond the default set.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Capabilities {
    pub add: Vec<String>,
    pub drop: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seccomp {
    #[default]
    Default,
    Unconfined,
}

/// What is not given is not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// In the unit of cgroup v1: 1024 is one core's share.
    pub cpu_shares: Option<u64>,
    /// Microseconds of processor time per `cpu_period`.
    pub cpu_quota: Option<u64>,
    /// Microseconds; 100,000 unless given.
    pub cpu_period: Option<u64>,
    pub memory: Option<u64>,
    pub pids: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

impl PodSettings {
    pub(crate) fn check(&self) -> Result<(), String> {
        check_absolute("pod directory", &self.dir)?;
        check_name("cgroup parent", &self.cgroup_parent)?;
        check_name("cgroup", &self.cgroup)?;
        if let Some(first) = &self.first {
            check_name("container name", first)?;
        }
        if self.hostname.is_empty() || self.hostname.len() > 64 {
            return Err(format!(
                "host name {:?} must have 1 to 64 characters",
                self.hostname
            ));
        }
        Ok(())
    }
}

/// A name becomes a directory and a cgroup: one component, and none that means something else.
fn check_name(what: &str, name: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 128 || name.starts_with('.') || !name.chars().all(allowed) {
        return Err(format!(
            "{what} {name:?} must be 1 to 128 letters, digits, '-', '_' or '.', and not begin with '.'"
        ));
    }
    Ok(())
}

fn check_absolute(what: &str, path: &Path) -> Result<(), String> {
    let climbs = path.components().any(|c| c == Component::ParentDir);
    if !path.is_absolute() || climbs || path.to_str().is_none_or(|p| p.contains('\0')) {
        return Err(format!(
            "{what} {} must be an absolute path without '..'",
            path.display()
        ));
    }
    Ok(())
}

fn check_command(args: &[String], env: &[String], cwd: &Path) -> Result<(), String> {
    if args.first().is_none_or(String::is_empty) {
        return Err("no command given".to_owned());
    }
    if args.iter().chain(env).any(|s| s.contains('\0')) {
        return Err("arguments and environment cannot contain NUL".to_owned());
    }
    check_absolute("working directory", cwd)
}

#[cfg(test)]
mod tests {
    use super::{ContainerSettings, Root};

    fn settings() -> ContainerSettings {
        let root = Root {
            layers: vec!["/layers/base".into()],
            read_only: false,
        };
        ContainerSettings::new("main", root, vec!["sh".to_owned()], "/logs/main.log")
    }

    #[test]
    fn ordinary_settings_are_accepted() {
        assert_eq!(settings().check(), Ok(()));
    }

    #[test]
    fn names_and_paths_that_leave_their_place_are_refused() {
        let spoil: [fn(&mut ContainerSettings); 7] = [
            |s| s.name = "../etc".to_owned(),
            |s| s.name = "..".to_owned(),
            |s| s.name = String::new(),
            |s| s.log = "/logs/../etc/passwd".into(),
            |s| s.log = "relative".into(),
            |s| s.args = Vec::new(),
            |s| s.root.layers = Vec::new(),
        ];
        for change in spoil {
            let mut settings = settings();
            change(&mut settings);
            assert!(settings.check().is_err(), "{settings:?}");
        }
    }

    #[test]
    fn privileged_is_refused_with_what_to_do_instead() {
        let mut settings = settings();
        settings.privileged = true;
        let refusal = settings.check().unwrap_err();
        assert!(refusal.contains("single capabilities"), "{refusal}");
    }
}

//! What callers say about pods, containers and commands. Plain data; `check` refuses what could never work.

use std::collections::BTreeMap;
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
    /// Settings of the kernel, by names such as `net.ipv4.tcp_syncookies`. Only those that each network or ipc namespace has of
    /// its own; a pod that is not isolated can have none.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
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
    /// Whether `/proc` shows, and lets be written, also what it tells of the machine. Only for pods with users of their own, to whom
    /// the kernel gives no more of it than is theirs.
    #[serde(default)]
    pub unmasked_proc: bool,
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
            unmasked_proc: false,
        }
    }

    /// Refuses what is wrong in this pod whatever the machine.
    pub(crate) fn check(&self, pod: &PodSettings) -> Result<(), String> {
        check_name("container name", &self.name)?;
        if self.privileged {
            return Err(format!(
                "container {} asks to be privileged, which is never granted here: ask for single capabilities instead",
                self.name
            ));
        }
        if self.unmasked_proc && pod.isolated && pod.user_namespace.is_none() {
            return Err(format!(
                "container {} asks for all of /proc, which is the machine's in a pod without users of its own",
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
        let mut sysctls = self.sysctls.keys();
        match sysctls.find(|name| !self.isolated || sysctl_file(name).is_none()) {
            Some(name) => Err(format!("sysctl {name:?} is not the pod's own")),
            None => Ok(()),
        }
    }
}

/// The file of a setting that a pod has of its own. All others are the machine's.
pub(crate) fn sysctl_file(name: &str) -> Option<PathBuf> {
    let is_word = |part: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        !part.is_empty() && part.chars().all(allowed)
    };
    let parts: Vec<&str> = name.split('.').collect();
    let is_own = matches!(parts[..], ["net", _, ..] | ["kernel", "shm_rmid_forced"]);
    let is_path = parts.iter().all(|part| is_word(part));
    (is_own && is_path).then(|| Path::new("/proc/sys").join(parts.join("/")))
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
    use std::collections::BTreeMap;

    use super::{ContainerSettings, PodSettings, Root, UserNamespace, sysctl_file};

    fn pod() -> PodSettings {
        PodSettings {
            dir: "/pods/one".into(),
            hostname: "one".to_owned(),
            cgroup_parent: "instance".to_owned(),
            cgroup: "pod".to_owned(),
            user_namespace: None,
            first: None,
            isolated: true,
            sysctls: BTreeMap::new(),
        }
    }

    fn settings() -> ContainerSettings {
        let root = Root {
            layers: vec!["/layers/base".into()],
            read_only: false,
        };
        ContainerSettings::new("main", root, vec!["sh".to_owned()], "/logs/main.log")
    }

    #[test]
    fn ordinary_settings_are_accepted() {
        assert_eq!(settings().check(&pod()), Ok(()));
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
            assert!(settings.check(&pod()).is_err(), "{settings:?}");
        }
    }

    #[test]
    fn only_settings_of_the_kernel_that_are_a_pods_own_have_a_file() {
        let file = |name| sysctl_file(name).map(|file| file.display().to_string());
        let own = "/proc/sys/net/ipv4/tcp_rmem";
        assert_eq!(file("net.ipv4.tcp_rmem").as_deref(), Some(own));
        assert!(file("kernel.shm_rmid_forced").is_some());
        for others in [
            "kernel.core_pattern",
            "vm.overcommit_memory",
            "net",
            "net.",
            "net...kernel.panic",
            "net./../kernel/panic",
            "",
        ] {
            assert_eq!(file(others), None, "{others}");
        }
    }

    #[test]
    fn all_of_proc_is_for_pods_with_users_of_their_own() {
        let mut settings = settings();
        settings.unmasked_proc = true;
        let refusal = settings.check(&pod()).unwrap_err();
        assert!(refusal.contains("users of its own"), "{refusal}");
        let own_users = PodSettings {
            user_namespace: Some(UserNamespace::of_caller()),
            ..pod()
        };
        assert_eq!(settings.check(&own_users), Ok(()));
    }

    #[test]
    fn privileged_is_refused_with_what_to_do_instead() {
        let mut settings = settings();
        settings.privileged = true;
        let refusal = settings.check(&pod()).unwrap_err();
        assert!(refusal.contains("single capabilities"), "{refusal}");
    }
}

//! What the container library is told, in the form of the OCI runtime specification. Pure.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::BuildError;
use super::mounts::Staged;
use crate::seccomp::{self, Filters};
use crate::settings::{ContainerSettings, ExecSettings, MountSource, Seccomp, User};

/// Where the kernel tells of the machine what a container has no business with.
const MASKED: [&str; 13] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/devices/system/cpu/cpu0/thermal_throttle",
    "/sys/firmware",
];
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];
const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Where the configuration itself remembers that no filter was wanted, for commands that come later.
const UNCONFINED: &str = "dev.sandbar.unconfined";
/// What the library takes for the container's cgroup.
pub(super) const CGROUP: &str = "/decoy";

/// What the kernel limits for each process.
#[derive(Clone, Copy, Default)]
pub(super) struct ProcessLimits {
    pub(super) open_files: Option<u64>,
    /// How many processes and threads its user may have in the pod's user namespace.
    pub(super) processes: Option<u64>,
}

impl ProcessLimits {
    fn json(self) -> Vec<Value> {
        let limit = |name: &str, limit: Option<u64>| {
            limit.map(|n| json!({ "type": name, "soft": n, "hard": n }))
        };
        let all = [
            limit("RLIMIT_NOFILE", self.open_files),
            limit("RLIMIT_NPROC", self.processes),
        ];
        all.into_iter().flatten().collect()
    }
}

pub(super) fn container(
    settings: &ContainerSettings,
    granted: &BTreeSet<String>,
    staged: &Staged,
    limits: ProcessLimits,
    user_namespace: bool,
) -> Value {
    let env = environment(settings);
    let mut mounts = kernel_mounts(user_namespace);
    mounts.extend(staged.cgroups.as_deref().map(cgroups));
    mounts.extend(own_mounts(settings, staged));
    let annotations = match settings.seccomp {
        Seccomp::Default => json!({}),
        Seccomp::Unconfined => json!({ UNCONFINED: "true" }),
    };
    let shown = |path: &&&str| settings.unmasked_proc && path.starts_with("/proc/");
    let hidden = |paths: &'static [&str]| -> Vec<&str> {
        let all = paths.iter().filter(|path| !shown(path));
        all.copied().collect()
    };
    json!({
        "ociVersion": "1.0.2",
        "annotations": annotations,
        "root": { "path": staged.root, "readonly": settings.root.read_only },
        "mounts": mounts,
        "process": {
            "terminal": settings.tty,
            "user": user_json(&settings.user, user_namespace),
            "args": settings.args,
            "env": env,
            "cwd": settings.cwd,
            "capabilities": { "bounding": granted, "effective": granted, "permitted": granted },
            "rlimits": limits.json(),
            "noNewPrivileges": true,
        },
        "linux": {
            "cgroupsPath": CGROUP,
            // network, ipc and names of the host are those of the shim, which this process has already
            "namespaces": [{ "type": "pid" }, { "type": "mount" }, { "type": "cgroup" }],
            "maskedPaths": hidden(&MASKED),
            "readonlyPaths": hidden(&READ_ONLY),
        },
    })
}

pub(super) fn environment(settings: &ContainerSettings) -> Vec<String> {
    let mut env = settings.env.clone();
    if !env.iter().any(|e| e.starts_with("PATH=")) {
        env.push(DEFAULT_PATH.to_owned());
    }
    if settings.tty && !env.iter().any(|e| e.starts_with("TERM=")) {
        env.push("TERM=xterm".to_owned());
    }
    env
}

/// The process of a command: that of its container, with what is asked for.
pub(super) fn exec(config: &Value, settings: &ExecSettings) -> Value {
    let mut process = config["process"].clone();
    let own = process["env"].as_array().cloned().unwrap_or_default();
    let name = |e: &str| e.split('=').next().unwrap_or_default().to_owned();
    let replaced: Vec<String> = settings.env.iter().map(|e| name(e)).collect();
    let kept = own.iter().filter_map(Value::as_str);
    let kept = kept.filter(|e| !replaced.contains(&name(e)));
    let mut env: Vec<String> = kept.map(str::to_owned).collect();
    env.extend(settings.env.iter().cloned());
    if settings.tty && !env.iter().any(|e| e.starts_with("TERM=")) {
        env.push("TERM=xterm".to_owned());
    }
    process["env"] = json!(env);
    process["args"] = json!(settings.args);
    process["terminal"] = json!(settings.tty);
    if let Some(cwd) = &settings.cwd {
        process["cwd"] = json!(cwd);
    }
    if let Some(user) = &settings.user {
        process["user"] = user_json(user, process["user"]["additionalGids"].is_null());
    }
    process
}

/// Whom a process will belong to.
pub(super) fn user(process: &Value) -> User {
    let id = |name: &str| {
        let id = process["user"][name].as_u64().unwrap_or(0);
        u32::try_from(id).unwrap_or(u32::MAX)
    };
    User {
        uid: id("uid"),
        gid: id("gid"),
        additional_gids: Vec::new(),
    }
}

/// The filters that a configuration asks for.
pub(super) fn filters(config: &Value) -> Result<Filters, BuildError> {
    if !config["annotations"][UNCONFINED].is_null() {
        return Ok(Filters::none());
    }
    let bounding = config["process"]["capabilities"]["bounding"].as_array();
    let names = bounding.into_iter().flatten().filter_map(Value::as_str);
    seccomp::filters(&names.collect()).map_err(|error| BuildError::Library {
        doing: "compiling the system call filter",
        reason: error.to_string(),
    })
}

/// Who made a user namespace without privilege can set no groups in it.
fn user_json(user: &User, no_groups: bool) -> Value {
    let mut json = json!({ "uid": user.uid, "gid": user.gid });
    if !no_groups {
        json["additionalGids"] = json!(user.additional_gids);
    }
    json
}

fn kernel_mounts(user_namespace: bool) -> Vec<Value> {
    let mount = |kind: &str, destination: &str, options: &[&str]| json!({ "type": kind, "source": kind, "destination": destination, "options": options });
    let mut terminals = vec![
        "nosuid",
        "noexec",
        "newinstance",
        "ptmxmode=0666",
        "mode=0620",
    ];
    if !user_namespace {
        terminals.push("gid=5");
    }
    let shm = ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"];
    let dev = ["nosuid", "strictatime", "mode=755", "size=65536k"];
    vec![
        mount("proc", "/proc", &["nosuid", "noexec", "nodev"]),
        mount("tmpfs", "/dev", &dev),
        mount("devpts", "/dev/pts", &terminals),
        mount("tmpfs", "/dev/shm", &shm),
        mount("mqueue", "/dev/mqueue", &["nosuid", "noexec", "nodev"]),
        mount("sysfs", "/sys", &["nosuid", "noexec", "nodev", "ro"]),
    ]
}

fn cgroups(source: &Path) -> Value {
    let options = ["rbind", "rprivate", "nosuid", "nodev", "noexec", "rro"];
    json!({ "type": "bind", "source": source, "destination": "/sys/fs/cgroup", "options": options })
}

fn own_mounts(settings: &ContainerSettings, staged: &Staged) -> Vec<Value> {
    let bind = |source: &Path, destination: &Path, read_only: bool| {
        let access = if read_only { "rro" } else { "rw" };
        let options = ["rbind", "rprivate", "nosuid", "nodev", access];
        json!({ "type": "bind", "source": source, "destination": destination, "options": options })
    };
    let overlays = settings.overlays.iter().zip(&staged.overlays);
    let overlays = overlays.map(|(o, source)| bind(source, &o.destination, o.read_only));
    let mounts = settings.mounts.iter().zip(&staged.mounts);
    let mounts = mounts.map(|(mount, source)| match (&mount.source, source) {
        (MountSource::Bind { .. }, Some(source)) => {
            bind(source, &mount.destination, mount.read_only)
        }
        (MountSource::Tmpfs { size }, _) => tmpfs(&mount.destination, *size, mount.read_only),
        (MountSource::Bind { path, .. }, None) => bind(path, &mount.destination, mount.read_only),
    });
    overlays.chain(mounts).collect()
}

fn tmpfs(destination: &Path, size: Option<u64>, read_only: bool) -> Value {
    let mut options = vec![
        "nosuid".to_owned(),
        "nodev".to_owned(),
        "mode=1777".to_owned(),
    ];
    options.extend(size.map(|s| format!("size={s}")));
    if read_only {
        options.push("ro".to_owned());
    }
    json!({ "type": "tmpfs", "source": "tmpfs", "destination": destination, "options": options })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{ProcessLimits, container, exec, filters, user};
    use crate::build::mounts::Staged;
    use crate::settings::{ContainerSettings, ExecSettings, Root, Seccomp, User};

    fn config(change: impl Fn(&mut ContainerSettings)) -> serde_json::Value {
        let root = Root {
            layers: vec!["/layer".into()],
            read_only: true,
        };
        let mut settings = ContainerSettings::new("main", root, vec!["sh".to_owned()], "/log");
        settings.env = vec!["A=1".to_owned(), "B=2".to_owned()];
        settings.user.additional_gids = vec![7];
        change(&mut settings);
        let granted = BTreeSet::from(["CAP_KILL".to_owned()]);
        let limits = ProcessLimits {
            open_files: Some(100),
            processes: Some(10),
        };
        container(&settings, &granted, &Staged::default(), limits, false)
    }

    #[test]
    fn every_container_is_confined() {
        let config = config(|_| ());
        assert_eq!(config["process"]["noNewPrivileges"], true);
        assert_eq!(config["root"]["readonly"], true);
        assert!(filters(&config).unwrap().len() > 0);
        let read_only = config["linux"]["readonlyPaths"].to_string();
        assert!(read_only.contains("/proc/sys"));
    }

    #[test]
    fn a_command_has_its_containers_rights_and_its_own_words() {
        let config = config(|_| ());
        let settings = ExecSettings {
            args: vec!["id".to_owned()],
            env: vec!["B=3".to_owned()],
            user: Some(User {
                uid: 5,
                gid: 6,
                additional_gids: Vec::new(),
            }),
            ..ExecSettings::default()
        };
        let process = exec(&config, &settings);
        assert_eq!(process["capabilities"], config["process"]["capabilities"]);
        assert_eq!(process["noNewPrivileges"], true);
        let env = process["env"].to_string();
        assert!(env.contains("A=1") && env.contains("B=3") && !env.contains("B=2"));
        assert_eq!((user(&process).uid, user(&process).gid), (5, 6));
    }

    #[test]
    fn only_who_asks_is_left_unconfined() {
        let unconfined = config(|s| s.seccomp = Seccomp::Unconfined);
        assert_eq!(filters(&unconfined).unwrap().len(), 0);
    }
}

//! Whether containers can be kept apart on this machine by whoever asks, found out by trying.
//!
//! Trying changes the process that tries: [`run`] is a process of its own, and [`check`] is how to ask it.

mod ground;

use std::ffi::CStr;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::{fs, io};

use rustix::fs::Access;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::WaitOptions;
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use crate::cgroup::Hierarchy;
use crate::settings::UserNamespace;
use crate::{sys, user_namespace};

/// In the order of their making: those before are needed for those that follow. Their names, and those of the settings that say
/// how many there may be.
const NAMESPACES: [(UnshareFlags, &str, &str); 6] = [
    (UnshareFlags::NEWNS, "mount", "user.max_mnt_namespaces"),
    (UnshareFlags::NEWPID, "pid", "user.max_pid_namespaces"),
    (UnshareFlags::NEWNET, "network", "user.max_net_namespaces"),
    (UnshareFlags::NEWIPC, "ipc", "user.max_ipc_namespaces"),
    (UnshareFlags::NEWUTS, "uts", "user.max_uts_namespaces"),
    (
        UnshareFlags::NEWCGROUP,
        "cgroup",
        "user.max_cgroup_namespaces",
    ),
];

/// Settings that forbid user namespaces, the value that does, and one that does not.
const SWITCHES: [(&str, &str, &str); 3] = [
    ("user.max_user_namespaces", "0", "15000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
];

const SURROUNDINGS: &str = "if sandbar itself runs in a container, let that container make namespaces and mounts, or run \
    sandbar outside of it";

/// Why containers cannot be kept apart here, and what would change that.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
#[error("{reason}")]
pub struct Impossible {
    pub reason: String,
    pub remedy: String,
}

impl Impossible {
    fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }
}

/// Asks a program that calls [`run`]. Blocks for the few milliseconds that it takes.
pub fn check(mut program: Command) -> io::Result<Result<(), Impossible>> {
    let output = program.env_clear().stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    let told = serde_json::from_slice(&output.stdout);
    Ok(Err(told.unwrap_or_else(|_| {
        let reason = format!("whoever tried ended by {}", output.status);
        Impossible::new(reason, SURROUNDINGS)
    })))
}

/// Tries, also whether containers can have their files in this directory, and tells what came of it. To be called first thing in
/// `main`, before there is any thread.
pub fn run(directory: Option<&Path>) -> ExitCode {
    match attempt(directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(impossible) => tell(&impossible),
    }
}

fn tell(impossible: &Impossible) -> ExitCode {
    let text = serde_json::to_vec(impossible).unwrap_or_default();
    // who does not hear why knows by the end of this process that it is
    let mut out = io::stdout();
    // at once: a forked child ends without that
    let _ = out.write_all(&text).and_then(|()| out.flush());
    ExitCode::FAILURE
}

fn attempt(directory: Option<&Path>) -> Result<(), Impossible> {
    let is_root = rustix::process::geteuid().is_root();
    match is_root {
        true => check_root()?,
        false => user_namespace::enter(&UserNamespace::of_caller())
            .map_err(|error| no_user_namespaces(&error))?,
    }
    for (flag, name, most) in NAMESPACES {
        sys::unshare(flag).map_err(|error| no_namespace(name, most, &error))?;
    }
    try_mounts(is_root, directory)
}

/// Root has all ids and cgroups, or is root by name only.
fn check_root() -> Result<(), Impossible> {
    if !user_namespace::is_initial().unwrap_or(false) {
        return Err(Impossible::new(
            "this process is root in a user namespace only",
            "run sandbar outside of that namespace",
        ));
    }
    let mounted = Hierarchy::mounted().unwrap_or_default();
    let unified = mounted.iter().find(|h| matches!(h, Hierarchy::V2 { .. }));
    let Some(unified) = unified else {
        let remedy = "mount it at /sys/fs/cgroup/unified";
        return Err(Impossible::new(
            "cgroup version 2 is not mounted, which root needs",
            remedy,
        ));
    };
    rustix::fs::access(unified.root(), Access::WRITE_OK).map_err(|error| {
        let path = unified.root().display();
        Impossible::new(
            format!("cgroups cannot be made in {path}: {error}"),
            SURROUNDINGS,
        )
    })
}

fn no_user_namespaces(error: &io::Error) -> Impossible {
    let is_set = |name: &str, to: &str| {
        let file = format!("/proc/sys/{}", name.replace('.', "/"));
        fs::read_to_string(file).is_ok_and(|value| value.trim() == to)
    };
    match SWITCHES.iter().find(|(name, off, _)| is_set(name, off)) {
        Some((name, off, on)) => Impossible::new(
            format!("user namespaces are refused, because {name} is {off}: {error}"),
            format!("run sandbar as root, or have root set `sysctl {name}={on}`"),
        ),
        None => Impossible::new(
            format!("user namespaces are refused: {error}"),
            format!("run sandbar as root; {SURROUNDINGS}"),
        ),
    }
}

fn no_namespace(name: &str, most: &str, error: &io::Error) -> Impossible {
    let reason = format!("namespaces of kind {name} are refused: {error}");
    match error.raw_os_error() {
        Some(libc::ENOSPC) => Impossible::new(reason, format!("have root raise `sysctl {most}`")),
        _ => Impossible::new(reason, SURROUNDINGS),
    }
}

/// A child lives in the new pid namespace, which its `/proc` is mounted for.
fn try_mounts(is_root: bool, directory: Option<&Path>) -> Result<(), Impossible> {
    let failed =
        |error: io::Error| Impossible::new(format!("mounts are refused: {error}"), SURROUNDINGS);
    let Some(child) = sys::fork().map_err(failed)? else {
        let mounted = mount_all(is_root).map_err(failed);
        let found = mounted.and_then(|()| {
            directory.map_or(Ok(()), |directory| ground::attempt(directory, is_root))
        });
        let told = found.as_ref().err().map(tell);
        sys::exit_child(i32::from(told.is_some()));
    };
    let status = rustix::process::waitpid(Some(child), WaitOptions::empty());
    match status.map_err(|error| failed(error.into()))? {
        Some((_, status)) if status.exit_status() == Some(0) => Ok(()),
        // the child has said why
        _ => std::process::exit(1),
    }
}

fn mount_all(is_root: bool) -> io::Result<()> {
    let doing = |what: &'static str| {
        move |error: rustix::io::Errno| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("{what}: {error}"))
        }
    };
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).map_err(doing("hiding mounts"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mount = |kind: &str, place: &str, options: Option<&CStr>| {
        rustix::mount::mount(kind, place, kind, flags, options)
    };
    mount("proc", "/proc", None).map_err(doing("mounting /proc"))?;
    mount("tmpfs", "/proc", None).map_err(doing("mounting memory"))?;
    for dir in ["lower", "upper", "work", "merged"] {
        fs::create_dir(format!("/proc/{dir}"))?;
    }
    let options = match is_root {
        true => c"lowerdir=/proc/lower,upperdir=/proc/upper,workdir=/proc/work",
        false => c"lowerdir=/proc/lower,upperdir=/proc/upper,workdir=/proc/work,userxattr",
    };
    mount("overlay", "/proc/merged", Some(options)).map_err(doing("mounting an overlay"))
}

//! How a forked child becomes the shim of a pod: session, namespaces, cgroup, socket.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use crate::cgroup::{Cgroups, Hierarchy};
use crate::process::Identity;
use crate::settings::{PodSettings, sysctl_file};
use crate::{build, state, sys, user_namespace};

pub(crate) const SOCKET: &str = "shim.sock";
const RECORD: &str = "shim.json";

/// What a shim leaves in its directory, for whoever looks for it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) process: Identity,
    pub(crate) cgroup_parent: String,
    pub(crate) cgroup: String,
    /// Those from before it could be otherwise are.
    #[serde(default = "yes")]
    pub(crate) isolated: bool,
}

fn yes() -> bool {
    true
}

impl Record {
    pub(crate) fn load(dir: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(dir.join(RECORD))?)?)
    }

    pub(crate) fn remove(dir: &Path) {
        let _ = fs::remove_file(dir.join(SOCKET));
        let _ = fs::remove_file(dir.join(RECORD));
    }
}

/// What the running shim works with.
pub(super) struct Ready {
    pub(super) listener: UnixListener,
    pub(super) signals: OwnedFd,
    pub(super) cgroups: Cgroups,
    /// The user namespace of the pod, if this process stays outside of it.
    pub(super) users: Option<OwnedFd>,
}

pub(super) fn become_shim(settings: &PodSettings) -> Result<Ready, String> {
    settings.check()?;
    if Record::load(&settings.dir).is_ok_and(|record| record.process.is_alive()) {
        return Err(format!("another shim lives in {}", settings.dir.display()));
    }
    let _ = rustix::thread::set_name(c"sandbar-shim");
    rustix::process::setsid().map_err(|e| doing("leaving the session")(e.into()))?;
    // environments, states and logs are nobody else's business
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    redirect(&settings.dir).map_err(doing("opening the shim's own log"))?;
    let signals = sys::child_signals().map_err(doing("listening for signals"))?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|e| doing("becoming the parent of orphans")(e.into()))?;
    if settings.isolated {
        enter_user_namespace(settings)?;
    }
    let hierarchies = Hierarchy::mounted().map_err(doing("looking for cgroups"))?;
    let mut cgroups = Cgroups::new(hierarchies, &settings.cgroup_parent, &settings.cgroup);
    cgroups.create_pod();
    let users = match settings.isolated {
        true => enter_namespaces(settings).inspect_err(|_| drop(cgroups.remove_pod()))?,
        false => None,
    };
    let listener = listen(&settings.dir).map_err(doing("opening the shim's socket"))?;
    record(settings).map_err(doing("recording the shim"))?;
    Ok(Ready {
        listener,
        signals,
        cgroups,
        users,
    })
}

/// Adds to an error what was being done.
fn doing(what: &'static str) -> impl Fn(io::Error) -> String {
    move |error| format!("{what}: {error}")
}

/// The user namespace, if this process is to stay outside of it: only root may, and must, to reach the files of the pod.
fn enter_namespaces(settings: &PodSettings) -> Result<Option<OwnedFd>, String> {
    let initial = user_namespace::is_initial().map_err(doing("looking at users"))?;
    let furnish = || make_namespaces(settings);
    match &settings.user_namespace {
        Some(wanted) if initial && wanted.has_root() => Err(
            "a user namespace in which root of the machine is somebody keeps nobody apart"
                .to_owned(),
        ),
        Some(wanted) if initial => build::make_apart(wanted, furnish).map(Some),
        Some(_) => furnish().map(|()| None),
        None if initial => furnish().map(|()| None),
        None => Err("whoever is not root runs pods in user namespaces only".to_owned()),
    }
}

/// Who is not root has no rights to anything that the pod needs before this.
fn enter_user_namespace(settings: &PodSettings) -> Result<(), String> {
    let initial = user_namespace::is_initial().map_err(doing("looking at users"))?;
    match &settings.user_namespace {
        Some(wanted) if !initial => {
            user_namespace::enter(wanted).map_err(doing("making the pod's user namespace"))
        }
        _ => Ok(()),
    }
}

fn make_namespaces(settings: &PodSettings) -> Result<(), String> {
    let flags = UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    sys::unshare(flags).map_err(doing("making the pod's namespaces"))?;
    rustix::system::sethostname(settings.hostname.as_bytes())
        .map_err(|e| doing("setting the host name")(e.into()))?;
    sys::loopback_up().map_err(doing("bringing the loopback interface up"))?;
    allow_without_capabilities();
    for (name, value) in &settings.sysctls {
        let file =
            sysctl_file(name).ok_or_else(|| format!("sysctl {name:?} is not the pod's own"))?;
        fs::write(file, value).map_err(|e| format!("setting sysctl {name} to {value:?}: {e}"))?;
    }
    Ok(())
}

/// What the shim itself has to say goes to a file: whoever started it may be gone.
fn redirect(dir: &Path) -> io::Result<()> {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.join("shim.log"))?;
    Ok(rustix::stdio::dup2_stderr(&log)?)
}

/// In a network of its own a pod may ping and use low ports without any capability. Best effort: what fails is a convenience.
fn allow_without_capabilities() {
    let _ = fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
    let _ = fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
}

/// Bound from within the directory, whose path may be longer than an address can be.
fn listen(dir: &Path) -> io::Result<UnixListener> {
    std::env::set_current_dir(dir)?;
    match fs::remove_file(SOCKET) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let everybody_else = Mode::RWXG | Mode::RWXO | Mode::XUSR;
    let before = rustix::process::umask(everybody_else);
    let bound = UnixListener::bind(SOCKET);
    rustix::process::umask(before);
    std::env::set_current_dir("/")?;
    let listener = bound?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn record(settings: &PodSettings) -> io::Result<()> {
    let pid = i32::try_from(std::process::id()).map_err(io::Error::other)?;
    let record = Record {
        process: Identity::of(pid)?,
        cgroup_parent: settings.cgroup_parent.clone(),
        cgroup: settings.cgroup.clone(),
        isolated: settings.isolated,
    };
    // not synced: after a power cut there is no shim to be found
    state::replace(&settings.dir.join(RECORD), &record)
}

/// Reads and writes no longer wait.
pub(super) fn unblock(fd: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

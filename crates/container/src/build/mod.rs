//! The short-lived child of a shim that sets a container up, or a command in one, and ends.
//!
//! It exists so that a shim stays small, whatever building takes, and so that all mounting happens in a mount namespace that
//! nobody else sees. `config` says what the container library is told, `mounts` prepares file systems, `executor` is the last
//! step before the program runs. `plain` is for pods that are not isolated, `apart` for pods of root
//! with users of their own.

mod apart;
mod capabilities;
mod config;
mod executor;
mod mounts;
mod plain;

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use libcontainer::container::builder::ContainerBuilder;
use libcontainer::error::LibcontainerError;
use libcontainer::syscall::syscall::SyscallType;
use rustix::fs::{MemfdFlags, Mode};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::net::SendFlags;
use rustix::process::{Gid, Resource, Uid};
use rustix::thread::UnshareFlags;

use crate::cgroup::Cgroups;
use crate::process::Held;
use crate::seccomp::Filters;
use crate::settings::{ContainerSettings, ExecSettings, User};
use crate::wire::{self, StreamKind};
use crate::{strays, sys};
use config::ProcessLimits;
use executor::{Confined, Obstacle};

pub(crate) use apart::{Users, make as make_apart};

/// The library's name for the one container in its directory.
const ID: &str = "container";
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    #[error("{doing}: {source}")]
    System { doing: String, source: io::Error },
    #[error("{doing}: {reason}")]
    Library { doing: &'static str, reason: String },
    /// It cannot be run, and will not be later. In the words that Kubernetes users know.
    #[error("{0}")]
    Program(String),
    #[error("{0}")]
    Refused(String),
}

/// Adds to an error what was being done.
fn during<T>(
    doing: impl Into<String>,
    result: Result<T, impl Into<io::Error>>,
) -> Result<T, BuildError> {
    result.map_err(|error| BuildError::System {
        doing: doing.into(),
        source: error.into(),
    })
}

/// An error of a library, with its causes.
fn library(doing: &'static str, error: &dyn std::error::Error) -> BuildError {
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !reason.contains(&text) {
            reason = format!("{reason}: {text}");
        }
        cause = error.source();
    }
    BuildError::Library { doing, reason }
}

/// What both kinds of building need to know.
pub(crate) struct Place<'a> {
    /// The container's directory.
    pub(crate) dir: &'a Path,
    pub(crate) cgroups: &'a Cgroups,
    /// The container's cgroup.
    pub(crate) leaf: &'a str,
    /// Whether this process is in the user namespace of somebody who is not root.
    pub(crate) user_namespace: bool,
    /// The users of a pod of root that has its own.
    pub(crate) users: Option<Users<'a>>,
    pub(crate) isolated: bool,
}

impl Place<'_> {
    fn hand_over(&self, stdio: &Stdio, user: &User) -> Result<(), BuildError> {
        match self.users {
            Some(users) => users.hand_over(stdio, user),
            None => hand_over(stdio, user),
        }
    }
}

/// The container's ends of its pipes; with a terminal there are none.
#[derive(Default)]
pub(crate) struct Stdio {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
}

impl Stdio {
    pub(crate) fn received(streams: impl Iterator<Item = (StreamKind, OwnedFd)>) -> Self {
        let mut stdio = Self::default();
        for (kind, fd) in streams {
            match kind {
                StreamKind::Stdin => stdio.stdin = Some(fd),
                StreamKind::Stdout => stdio.stdout = Some(fd),
                StreamKind::Stderr => stdio.stderr = Some(fd),
                StreamKind::Terminal => {}
            }
        }
        stdio
    }

    fn streams(&self) -> impl Iterator<Item = (StreamKind, &OwnedFd)> {
        let all = [
            (StreamKind::Stdin, &self.stdin),
            (StreamKind::Stdout, &self.stdout),
            (StreamKind::Stderr, &self.stderr),
        ];
        all.into_iter()
            .filter_map(|(kind, fd)| Some((kind, fd.as_ref()?)))
    }

    pub(crate) fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        self.streams().map(|(_, fd)| fd)
    }

    /// For somebody else, who has to be told which is which.
    pub(crate) fn copies(&self) -> io::Result<(Vec<StreamKind>, Vec<OwnedFd>)> {
        let copies = self.streams();
        let copies = copies.map(|(kind, fd)| Ok((kind, fd.try_clone()?)));
        Ok(copies.collect::<io::Result<Vec<_>>>()?.into_iter().unzip())
    }
}

/// What runs now: the process, and the master side of its terminal.
pub(crate) struct Running {
    pub(crate) pid: i32,
    pub(crate) terminal: Option<OwnedFd>,
}

/// Tells the shim what came of it and ends this process. A program that the shim does not take over ends, too: nobody would know
/// of it.
pub(crate) fn report(socket: &OwnedFd, result: Result<Running, BuildError>) -> ! {
    let held = result.and_then(|running| {
        let held = during("holding the process", Held::open(running.pid))?;
        Ok((running, held))
    });
    let told = match held {
        Ok((Running { pid, terminal }, held)) => {
            let fds = [held.show()].into_iter().chain(terminal).collect();
            let told = wire::send(socket.as_fd(), &wire::Built::Running { pid }, fds);
            told.and_then(|()| await_takeover(socket))
                .inspect_err(|_| strays::kill_children())
        }
        Err(error) => {
            strays::kill_children();
            let message = match error {
                BuildError::Program(reason) => wire::Built::Unstartable(reason),
                error => wire::Built::Failed(error.to_string()),
            };
            wire::send(socket.as_fd(), &message, Vec::new())
        }
    };
    sys::exit_child(i32::from(told.is_err()))
}

/// As long as it lives this process is the parent of the program, which so cannot be reaped by anybody else.
fn await_takeover(socket: &OwnedFd) -> io::Result<()> {
    match rustix::io::retry_on_intr(|| rustix::io::read(socket, &mut [0_u8; 1]))? {
        0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        _ => Ok(()),
    }
}

/// In the shim: lets a builder know that the program is the shim's.
pub(crate) fn take_over(builder: &OwnedFd) {
    // a builder that is gone has left the program to the shim
    let _ = rustix::net::send(builder, &[1], SendFlags::NOSIGNAL);
}

/// Starts a container.
pub(crate) fn container(
    place: &Place<'_>,
    settings: &ContainerSettings,
    stdio: Stdio,
) -> Result<Running, BuildError> {
    if !place.isolated {
        return plain::container(place, settings, stdio);
    }
    let granted = capabilities::granted(&settings.capabilities, place.user_namespace)?;
    raise_oom_score(settings.oom_score_adj);
    isolate(place)?;
    place.hand_over(&stdio, &settings.user)?;
    let staged = mounts::stage(place, settings)?;
    show_cgroup(place)?;
    let limits = ProcessLimits {
        open_files: open_files(settings.open_files),
        processes: processes(place, settings),
    };
    let config = config::container(settings, &granted, &staged, limits, place.user_namespace);
    let written = serde_json::to_vec(&config).map_err(io::Error::from);
    during(
        "writing the container's configuration",
        written.and_then(|bytes| fs::write(place.dir.join("config.json"), bytes)),
    )?;
    enter_users(place, || mounts::cgroups(place, &staged))?;
    let cwd = mounts::make_cwd(&staged.root, &settings.cwd);
    let console = console(place.dir, settings.tty)?;
    let (failure, confined) = executor(&config)?;
    let builder = builder(place.dir, &console, stdio, confined)?;
    let built = builder
        .as_init(place.dir)
        .with_systemd(false)
        .with_detach(true)
        .build()
        .and_then(|mut container| {
            container.start()?;
            Ok(container)
        });
    let built = failure
        .outcome("creating the container", built)
        .map_err(|error| cwd.err().map_or(error, BuildError::Program))?;
    let pid = built
        .pid()
        .ok_or_else(|| BuildError::Refused("the container has no process".to_owned()))?;
    Ok(Running {
        pid: pid.as_raw(),
        terminal: console.map(|c| c.terminal()).transpose()?,
    })
}

/// Starts a command in a running container.
pub(crate) fn exec(
    place: &Place<'_>,
    settings: &ExecSettings,
    stdio: Stdio,
) -> Result<Running, BuildError> {
    if !place.isolated {
        return plain::exec(place, settings, stdio);
    }
    let config = read_config(place.dir)?;
    let process = config::exec(&config, settings);
    isolate(place)?;
    place.hand_over(&stdio, &config::user(&process))?;
    let written = serde_json::to_vec(&process).map_err(io::Error::from);
    let written = during(
        "writing the command's configuration",
        written.and_then(|bytes| in_memory(&bytes)),
    )?;
    let process_file = PathBuf::from(format!("/proc/self/fd/{}", written.as_raw_fd()));
    enter_users(place, || Ok(()))?;
    exec_with(place, &config, &process_file, stdio, settings.tty)
}

/// A file that takes no space on a disk, which may be full: commands are how one looks for the reason.
fn in_memory(content: &[u8]) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("config", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    Ok(file)
}

fn read_config(dir: &Path) -> Result<serde_json::Value, BuildError> {
    let doing = "reading the container's configuration";
    let bytes = during(doing, fs::read(dir.join("config.json")))?;
    during(doing, serde_json::from_slice(&bytes))
}

fn exec_with(
    place: &Place<'_>,
    config: &serde_json::Value,
    process_file: &Path,
    stdio: Stdio,
    tty: bool,
) -> Result<Running, BuildError> {
    let console = console(place.dir, tty)?;
    let (failure, confined) = executor(config)?;
    let built = builder(place.dir, &console, stdio, confined)?
        .as_tenant()
        .with_process(Some(process_file))
        .with_detach(true)
        .build();
    let pid = failure.outcome("starting the command", built)?;
    Ok(Running {
        pid: pid.as_raw(),
        terminal: console.map(|c| c.terminal()).transpose()?,
    })
}

/// Rids this process, which has been forked from a shim, of what that holds: its sockets, its logs, the streams of others.
/// Whoever is about to enter a container has nothing that could be found on him there.
pub(crate) fn leave<'a>(needed: impl Iterator<Item = &'a OwnedFd>) -> Result<(), BuildError> {
    let left = sys::close_all_but(needed);
    during("leaving what belongs to the shim", left)
}

/// Makes this process, which has been forked for it, one of the container's: signals, cgroups. `with_v2` says whether it must
/// have a cgroup of version 2.
pub(crate) fn enter(cgroups: &Cgroups, leaf: &str, with_v2: bool) -> Result<(), BuildError> {
    sys::reset_signals();
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    if with_v2 && !cgroups.has_v2() {
        return Err(BuildError::Refused(match cgroups.unavailable() {
            Some(reason) => format!("{reason}; only a pod with a user namespace can do without"),
            None => {
                "cgroup version 2 is not mounted: mount it at /sys/fs/cgroup/unified".to_owned()
            }
        }));
    }
    during("joining the container's cgroup", cgroups.join(leaf))
}

/// Gives this process mounts of its own, and nothing of who started Sandbar.
fn isolate(place: &Place<'_>) -> Result<(), BuildError> {
    if !place.user_namespace {
        // the groups of whoever started Sandbar are no business of a container
        during("dropping groups", rustix::thread::set_thread_groups(&[]))?;
    }
    let namespaces = match place.users {
        // who enters users of its own makes its cgroup namespace there
        Some(_) => UnshareFlags::NEWNS,
        None => UnshareFlags::NEWNS | UnshareFlags::NEWCGROUP,
    };
    during("making a mount namespace", sys::unshare(namespaces))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    during("hiding mounts", rustix::mount::mount_change("/", private))
}

/// Lets everybody in the container look at its limits. The library, too, looks for what it may do there, and does without only if
/// it sees that it may do nothing.
fn show_cgroup(place: &Place<'_>) -> Result<(), BuildError> {
    let shown = place.cgroups.show(place.leaf);
    during("showing the container's cgroup", shown)
}

/// The last step that needs the rights of whoever started the pod. `mount` is for what knows no other users than the machine's.
fn enter_users(
    place: &Place<'_>,
    mount: impl FnOnce() -> Result<(), BuildError>,
) -> Result<(), BuildError> {
    let Some(users) = place.users else {
        mount()?;
        return hide_cgroups(place.user_namespace);
    };
    users.move_in(place.dir)?;
    mount()?;
    users.become_root()?;
    hide_cgroups(true)
}

/// The library would look for cgroups of its own choice and join them, which has been done and costs. In this mount namespace
/// it finds version 2 alone, whose root is the container's own cgroup, and in it a directory that nothing can be done with:
/// whoever joins or empties it writes to nowhere. Without privilege it could not even be made, and the library does without.
fn hide_cgroups(user_namespace: bool) -> Result<(), BuildError> {
    let doing = "hiding cgroups from the container library";
    let flags = if user_namespace {
        MountFlags::RDONLY
    } else {
        MountFlags::empty()
    };
    let mounted = rustix::mount::mount("cgroup2", CGROUP_ROOT, "cgroup2", flags, None::<&CStr>);
    during(doing, mounted)?;
    if user_namespace {
        return Ok(());
    }
    let decoy = Path::new(CGROUP_ROOT).join(config::CGROUP.trim_start_matches('/'));
    match fs::create_dir(&decoy) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return during(doing, Err(error));
        }
        _ => {}
    }
    for file in ["cgroup.procs", "cgroup.kill"] {
        during(
            doing,
            rustix::mount::mount_bind("/dev/null", decoy.join(file)),
        )?;
    }
    Ok(())
}

/// Lowering needs a privilege that is not always there, and is never asked for.
fn raise_oom_score(wanted: Option<i32>) {
    const FILE: &str = "/proc/self/oom_score_adj";
    let current = fs::read_to_string(FILE).ok();
    let current: i32 = current.and_then(|c| c.trim().parse().ok()).unwrap_or(0);
    if let Some(wanted) = wanted.filter(|w| *w > current) {
        // what is at stake is who is killed first, not whether the container can run
        let _ = fs::write(FILE, wanted.min(1000).to_string());
    }
}

/// The container's user may open `/dev/stdout` anew only if it is his.
fn hand_over(stdio: &Stdio, user: &User) -> Result<(), BuildError> {
    let uid = Some(Uid::from_raw(user.uid));
    let gid = Some(Gid::from_raw(user.gid));
    for fd in stdio.descriptors() {
        during(
            format!("giving the container's streams to user {}", user.uid),
            rustix::fs::fchown(fd, uid, gid),
        )?;
    }
    Ok(())
}

/// How many processes there may be where no cgroup limits them. The kernel counts the user's in the pod's user namespace (before
/// Linux 5.14 all that the user has), and nobody in there may raise it.
fn processes(place: &Place<'_>, settings: &ContainerSettings) -> Option<u64> {
    let is_counted = place.user_namespace && place.cgroups.unavailable().is_some();
    let wanted = settings.limits.pids.filter(|_| is_counted);
    at_most_own(Resource::Nproc, wanted)
}

fn open_files(wanted: Option<u64>) -> Option<u64> {
    at_most_own(Resource::Nofile, wanted)
}

/// Never more than this process may itself have: raising takes a privilege that is not always there.
fn at_most_own(what: Resource, wanted: Option<u64>) -> Option<u64> {
    let own = rustix::process::getrlimit(what).maximum;
    wanted.map(|w| own.map_or(w, |own| w.min(own)))
}

fn builder(
    dir: &Path,
    console: &Option<Console>,
    stdio: Stdio,
    confined: Confined,
) -> Result<ContainerBuilder, BuildError> {
    let library = |error| library("preparing the container", &error);
    let socket = console.as_ref().map(|_| dir.join(Console::name()));
    let mut builder = ContainerBuilder::new(ID.to_owned(), SyscallType::default())
        .with_root_path(dir.join("runtime"))
        .map_err(library)?
        .with_executor(confined)
        .with_console_socket(socket);
    builder.stdin = stdio.stdin;
    builder.stdout = stdio.stdout;
    builder.stderr = stdio.stderr;
    Ok(builder)
}

/// Where the program's own start is reported: nothing if it runs, else why not.
struct Failure {
    read: OwnedFd,
    write: Option<OwnedFd>,
}

impl Failure {
    /// What the library says counts only if the program does not know better.
    ///
    /// If the library is content, this waits until the program runs or has failed to: all other copies of the pipe close
    /// when it does either. If not, somebody may hang halfway and hold one, but what was to be said has been said.
    fn outcome<T>(
        mut self,
        doing: &'static str,
        built: Result<T, LibcontainerError>,
    ) -> Result<T, BuildError> {
        self.write = None;
        if built.is_err() {
            during(doing, rustix::io::ioctl_fionbio(&self.read, true))?;
        }
        let mut text = Vec::new();
        // would block: nothing more has been said
        let _ = File::from(self.read).read_to_end(&mut text);
        match Obstacle::from_bytes(&text) {
            Some(Obstacle { reason, passes }) if passes => Err(BuildError::Refused(reason)),
            Some(Obstacle { reason, .. }) => Err(BuildError::Program(reason)),
            None => built.map_err(|error| library(doing, &error)),
        }
    }
}

fn executor(config: &serde_json::Value) -> Result<(Failure, Confined), BuildError> {
    failure(config::filters(config)?)
}

fn failure(filters: Filters) -> Result<(Failure, Confined), BuildError> {
    let flags = rustix::pipe::PipeFlags::CLOEXEC;
    let (read, write) = during("making a pipe", rustix::pipe::pipe_with(flags))?;
    let confined = Confined::new(write.as_raw_fd(), filters);
    let failure = Failure {
        read,
        write: Some(write),
    };
    Ok((failure, confined))
}

/// A socket on which the container's first process sends its terminal.
struct Console {
    listener: UnixListener,
}

impl Console {
    fn name() -> String {
        format!("console-{}.sock", std::process::id())
    }

    /// The terminal's master side. It has been sent by the time the container runs.
    fn terminal(self) -> Result<OwnedFd, BuildError> {
        let doing = "receiving the terminal";
        let (stream, _) = during(doing, self.listener.accept())?;
        let terminal = during(doing, mounts::receive_fd(stream.as_fd()))?;
        let _ = fs::remove_file(Self::name());
        Ok(terminal)
    }
}

/// The directory is entered first: its path may be longer than the address of a socket can be.
fn console(dir: &Path, tty: bool) -> Result<Option<Console>, BuildError> {
    if !tty {
        return Ok(None);
    }
    let doing = "making a socket for the terminal";
    during(doing, std::env::set_current_dir(dir))?;
    let listener = during(doing, UnixListener::bind(Console::name()))?;
    Ok(Some(Console { listener }))
}

//! The process that forks: a copy of the program with one thread that does nothing else.
//!
//! Sandbar itself has many threads and cannot fork safely; and what is forked from here shares the helper's memory, which is
//! why a shim costs so little. The helper ends when whoever started it does. Shims do not.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mount::OpenTreeFlags;
use rustix::thread::UnshareFlags;

use crate::cgroup::{Cgroups, Hierarchy};
use crate::settings::{PodSettings, UserNamespace};
use crate::wire::{self, Failure, FromShim, Incoming, Reply, StartPod};
use crate::{seccomp, shim, sys, user_namespace};

/// Tells the helper that nobody can write what it has been started from.
const SEALED: &str = "SANDBAR_HELPER_SEALED";
/// The file that this process runs, also when it has been removed or another one lies in its place.
const OWN: &str = "/proc/self/exe";

/// Runs the helper of pods that are isolated until its caller is gone. To be called first thing in `main`, before there is any
/// thread; standard input is the caller's socket.
pub fn run() -> ExitCode {
    let sealed = || match std::env::var_os(SEALED).is_none() && may_mount() {
        true => Err(run_sealed()?),
        false => Ok(()),
    };
    end(sealed().and_then(|()| serve()))
}

/// The same for pods that are not: there are no namespaces to enter, and nothing to be sealed from whoever may do all that this
/// process may.
pub fn run_plain() -> ExitCode {
    end(serve())
}

fn end(served: io::Result<()>) -> ExitCode {
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("container helper: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    let socket = take_socket()?;
    let _ = rustix::thread::set_name(c"sandbar-helper");
    // a session of its own: who presses Ctrl-C means Sandbar, which may still need its helper
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    sys::forget_children();
    seccomp::warm_up();
    let mut incoming = Incoming::default();
    let mut entered = None;
    while incoming.receive(socket.as_fd())? {
        while let Some((StartPod { settings }, fds)) = incoming.next::<StartPod>()? {
            entered.get_or_insert_with(|| enter_cgroup(&settings));
            let Ok([connection, birth]) = <[OwnedFd; 2]>::try_from(fds) else {
                continue;
            };
            match sys::fork() {
                Ok(Some(_)) => {}
                Ok(None) => {
                    drop((socket, incoming, entered));
                    shim::run(settings, connection, birth)
                }
                Err(error) => refuse(&connection, &error),
            }
        }
    }
    if let Some(cgroups) = entered {
        cgroups.leave_shims();
    }
    Ok(())
}

/// The instance becomes known with its first pod.
fn enter_cgroup(settings: &PodSettings) -> Cgroups {
    let mounted = Hierarchy::mounted().unwrap_or_default();
    let cgroups = Cgroups::new(mounted, &settings.cgroup_parent, &settings.cgroup);
    cgroups.enter_shims();
    cgroups
}

/// Root may mount. Anybody else may in namespaces of his own, where his pods will live; if he may have none, his pods may
/// neither, and are told so.
fn may_mount() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    let entered = user_namespace::enter(&UserNamespace::of_caller());
    entered
        .and_then(|()| sys::unshare(UnshareFlags::NEWNS))
        .is_ok()
}

/// Runs this program again from its own file, sealed.
///
/// A container can make the process that enters it run `/proc/self/exe`, and so get hold of the file of this very program.
/// Being its owner it could then overwrite it, and the next to run it is the host. Through a read-only mount nobody can, and
/// nobody can write a sealed copy.
fn run_sealed() -> io::Result<io::Error> {
    let program = mounted().or_else(|_| copied())?;
    let args: Result<Vec<CString>, _> = std::env::args_os()
        .map(|a| CString::new(a.into_encoded_bytes()))
        .collect();
    let env = CString::new(format!("{SEALED}=1"))?;
    Ok(sys::exec_descriptor(&program, &args?, &[env]))
}

/// This program in a read-only mount of its file.
fn mounted() -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let open = |path: &Path| rustix::mount::open_tree(CWD, path, flags);
    // whoever has left the mount namespace in which the file was run may mount nothing from there: he finds it by its path,
    // unless another one lies there now
    let program = open(Path::new(OWN)).or_else(|_| -> io::Result<OwnedFd> {
        let named = open(&std::env::current_exe()?)?;
        let (ours, theirs) = (rustix::fs::stat(OWN)?, rustix::fs::fstat(&named)?);
        match (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino) {
            true => Ok(named),
            false => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    })?;
    sys::make_read_only(&program)?;
    Ok(program)
}

/// This program in memory, where it takes as much as it is long.
fn copied() -> io::Result<OwnedFd> {
    let mut copy = File::from(runnable_memory()?);
    io::copy(&mut File::open(OWN)?, &mut copy)?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&copy, seals)?;
    Ok(copy.into())
}

/// Where `vm.memfd_noexec` is set, only what is asked for so can be run. Before Linux 6.3 nobody could ask.
fn runnable_memory() -> rustix::io::Result<OwnedFd> {
    let make = |flags| rustix::fs::memfd_create("sandbar-helper", flags);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match make(flags | MemfdFlags::EXEC) {
        Err(rustix::io::Errno::INVAL) => make(flags),
        made => made,
    }
}

/// Standard input becomes what it is in every other process: containers are forked from here.
fn take_socket() -> io::Result<OwnedFd> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(socket)
}

fn refuse(connection: &OwnedFd, error: &io::Error) {
    let reply = Reply::Failed(Failure::Failed(format!("forking the pod's shim: {error}")));
    // the caller notices a closed connection as well
    let _ = wire::send(
        connection.as_fd(),
        &FromShim::Reply { id: 0, reply },
        Vec::new(),
    );
}

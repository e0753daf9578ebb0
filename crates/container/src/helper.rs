//! The process that forks: a copy of the program with one thread that does nothing else.
//!
//! Sandbar itself has many threads and cannot fork safely; and what is forked from here shares the helper's memory, which is
//! why a shim costs so little. The helper ends when whoever started it does. Shims do not.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use rustix::fs::{Mode, OFlags};
use rustix::mount::OpenTreeFlags;
use rustix::thread::UnshareFlags;

use crate::cgroup::{Cgroups, Hierarchy};
use crate::settings::{PodSettings, UserNamespace};
use crate::wire::{self, Failure, FromShim, Incoming, Reply, StartPod};
use crate::{seccomp, shim, sys, user_namespace};

/// Tells the helper that it has been started from a read-only mount.
const SEALED: &str = "SANDBAR_HELPER_SEALED";

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
            let Some(connection) = fds.into_iter().next() else {
                continue;
            };
            match sys::fork() {
                Ok(Some(_)) => {}
                Ok(None) => {
                    drop((socket, incoming, entered));
                    shim::run(settings, connection)
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

/// Runs this program again from a read-only mount of its own file.
///
/// A container can make the process that enters it run `/proc/self/exe`, and so get hold of the file of this very program.
/// Being its owner it could then overwrite it, and the next to run it is the host. Through a read-only mount nobody can.
fn run_sealed() -> io::Result<io::Error> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    // by its path: the file that was run lies in the mount namespace that was left, where nothing may be mounted from
    let program = rustix::mount::open_tree(rustix::fs::CWD, std::env::current_exe()?, flags)?;
    sys::make_read_only(&program)?;
    let args: Result<Vec<CString>, _> = std::env::args_os()
        .map(|a| CString::new(a.into_encoded_bytes()))
        .collect();
    let env = CString::new(format!("{SEALED}=1"))?;
    Ok(sys::exec_descriptor(&program, &args?, &[env]))
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

//! The system calls without a safe form elsewhere. Everything `unsafe` of this crate is here.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::process::Pid;
use rustix::thread::UnshareFlags;
use tokio::io::unix::AsyncFd;

/// Forks. The parent learns the child's id, the child gets `None`.
///
/// Only ever called in the helper and in shims, which have one thread: no lock can be held by a thread that the child lacks.
#[allow(unsafe_code, reason = "fork has no safe form")]
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: this process has a single thread, so the child's copy of memory is consistent
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Ends a forked child without running what its parent registered for its own end.
#[allow(unsafe_code, reason = "_exit is not in the standard library")]
pub(crate) fn exit_child(code: i32) -> ! {
    // SAFETY: takes a number, touches no memory
    unsafe { libc::_exit(code) }
}

/// Moves this process into new namespaces.
#[allow(unsafe_code, reason = "a shared descriptor table would be taken apart")]
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: none of the callers' flags separates descriptors or file system information that other threads rely on
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Sends any signal by number; real-time signals have no names.
#[allow(unsafe_code, reason = "signals by number are not in rustix")]
pub(crate) fn kill(pid: i32, signal: i32) -> io::Result<()> {
    if pid <= 0 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: takes two numbers, touches no memory
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends any signal by number to a process that is held.
#[allow(unsafe_code, reason = "signals by number are not in rustix")]
pub(crate) fn signal(process: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let none = ptr::null::<libc::siginfo_t>();
    // SAFETY: takes numbers and no further information, touches no memory
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            signal,
            none,
            0,
        )
    };
    match sent {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Closes what this process, forked for something else, has of its parent: all but the standard streams and what is to be kept.
///
/// Whoever owns what is closed must not be used again, not even be dropped: its numbers will come to mean something else.
#[allow(
    unsafe_code,
    reason = "descriptors are closed behind their owners' backs"
)]
pub(crate) fn close_all_but<'a>(keep: impl Iterator<Item = &'a OwnedFd>) -> io::Result<()> {
    let number = |fd: &OwnedFd| fd.as_raw_fd().cast_unsigned();
    let mut kept: Vec<u32> = keep.map(number).collect();
    kept.sort_unstable();
    let mut first = 3;
    for end in kept.into_iter().map(Some).chain([None]) {
        let last = end.map_or(u32::MAX, |end| end.saturating_sub(1));
        // SAFETY: takes numbers; by contract nobody uses what is closed
        if first <= last && unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        first = end.map_or(first, |end| first.max(end + 1));
    }
    Ok(())
}

/// Lets the kernel reap this process's children.
#[allow(unsafe_code, reason = "signal dispositions are not in rustix")]
pub(crate) fn forget_children() {
    // SAFETY: ignoring a signal installs no code
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Blocks SIGCHLD and gives a descriptor that becomes readable instead.
#[allow(unsafe_code, reason = "signalfd is not in rustix")]
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before use; the descriptor returned is new and ours
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Default dispositions and an empty mask, as a program expects to find them: both would be inherited through exec.
#[allow(unsafe_code, reason = "signal dispositions are not in rustix")]
pub(crate) fn reset_signals() {
    // SAFETY: default dispositions run no code of ours; the set is initialised before use
    unsafe {
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut());
    }
}

/// `IFF_UP` and `IFF_RUNNING`, in the width that the request has.
const UP_AND_RUNNING: libc::c_short = 0x41;

/// Brings the loopback interface of this network namespace up.
#[allow(unsafe_code, reason = "interface flags are an ioctl on a C structure")]
pub(crate) fn loopback_up() -> io::Result<()> {
    // SAFETY: the request is fully initialised and outlives both calls; the socket is closed by its owner
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let _owner = OwnedFd::from_raw_fd(socket);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        if libc::ioctl(socket, libc::SIOCGIFFLAGS, &raw mut request) != 0 {
            return Err(io::Error::last_os_error());
        }
        request.ifr_ifru.ifru_flags |= UP_AND_RUNNING;
        match libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw mut request) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Becomes another program; returns only the reason why not.
#[allow(unsafe_code, reason = "exec in place is not in rustix")]
pub(crate) fn execve(path: &CStr, args: &[CString], env: &[CString]) -> io::Error {
    let (args, env) = (pointers(args), pointers(env));
    // SAFETY: all strings end in NUL and both arrays in a null pointer, and they live until exec has copied them
    unsafe { libc::execve(path.as_ptr(), args.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Writes to a descriptor known by number only, as far as it goes.
#[allow(
    unsafe_code,
    reason = "the number crossed a fork inside another library"
)]
pub(crate) fn write_raw(fd: RawFd, bytes: &[u8]) {
    // SAFETY: the buffer is valid for its length; a wrong descriptor is an error, not undefined
    unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
}

/// Has a detached mount show the owners of files as those whom a user namespace maps their ids to.
pub(crate) fn map_users(mount: &OwnedFd, namespace: &OwnedFd) -> io::Result<()> {
    let namespace = u64::try_from(namespace.as_raw_fd()).map_err(io::Error::other)?;
    set_attributes(mount, libc::MOUNT_ATTR_IDMAP, namespace)
}

/// Makes a detached mount read-only.
pub(crate) fn make_read_only(mount: &OwnedFd) -> io::Result<()> {
    set_attributes(mount, libc::MOUNT_ATTR_RDONLY, 0)
}

#[allow(unsafe_code, reason = "mount_setattr is not in rustix")]
fn set_attributes(mount: &OwnedFd, set: u64, namespace: u64) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation: 0,
        userns_fd: namespace,
    };
    // SAFETY: the path is a string that ends in NUL, and the structure has the size that is given
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Becomes the program behind a descriptor; returns only the reason why not.
#[allow(unsafe_code, reason = "exec in place is not in rustix")]
pub(crate) fn exec_descriptor(program: &OwnedFd, args: &[CString], env: &[CString]) -> io::Error {
    let (args, env) = (pointers(args), pointers(env));
    // SAFETY: as for `execve`; the empty path means the descriptor itself
    unsafe {
        libc::execveat(
            program.as_raw_fd(),
            c"".as_ptr(),
            args.as_ptr().cast(),
            env.as_ptr().cast(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

/// An array as C programs take them. Valid as long as the strings are.
fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    let each = strings.iter().map(|s| s.as_ptr());
    each.chain([ptr::null()]).collect()
}

/// Has the runtime tell when a descriptor is ready.
#[allow(
    unsafe_code,
    reason = "tokio trusts its caller with which descriptor it is"
)]
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays open and the same until its owner is dropped
    Ok(unsafe { AsyncFd::register(fd) }?)
}

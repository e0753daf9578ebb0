//! The system calls without a safe form elsewhere. Everything `unsafe` of this crate is here.

use std::ffi::{CString, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::FdFlags;
use rustix::mm::{Advice, madvise};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Has the runtime watch a descriptor, which from now on does not block.
#[allow(
    unsafe_code,
    reason = "tokio trusts its caller with which descriptor it is"
)]
pub(super) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    // SAFETY: an owned descriptor stays open and the same until its owner is dropped
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}

/// A descriptor that another program left open in this process for whoever comes after it.
#[allow(unsafe_code, reason = "a number becomes a descriptor")]
pub(super) fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    if fd <= libc::STDERR_FILENO {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("descriptor {fd} is nobody's to leave"),
        ));
    }
    // SAFETY: whoever left it says that it is open and that nobody else here has it, and each is named once
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    match rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC) {
        Ok(()) => Ok(fd),
        Err(error) => {
            // it is not open: closing it would be an error, or close another's
            std::mem::forget(fd);
            Err(error.into())
        }
    }
}

/// Becomes another program with everything as it is: the standard library's way would first let in the signals that are held, of
/// which nobody would be told. Returns only if that fails.
#[allow(unsafe_code, reason = "arguments are pointers")]
pub(super) fn become_program<'a>(
    path: &OsStr,
    arguments: impl Iterator<Item = &'a OsStr>,
) -> io::Error {
    let text = |text: &OsStr| CString::new(text.as_bytes());
    let (path, arguments) = match (
        text(path),
        arguments.map(text).collect::<Result<Vec<_>, _>>(),
    ) {
        (Ok(path), Ok(arguments)) => (path, arguments),
        (Err(error), _) | (_, Err(error)) => return error.into(),
    };
    let pointers = arguments.iter().map(|argument| argument.as_ptr());
    let pointers: Vec<_> = pointers.chain([std::ptr::null()]).collect();
    // SAFETY: all point to text that ends with a zero and lives until the call is over, and the last of them is null
    unsafe { libc::execv(path.as_ptr(), pointers.as_ptr()) };
    io::Error::last_os_error()
}

/// Has SIGTERM and SIGINT wait, as far as this thread goes. They also wait for a program that this one becomes.
pub(super) fn hold_stop_signals() {
    mask_stop_signals(libc::SIG_BLOCK);
}

pub(super) fn release_stop_signals() {
    mask_stop_signals(libc::SIG_UNBLOCK);
}

#[allow(unsafe_code, reason = "sets of signals are C's")]
fn mask_stop_signals(how: libc::c_int) {
    let mut signals = MaybeUninit::uninit();
    // SAFETY: the set is made by the first call before others use it; the old mask is not asked for
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGTERM);
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGINT);
        libc::pthread_sigmask(how, signals.as_ptr(), std::ptr::null_mut());
    }
}

/// Gives back to the system what was freed; the allocator by itself keeps what lies between things still in use.
#[allow(unsafe_code, reason = "the allocator is the C library's")]
pub(super) fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: only pages that nothing is in are given back
    unsafe {
        libc::malloc_trim(0)
    };
    give_back_code();
}

/// Of a program that waits, nearly all that is in memory is code that ran once. What is needed again is found again in the
/// page cache, which all sandboxes of a machine share.
#[allow(unsafe_code, reason = "memory is named by its address")]
fn give_back_code() {
    let here = give_back_code as *const () as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mapped = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        Some((address(start)?..address(end)?, rest))
    });
    let code = mapped
        .filter(|(range, rest)| range.contains(&here) && rest.starts_with("r-xp"))
        .map(|(range, _)| range)
        .next();
    if let Some(code) = code {
        // SAFETY: nothing has been written to it, so that what is read next, from the same file, is the same
        let _ = unsafe {
            let start = std::ptr::with_exposed_provenance_mut(code.start);
            madvise(start, code.len(), Advice::LinuxDontNeed)
        };
    }
}

/// Has the child do something between fork and exec. It must only make system calls, on values made before the fork: neither
/// allocate nor take locks, which other threads may hold for ever in the child's copy of memory.
#[allow(unsafe_code, reason = "nothing is safe between fork and exec")]
pub(super) fn in_child(
    program: &mut Command,
    act: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: what its only caller does there is a row of system calls, as said above
    unsafe { program.pre_exec(act) };
}

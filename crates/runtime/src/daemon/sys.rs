//! The system calls without a safe form elsewhere. Everything `unsafe` of this crate is here.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
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

/// Has a write to a pipe that nobody reads fail, as in every Rust program until it tries to become another.
#[allow(unsafe_code, reason = "signals have no safe form")]
pub(super) fn outlive_broken_pipes() {
    // SAFETY: nothing is called when the signal comes
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
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

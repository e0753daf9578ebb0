//! Children: every one that ends is heard of and reaped, those of nobody included when the daemon is the first process.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process_group, wait, waitid,
};
use tokio::signal::unix::{SignalKind, signal};

use super::{Daemon, sys};

/// How long commands may take to end before the daemon does so without them.
const GRACE: Duration = Duration::from_secs(10);

/// Tells the process table of each end. Only ever fails at the start.
pub(super) async fn reap(daemon: Arc<Daemon>) -> io::Result<()> {
    let mut children = signal(SignalKind::child())?;
    loop {
        while let Some((pid, status)) = next_ended() {
            daemon.processes.ended(pid, status);
        }
        children.recv().await;
    }
}

fn next_ended() -> Option<(Pid, ExitStatus)> {
    // that there are no children at all is an error to the kernel
    let (pid, status) = wait(WaitOptions::NOHANG).ok().flatten()?;
    Some((pid, ExitStatus::from_raw(status.as_raw())))
}

/// Waits for SIGTERM or SIGINT, passes SIGTERM on and lets commands end.
pub(super) async fn stopped(daemon: &Daemon) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // a program before this one may have held them
    sys::release_stop_signals();
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    daemon.stopping.store(true, Ordering::Relaxed);
    let first = getpid().is_init();
    if first {
        // group 1 means everybody in the namespace but its first process: commands, and what they left behind
        let _ = kill_process_group(Pid::INIT, Signal::TERM);
    }
    daemon.processes.terminate();
    let all_ended = async {
        daemon.processes.none_left().await;
        // with the first process the kernel ends all others, who were only just told
        while first && has_children() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    // those that do not listen are left to the kernel or to whoever reaps them next
    let _ = tokio::time::timeout(GRACE, all_ended).await;
    Ok(())
}

fn has_children() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, look), Err(Errno::CHILD))
}

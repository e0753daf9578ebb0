//! Children: every one that ends is heard of and reaped, those of nobody included when the daemon is the first process.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, wait};
use tokio::signal::unix::{SignalKind, signal};

use super::Daemon;

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

fn next_ended() -> Option<(Pid, WaitStatus)> {
    // that there are no children at all is an error to the kernel
    wait(WaitOptions::NOHANG).ok().flatten()
}

/// Waits for SIGTERM or SIGINT, passes SIGTERM on and lets commands end.
pub(super) async fn stopped(daemon: &Daemon) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    if getpid().is_init() {
        // group 1 means everybody in the namespace but its first process: commands, and what they left behind
        let _ = kill_process_group(Pid::INIT, Signal::TERM);
    }
    daemon.processes.terminate();
    // those that do not listen are left to the kernel or to whoever reaps them next
    let _ = tokio::time::timeout(GRACE, daemon.processes.none_left()).await;
    Ok(())
}

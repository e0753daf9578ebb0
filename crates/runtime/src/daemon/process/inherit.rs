//! A running process passes from one daemon to the next.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use super::Stream;
use super::running::Process;
use super::spawn::Spawned;
use crate::daemon::sys;
use crate::daemon::upgrade::{Inherit, state};

pub(super) fn inherit_process(process: &Process, inherit: Inherit) -> io::Result<state::Live> {
    let terminal = process.terminal.as_ref();
    let terminal = terminal.map(|fd| inherit(fd.as_fd())).transpose()?;
    let output = |stream: Stream| {
        let outputs = process.outputs();
        let found = outputs.iter().find(|output| output.stream() == stream);
        found.map(|output| inherit(output.fd().as_fd())).transpose()
    };
    let stdin = match (terminal, process.input.pipe()) {
        (None, Some(pipe)) => Some(inherit(pipe.get_ref().as_fd())?),
        _ => None,
    };
    let terminal_is_read = terminal.is_some() && process.outputs().len() == 1;
    let (exit, cut_off) = process.ending();
    let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
    Ok(state::Live {
        number: process.number,
        pid: process.pid,
        tag: process.tag.clone(),
        config: process.config.clone(),
        stdin,
        stdout: output(Stream::Stdout)?,
        stderr: output(Stream::Stderr)?,
        terminal,
        terminal_is_read,
        millis_left: process
            .deadline
            .map(|deadline| state::millis(left(deadline))),
        exit: exit.map(ExitStatusExt::into_raw),
        cut_off,
        tails: process.outcome(None),
    })
}

pub(super) fn resumed(live: &state::Live) -> io::Result<Process> {
    let take = |fd: Option<i32>| fd.map(sys::inherited).transpose();
    let terminal = take(live.terminal)?;
    let again = |terminal: &OwnedFd| terminal.try_clone();
    let mut outputs = Vec::new();
    for (stream, fd) in [(Stream::Stdout, live.stdout), (Stream::Stderr, live.stderr)] {
        outputs.extend(take(fd)?.map(|fd| (stream, fd)));
    }
    if let Some(terminal) = terminal.as_ref().filter(|_| live.terminal_is_read) {
        outputs.push((Stream::Pty, again(terminal)?));
    }
    let input = match &terminal {
        Some(terminal) => Some(again(terminal)?),
        None => take(live.stdin)?,
    };
    let spawned = Spawned {
        pid: live.pid,
        input,
        outputs,
        terminal,
    };
    let left = live.millis_left.map(Duration::from_millis);
    let deadline = left.and_then(|left| Instant::now().checked_add(left));
    let process = Process::new(spawned, live.config.clone(), live.tag.clone(), deadline)?;
    Ok(process.resume(live))
}

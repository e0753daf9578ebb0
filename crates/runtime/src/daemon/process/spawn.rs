//! How a program is started: as its user, in its directory, with nothing of the daemon's but what it is given.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{Gid, Mode, OFlags, Uid, fchown};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{chdir, geteuid, ioctl_tiocsctty, setpriority_process, setsid};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use super::Stream;
use crate::daemon::users::{self, User};
use crate::daemon::{descriptors, nothing, sys};
use crate::messages::process::{ProcessConfig, Pty};

/// Commands go before the daemon when memory runs out.
const OOM_SCORE: &[u8] = b"100";

const DEFAULT_WINDOW: (u16, u16) = (80, 24);

pub(super) struct Command<'a> {
    pub(super) user: &'a User,
    pub(super) config: &'a ProcessConfig,
    pub(super) environment: Vec<(String, String)>,
    pub(super) cwd: PathBuf,
    pub(super) pty: Option<Pty>,
    /// Whether there is a pipe to it; of no meaning with a terminal.
    pub(super) stdin: bool,
}

/// A process and the daemon's ends of what connects to it.
pub(super) struct Spawned {
    pub(super) pid: u32,
    pub(super) input: Option<OwnedFd>,
    pub(super) outputs: Vec<(Stream, OwnedFd)>,
    pub(super) terminal: Option<OwnedFd>,
}

pub(super) fn spawn(command: &Command<'_>) -> io::Result<Spawned> {
    let mut program = std::process::Command::new(&command.config.cmd);
    program.args(&command.config.args).env_clear().envs(
        command
            .environment
            .iter()
            .map(|(name, value)| (name, value)),
    );
    let mut spawned = match command.pty {
        Some(pty) => with_terminal(&mut program, pty, command.user)?,
        None => with_pipes(&mut program, command.stdin)?,
    };
    prepare_child(&mut program, command)?;
    // reaped by number like every child, so that the handle is not needed
    spawned.pid = program.spawn()?.id();
    Ok(spawned)
}

fn with_pipes(program: &mut std::process::Command, stdin: bool) -> io::Result<Spawned> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC);
    let (stdout, stdout_end) = pipe()?;
    let (stderr, stderr_end) = pipe()?;
    program.stdout(stdout_end).stderr(stderr_end);
    let input = if stdin {
        let (stdin_end, stdin) = pipe()?;
        program.stdin(stdin_end);
        Some(stdin)
    } else {
        program.stdin(nothing::input()?);
        None
    };
    Ok(Spawned {
        pid: 0,
        input,
        outputs: vec![(Stream::Stdout, stdout), (Stream::Stderr, stderr)],
        terminal: None,
    })
}

fn with_terminal(
    program: &mut std::process::Command,
    pty: Pty,
    user: &User,
) -> io::Result<Spawned> {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    unlockpt(&terminal)?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let end = ioctl_tiocgptpeer(&terminal, flags)?;
    tcsetwinsize(&terminal, window(pty))?;
    // its user may open it by name; who may not give it away runs everything as one user anyway
    let _ = fchown(&end, Some(Uid::from_raw(user.uid)), None);
    program
        .stdin(end.try_clone()?)
        .stdout(end.try_clone()?)
        .stderr(end);
    Ok(Spawned {
        pid: 0,
        input: Some(terminal.try_clone()?),
        outputs: vec![(Stream::Pty, terminal.try_clone()?)],
        terminal: Some(terminal),
    })
}

/// Terminals know no sizes above 65535; none at all means the usual one.
pub(super) fn window(pty: Pty) -> Winsize {
    let size = pty.size.unwrap_or_default();
    let within = |wanted: u32, default: u16| match wanted {
        0 => default,
        wanted => u16::try_from(wanted).unwrap_or(u16::MAX),
    };
    Winsize {
        ws_col: within(size.cols, DEFAULT_WINDOW.0),
        ws_row: within(size.rows, DEFAULT_WINDOW.1),
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// What the child does between fork and exec: system calls and nothing else.
fn prepare_child(program: &mut std::process::Command, command: &Command<'_>) -> io::Result<()> {
    let user = command.user;
    let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let changes_user = users::may_change() || geteuid() != uid;
    let cwd = CString::new(command.cwd.as_os_str().as_bytes())?;
    let has_terminal = command.pty.is_some();
    let limit = descriptors::of_commands();
    let child = move || -> io::Result<()> {
        setsid()?;
        if has_terminal {
            ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        be_modest();
        descriptors::set(limit);
        if changes_user {
            set_thread_groups(&groups)?;
            set_thread_gid(gid)?;
            set_thread_uid(uid)?;
        }
        chdir(&*cwd)?;
        Ok(())
    };
    sys::in_child(program, child);
    Ok(())
}

/// As good as it can be done: a sandbox may forbid it.
fn be_modest() {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(score) = rustix::fs::open(c"/proc/self/oom_score_adj", flags, Mode::empty()) {
        let _ = rustix::io::write(score, OOM_SCORE);
    }
    let _ = setpriority_process(None, 0);
}

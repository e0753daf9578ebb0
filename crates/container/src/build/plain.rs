//! Containers that are nothing but processes: of this user, in a session of their own, with all of the machine before them.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::process::{Resource, Rlimit};
use rustix::pty::OpenptFlags;
use serde_json::{Value, json};

use super::executor::{Confined, Obstacle};
use super::{BuildError, Failure, Place, Running, Stdio, config, during, failure};
use crate::seccomp::Filters;
use crate::settings::{ContainerSettings, ExecSettings};
use crate::strays::MARK;
use crate::sys;

pub(super) fn container(
    place: &Place<'_>,
    settings: &ContainerSettings,
    stdio: Stdio,
) -> Result<Running, BuildError> {
    let process = json!({
        "args": settings.args,
        "env": config::environment(settings),
        "cwd": settings.cwd,
        "terminal": settings.tty,
        "openFiles": super::open_files(settings.open_files),
    });
    let config = json!({ "process": process });
    let written = serde_json::to_vec(&config).map_err(io::Error::from);
    during(
        "writing the container's configuration",
        written.and_then(|bytes| fs::write(place.dir.join("config.json"), bytes)),
    )?;
    super::raise_oom_score(settings.oom_score_adj);
    run(&process, place.dir, stdio)
}

pub(super) fn exec(
    place: &Place<'_>,
    settings: &ExecSettings,
    stdio: Stdio,
) -> Result<Running, BuildError> {
    let config = super::read_config(place.dir)?;
    run(&config::exec(&config, settings), place.dir, stdio)
}

fn run(process: &Value, dir: &Path, stdio: Stdio) -> Result<Running, BuildError> {
    let terminal = match process["terminal"] == true {
        true => Some(during("making a terminal", Terminal::open())?),
        false => None,
    };
    let (failure, confined) = failure(Filters::none())?;
    let Some(pid) = during("forking the program", sys::fork())? else {
        let obstacle = become_program(process, dir, stdio, terminal, &confined);
        confined.report(obstacle);
        sys::exit_child(1);
    };
    drop(stdio);
    let pid = Failure::outcome(failure, "starting the program", Ok(pid))?;
    Ok(Running {
        pid: pid.as_raw_pid(),
        terminal: terminal.map(|terminal| terminal.master),
    })
}

/// Returns only why not.
fn become_program(
    process: &Value,
    dir: &Path,
    stdio: Stdio,
    terminal: Option<Terminal>,
    confined: &Confined,
) -> Obstacle {
    let set_up = || {
        rustix::process::setsid()?;
        match terminal {
            Some(Terminal { slave, .. }) => {
                rustix::process::ioctl_tiocsctty(&slave)?;
                take_streams(Some(&slave), Some(&slave), Some(&slave))?;
            }
            None => take_streams(
                stdio.stdin.as_ref(),
                stdio.stdout.as_ref(),
                stdio.stderr.as_ref(),
            )?,
        }
        if let Some(open_files) = process["openFiles"].as_u64() {
            let limit = Rlimit {
                current: Some(open_files),
                maximum: Some(open_files),
            };
            rustix::process::setrlimit(Resource::Nofile, limit)?;
        }
        rustix::thread::set_no_new_privs(true)
    };
    if let Err(error) = set_up() {
        let error = io::Error::from(error);
        return Obstacle::passing(format!("preparing the program: {error}"));
    }
    let cwd = process["cwd"].as_str().unwrap_or("/");
    if let Err(error) = std::env::set_current_dir(cwd) {
        return Obstacle::met(format!("entering working directory {cwd}"), &error);
    }
    let strings = |name: &str| -> Vec<String> {
        let list = process[name].as_array().into_iter().flatten();
        let texts = list.filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    };
    let mut env = strings("env");
    env.retain(|variable| !variable.starts_with(MARK));
    env.push(format!("{MARK}={}", dir.display()));
    confined.become_program(&strings("args"), &env)
}

/// Without a stream there is nothing to read or to be heard: this process was given none by its parent.
fn take_streams(
    stdin: Option<&OwnedFd>,
    stdout: Option<&OwnedFd>,
    stderr: Option<&OwnedFd>,
) -> rustix::io::Result<()> {
    stdin.map_or(Ok(()), rustix::stdio::dup2_stdin)?;
    stdout.map_or(Ok(()), rustix::stdio::dup2_stdout)?;
    stderr.map_or(Ok(()), rustix::stdio::dup2_stderr)
}

struct Terminal {
    master: OwnedFd,
    slave: OwnedFd,
}

impl Terminal {
    fn open() -> rustix::io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags)?;
        rustix::pty::unlockpt(&master)?;
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
        Ok(Self { master, slave })
    }
}

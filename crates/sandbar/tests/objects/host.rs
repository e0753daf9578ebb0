//! A node whose containers are processes of this machine.

use std::{os::fd::AsFd as _, path::PathBuf, process::Stdio};

use futures::{
    FutureExt as _,
    future::{BoxFuture, ready},
};
use local::{
    server::streams::{
        AttachAsk, Duplex, ExecAsk, Log, LogOptions, PodRef, PodStreams, Session, Streams,
        TerminalSize,
        log_file::{self, LogFile},
    },
    status::Failure,
};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::{
    process::{Child, Command},
    sync::watch,
};

pub(crate) struct Host {
    /// Where the logs of `<container id>` are: `<directory>/<container id>/0.log`.
    pub(crate) logs: PathBuf,
    /// Whether containers run, and write to their logs.
    pub(crate) running: watch::Sender<bool>,
}

fn start(command: &[String], streams: Streams) -> Result<Session, Failure> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::unexpected("no command was given"));
    };
    if streams.tty {
        return Ok(start_on_terminal(program, arguments, streams));
    }
    let pipe = |wanted: bool| match wanted {
        true => Stdio::piped(),
        false => Stdio::null(),
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(pipe(streams.stdin))
        .stdout(pipe(streams.stdout))
        .stderr(pipe(streams.stderr))
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Failure::unexpected(format!("exec: {program:?}: {error}")))?;
    Ok(Session {
        stdin: child.stdin.take().map(|pipe| Box::new(pipe) as _),
        stdout: child.stdout.take().map(|pipe| Box::new(pipe) as _),
        stderr: child.stderr.take().map(|pipe| Box::new(pipe) as _),
        resize: None,
        exit: exit(child),
    })
}

fn start_on_terminal(program: &str, arguments: &[String], streams: Streams) -> Session {
    let (pty, pts) = pty_process::open().unwrap();
    let child = pty_process::Command::new(program)
        .args(arguments)
        .env("TERM", "dumb")
        .spawn(pts)
        .unwrap();
    let terminal = pty.as_fd().try_clone_to_owned().unwrap();
    let (resize, mut sizes) = watch::channel(TerminalSize::default());
    tokio::spawn(async move {
        while sizes.changed().await.is_ok() {
            let TerminalSize { width, height } = *sizes.borrow_and_update();
            let size = Winsize {
                ws_row: height,
                ws_col: width,
                ws_xpixel: 0,
                ws_ypixel: 0,
            };
            tcsetwinsize(&terminal, size).unwrap();
        }
    });
    let (reader, writer) = pty.into_split();
    Session {
        stdin: streams.stdin.then(|| Box::new(writer) as _),
        stdout: Some(Box::new(reader)),
        stderr: None,
        resize: Some(resize),
        exit: exit(child),
    }
}

fn exit(mut child: Child) -> BoxFuture<'static, Result<i32, Failure>> {
    async move { Ok(child.wait().await.unwrap().code().unwrap_or(137)) }.boxed()
}

impl PodStreams for Host {
    fn runs(&self, _: PodRef, _: Option<String>) -> BoxFuture<'_, bool> {
        ready(*self.running.borrow()).boxed()
    }

    fn log(&self, _: PodRef, options: LogOptions) -> BoxFuture<'_, Result<Log, Failure>> {
        let file = LogFile {
            path: self.logs.join(&options.container_id).join("0.log"),
            running: self.running.subscribe(),
        };
        ready(Ok(log_file::read(file, &options))).boxed()
    }

    fn exec(&self, _: PodRef, ask: ExecAsk) -> BoxFuture<'_, Result<Session, Failure>> {
        ready(start(&ask.command, ask.streams)).boxed()
    }

    fn attach(&self, _: PodRef, _: AttachAsk) -> BoxFuture<'_, Result<Session, Failure>> {
        ready(Err(Failure::unexpected("nobody attaches here"))).boxed()
    }

    fn dial(&self, _: PodRef, _: u16) -> BoxFuture<'_, Result<Box<dyn Duplex>, Failure>> {
        ready(Err(Failure::unexpected("nobody dials here"))).boxed()
    }
}

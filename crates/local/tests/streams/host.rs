//! A node whose containers are processes of this machine.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use local::server::streams::log_file::{self, LogFile};
use local::server::streams::{
    AttachAsk, Duplex, ExecAsk, Log, LogOptions, PodRef, PodStreams, Session, Streams, TerminalSize,
};
use local::status::Failure;
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};

/// What `attach` finds in a container.
const FIRST_PROCESS: &str = "echo hello; while read line; do echo got $line; done; echo bye >&2";

pub(crate) struct Host {
    /// Where the logs of `<container id>` are: `<directory>/<container id>/0.log`.
    pub(crate) logs: PathBuf,
    /// Whether containers run, and write to their logs.
    pub(crate) running: watch::Sender<bool>,
    processes: Arc<Mutex<BTreeSet<i32>>>,
    /// Held by each session.
    sessions: Arc<()>,
}

impl Host {
    pub(crate) fn new(logs: PathBuf) -> Self {
        Self {
            logs,
            running: watch::Sender::new(true),
            processes: Arc::default(),
            sessions: Arc::default(),
        }
    }

    fn start(&self, command: &[String], streams: Streams) -> Result<Session, Failure> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(Failure::unexpected("no command was given"));
        };
        let failed = |error: String| Failure::unexpected(format!("exec: {program:?}: {error}"));
        if streams.tty {
            let started = self.start_on_terminal(program, arguments, streams);
            return started.map_err(|error| failed(error.to_string()));
        }
        let pipe = |wanted: bool| {
            if wanted {
                Stdio::piped()
            } else {
                Stdio::null()
            }
        };
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(pipe(streams.stdin))
            .stdout(pipe(streams.stdout))
            .stderr(pipe(streams.stderr))
            .process_group(0)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        Ok(Session {
            stdin: child.stdin.take().map(|pipe| Box::new(pipe) as _),
            stdout: child.stdout.take().map(|pipe| Box::new(pipe) as _),
            stderr: child.stderr.take().map(|pipe| Box::new(pipe) as _),
            resize: None,
            exit: self.exit(child),
        })
    }

    fn start_on_terminal(
        &self,
        program: &str,
        arguments: &[String],
        streams: Streams,
    ) -> pty_process::Result<Session> {
        let (pty, pts) = pty_process::open()?;
        let child = pty_process::Command::new(program)
            .args(arguments)
            .env("TERM", "dumb")
            .spawn(pts)?;
        let terminal = pty.as_fd().try_clone_to_owned()?;
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
        Ok(Session {
            stdin: streams.stdin.then(|| Box::new(writer) as _),
            stdout: Some(Box::new(reader)),
            stderr: None,
            resize: Some(resize),
            exit: self.exit(child),
        })
    }

    /// How a process ends, whether anybody waits for it or not.
    fn exit(&self, mut child: Child) -> BoxFuture<'static, Result<i32, Failure>> {
        let id = i32::try_from(child.id().unwrap()).unwrap();
        let processes = Arc::clone(&self.processes);
        processes.lock().unwrap().insert(id);
        let (sender, ended) = oneshot::channel();
        tokio::spawn(async move {
            let status = child.wait().await.unwrap();
            processes.lock().unwrap().remove(&id);
            let _ = sender.send(status.code().unwrap_or(137));
        });
        let lost = |_| Failure::unexpected("nobody knows how the process ended");
        let session = Arc::clone(&self.sessions);
        let exit = ended.map(move |code| {
            drop(session);
            code.map_err(lost)
        });
        exit.boxed()
    }

    /// How many sessions somebody holds.
    pub(crate) fn sessions(&self) -> usize {
        Arc::strong_count(&self.sessions) - 1
    }

    /// How many processes have not ended.
    pub(crate) fn processes(&self) -> usize {
        self.processes.lock().unwrap().len()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for id in self.processes.lock().unwrap().iter() {
            if let Some(group) = Pid::from_raw(*id) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
    }
}

impl PodStreams for Host {
    fn runs(&self, _: PodRef, container: Option<String>) -> BoxFuture<'_, bool> {
        let runs = *self.running.borrow() && container.as_deref() != Some("broken");
        ready(runs).boxed()
    }

    fn log(&self, _: PodRef, options: LogOptions) -> BoxFuture<'_, Result<Log, Failure>> {
        let directory = self.logs.join(&options.container_id);
        let file = LogFile {
            path: directory.join("0.log"),
            running: self.running.subscribe(),
        };
        ready(Ok(log_file::read(file, &options))).boxed()
    }

    fn exec(&self, _: PodRef, ask: ExecAsk) -> BoxFuture<'_, Result<Session, Failure>> {
        ready(self.start(&ask.command, ask.streams)).boxed()
    }

    fn attach(&self, _: PodRef, ask: AttachAsk) -> BoxFuture<'_, Result<Session, Failure>> {
        let command = ["sh", "-c", FIRST_PROCESS].map(str::to_owned);
        ready(self.start(&command, ask.streams)).boxed()
    }

    fn dial(&self, _: PodRef, port: u16) -> BoxFuture<'_, Result<Box<dyn Duplex>, Failure>> {
        async move {
            let stream = TcpStream::connect(("127.0.0.1", port)).await;
            let stream = stream.map_err(|error| {
                Failure::unexpected(format!("failed to connect to localhost:{port}: {error}"))
            })?;
            Ok(Box::new(stream) as Box<dyn Duplex>)
        }
        .boxed()
    }
}

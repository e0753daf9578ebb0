//! The door of the node: logs of its containers, commands in them, their streams, and connections to their ports.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use container::{ExecSettings, Pipe, Pod};
use futures::FutureExt as _;
use futures::future::{BoxFuture, join, pending, ready};
use tokio::io::AsyncWrite;
use tokio::sync::watch;

use super::command::{Command, ignore};
use super::dial::{Dialer, not_connected};
use super::place;
use super::tenants::{Tenant, Tenants};
use crate::server::streams::log_file::{self, LogFile};
use crate::server::streams::{
    AttachAsk, Duplex, ExecAsk, Log, LogOptions, PodRef, PodStreams, Session, Streams, TerminalSize,
};
use crate::status::Failure;

/// How long a port of a pod may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Lets the API in.
pub(crate) struct Doorman {
    tenants: Tenants,
    dialer: Dialer,
}

impl Doorman {
    pub(crate) fn new(tenants: Tenants, dialer: Dialer) -> Self {
        Self { tenants, dialer }
    }

    /// The pod of a container that runs, and which run it is.
    fn running(&self, pod: &PodRef, container: &str) -> Result<Running, Failure> {
        let tenant = self.tenants.get(&pod.uid);
        let found = tenant.and_then(|Tenant { pod, running, .. }| {
            let attempt = *running.borrow().get(container)?;
            Some(Running {
                pod: pod?,
                attempt,
                all: running,
            })
        });
        found.ok_or_else(|| Failure::unexpected(format!("container {container} is not running")))
    }

    fn open_log(&self, pod: &PodRef, options: &LogOptions) -> Result<Log, Failure> {
        let Some(tenant) = self.tenants.get(&pod.uid) else {
            return Err(Failure::unexpected(format!(
                "pod {:?} cannot be found - no logs available",
                pod.name
            )));
        };
        let container = &options.container;
        let Some(attempt) = place::attempt(&options.container_id) else {
            let id = &options.container_id;
            return Err(Failure::unexpected(format!(
                "container {container:?} has no log: {id:?} is no run of it on this node"
            )));
        };
        let file = LogFile {
            path: tenant.place.log(container, attempt),
            running: still_runs(tenant.running, container.clone(), attempt),
        };
        Ok(log_file::read(file, options))
    }

    async fn start(&self, pod: &PodRef, ask: ExecAsk) -> Result<Session, Failure> {
        let ExecAsk {
            container,
            command,
            streams,
        } = ask;
        let found = self.running(pod, &container)?;
        let settings = ExecSettings {
            args: command,
            stdin: streams.stdin,
            tty: streams.tty,
            ..ExecSettings::default()
        };
        let started = Command::start(&found.pod, &container, settings).await;
        let mut command = started.map_err(|error| failed(&error))?;
        let ends = Ends::new(command.take_streams(), streams);
        let exit = async move {
            let exit = command.wait().await.map_err(|error| failed(&error))?;
            Ok(exit.code)
        };
        Ok(ends.session(exit))
    }

    async fn join(&self, pod: &PodRef, ask: AttachAsk) -> Result<Session, Failure> {
        let AttachAsk { container, streams } = ask;
        let Running { pod, attempt, all } = self.running(pod, &container)?;
        let attached = pod.attach(&container).await;
        let attached = attached.map_err(|error| failed(&error))?;
        let ends = Ends::new(attached.streams, streams);
        let exit = async move {
            ended(all, &container, attempt).await;
            // how it ended stands in the pod's status
            Ok(0)
        };
        Ok(ends.session(exit))
    }

    async fn connect(&self, pod: &PodRef, port: u16) -> Result<Box<dyn Duplex>, Failure> {
        let tenant = self.tenants.get(&pod.uid);
        let Some(here) = tenant.and_then(|tenant| tenant.pod) else {
            let full_name = format!("{}_{}", pod.name, pod.namespace);
            return Err(Failure::unexpected(format!(
                "pod not found ({full_name:?})"
            )));
        };
        match self.dialer.dial(&here, port, PATIENCE).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => {
                let why = not_connected(&format!("127.0.0.1:{port}"), &error);
                Err(Failure::unexpected(format!(
                    "failed to connect to localhost:{port} inside the pod: {why}"
                )))
            }
        }
    }
}

impl PodStreams for Doorman {
    fn runs(&self, pod: PodRef, container: Option<String>) -> BoxFuture<'_, bool> {
        let tenant = self.tenants.get(&pod.uid);
        let runs = tenant.is_some_and(|tenant| {
            let running = tenant.running.borrow();
            let runs = match &container {
                Some(container) => running.contains_key(container),
                None => !running.is_empty(),
            };
            runs && tenant.pod.is_some()
        });
        ready(runs).boxed()
    }

    fn log(&self, pod: PodRef, options: LogOptions) -> BoxFuture<'_, Result<Log, Failure>> {
        async move { self.open_log(&pod, &options) }.boxed()
    }

    fn exec(&self, pod: PodRef, ask: ExecAsk) -> BoxFuture<'_, Result<Session, Failure>> {
        async move { self.start(&pod, ask).await }.boxed()
    }

    fn attach(&self, pod: PodRef, ask: AttachAsk) -> BoxFuture<'_, Result<Session, Failure>> {
        async move { self.join(&pod, ask).await }.boxed()
    }

    fn dial(&self, pod: PodRef, port: u16) -> BoxFuture<'_, Result<Box<dyn Duplex>, Failure>> {
        async move { self.connect(&pod, port).await }.boxed()
    }
}

/// A run of a container, and all that run.
struct Running {
    pod: Arc<Pod>,
    attempt: u32,
    all: Runs,
}

type Runs = watch::Receiver<BTreeMap<String, u32>>;

fn failed(error: &container::Error) -> Failure {
    Failure::unexpected(error.to_string())
}

/// Until this very run is over, or nobody knows any more.
async fn ended(mut all: Runs, container: &str, attempt: u32) {
    let _ = all
        .wait_for(|running| running.get(container) != Some(&attempt))
        .await;
}

/// Whether this very run goes on, for as long as somebody wants to know.
fn still_runs(all: Runs, container: String, attempt: u32) -> watch::Receiver<bool> {
    let runs = all.borrow().get(&container) == Some(&attempt);
    let (sender, receiver) = watch::channel(runs);
    tokio::spawn(async move {
        // the sender is lost then, which says that the run is over
        tokio::select! {
            () = ended(all, &container, attempt) => {}
            () = sender.closed() => {}
        }
    });
    receiver
}

/// The streams that somebody wants, and those that nobody does.
struct Ends {
    stdin: Option<Pipe>,
    stdout: Option<Pipe>,
    stderr: Option<Pipe>,
    resize: Option<watch::Sender<TerminalSize>>,
    unwanted: [Option<Pipe>; 2],
}

impl Ends {
    fn new(mut streams: container::Streams, wanted: Streams) -> Self {
        let (stdin, stdout, stderr) = (
            streams.stdin.take(),
            streams.stdout.take(),
            streams.stderr.take(),
        );
        let (stdout, unwanted_stdout) = sort(stdout, wanted.stdout);
        let (stderr, unwanted_stderr) = sort(stderr, wanted.stderr);
        Self {
            stdin: stdin.filter(|_| wanted.stdin),
            stdout,
            stderr,
            resize: wanted.tty.then(|| resize(streams)),
            unwanted: [unwanted_stdout, unwanted_stderr],
        }
    }

    fn session(self, exit: impl Future<Output = Result<i32, Failure>> + Send + 'static) -> Session {
        let [stdout, stderr] = self.unwanted;
        // read until the end: nobody may be stopped by a full pipe, nor by one that is closed
        let ignoring = async move {
            join(ignore(stdout), ignore(stderr)).await;
            pending().await
        };
        let exit = async move {
            tokio::select! {
                exit = exit => exit,
                never = ignoring => never,
            }
        };
        Session {
            stdin: self.stdin.map(|pipe| Box::new(Closing(Some(pipe))) as _),
            stdout: self.stdout.map(|pipe| Box::new(pipe) as _),
            stderr: self.stderr.map(|pipe| Box::new(pipe) as _),
            resize: self.resize,
            exit: exit.boxed(),
        }
    }
}

fn sort(pipe: Option<Pipe>, is_wanted: bool) -> (Option<Pipe>, Option<Pipe>) {
    match is_wanted {
        true => (pipe, None),
        false => (None, pipe),
    }
}

/// Tells a terminal the sizes it gets, until there are no more.
fn resize(terminal: container::Streams) -> watch::Sender<TerminalSize> {
    let (sender, mut sizes) = watch::channel(TerminalSize::default());
    tokio::spawn(async move {
        while sizes.changed().await.is_ok() {
            let size @ TerminalSize { width, height } = *sizes.borrow_and_update();
            if size == TerminalSize::default() {
                continue;
            }
            let size = container::TerminalSize {
                rows: height,
                columns: width,
            };
            // a terminal whose program has ended needs no size
            let _ = terminal.resize(size);
        }
    });
    sender
}

/// A pipe whose reader learns of the end when it is shut down.
struct Closing(Option<Pipe>);

impl Closing {
    fn pipe(&mut self) -> io::Result<Pin<&mut Pipe>> {
        let pipe = self.0.as_mut().map(Pin::new);
        pipe.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl AsyncWrite for Closing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.pipe()?.poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Some(pipe) => Pin::new(pipe).poll_flush(context),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0 = None;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;

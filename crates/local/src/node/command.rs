//! Commands in containers, which do not outlive those who wait for them.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use container::{Error, Exec, ExecSettings, Exit, Pipe, Pod, Streams};
use futures::future::{join, maybe_done, pending};
use rustix::process::Signal;
use tokio::io::AsyncReadExt as _;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// What is kept of each of the two outputs of a command.
const KEPT: usize = 10 << 10;
/// How long what a command has said may take to arrive once it has ended: whom it left behind may hold its output for ever.
const DRAIN: Duration = Duration::from_millis(100);

/// A command that runs. It is killed when this is dropped before its end.
pub(crate) struct Command(Option<Exec>);

impl Command {
    pub(crate) async fn start(
        pod: &Arc<Pod>,
        container: &str,
        settings: ExecSettings,
    ) -> Result<Self, Error> {
        let (pod, container) = (Arc::clone(pod), container.to_owned());
        // apart: if nobody waits for the answer, what was started meanwhile is killed nevertheless
        let starting = tokio::spawn(async move {
            let exec = pod.exec(&container, &settings).await?;
            Ok(Self(Some(exec)))
        });
        starting
            .await
            .unwrap_or_else(|error| Err(Error::Connection(io::Error::other(error))))
    }

    /// Its streams, once.
    pub(crate) fn take_streams(&mut self) -> Streams {
        let exec = self.0.as_mut();
        exec.map(|exec| std::mem::take(&mut exec.streams))
            .unwrap_or_default()
    }

    pub(crate) async fn wait(mut self) -> Result<Exit, Error> {
        let exit = match &mut self.0 {
            Some(exec) => exec.wait().await,
            None => Err(Error::ShimGone),
        };
        self.0 = None;
        exit
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        if let (Some(exec), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move {
                // one that has just ended cannot be killed, and need not
                let _ = exec.kill(Signal::KILL.as_raw()).await;
            });
        }
    }
}

/// How a command ended, and the beginning of what it said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Said {
    /// What it said at all, no more than 10 KB of it.
    pub(crate) fn output(&self) -> String {
        let mut output = [&self.stdout[..], &self.stderr[..]].concat();
        output.truncate(KEPT);
        String::from_utf8_lossy(&output).into_owned()
    }
}

/// Runs a command to its end.
pub(crate) async fn run(pod: &Arc<Pod>, container: &str, args: &[String]) -> Result<Said, Error> {
    let settings = ExecSettings {
        args: args.to_vec(),
        ..ExecSettings::default()
    };
    let mut command = Command::start(pod, container, settings).await?;
    let streams = command.take_streams();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let exit = {
        let hearing = join(
            hear(streams.stdout, &mut stdout),
            hear(streams.stderr, &mut stderr),
        );
        let mut hearing = pin!(maybe_done(hearing));
        let exit = tokio::select! {
            exit = command.wait() => exit?,
            never = async { hearing.as_mut().await; pending().await } => never,
        };
        let _ = timeout(DRAIN, hearing).await;
        exit
    };
    Ok(Said {
        code: exit.code,
        stdout,
        stderr,
    })
}

/// Reads to the end, also what is not kept: a full pipe would stop the command.
async fn hear(pipe: Option<Pipe>, kept: &mut Vec<u8>) {
    let Some(mut pipe) = pipe else {
        return;
    };
    let mut piece = [0; 4096];
    while let Ok(length @ 1..) = pipe.read(&mut piece).await {
        let free = KEPT.saturating_sub(kept.len());
        kept.extend_from_slice(&piece[..length.min(free)]);
    }
}

/// Reads to the end what nobody wants to know.
pub(crate) async fn ignore(pipe: Option<Pipe>) {
    if let Some(mut pipe) = pipe {
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
}

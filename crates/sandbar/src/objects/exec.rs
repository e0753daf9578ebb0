//! `sandbar exec`.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, bail};
use futures::{SinkExt as _, Stream, StreamExt as _, channel::mpsc};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Resource as _,
    api::{AttachParams, Request},
    core::{Status, response::StatusSummary},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    signal::unix::{SignalKind, signal},
};
use tokio_tungstenite::tungstenite::{self, Message};

use super::{
    place::Where,
    pods::{self, Chosen},
    run,
    terminal::{self, Raw},
};
use crate::refusal::said;

/// The streams of a connection, by the first byte of a message.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
/// Followed by the stream that has ended.
const CLOSE: u8 = 255;

/// Connections on which nothing happens are cut by what is in between.
const PING: Duration = Duration::from_secs(60);
const CHUNK: usize = 32 * 1024;

/// Run a command in a container
///
/// Ends with the exit code of the command.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sandbar exec -it sandbox/box -- bash           a shell in the pod of a sandbox
  sandbar exec sandboxclaim/mine -- python3 -V
  tar c dir | sandbar exec -i box -c side -- tar x")]
pub(crate) struct Args {
    /// A pod, sandbox/NAME or sandboxclaim/NAME
    #[arg(value_name = "POD | KIND/NAME")]
    target: String,
    /// The container; the pod's first if left out
    #[arg(short, long)]
    container: Option<String>,
    /// Pass standard input on
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Give the command a terminal, if standard input is one and is passed on; without -i it changes nothing, as with kubectl
    #[arg(short, long)]
    tty: bool,
    #[command(flatten)]
    place: Where,
    /// What to run
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode> {
        run(self.exec())
    }

    async fn exec(self) -> Result<ExitCode> {
        let place = self.place.open().await?;
        let Chosen { pod, container } = pods::choose(&place, &self.target, self.container).await?;
        let tty = self.tty && self.stdin && terminal::is_there();
        if self.tty && self.stdin && !tty {
            eprintln!("Unable to use a TTY - input is not a terminal or the right kind of file");
        }
        // on a terminal, both outputs are one
        let params = AttachParams::default()
            .container(container)
            .stdin(self.stdin)
            .stdout(true)
            .stderr(!tty)
            .tty(tty);
        let at = Request::new(Pod::url_path(&(), Some(&place.namespace)));
        let request = at.exec(&pod, self.command, &params)?;
        let connection = place.ask(place.client.connect(request)).await?;
        let can_close = connection.supports_stream_close();
        let (sink, messages) = connection.into_stream().split();
        let raw = tty.then(Raw::begin).transpose()?;
        let (sender, queue) = mpsc::channel(0);
        tokio::spawn(queue.map(Ok).forward(sink));
        tokio::spawn(keep_alive(sender.clone()));
        if self.stdin {
            tokio::spawn(pass_on(tokio::io::stdin(), sender.clone(), can_close));
        }
        let ended = tokio::select! {
            status = listen(messages) => status.map(Some),
            lost = watch_size(raw.as_ref(), sender) => lost.map(|()| None),
            signal = terminated() => signal.map(|()| None),
        };
        drop(raw);
        match ended? {
            Some(status) => exit_code(status),
            // as a shell reports a program that was told to end
            None => Ok(ExitCode::from(143)),
        }
    }
}

/// A message of a stream.
fn framed(stream: u8, bytes: &[u8]) -> Message {
    Message::binary([&[stream], bytes].concat())
}

async fn pass_on(
    mut source: impl AsyncRead + Unpin,
    mut sender: mpsc::Sender<Message>,
    can_close: bool,
) {
    let mut buffer = vec![0; CHUNK];
    // what cannot be read has ended, and who has gone does not listen
    while let Ok(length @ 1..) = source.read(&mut buffer).await {
        if sender.send(framed(STDIN, &buffer[..length])).await.is_err() {
            return;
        }
    }
    if can_close {
        let _ = sender.send(framed(CLOSE, &[STDIN])).await;
    }
}

async fn keep_alive(mut sender: mpsc::Sender<Message>) {
    loop {
        tokio::time::sleep(PING).await;
        if sender.send(Message::Ping(Vec::new().into())).await.is_err() {
            return;
        }
    }
}

/// Tells the size of the terminal, and each new one. Goes on for ever.
async fn watch_size(raw: Option<&Raw>, mut sender: mpsc::Sender<Message>) -> Result<()> {
    let Some(raw) = raw else {
        return std::future::pending().await;
    };
    let mut changes = signal(SignalKind::window_change()).context("waiting for signals")?;
    loop {
        if let Some(size) = raw.size() {
            let _ = sender
                .send(framed(RESIZE, size.to_string().as_bytes()))
                .await;
        }
        changes.recv().await;
    }
}

/// The terminal must be as before when somebody ends this program.
async fn terminated() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("waiting for signals")?;
    terminate.recv().await;
    Ok(())
}

/// Writes what comes until the command has ended.
async fn listen(
    mut messages: impl Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
) -> Result<Status> {
    let (mut stdout, mut stderr) = (tokio::io::stdout(), tokio::io::stderr());
    while let Some(message) = messages.next().await {
        let message = message.context("the connection has broken off")?;
        let Message::Binary(bytes) = message else {
            continue;
        };
        let Some((stream, bytes)) = bytes.split_first() else {
            continue;
        };
        match *stream {
            // a reader that has seen enough does not end the command
            STDOUT => {
                let _ = stdout.write_all(bytes).await;
                let _ = stdout.flush().await;
            }
            STDERR => {
                let _ = stderr.write_all(bytes).await;
                let _ = stderr.flush().await;
            }
            STATUS => {
                return serde_json::from_slice(bytes)
                    .context("the end of the command cannot be read");
            }
            _ => {}
        }
    }
    bail!("the connection was closed before the command ended")
}

/// As the command has ended.
fn exit_code(status: Status) -> Result<ExitCode> {
    if status.status == Some(StatusSummary::Success) {
        return Ok(ExitCode::SUCCESS);
    }
    if status.reason != "NonZeroExitCode" {
        bail!(said(&status.reason, &status.message));
    }
    let causes = status
        .details
        .into_iter()
        .flat_map(|details| details.causes);
    let code = causes.into_iter().find(|cause| cause.reason == "ExitCode");
    let code = code.and_then(|cause| cause.message.parse::<i32>().ok());
    let code = code.context("nobody knows how the command has ended")?;
    eprintln!("command terminated with exit code {code}");
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

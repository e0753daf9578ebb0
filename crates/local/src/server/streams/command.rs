//! `exec` and `attach`: a process on one side, a client on the other.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::{join, pending};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::timeout;

use super::node::{AttachAsk, Duplex, ExecAsk, PodRef, PodStreams, Session, Streams, TerminalSize};
use super::spdy;
use super::upgrade::{CommandProtocol, Version};
use super::websocket::{self, Dialect};
use super::wire::{self, Inbox, Outbox, PIECE};
use crate::status::Failure;

/// How long a client may take to open its streams.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than what any client says about the size of its terminal.
const LONGEST_SIZE: usize = 4096;
/// One of each kind, and some that are refused.
const MOST_STREAMS: usize = 8;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CHANNELS: u8 = 5;

/// What is to be done in a container.
pub(super) struct Command {
    pub(super) node: Arc<dyn PodStreams>,
    pub(super) pod: PodRef,
    pub(super) ask: Ask,
}

#[derive(Clone, Debug)]
pub(super) enum Ask {
    Exec(ExecAsk),
    Attach(AttachAsk),
}

impl Ask {
    fn streams(&self) -> Streams {
        match self {
            Ask::Exec(ask) => ask.streams,
            Ask::Attach(ask) => ask.streams,
        }
    }
}

/// The client's ends. What it did not ask for is absent.
struct Wires {
    stdin: Option<Inbox>,
    resize: Option<Inbox>,
    stdout: Option<Outbox>,
    stderr: Option<Outbox>,
    error: Outbox,
}

impl Command {
    /// Returns when all is said, or the client is gone. When `stopped` resolves, it is cut short.
    pub(super) async fn serve(
        self,
        io: impl Duplex,
        protocol: CommandProtocol,
        stopped: impl Future<Output = ()> + Send,
    ) {
        match protocol {
            CommandProtocol::WebSocket(dialect, version) => {
                self.serve_websocket(io, dialect, version, stopped).await;
            }
            CommandProtocol::Spdy(version) => self.serve_spdy(io, version, stopped).await,
        }
    }

    async fn serve_websocket(
        self,
        io: impl Duplex,
        dialect: Dialect,
        version: Version,
        stopped: impl Future<Output = ()> + Send,
    ) {
        let streams = self.ask.streams();
        let readable: &[u8] = match streams.stdin {
            true => &[RESIZE, STDIN],
            false => &[RESIZE],
        };
        let (queue, inboxes, driver) = websocket::open(io, dialect, CHANNELS, readable);
        let mut inboxes = inboxes.into_iter();
        let outbox = |channel: u8| Outbox {
            queue: queue.clone(),
            channel: channel.into(),
        };
        let wires = Wires {
            resize: inboxes.next(),
            stdin: inboxes.next(),
            stdout: streams.stdout.then(|| outbox(STDOUT)),
            stderr: streams.stderr.then(|| outbox(STDERR)),
            error: outbox(ERROR),
        };
        drop(queue);
        let session = async {
            // an empty message says that the connection stands
            let first = wires.stdout.as_ref().or(wires.stderr.as_ref());
            if first
                .unwrap_or(&wires.error)
                .send(Bytes::new())
                .await
                .is_ok()
            {
                self.talk(wires, version, stopped).await;
            }
        };
        wire::run(driver, session).await;
    }

    async fn serve_spdy(
        self,
        io: impl Duplex,
        version: Version,
        stopped: impl Future<Output = ()> + Send,
    ) {
        let (mut connection, driver) = spdy::open(io, MOST_STREAMS);
        let session = async move {
            let opened = gather(&mut connection, self.ask.streams(), version);
            let mut stopped = pin!(stopped);
            let wires = tokio::select! {
                wires = timeout(PATIENCE, opened) => wires,
                () = &mut stopped => return,
            };
            if let Ok(Some(wires)) = wires {
                self.talk(wires, version, stopped).await;
            }
        };
        wire::run(driver, session).await;
    }

    async fn talk(self, wires: Wires, version: Version, stopped: impl Future<Output = ()>) {
        let error = wires.error.clone();
        let verdict = tokio::select! {
            verdict = self.run(wires) => verdict,
            () = stopped => Verdict::Failed("the server is stopping".to_owned()),
        };
        if let Some(text) = verdict.tell(version) {
            let _ = error.send(text).await;
        }
        error.close().await;
    }

    async fn run(self, wires: Wires) -> Verdict {
        let Command { node, pod, ask } = self;
        match ask {
            Ask::Exec(ask) => {
                let command = ask.command.clone();
                let ended = match node.exec(pod, ask).await {
                    Ok(session) => converse(wires, session).await,
                    Err(failure) => Err(failure),
                };
                match ended {
                    Ok(0) => Verdict::Success,
                    Ok(code) => Verdict::Exit { code, command },
                    Err(failure) => Verdict::Failed(format!(
                        "error executing command in container: {}",
                        failure.message()
                    )),
                }
            }
            Ask::Attach(ask) => {
                let ended = match node.attach(pod, ask).await {
                    Ok(session) => converse(wires, session).await,
                    Err(failure) => Err(failure),
                };
                match ended {
                    // how the container ended stands in the pod's status
                    Ok(_) => Verdict::Success,
                    Err(failure) => Verdict::Failed(format!(
                        "error attaching to container: {}",
                        failure.message()
                    )),
                }
            }
        }
    }
}

/// How it ended, as the client is told.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Success,
    Exit { code: i32, command: Vec<String> },
    Failed(String),
}

impl Verdict {
    /// What goes over the error channel, if anything.
    fn tell(&self, version: Version) -> Option<Bytes> {
        let (message, status) = match self {
            Verdict::Success => (None, json!({"metadata": {}, "status": "Success"})),
            Verdict::Exit { code, command } => {
                // clients read a byte
                let code = *code & 0xff;
                let how = match version {
                    Version::Five => format!("command terminated with exit code {code}"),
                    _ => {
                        let command = command.join(" ");
                        format!("error executing command [{command}], exit code {code}")
                    }
                };
                let message = format!("command terminated with non-zero exit code: {how}");
                let status = json!({
                    "metadata": {},
                    "status": "Failure",
                    "message": message,
                    "reason": "NonZeroExitCode",
                    "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
                });
                (Some(message), status)
            }
            Verdict::Failed(why) => {
                let failure = Failure::internal(why);
                (Some(failure.message().to_owned()), failure.body())
            }
        };
        match version >= Version::Four {
            true => Some(status.to_string().into()),
            false => message.map(Bytes::from),
        }
    }
}

/// Waits for all streams that the client has to open.
async fn gather(
    connection: &mut spdy::Connection,
    streams: Streams,
    version: Version,
) -> Option<Wires> {
    let resizes = streams.tty && version >= Version::Three;
    let wanted = [
        ("error", true),
        ("stdin", streams.stdin),
        ("stdout", streams.stdout),
        ("stderr", streams.stderr),
        ("resize", resizes),
    ];
    let mut missing: Vec<&str> = wanted
        .iter()
        .filter(|want| want.1)
        .map(|want| want.0)
        .collect();
    let mut found = HashMap::new();
    while !missing.is_empty() {
        let stream = connection.next().await?;
        let kind = stream.headers.get("streamType").unwrap_or_default();
        match missing.iter().position(|name| *name == kind) {
            Some(index) => {
                stream.accept().await;
                found.insert(missing.remove(index), stream);
            }
            None => stream.outbox.reset().await,
        }
    }
    let mut take = |name: &str| found.remove(name);
    Some(Wires {
        stdin: take("stdin").map(|stream| stream.inbox),
        resize: take("resize").map(|stream| stream.inbox),
        stdout: take("stdout").map(|stream| stream.outbox),
        stderr: take("stderr").map(|stream| stream.outbox),
        error: take("error")?.outbox,
    })
}

/// Carries everything to and fro until the process has ended and its output is sent.
async fn converse(wires: Wires, session: Session) -> Result<i32, Failure> {
    let incoming = async {
        join(
            listen(wires.stdin, session.stdin),
            watch_size(wires.resize, session.resize),
        )
        .await;
        pending().await
    };
    let outgoing = join(
        tell(session.stdout, wires.stdout),
        tell(session.stderr, wires.stderr),
    );
    tokio::select! {
        (exit, _) = join(session.exit, outgoing) => exit,
        never = incoming => never,
    }
}

/// What the client says, until it has no more to say. A process that does not listen holds nobody up.
async fn listen(inbox: Option<Inbox>, stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>) {
    let (Some(mut inbox), Some(mut stdin)) = (inbox, stdin) else {
        return;
    };
    while let Some(bytes) = inbox.recv().await {
        let written = async {
            stdin.write_all(&bytes).await?;
            stdin.flush().await
        };
        if written.await.is_err() {
            return;
        }
    }
    let _ = stdin.shutdown().await;
}

/// What the process says, to the end. It is read even if nobody listens: a full pipe would stop the process.
async fn tell(output: Option<Box<dyn AsyncRead + Send + Unpin>>, outbox: Option<Outbox>) {
    let Some(mut output) = output else {
        return;
    };
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(PIECE);
        // of a terminal whose last process has ended, reading fails
        if !matches!(output.read_buf(&mut buffer).await, Ok(1..)) {
            break;
        }
        let bytes = buffer.split().freeze();
        if let Some(outbox) = &outbox
            && outbox.send(bytes).await.is_err()
        {
            return;
        }
    }
    if let Some(outbox) = outbox {
        outbox.close().await;
    }
}

#[derive(Deserialize)]
struct Size {
    #[serde(rename = "Width", alias = "width", default)]
    width: u16,
    #[serde(rename = "Height", alias = "height", default)]
    height: u16,
}

/// The sizes of the client's terminal, which come as JSON, in pieces of any length.
async fn watch_size(inbox: Option<Inbox>, resize: Option<watch::Sender<TerminalSize>>) {
    let (Some(mut inbox), Some(resize)) = (inbox, resize) else {
        return;
    };
    let mut text = Vec::new();
    while let Some(bytes) = inbox.recv().await {
        text.extend_from_slice(&bytes);
        match sizes(&mut text) {
            Some(Some(size)) => _ = resize.send_replace(size),
            Some(None) if text.len() <= LONGEST_SIZE => {}
            _ => return,
        }
    }
}

/// Takes all whole sizes from the text; the last one counts. Nothing if it is no size.
fn sizes(text: &mut Vec<u8>) -> Option<Option<TerminalSize>> {
    let mut last = None;
    let mut parsed = serde_json::Deserializer::from_slice(text).into_iter::<Size>();
    for size in parsed.by_ref() {
        match size {
            Ok(Size { width, height }) => last = Some(TerminalSize { width, height }),
            Err(error) if error.is_eof() => break,
            Err(_) => return None,
        }
    }
    let taken = parsed.byte_offset();
    text.drain(..taken);
    Some(last)
}

#[cfg(test)]
mod tests;

//! Service `process.Process`: the eight methods.
//!
//! `launch` is how everybody here starts a process: `spawn` starts the program, `running` looks after it until its end, `output`
//! and `input` are its ends of pipes and terminals. `capture` waits for its end and keeps what it wrote. `table` knows those that
//! run and those that ended a moment ago, `ending` says how one ended. `once` is a service of our own over
//! them, with `outcomes` that are kept, `inherit` is how they pass to the next daemon.

mod capture;
mod ending;
mod inherit;
mod input;
mod launch;
mod once;
mod outcomes;
mod output;
mod running;
mod spawn;
mod table;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use rustix::process::Signal;

pub(super) use self::capture::{Captured, capture};
pub(super) use self::launch::Launch;
pub(super) use self::running::{Event, Process};
pub(super) use self::table::Processes;
use super::body::Body;
use super::error::Error;
use super::handover::{self, Handover};
use super::route::Asked;
use super::rpc::{self, Requests, Sink};
use super::users::User;
use super::{Daemon, channel, paths};
use crate::code::Code;
use crate::messages::Empty;
use crate::messages::process::{
    DataEvent, EventResponse, ListResponse, ProcessEvent, ProcessInput, SelectRequest,
    SendInputRequest, SendSignalRequest, StartEvent, StartRequest, StreamInputRequest,
    UpdateRequest,
};

/// A process is ended this much after its time, so that its client is told that the time is over, and not that it was killed.
const AFTER_DEADLINE: Duration = Duration::from_millis(10);

/// Which of its outputs a process wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
    Pty,
}

pub(super) type Events = channel::Receiver<Event>;

impl Daemon {
    /// `None` when there is no such method.
    pub(super) async fn answer_process(
        self: Arc<Self>,
        asked: Asked<'_>,
    ) -> Option<Response<Body>> {
        let (call, body) = (asked.call, asked.body);
        let keepalive = call.keepalive();
        Some(match asked.method {
            "Start" => {
                let deadline = call.deadline();
                rpc::server_stream(call, body, |request, sink| {
                    let started = asked
                        .user
                        .and_then(|user| self.start(&user, request, deadline));
                    forward(started, sink, keepalive, Arc::clone(&self.handover))
                })
                .await
            }
            "Connect" => {
                rpc::server_stream(call, body, |request: SelectRequest, sink| {
                    let joined = self.processes.join(request.process.as_ref());
                    forward(joined, sink, keepalive, Arc::clone(&self.handover))
                })
                .await
            }
            "StreamInput" => {
                rpc::client_stream(call, body, async |requests| {
                    self.stream_input(requests).await
                })
                .await
            }
            "List" => {
                rpc::unary(call, body, async |_: Empty| {
                    let processes = self.processes.list();
                    Ok(ListResponse { processes })
                })
                .await
            }
            "Update" => rpc::unary(call, body, async |request| self.update(&request)).await,
            "SendInput" => {
                rpc::unary(call, body, async |request| self.send_input(request).await).await
            }
            "SendSignal" => {
                rpc::unary(call, body, async |request| self.send_signal(&request)).await
            }
            "CloseStdin" => {
                rpc::unary(call, body, async |request: SelectRequest| {
                    let process = self.processes.find(request.process.as_ref())?;
                    process.input.close().await?;
                    Ok(Empty {})
                })
                .await
            }
            _ => return None,
        })
    }

    fn start(
        &self,
        user: &User,
        request: StartRequest,
        deadline: Option<Instant>,
    ) -> Result<(u32, Events), Error> {
        let config = request.process.unwrap_or_default();
        if config.cmd.is_empty() {
            return Err(Error::invalid("the process has no cmd"));
        }
        let (process, events) = self.launch(Launch {
            user,
            environment: self.environment(user, &config.envs),
            cwd: self.working_directory(user, config.cwd.as_deref())?,
            config,
            pty: request.pty,
            stdin: request.stdin.unwrap_or(true),
            tag: request.tag,
            deadline: deadline.and_then(|deadline| deadline.checked_add(AFTER_DEADLINE)),
        })?;
        Ok((process.pid, events))
    }

    fn working_directory(&self, user: &User, named: Option<&str>) -> Result<PathBuf, Error> {
        let named = named.unwrap_or_default();
        let workdir = self.settings.default_workdir();
        let path = paths::resolve(named, user, workdir.as_deref())?;
        if path.is_dir() {
            return Ok(path);
        }
        // an image without homes can still run commands
        if named.is_empty() && workdir.is_none() {
            return Ok("/".into());
        }
        let what = if path.exists() {
            "is not a directory"
        } else {
            "does not exist"
        };
        Err(Error::invalid(format!("cwd '{}' {what}", path.display())))
    }

    fn update(&self, request: &UpdateRequest) -> Result<Empty, Error> {
        let process = self.processes.find(request.process.as_ref())?;
        if let Some(pty) = request.pty {
            process.resize(pty)?;
        }
        Ok(Empty {})
    }

    async fn send_input(&self, request: SendInputRequest) -> Result<Empty, Error> {
        let process = self.processes.find(request.process.as_ref())?;
        write(&process, request.input).await?;
        Ok(Empty {})
    }

    async fn stream_input(
        &self,
        mut requests: Requests<StreamInputRequest>,
    ) -> Result<Empty, Error> {
        let first = requests.next().await?;
        let Some(start) = first.and_then(|request| request.start) else {
            return Err(Error::invalid("the first message of a stream is its start"));
        };
        let process = self.processes.find(start.process.as_ref())?;
        loop {
            let next = tokio::select! {
                next = requests.next() => next?,
                () = self.handover.closing() => return Err(handover::come_again()),
            };
            let Some(request) = next else {
                return Ok(Empty {});
            };
            if let Some(data) = request.data {
                write(&process, data.input).await?;
            }
        }
    }

    fn send_signal(&self, request: &SendSignalRequest) -> Result<Empty, Error> {
        let process = self.processes.find(request.process.as_ref())?;
        let signal = match request.signal {
            9 => Signal::KILL,
            15 => Signal::TERM,
            other => {
                let message = format!("signal {other} cannot be sent, only SIGTERM and SIGKILL");
                return Err(Error::new(Code::Unimplemented, message));
            }
        };
        process
            .signal(signal)
            .map_err(|e| Error::internal(format!("error sending signal: {e}")))?;
        Ok(Empty {})
    }
}

async fn write(process: &Process, input: Option<ProcessInput>) -> Result<(), Error> {
    let input = input.unwrap_or_default();
    match (input.stdin, input.pty) {
        (Some(bytes), _) => process.input.write_stdin(&bytes).await,
        (None, Some(bytes)) => process.input.write_pty(&bytes).await,
        (None, None) => Err(Error::invalid(
            "the input is neither for stdin nor for a pty",
        )),
    }
}

/// Sends a client what happens to a process: first that it has started, at last that it has ended.
async fn forward(
    process: Result<(u32, Events), Error>,
    sink: Sink<EventResponse>,
    keepalive: Duration,
    handover: Arc<Handover>,
) -> Result<(), Error> {
    let (pid, mut events) = process?;
    let start = ProcessEvent {
        start: Some(StartEvent { pid }),
        ..ProcessEvent::default()
    };
    send(&sink, start).await?;
    loop {
        let next = tokio::select! {
            biased;
            // what was read of the process is told before a daemon leaves
            event = events.recv() => Some(event),
            () = handover.closing() => return Err(handover::come_again()),
            () = tokio::time::sleep(keepalive) => None,
        };
        match next {
            Some(Some(event)) => send(&sink, message_of(event)).await?,
            Some(None) => return Ok(()),
            None => {
                let keepalive = ProcessEvent {
                    keepalive: Some(Empty {}),
                    ..ProcessEvent::default()
                };
                send(&sink, keepalive).await?;
            }
        }
    }
}

async fn send(sink: &Sink<EventResponse>, event: ProcessEvent) -> Result<(), Error> {
    let event = Some(event);
    sink.send(&EventResponse { event }).await
}

fn message_of(event: Event) -> ProcessEvent {
    match event {
        Event::Data(stream, bytes) => ProcessEvent {
            data: Some(data_of(stream, bytes)),
            ..ProcessEvent::default()
        },
        Event::End(end) => ProcessEvent {
            end: Some(*end),
            ..ProcessEvent::default()
        },
    }
}

fn data_of(stream: Stream, bytes: Bytes) -> DataEvent {
    let mut data = DataEvent::default();
    let field = match stream {
        Stream::Stdout => &mut data.stdout,
        Stream::Stderr => &mut data.stderr,
        Stream::Pty => &mut data.pty,
    };
    *field = Some(bytes);
    data
}

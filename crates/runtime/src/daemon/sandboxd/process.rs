//! Service `process.v1.ProcessService`: the five methods.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use rustix::process::Signal;

use crate::code::Code;
use crate::daemon::Daemon;
use crate::daemon::body::Body;
use crate::daemon::error::Error;
use crate::daemon::handover::{self, Handover};
use crate::daemon::process::{Event, Events, Launch, Process, Stream, capture};
use crate::daemon::route::Asked;
use crate::daemon::rpc::{self, Sink};
use crate::daemon::users::User;
use crate::messages::Empty;
use crate::messages::process::{
    ProcessConfig as Config, ProcessSelector, Pty as Terminal, PtySize,
};
use crate::messages::sandboxd::{
    ExecuteRequest, ExecuteResponse, ExitEvent, InitEvent, ProcessConfig, Pty, ResizeTtyRequest,
    SendSignalRequest, StartRequest, StartResponse, WriteStdinRequest,
};

/// What a terminal takes for the end of its input.
const CONTROL_D: &[u8] = b"\x04";

/// What a client waits for. It is killed with all that it started when the client leaves or its time is over.
struct Attended {
    process: Arc<Process>,
    events: Events,
    /// Whether it goes on without its client, who did not leave it.
    is_left: bool,
}

impl Drop for Attended {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        // one that has ended is not signalled
        let _ = self.process.signal_group(Signal::KILL);
    }
}

impl Daemon {
    /// `None` when there is no such method.
    pub(super) async fn answer_process_service(
        self: Arc<Self>,
        asked: Asked<'_>,
    ) -> Option<Response<Body>> {
        let (call, user, body) = (asked.call, asked.user, asked.body);
        Some(match asked.method {
            "Start" => {
                rpc::server_stream(call, body, |request: StartRequest, sink| {
                    let begun = user.and_then(|user| {
                        let pty = request.pty.map(terminal);
                        self.begin(&user, request.config, pty, true)
                    });
                    forward(begun, sink, Arc::clone(&self.handover))
                })
                .await
            }
            "Execute" => {
                rpc::unary(call, body, async |request: ExecuteRequest| {
                    let mut begun = self.begin(&user?, request.config, None, false)?;
                    execute(&mut begun).await
                })
                .await
            }
            "WriteStdin" => {
                rpc::unary(call, body, async |request| self.write_stdin(request).await).await
            }
            "SendSignal" => rpc::unary(call, body, async |request| self.signal(request)).await,
            "ResizeTTY" => {
                rpc::unary(call, body, async |request: ResizeTtyRequest| {
                    let size = terminal(Pty {
                        cols: request.cols,
                        rows: request.rows,
                    });
                    let process = self.process(request.process_id)?;
                    process
                        .resize(size)
                        .map_err(|e| Error::new(Code::FailedPrecondition, e.message))?;
                    Ok(Empty {})
                })
                .await
            }
            _ => return None,
        })
    }

    fn begin(
        &self,
        user: &User,
        config: Option<ProcessConfig>,
        pty: Option<Terminal>,
        stdin: bool,
    ) -> Result<Attended, Error> {
        let config = config.unwrap_or_default();
        let Some((cmd, args)) = config.command.split_first() else {
            return Err(Error::invalid("the process has no command"));
        };
        let is_name = |name: &String| !name.is_empty() && !name.contains('=');
        if let Some(name) = config.env_vars.keys().find(|name| !is_name(name)) {
            let message = format!("'{name}' cannot be the name of a variable");
            return Err(Error::invalid(message));
        }
        let cwd = self
            .sandboxd_root
            .resolve(config.cwd.as_deref().unwrap_or_default())?;
        if !cwd.is_dir() {
            let message = format!("cwd '{}' is not a directory", cwd.display());
            return Err(Error::internal(message));
        }
        let launched = self.launch(Launch {
            user,
            environment: self.environment_of_container(user, &config.env_vars),
            cwd,
            config: Config {
                cmd: cmd.clone(),
                args: args.to_vec(),
                envs: config.env_vars.clone(),
                cwd: config.cwd.clone(),
            },
            pty,
            stdin,
            tag: None,
            deadline: None,
        });
        // here a program that cannot be started is no fault of the request
        let (process, events) = launched.map_err(|e| match e.code {
            Code::InvalidArgument => Error::internal(e.message),
            _ => e,
        })?;
        Ok(Attended {
            process,
            events,
            is_left: false,
        })
    }

    fn process(&self, id: i32) -> Result<Arc<Process>, Error> {
        let selector = ProcessSelector {
            pid: u32::try_from(id).ok(),
            tag: None,
        };
        let found = self.processes.find(Some(&selector));
        found.map_err(|_| Error::not_found(format!("process {id} not found")))
    }

    async fn write_stdin(&self, request: WriteStdinRequest) -> Result<Empty, Error> {
        let process = self.process(request.process_id)?;
        match (request.eof, request.input) {
            (Some(_), _) if process.input.is_pty() => process.input.write(CONTROL_D).await?,
            (Some(_), _) => process.input.close().await?,
            (None, Some(bytes)) => process.input.write(&bytes).await?,
            (None, None) => {}
        }
        Ok(Empty {})
    }

    fn signal(&self, request: SendSignalRequest) -> Result<Empty, Error> {
        let process = self.process(request.process_id)?;
        let signal = match request.signal {
            2 => Signal::INT,
            9 => Signal::KILL,
            15 => Signal::TERM,
            other => {
                let message =
                    format!("signal {other} cannot be sent, only SIGINT, SIGTERM and SIGKILL");
                return Err(Error::invalid(message));
            }
        };
        process
            .signal_group(signal)
            .map_err(|e| Error::internal(format!("error sending signal: {e}")))?;
        Ok(Empty {})
    }
}

fn terminal(pty: Pty) -> Terminal {
    let Pty { cols, rows } = pty;
    let size = Some(PtySize { cols, rows });
    Terminal { size }
}

async fn execute(begun: &mut Attended) -> Result<ExecuteResponse, Error> {
    let captured = capture(&begun.process, &mut begun.events, None).await;
    let exit = captured.exit.and_then(|status| status.code());
    Ok(ExecuteResponse {
        exit_code: exit.unwrap_or(-1),
        stdout: Some(captured.stdout.into()),
        stderr: Some(captured.stderr.into()),
    })
}

/// Sends a client what happens to a process: first its id, at last how it ended.
async fn forward(
    begun: Result<Attended, Error>,
    sink: Sink<StartResponse>,
    handover: Arc<Handover>,
) -> Result<(), Error> {
    let mut begun = begun?;
    let init = InitEvent {
        process_id: i32::try_from(begun.process.pid).unwrap_or_default(),
    };
    let init = StartResponse {
        init: Some(init),
        ..StartResponse::default()
    };
    sink.send(&init).await?;
    loop {
        let event = tokio::select! {
            biased;
            // what was read of the process is told before a daemon leaves
            event = begun.events.recv() => event,
            () = handover.closing() => {
                begun.is_left = true;
                return Err(handover::come_again());
            }
        };
        let Some(event) = event else {
            return Ok(());
        };
        sink.send(&message_of(event)).await?;
    }
}

fn message_of(event: Event) -> StartResponse {
    match event {
        Event::Data(stream, bytes) => output_of(stream, bytes),
        Event::End(end) => StartResponse {
            exit: Some(ExitEvent {
                exit_code: end.exit_code,
            }),
            ..StartResponse::default()
        },
    }
}

fn output_of(stream: Stream, bytes: Bytes) -> StartResponse {
    let mut output = StartResponse::default();
    let field = match stream {
        Stream::Stdout | Stream::Pty => &mut output.stdout,
        Stream::Stderr => &mut output.stderr,
    };
    *field = Some(bytes);
    output
}

//! Commands: run with a deadline, and run once whatever becomes of whoever asked for it.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use prost::Message;
use tokio::time::Instant;

use super::exchange::{Answer, Request};
use super::{Client, Code, Error, SHORT, accepted, within};
use crate::envelope::{self, END_OF_STREAM};
use crate::messages::Empty;
use crate::messages::once::{AcknowledgeRequest, Outcome, OutcomeRequest};
use crate::messages::process::{EventResponse, ProcessConfig, ProcessEvent, StartRequest};
use crate::tail::Last;

/// How much of each output is told.
const TAIL: usize = 64 << 10;

/// What a message may be at most; output comes in far smaller ones.
const LARGEST_MESSAGE: usize = 16 << 20;

/// The daemon ends what takes too long, and says so a moment later.
const SLACK: Duration = Duration::from_secs(2);

/// Between two tries to reach a daemon that has a command of ours.
const PAUSE: Duration = Duration::from_millis(200);

/// A method that a daemon does not know is not a thing that it did not find.
const UNKNOWN_METHOD: Code = Code::Unimplemented;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Command {
    /// The program and its arguments.
    pub words: Vec<String>,
    pub envs: BTreeMap<String, String>,
    pub cwd: Option<String>,
}

impl Command {
    pub fn new<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Self {
        let words = words.into_iter().map(Into::into).collect();
        Self {
            words,
            ..Self::default()
        }
    }

    /// With nothing to read, so that one that asks a question does not wait for an answer.
    fn request(&self, tag: Option<&str>) -> StartRequest {
        let mut words = self.words.iter().cloned();
        StartRequest {
            process: Some(ProcessConfig {
                cmd: words.next().unwrap_or_default(),
                args: words.collect(),
                envs: self.envs.clone(),
                cwd: self.cwd.clone(),
            }),
            pty: None,
            tag: tag.map(str::to_owned),
            stdin: Some(false),
        }
    }
}

impl Outcome {
    /// Ended by itself, with code 0.
    pub fn is_success(&self) -> bool {
        let end = self.end.as_ref();
        end.is_some_and(|end| end.exited && end.exit_code == 0)
    }
}

impl Client {
    /// Runs a command to its end. One that takes longer is ended, and that is [`Error::Late`].
    pub async fn run(&self, command: &Command, limit: Duration) -> Result<Outcome, Error> {
        let request = command.request(None);
        let running = self.follow("/process.Process/Start", &request, limit);
        match within(limit + SLACK, running).await {
            Err(error) if error.is_refused_as(Code::DeadlineExceeded) => Err(Error::Late(limit)),
            outcome => outcome,
        }
    }

    /// The outcome of the command that was started under this tag, which is started if none was.
    ///
    /// Whoever dies meanwhile asks again with the same tag. The outcome is told again and again until it is acknowledged. One
    /// that takes longer than `limit` is ended, and its outcome says so. The error's code is `unimplemented` for a daemon that is
    /// not ours.
    pub async fn run_once(
        &self,
        tag: &str,
        command: &Command,
        limit: Duration,
    ) -> Result<Outcome, Error> {
        let request = command.request(Some(tag));
        let deadline = Instant::now() + limit + SLACK;
        until(deadline, limit, || self.start(&request, limit)).await?;
        match until(deadline, limit, || self.outcome(tag, deadline)).await {
            Err(error) if error.is_refused_as(Code::NotFound) => {
                let tag = tag.to_owned();
                Err(Error::Lost { tag })
            }
            outcome => outcome,
        }
    }

    /// From now on the tag may be used for another command. Doing it again is no error.
    pub async fn acknowledge(&self, tag: &str) -> Result<(), Error> {
        let tag = tag.to_owned();
        let request = AcknowledgeRequest { tag };
        let done = self.call::<Empty>("/sandbar.Once/Acknowledge", &request, SHORT);
        match done.await {
            Err(error) if error.is_refused_as(Code::NotFound) => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    /// Starts a command, unless it was started, and leaves it alone.
    async fn start(&self, request: &StartRequest, limit: Duration) -> Result<(), Error> {
        let starting = async {
            let mut events = self.stream("/sandbar.Once/Start", request, limit).await?;
            events.next().await.map(drop)
        };
        match within(SHORT, starting).await {
            Err(error) if error.is_refused_as(Code::AlreadyExists) => Ok(()),
            outcome => outcome,
        }
    }

    async fn outcome(&self, tag: &str, deadline: Instant) -> Result<Outcome, Error> {
        let tag = tag.to_owned();
        let request = OutcomeRequest { tag, wait: true };
        let limit = deadline.saturating_duration_since(Instant::now());
        self.call("/sandbar.Once/Outcome", &request, limit).await
    }

    /// Starts a command and listens until its end.
    async fn follow(
        &self,
        method: &str,
        request: &StartRequest,
        limit: Duration,
    ) -> Result<Outcome, Error> {
        let mut events = self.stream(method, request, limit).await?;
        let (mut stdout, mut stderr) = (Last::new(TAIL, None), Last::new(TAIL, None));
        let mut outcome = Outcome::default();
        while let Some(event) = events.next().await? {
            if let Some(start) = event.start {
                outcome.pid = start.pid;
            }
            if let Some(data) = event.data {
                stdout.push(&data.stdout.unwrap_or_default());
                stderr.push(&data.stderr.unwrap_or_default());
            }
            outcome.end = event.end.or(outcome.end);
        }
        if outcome.end.is_none() {
            return Err(events.answer.broken_off("the command's end was not told"));
        }
        outcome.stdout = Some(stdout.tell());
        outcome.stderr = Some(stderr.tell());
        Ok(outcome)
    }

    /// One message there and one back.
    async fn call<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
        limit: Duration,
    ) -> Result<A, Error> {
        let body = request.encode_to_vec();
        let request = self.request(method, "application/proto", limit).body(body);
        let calling = async {
            let mut answer = self.send(request).await?;
            accepted(&mut answer, UNKNOWN_METHOD).await?;
            let body = answer.body(LARGEST_MESSAGE).await?.unwrap_or_default();
            A::decode(body).map_err(|e| answer.broken_off(&e.to_string()))
        };
        within(limit, calling).await
    }

    async fn stream(
        &self,
        method: &str,
        request: &StartRequest,
        limit: Duration,
    ) -> Result<Events, Error> {
        let message = request.encode_to_vec();
        let body = envelope::enclose(0, &message).ok_or_else(|| Error::Refused {
            code: Code::InvalidArgument,
            message: "the command is longer than any may be".to_owned(),
        })?;
        let request = self.request(method, "application/connect+proto", limit);
        let mut answer = self.send(request.body(body)).await?;
        accepted(&mut answer, UNKNOWN_METHOD).await?;
        let read = BytesMut::new();
        Ok(Events { answer, read })
    }

    fn request(&self, method: &str, content_type: &'static str, limit: Duration) -> Request {
        // the header has room for ten digits
        let millis = limit.as_millis().clamp(1, 9_999_999_999);
        Request::new(Method::POST, method)
            .header(CONTENT_TYPE, HeaderValue::from_static(content_type))
            .text_header("connect-protocol-version", "1")
            .text_header("connect-timeout-ms", &millis.to_string())
    }
}

/// Tries again while nobody answers.
async fn until<T, F: Future<Output = Result<T, Error>>>(
    deadline: Instant,
    limit: Duration,
    attempt: impl Fn() -> F,
) -> Result<T, Error> {
    loop {
        match attempt().await {
            Err(error) if error.may_pass() => {}
            outcome => return outcome,
        }
        if Instant::now() + PAUSE >= deadline {
            return Err(Error::Late(limit));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What happens to a process.
struct Events {
    answer: Answer,
    /// What is not taken apart yet.
    read: BytesMut,
}

impl Events {
    /// `None` at the end of the stream, which says whether all went well.
    async fn next(&mut self) -> Result<Option<ProcessEvent>, Error> {
        let (flags, message) = self.envelope().await?;
        if flags & END_OF_STREAM != 0 {
            let end: serde_json::Value = serde_json::from_slice(&message).unwrap_or_default();
            let Some(error) = end.get("error") else {
                return Ok(None);
            };
            let text = |name: &str| error[name].as_str().unwrap_or_default();
            return Err(Error::Refused {
                code: Code::of_name(text("code")),
                message: text("message").to_owned(),
            });
        }
        let response = EventResponse::decode(message);
        let response = response.map_err(|e| self.answer.broken_off(&e.to_string()))?;
        Ok(Some(response.event.unwrap_or_default()))
    }

    async fn envelope(&mut self) -> Result<(u8, Bytes), Error> {
        loop {
            let opened = envelope::open(&mut self.read, LARGEST_MESSAGE);
            let too_large = |length| {
                self.answer
                    .broken_off(&format!("a message of {length} bytes"))
            };
            if let Some(opened) = opened.map_err(too_large)? {
                return Ok(opened);
            }
            match self.answer.piece().await? {
                Some(piece) => self.read.extend_from_slice(&piece),
                None => return Err(self.answer.broken_off("the stream has no end")),
            }
        }
    }
}

//! gRPC over HTTP/2 without TLS, as upgrade hooks call it.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use runtime::messages::process::{
    EventResponse, ListResponse, ProcessConfig, ProcessEvent, ProcessInput, ProcessSelector,
    SelectRequest, StartRequest, StreamInputData, StreamInputRequest,
};
use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::client::{PATIENCE, basic, decode, envelope, envelope_of, gzip, shell};
use crate::daemon::Daemon;

pub(crate) struct Outcome {
    pub(crate) messages: Vec<Bytes>,
    pub(crate) status: String,
    pub(crate) message: String,
}

/// A call whose answer is being read. Whoever drops it has left.
pub(crate) struct Stream {
    body: Incoming,
    unread: BytesMut,
    trailers: HeaderMap,
}

/// One call on a connection of its own, answered to its end.
pub(crate) async fn call(
    daemon: &Daemon,
    method: &str,
    headers: &[(&str, &str)],
    request: &impl Message,
) -> Outcome {
    open(daemon, method, headers, request).await.finish().await
}

/// One call on a connection of its own.
pub(crate) async fn open(
    daemon: &Daemon,
    method: &str,
    headers: &[(&str, &str)],
    request: &impl Message,
) -> Stream {
    let body = envelope_of(0, &request.encode_to_vec());
    send(daemon, method, "application/grpc", headers, body).await
}

async fn send(
    daemon: &Daemon,
    method: &str,
    content_type: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Stream {
    let socket = tokio::net::TcpStream::connect(daemon.address)
        .await
        .unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut call = http::Request::post(format!("http://sandbox{method}"))
        .header("content-type", content_type)
        .header("te", "trailers");
    for (name, value) in headers {
        call = call.header(*name, *value);
    }
    let body = Full::new(Bytes::from(body));
    let answer = sender.send_request(call.body(body).unwrap());
    let answer = tokio::time::timeout(PATIENCE, answer).await;
    let answer = answer.expect("the call is answered").unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], content_type);
    Stream {
        body: answer.into_body(),
        unread: BytesMut::new(),
        trailers: HeaderMap::new(),
    }
}

impl Stream {
    /// `None` after the last.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some([flags, length @ ..]) = self.unread.first_chunk::<5>() {
                assert_eq!(*flags, 0, "no message is compressed");
                let length = u32::from_be_bytes(*length) as usize;
                if self.unread.len() >= 5 + length {
                    self.unread.advance(5);
                    return Some(self.unread.split_to(length).freeze());
                }
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await;
            match frame.expect("the stream goes on")?.unwrap().into_data() {
                Ok(data) => self.unread.extend_from_slice(&data),
                Err(trailers) => self.trailers = trailers.into_trailers().unwrap(),
            }
        }
    }

    pub(crate) async fn finish(mut self) -> Outcome {
        let mut messages = Vec::new();
        while let Some(message) = self.next().await {
            messages.push(message);
        }
        assert_eq!(self.unread, b""[..], "the answer breaks off");
        let text = |name| {
            let value = self.trailers.get(name).map(|value| value.to_str().unwrap());
            value.unwrap_or_default().to_owned()
        };
        assert_ne!(text("grpc-status"), "", "a call ends with trailers");
        Outcome {
            messages,
            status: text("grpc-status"),
            message: text("grpc-message"),
        }
    }
}

fn hook(args: &[&str]) -> StartRequest {
    StartRequest {
        process: Some(ProcessConfig {
            cmd: args[0].into(),
            args: args[1..].iter().map(|arg| (*arg).into()).collect(),
            ..ProcessConfig::default()
        }),
        ..StartRequest::default()
    }
}

fn selected(pid: u32) -> ProcessSelector {
    ProcessSelector {
        pid: Some(pid),
        tag: None,
    }
}

fn events(outcome: &Outcome) -> Vec<ProcessEvent> {
    let event = |bytes: &Bytes| EventResponse::decode(bytes.clone()).unwrap().event.unwrap();
    outcome.messages.iter().map(event).collect()
}

#[tokio::test]
async fn a_hook_runs_as_root_with_the_token_and_tells_its_end() {
    let daemon = Daemon::launch();
    daemon.init(&json!({"accessToken": "secret"}));
    let root = basic("root");
    let headers = [("x-access-token", "secret"), ("authorization", &*root)];
    let request = hook(&["/bin/sh", "-c", "id -u; echo err >&2; exit 3"]);
    let user = geteuid().is_root();
    let headers = if user { &headers[..] } else { &headers[..1] };
    let outcome = call(&daemon, "/process.Process/Start", headers, &request).await;
    assert_eq!((&*outcome.status, &*outcome.message), ("0", ""));
    let events = events(&outcome);
    assert!(events[0].start.is_some());
    let data = events.iter().filter_map(|event| event.data.clone());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    for data in data {
        stdout.extend(data.stdout.unwrap_or_default());
        stderr.extend(data.stderr.unwrap_or_default());
    }
    let id = format!("{}\n", geteuid().as_raw());
    assert_eq!((&*stdout, &*stderr), (id.as_bytes(), &b"err\n"[..]));
    let end = events.last().unwrap().end.clone().unwrap();
    assert_eq!((end.exit_code, end.exited), (3, true));
    assert_eq!(end.error.as_deref(), Some("exit status 3"));
}

#[tokio::test]
async fn an_empty_token_is_none_when_none_is_set() {
    let daemon = Daemon::launch();
    let headers = [("x-access-token", "")];
    let outcome = call(
        &daemon,
        "/process.Process/List",
        &headers,
        &SelectRequest::default(),
    )
    .await;
    assert_eq!(outcome.status, "0");
    let list = ListResponse::decode(outcome.messages[0].clone()).unwrap();
    assert_eq!(list.processes, []);
}

#[tokio::test]
async fn errors_are_codes_and_messages_in_trailers() {
    let daemon = Daemon::launch();
    let tag = "schön 100%".to_owned();
    let request = SelectRequest {
        process: Some(ProcessSelector {
            pid: None,
            tag: Some(tag),
        }),
    };
    let outcome = call(&daemon, "/process.Process/Connect", &[], &request).await;
    assert_eq!(outcome.status, "5");
    assert_eq!(
        outcome.message,
        "process with tag sch%C3%B6n 100%25 not found"
    );
    assert_eq!(outcome.messages.len(), 0);
    let user = basic("who");
    let headers = [("authorization", &*user)];
    let outcome = call(
        &daemon,
        "/process.Process/Start",
        &headers,
        &hook(&["true"]),
    )
    .await;
    assert_eq!(
        (&*outcome.status, &*outcome.message),
        ("16", "invalid username: 'who'")
    );
}

#[tokio::test]
async fn a_deadline_kills_the_command() {
    let daemon = Daemon::launch();
    let headers = [("grpc-timeout", "3000m")];
    let request = hook(&["/bin/sleep", "30"]);
    let outcome = call(&daemon, "/process.Process/Start", &headers, &request).await;
    assert_eq!(outcome.status, "4");
    let pid = events(&outcome)[0].start.unwrap().pid;
    let request = SelectRequest {
        process: Some(selected(pid)),
    };
    let outcome = call(&daemon, "/process.Process/Connect", &[], &request).await;
    let end = events(&outcome).pop().unwrap().end.unwrap();
    assert_eq!((end.exited, &*end.status), (false, "signal: killed"));
}

#[tokio::test]
async fn a_deadline_is_a_number_and_a_unit_or_nothing_is_started() {
    let daemon = Daemon::launch();
    let status = async |deadline, words: &[&str]| {
        let headers = [("grpc-timeout", deadline)];
        let started = call(&daemon, "/process.Process/Start", &headers, &hook(words)).await;
        started.status
    };
    for soon in ["1S", "1m", "1u", "1n", "0H"] {
        assert_eq!(status(soon, &["/bin/sleep", "1000"]).await, "4", "{soon}");
    }
    for late in ["1H", "1M", "99999999S", "99999999m", "99999999H"] {
        assert_eq!(status(late, &["/bin/true"]).await, "0", "{late}");
    }
    for wrong in ["", "5", "S", "5s", "5 S", "-5S", "123456789S"] {
        let refused = status(wrong, &["/bin/sh", "-c", "touch started"]).await;
        assert_eq!(refused, "3", "{wrong:?}");
    }
    assert!(!daemon.home().join("started").exists());
}

#[tokio::test]
async fn input_is_streamed_to_a_command() {
    let daemon = Daemon::launch();
    let script = "read one; read two; echo $two $one";
    let request = hook(&["/bin/sh", "-c", script]);
    let mut output = open(&daemon, "/process.Process/Start", &[], &request).await;
    let started = EventResponse::decode(output.next().await.unwrap()).unwrap();
    let process = Some(selected(started.event.unwrap().start.unwrap().pid));
    let start = StreamInputRequest {
        start: Some(SelectRequest { process }),
        ..StreamInputRequest::default()
    };
    let line = |text: &'static str| StreamInputRequest {
        data: Some(StreamInputData {
            input: Some(ProcessInput {
                stdin: Some(text.into()),
                pty: None,
            }),
        }),
        ..StreamInputRequest::default()
    };
    let messages = [start, line("first\n"), line("second\n")];
    let body = messages.map(|message| envelope_of(0, &message.encode_to_vec()));
    let method = "/process.Process/StreamInput";
    let input = send(&daemon, method, "application/grpc", &[], body.concat()).await;
    let answer = input.finish().await;
    assert_eq!((&*answer.status, answer.messages.len()), ("0", 1));
    let said = EventResponse::decode(output.next().await.unwrap()).unwrap();
    let said = said.event.unwrap().data.unwrap().stdout.unwrap();
    assert_eq!(said, "second first\n");
}

#[tokio::test]
async fn json_is_spoken_to_those_who_speak_it() {
    let daemon = Daemon::launch();
    let body = envelope(0, &shell("echo $((6 * 7))"));
    let method = "/process.Process/Start";
    let started = send(&daemon, method, "application/grpc+json", &[], body).await;
    let outcome = started.finish().await;
    assert_eq!(outcome.status, "0");
    let message = |bytes: &Bytes| serde_json::from_slice(bytes).unwrap();
    let messages: Vec<Value> = outcome.messages.iter().map(message).collect();
    assert!(messages[0]["event"]["start"]["pid"].is_u64());
    assert_eq!(decode(&messages[1]["event"]["data"]["stdout"]), "42\n");
    assert_eq!(messages[2]["event"]["end"]["exited"], true);
}

#[tokio::test]
async fn requests_may_be_compressed_and_answers_never_are() {
    let daemon = Daemon::launch();
    let method = "/process.Process/Start";
    let request = hook(&["/bin/true"]).encode_to_vec();
    let status = async |encoding, body| {
        let headers = [
            ("grpc-encoding", encoding),
            ("grpc-accept-encoding", "gzip"),
        ];
        let started = send(&daemon, method, "application/grpc", &headers, body).await;
        started.finish().await.status
    };
    assert_eq!(status("gzip", envelope_of(1, &gzip(&request))).await, "0");
    assert_eq!(status("gzip", envelope_of(0, &request)).await, "0");
    assert_eq!(
        status("identity", envelope_of(1, &gzip(&request))).await,
        "3"
    );
    assert_eq!(status("br", envelope_of(0, &request)).await, "12");
}

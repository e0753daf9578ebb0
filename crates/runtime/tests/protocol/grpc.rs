//! gRPC over HTTP/2 without TLS, as upgrade hooks call it.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use runtime::messages::process::{
    EventResponse, ListResponse, ProcessConfig, ProcessEvent, ProcessSelector, SelectRequest,
    StartRequest,
};

use crate::client::{PATIENCE, basic, envelope_of};
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
    let socket = tokio::net::TcpStream::connect(daemon.address)
        .await
        .unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut call = http::Request::post(format!("http://sandbox{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        call = call.header(*name, *value);
    }
    let body = Full::new(Bytes::from(envelope_of(0, &request.encode_to_vec())));
    let answer = sender.send_request(call.body(body).unwrap());
    let answer = tokio::time::timeout(PATIENCE, answer).await;
    let answer = answer.expect("the call is answered").unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "application/grpc");
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

fn events(outcome: &Outcome) -> Vec<ProcessEvent> {
    let event = |bytes: &Bytes| EventResponse::decode(bytes.clone()).unwrap().event.unwrap();
    outcome.messages.iter().map(event).collect()
}

#[tokio::test]
async fn a_hook_runs_as_root_with_the_token_and_tells_its_end() {
    let daemon = Daemon::launch();
    daemon.init(&serde_json::json!({"accessToken": "secret"}));
    let root = basic("root");
    let headers = [("x-access-token", "secret"), ("authorization", &*root)];
    let request = hook(&["/bin/sh", "-c", "echo out; echo err >&2; exit 3"]);
    let user = rustix::process::geteuid().is_root();
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
    assert_eq!((&*stdout, &*stderr), (&b"out\n"[..], &b"err\n"[..]));
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
    let headers = [("grpc-timeout", "300m")];
    let request = hook(&["/bin/sleep", "30"]);
    let outcome = call(&daemon, "/process.Process/Start", &headers, &request).await;
    assert_eq!(outcome.status, "4");
    let pid = events(&outcome)[0].start.unwrap().pid;
    let request = SelectRequest {
        process: Some(ProcessSelector {
            pid: Some(pid),
            tag: None,
        }),
    };
    let outcome = call(&daemon, "/process.Process/Connect", &[], &request).await;
    let end = events(&outcome).pop().unwrap().end.unwrap();
    assert_eq!((end.exited, &*end.status), (false, "signal: killed"));
}

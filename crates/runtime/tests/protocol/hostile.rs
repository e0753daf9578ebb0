//! What no client should send, sent to a daemon all the same: it answers or hangs up, and goes on with what it had.
//!
//! The daemon owns nothing but its home, and the machine is the test's own: some of what is sent is understood and done.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;

use bytes::Bytes;
use form_urlencoded::byte_serialize;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use proptest::strategy::{BoxedStrategy, Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::json;

use crate::alone::alone;
use crate::client::{PATIENCE, basic, envelope};
use crate::daemon::{Daemon, wait_until};
use crate::garbage;

/// Sent one after the other, each on a connection of its own.
const REQUESTS: usize = 2_000;

/// Calls that do no harm, whatever path they are given.
const CALLS: [(&str, &str); 8] = [
    ("/process.Process/Start", "application/connect+json"),
    ("/process.Process/Start", "application/connect+proto"),
    ("/process.Process/StreamInput", "application/connect+json"),
    ("/process.Process/SendInput", "application/json"),
    ("/process.Process/SendSignal", "application/proto"),
    ("/filesystem.Filesystem/Stat", "application/json"),
    ("/filesystem.Filesystem/ListDir", "application/proto"),
    ("/filesystem.Filesystem/CreateWatcher", "application/json"),
];

const USERS: [&str; 6] = ["", "root", "none", "../x", "a\0b", "\u{e9}:\n"];

struct Stage {
    daemon: Daemon,
    descriptors: usize,
}

impl Stage {
    fn new() -> Self {
        let daemon = Daemon::launch_ordinary();
        assert_eq!(daemon.get("/health").status, 204);
        let descriptors = daemon.descriptors();
        Self {
            daemon,
            descriptors,
        }
    }

    /// Sends bytes and reads what comes until the daemon hangs up, which it may do before it has read all.
    fn send(&self, bytes: &[u8], is_all: bool) -> Vec<u8> {
        let mut connection = self.daemon.connect();
        let _ = connection.write_all(bytes);
        if is_all {
            let _ = connection.shutdown(Shutdown::Write);
        }
        let mut answer = Vec::new();
        let read = connection.read_to_end(&mut answer);
        let hung_up = |error: &std::io::Error| error.kind() != std::io::ErrorKind::WouldBlock;
        assert!(read.as_ref().err().is_none_or(hung_up), "no end: {bytes:?}");
        answer
    }

    /// The status of the answer.
    fn ask(&self, target: &str, headers: &[(&str, &str)], body: &[u8]) -> u16 {
        let method = if body.is_empty() { "GET" } else { "POST" };
        let length = body.len();
        let mut head = format!("{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        head += &format!("content-length: {length}\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        let answer = self.send(&[head.as_bytes(), b"\r\n", body].concat(), false);
        let status = answer.get(9..12).and_then(|text| str::from_utf8(text).ok());
        let status = status.and_then(|text| text.parse().ok());
        status.unwrap_or_else(|| panic!("no status: {answer:?} to {head}"))
    }

    fn is_unharmed(&mut self) {
        assert_eq!(self.daemon.get("/health").status, 204);
        self.daemon.assert_alive();
        let listed = |daemon: &Daemon| daemon.call("/process.Process/List", &json!({}));
        let nothing = json!({"processes": []});
        wait_until("all commands have ended", || {
            listed(&self.daemon) == nothing
        });
        let most = self.descriptors;
        wait_until("all is closed", || self.daemon.descriptors() <= most);
        assert_eq!(self.daemon.complaints(), "");
    }
}

/// The same in every run.
fn many<T: std::fmt::Debug>(what: BoxedStrategy<T>, count: usize) -> impl Iterator<Item = T> {
    let mut runner = TestRunner::deterministic();
    (0..count).map(move |_| what.new_tree(&mut runner).unwrap().current())
}

#[test]
fn calls_that_are_none_are_refused_and_leave_nothing() {
    alone(
        "hostile::calls_that_are_none_are_refused_and_leave_nothing",
        || {
            let mut stage = Stage::new();
            let bodies =
                many(garbage::streams(), REQUESTS).chain(many(garbage::messages(), REQUESTS));
            for (number, body) in bodies.enumerate() {
                let (method, content_type) = CALLS[number % CALLS.len()];
                let encoding = ["identity", "gzip"][number / 8 % 2];
                let user = basic(USERS[number / 16 % USERS.len()]);
                let headers = [
                    ("content-type", content_type),
                    ("connect-content-encoding", encoding),
                    ("authorization", &user),
                ];
                // without a body it would not be a call
                let body = if body.is_empty() { b"\0" } else { &body[..] };
                let status = stage.ask(method, &headers, body);
                assert!(status < 500, "{status} to {body:?}");
            }
            stage.is_unharmed();
        },
    );
}

#[test]
fn grpc_that_is_none_is_refused_and_leaves_the_connection() {
    let test = "hostile::grpc_that_is_none_is_refused_and_leaves_the_connection";
    alone(test, || {
        let mut stage = Stage::new();
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = tokio::net::TcpStream::connect(stage.daemon.address).await;
            let socket = socket.unwrap();
            socket.set_nodelay(true).unwrap();
            let made = http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await;
            let (mut sender, connection) = made.unwrap();
            tokio::spawn(connection);
            for (number, body) in many(garbage::streams(), REQUESTS).enumerate() {
                let (method, _) = CALLS[number % CALLS.len()];
                let call = http::Request::post(format!("http://sandbox{method}"))
                    .header(
                        "content-type",
                        ["application/grpc", "application/grpc+json"][number % 2],
                    )
                    .header("grpc-encoding", ["identity", "gzip"][number / 8 % 2])
                    .header("grpc-timeout", ["5S", "99999999H", "1n"][number / 16 % 3]);
                let call = call.body(Full::new(Bytes::from(body))).unwrap();
                let answer = tokio::time::timeout(PATIENCE, sender.send_request(call)).await;
                let answer = answer.expect("the call is answered").unwrap();
                assert_eq!(answer.status(), 200);
                let body = tokio::time::timeout(PATIENCE, answer.into_body().collect()).await;
                let trailers = body.expect("the call ends").unwrap().trailers().cloned();
                assert!(trailers.unwrap().contains_key("grpc-status"));
            }
        });
        drop(runtime);
        stage.is_unharmed();
    });
}

#[test]
fn forms_that_are_none_are_refused_and_leave_nothing_open() {
    let test = "hostile::forms_that_are_none_are_refused_and_leave_nothing_open";
    alone(test, || {
        let mut stage = Stage::new();
        for (number, (content_type, body)) in many(garbage::forms(), REQUESTS).enumerate() {
            let user: String = byte_serialize(USERS[number % USERS.len()].as_bytes()).collect();
            let headers = [("content-type", content_type.as_str())];
            let body = if body.is_empty() { b"\0" } else { &body[..] };
            let status = stage.ask(&format!("/files?username={user}"), &headers, body);
            assert!(status < 500, "{status} to {body:?}");
        }
        stage.is_unharmed();
    });
}

#[test]
fn paths_of_any_form_are_answered() {
    alone("hostile::paths_of_any_form_are_answered", || {
        let mut stage = Stage::new();
        for (number, path) in many(garbage::paths(), REQUESTS).enumerate() {
            let user: String = byte_serialize(USERS[number % USERS.len()].as_bytes()).collect();
            let encoded: String = byte_serialize(path.as_bytes()).collect();
            let status = stage.ask(&format!("/files?username={user}&path={encoded}"), &[], b"");
            assert!(status < 500, "{status} to {path:?}");
            let message = json!({"path": path}).to_string();
            let headers = [("content-type", "application/json")];
            for method in ["Stat", "ListDir", "CreateWatcher"] {
                let method = format!("/filesystem.Filesystem/{method}");
                let status = stage.ask(&method, &headers, message.as_bytes());
                assert!(status < 500, "{status} to {path:?}");
            }
            let mut process = json!({"cmd": "/bin/true", "args": [path], "envs": {"X": path}});
            let field = ["cmd", "cwd", "envs"][number % 3];
            process[field] = match field {
                "envs" => json!({path: "x"}),
                _ => json!(path),
            };
            let start = envelope(0, &json!({"process": process}));
            let headers = [("content-type", "application/connect+json")];
            assert_eq!(stage.ask("/process.Process/Start", &headers, &start), 200);
        }
        stage.is_unharmed();
    });
}

#[test]
fn what_is_not_even_http_ends_its_own_connection_only() {
    let test = "hostile::what_is_not_even_http_ends_its_own_connection_only";
    alone(test, || {
        let mut stage = Stage::new();
        let whole = b"POST /process.Process/List HTTP/1.1\r\nhost: x\r\ncontent-type: \
            application/json\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
        let place = (0..whole.len(), proptest::prelude::any::<u8>()).boxed();
        let changes = proptest::collection::vec(place, 1..4).boxed();
        for changes in many(changes, REQUESTS) {
            let mut bytes = whole.to_vec();
            for (at, byte) in &changes {
                bytes[*at] = *byte;
            }
            stage.send(&bytes, true);
            let (at, _) = changes[0];
            stage.send(&bytes[..at], true);
            stage.send(
                &[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &bytes[at..]].concat(),
                true,
            );
        }
        stage.is_unharmed();
    });
}

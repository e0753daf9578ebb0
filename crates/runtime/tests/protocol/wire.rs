//! Connect over HTTP/1.1: envelopes, codes, encodings, and what is refused.

use std::io::{Read, Write};
use std::time::Duration;

use prost::Message;
use runtime::messages::process::{EventResponse, ListResponse, ProcessConfig, StartRequest};
use serde_json::json;

use crate::client::{Answer, basic, envelope, envelope_of, gzip, shell};
use crate::daemon::Daemon;

#[test]
fn health_is_open_to_everyone_and_not_cached() {
    let daemon = Daemon::launch();
    daemon.init(&json!({"accessToken": "secret"}));
    let reply = daemon.get("/health");
    assert_eq!(reply.status, 204);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(reply.body, b"");
}

#[test]
fn a_stream_ends_with_an_envelope_that_says_so() {
    let daemon = Daemon::launch();
    let running = daemon.start("exit 3");
    assert_eq!(running.events.status, 200);
    assert_eq!(
        running.events.header("content-type"),
        Some("application/connect+json")
    );
    assert_eq!(running.finish().end["exitCode"], 3);
}

#[test]
fn an_error_before_the_first_message_of_a_stream_is_its_end_and_not_a_status() {
    let daemon = Daemon::launch();
    let answer = daemon.stream(
        "/process.Process/Connect",
        &json!({"process": {"pid": 4194304}}),
    );
    assert_eq!(answer.status, 200);
    let error = json!({"code": "not_found", "message": "process with pid 4194304 not found"});
    assert_eq!(answer.end(), json!({"error": error}));
}

#[test]
fn codes_of_unary_calls_become_statuses() {
    let daemon = Daemon::launch();
    for (method, message, status, code) in [
        (
            "filesystem.Filesystem/Stat",
            json!({"path": "none"}),
            404,
            "not_found",
        ),
        (
            "filesystem.Filesystem/Stat",
            json!({"path": "~other"}),
            400,
            "invalid_argument",
        ),
        (
            "filesystem.Filesystem/MakeDir",
            json!({"path": "/"}),
            409,
            "already_exists",
        ),
        (
            "process.Process/SendSignal",
            json!({}),
            400,
            "invalid_argument",
        ),
    ] {
        let (got, answer) = daemon.unary(&format!("/{method}"), &message);
        assert_eq!(
            (got, answer["code"].as_str()),
            (status, Some(code)),
            "{method} {answer}"
        );
    }
}

#[test]
fn protobuf_is_spoken_as_well_as_json() {
    let daemon = Daemon::launch();
    let proto = [("content-type", "application/proto")];
    let reply = daemon.request("POST", "/process.Process/List", &proto, b"");
    assert_eq!(reply.header("content-type"), Some("application/proto"));
    assert_eq!(ListResponse::decode(&*reply.body).unwrap().processes, []);

    let request = StartRequest {
        process: Some(ProcessConfig {
            cmd: "/bin/sh".into(),
            args: vec!["-c".into(), "exit 250".into()],
            ..ProcessConfig::default()
        }),
        ..StartRequest::default()
    };
    let stream = [("content-type", "application/connect+proto")];
    let body = envelope_of(0, &request.encode_to_vec());
    let reply = daemon.request("POST", "/process.Process/Start", &stream, &body);
    let mut rest = &*reply.body;
    let mut events = Vec::new();
    while rest[0] == 0 {
        let length = u32::from_be_bytes(rest[1..5].try_into().unwrap()) as usize;
        let response = EventResponse::decode(&rest[5..5 + length]).unwrap();
        events.push(response.event.unwrap());
        rest = &rest[5 + length..];
    }
    assert!(events[0].start.is_some());
    assert_eq!(events[1].end.as_ref().unwrap().exit_code, 250);
    assert_eq!(rest, envelope_of(2, b"{}"));
}

#[test]
fn requests_may_be_compressed_and_answers_never_are() {
    let daemon = Daemon::launch();
    let unary = [
        ("content-type", "application/json"),
        ("content-encoding", "gzip"),
        ("accept-encoding", "gzip"),
    ];
    let body = gzip(br#"{"path": "/"}"#);
    let reply = daemon.request("POST", "/filesystem.Filesystem/Stat", &unary, &body);
    assert_eq!(reply.header("content-encoding"), None);
    assert_eq!(reply.json()["entry"]["type"], "FILE_TYPE_DIRECTORY");

    // no message at all is one in which nothing is set, packed or not
    let packed = [
        ("content-type", "application/proto"),
        ("content-encoding", "gzip"),
    ];
    let reply = daemon.request("POST", "/process.Process/List", &packed, b"");
    assert_eq!(reply.status, 200, "{}", reply.text());

    let stream = [
        ("content-type", "application/connect+json"),
        ("connect-content-encoding", "gzip"),
        ("connect-accept-encoding", "gzip"),
    ];
    let body = envelope_of(1, &gzip(shell("exit 0").to_string().as_bytes()));
    let mut answer = daemon.open("POST", "/process.Process/Start", &stream, &body);
    assert!(answer.message()["event"]["start"]["pid"].is_u64());

    let announced = [("content-encoding", "br")];
    let (status, answer) = daemon.unary_with("/process.Process/List", &announced, &json!({}));
    assert_eq!((status, &answer["code"]), (501, &json!("unimplemented")));
    let announced = [("connect-content-encoding", "br")];
    let answer = daemon.stream_with("/process.Process/Start", &announced, &shell("exit 0"));
    assert_eq!(answer.end()["error"]["code"], "unimplemented");
}

#[test]
fn broken_frames_are_invalid_arguments_and_the_daemon_goes_on() {
    let mut daemon = Daemon::launch();
    let stream = [("content-type", "application/connect+json")];
    for body in [
        &b""[..],
        &[0],
        &[0, 0, 0, 0, 9, b'{'],
        &envelope_of(0, b"{"),
        &envelope_of(0, b"\xff"),
        &envelope_of(0, b"[]"),
        &envelope_of(1, b"{}"),
        &[envelope(0, &shell("exit 0")), envelope(0, &shell("exit 0"))].concat(),
    ] {
        let answer = daemon.open("POST", "/process.Process/Start", &stream, body);
        let end = answer.end();
        assert_eq!(end["error"]["code"], "invalid_argument", "{body:?}: {end}");
    }
    let reading = daemon.start("read line");
    let begun = envelope(0, &json!({"start": {"process": reading.selector()}}));
    let cut_off = [&begun, &[0, 0, 0, 0, 9, b'{'][..]].concat();
    let answer = daemon.open("POST", "/process.Process/StreamInput", &stream, &cut_off);
    assert_eq!(answer.end()["error"]["code"], "invalid_argument");
    let selector = json!({"process": reading.selector()});
    daemon.call("/process.Process/CloseStdin", &selector);
    reading.finish();
    let huge = [0, 0xff, 0xff, 0xff, 0xff];
    let answer = daemon.open("POST", "/process.Process/Start", &stream, &huge);
    assert_eq!(answer.end()["error"]["code"], "resource_exhausted");
    assert_eq!(
        daemon.call("/process.Process/List", &json!({})),
        json!({"processes": []})
    );
    daemon.assert_alive();
}

#[test]
fn json_is_read_as_protobuf_defines_it() {
    let daemon = Daemon::launch();
    let stat = |message| daemon.call("/filesystem.Filesystem/Stat", &message)["entry"].clone();
    assert_eq!(
        stat(json!({"path": "/", "unknown": {"x": [1]}}))["path"],
        "/"
    );
    assert!(
        stat(json!({"path": null}))["size"].is_string(),
        "64-bit numbers are text"
    );

    let sleeping = daemon.start("read line; echo got $line; exec sleep 30");
    // url-safe, without padding; a number as text; an unset member as null
    let input = json!({"process": {"pid": sleeping.pid.to_string()}, "input": {"stdin": "Pz8_Cg", "pty": null}});
    daemon.call("/process.Process/SendInput", &input);
    let mut sleeping = sleeping;
    assert_eq!(sleeping.stdout(), "got ???\n");
    // the number of a signal instead of its name
    let signal = json!({"process": sleeping.selector(), "signal": 9});
    daemon.call("/process.Process/SendSignal", &signal);
    assert_eq!(sleeping.finish().end["status"], "signal: killed");
}

#[test]
fn a_stream_that_is_silent_is_kept_alive() {
    let daemon = Daemon::launch();
    let every_second = [("keepalive-ping-interval", "1")];
    let request = shell("read line; echo done");
    let mut running = daemon.start_with_request(&every_second, &request);
    assert_eq!(running.event(), json!({"keepalive": {}}));
    assert_eq!(running.event(), json!({"keepalive": {}}));
    let selector = json!({"process": running.selector()});
    daemon.call("/process.Process/CloseStdin", &selector);
    assert_eq!(running.stdout(), "done\n");
}

#[test]
fn requests_follow_each_other_on_one_connection() {
    let daemon = Daemon::launch();
    let body = envelope(0, &shell("echo hello"));
    let mut connection = daemon.connect();
    for _ in 0..3 {
        let chunked = format!(
            "POST /process.Process/Start HTTP/1.1\r\nhost: x\r\ncontent-type: \
             application/connect+json\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n",
            body.len()
        );
        let chunked = [chunked.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
        connection.write_all(&chunked).unwrap();
        let reply = Answer::read(connection.try_clone().unwrap()).finish();
        assert!(
            reply.body.ends_with(&envelope_of(2, b"{}")),
            "{}",
            reply.text()
        );
    }
}

#[test]
fn what_a_client_speaks_is_known_however_its_first_bytes_arrive() {
    let daemon = Daemon::launch();
    let settings_of_http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".as_slice();
    let requests = [
        (settings_of_http2, [0, 0]),
        (b"PROPFIND /health HTTP/1.1\r\nhost: x\r\n\r\n", *b"HT"),
        (b"POST /init HTTP/1.1\r\nhost: x\r\n\r\n", *b"HT"),
        (b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n", *b"HT"),
    ];
    for (request, begin) in requests {
        for cut in 1..4 {
            let mut connection = daemon.connect();
            let (first, rest) = request.split_at(cut);
            connection.write_all(first).unwrap();
            // so that the daemon has looked at them
            std::thread::sleep(Duration::from_millis(30));
            connection.write_all(rest).unwrap();
            let mut answer = [0; 2];
            connection.read_exact(&mut answer).unwrap();
            assert_eq!(answer, begin, "{:?} after {cut}", request.escape_ascii());
        }
    }
}

#[test]
fn what_is_no_call_is_refused_with_the_status_of_its_fault() {
    let daemon = Daemon::launch();
    let json = [("content-type", "application/json")];
    let stream = [("content-type", "application/connect+json")];
    for (method, target, headers, status) in [
        ("POST", "/process.Process/Nothing", &json[..], 404),
        ("POST", "/process.Process/x/List", &json, 404),
        ("POST", "/nothing.Nothing/List", &json, 404),
        ("GET", "/process.Process/List", &json, 405),
        (
            "POST",
            "/process.Process/List",
            &[("content-type", "text/plain")],
            415,
        ),
        ("POST", "/process.Process/List", &stream, 415),
        ("POST", "/process.Process/Start", &json, 415),
        (
            "POST",
            "/process.Process/List",
            &[("content-type", "application/grpc")],
            505,
        ),
        ("DELETE", "/health", &[], 405),
        ("GET", "/nowhere", &[], 404),
    ] {
        let reply = daemon.request(method, target, headers, b"{}");
        assert_eq!(reply.status, status, "{method} {target}");
    }
}

#[test]
fn a_timeout_that_is_no_number_starts_nothing() {
    let daemon = Daemon::launch();
    for timeout in ["soon", "-1", "12345678901"] {
        let headers = [("connect-timeout-ms", timeout)];
        let request = shell("touch started");
        let answer = daemon.stream_with("/process.Process/Start", &headers, &request);
        assert_eq!(
            answer.end()["error"]["code"],
            "invalid_argument",
            "{timeout}"
        );
    }
    assert!(!daemon.home().join("started").exists());
}

#[test]
fn an_unknown_user_is_named_on_every_method() {
    let daemon = Daemon::launch();
    let nobody = basic("nobody-here");
    let headers = [("authorization", nobody.as_str())];
    let (status, answer) = daemon.unary_with("/process.Process/List", &headers, &json!({}));
    assert_eq!((status, &answer["code"]), (401, &json!("unauthenticated")));
    assert_eq!(answer["message"], "invalid username: 'nobody-here'");
    let answer = daemon.stream_with("/process.Process/Start", &headers, &shell("exit 0"));
    assert_eq!(answer.end()["error"]["code"], "unauthenticated");
}

#[test]
fn browsers_of_any_origin_may_ask_before_they_have_a_token() {
    let daemon = Daemon::launch();
    daemon.init(&json!({"accessToken": "secret"}));
    let preflight = [
        ("origin", "https://example.com"),
        ("access-control-request-method", "POST"),
        (
            "access-control-request-headers",
            "x-access-token,content-type",
        ),
    ];
    let reply = daemon.request("OPTIONS", "/process.Process/List", &preflight, b"");
    assert_eq!(reply.status, 204);
    assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
    let allowed = reply.header("access-control-allow-headers");
    assert_eq!(allowed, Some("x-access-token,content-type"));
    assert_eq!(reply.header("access-control-max-age"), Some("7200"));

    let origin = [("origin", "https://example.com")];
    let refused = daemon.request("GET", "/envs", &origin, b"");
    assert_eq!(refused.status, 401);
    assert_eq!(refused.header("access-control-allow-origin"), Some("*"));
}

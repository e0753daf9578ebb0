//! agent-sandbox's `sandboxd`: files over HTTP, processes over gRPC.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};

use bytes::Bytes;
use prost::Message;
use runtime::messages::Empty;
use runtime::messages::sandboxd::{
    ExecuteRequest, ExecuteResponse, ProcessConfig, Pty, ResizeTtyRequest, SendSignalRequest,
    StartRequest, StartResponse, WriteStdinRequest,
};
use serde_json::{Value, json};

use crate::client::Reply;
use crate::daemon::{Daemon, user_ids};
use crate::grpc::{self, Outcome, Stream};
use crate::legacy::is_gone;
use crate::process::eventually;

fn command(words: &[&str]) -> ProcessConfig {
    ProcessConfig {
        command: words.iter().map(|word| (*word).to_owned()).collect(),
        ..ProcessConfig::default()
    }
}

fn shell(script: &str) -> ProcessConfig {
    command(&["sh", "-c", script])
}

async fn call(daemon: &Daemon, method: &str, request: &impl Message) -> Outcome {
    let method = format!("/process.v1.ProcessService/{method}");
    grpc::call(daemon, &method, &[], request).await
}

async fn execute(daemon: &Daemon, config: ProcessConfig) -> ExecuteResponse {
    let config = Some(config);
    let outcome = call(daemon, "Execute", &ExecuteRequest { config }).await;
    assert_eq!((&*outcome.status, &*outcome.message), ("0", ""));
    ExecuteResponse::decode(outcome.messages[0].clone()).unwrap()
}

fn text(bytes: Option<Bytes>) -> String {
    String::from_utf8(bytes.unwrap_or_default().to_vec()).unwrap()
}

/// A process that was started, and its id.
struct Running {
    id: i32,
    stream: Stream,
}

impl Running {
    async fn of(daemon: &Daemon, config: ProcessConfig, pty: Option<Pty>) -> Self {
        let config = Some(config);
        let request = StartRequest { config, pty };
        let method = "/process.v1.ProcessService/Start";
        let mut stream = grpc::open(daemon, method, &[], &request).await;
        let first = StartResponse::decode(stream.next().await.unwrap()).unwrap();
        let id = first.init.expect("the first event").process_id;
        Self { id, stream }
    }

    async fn event(&mut self) -> StartResponse {
        let event = self.stream.next().await.expect("another event");
        StartResponse::decode(event).unwrap()
    }

    /// Reads until what it wrote to stdout ends like this.
    async fn wrote(&mut self, end: &str) -> String {
        let mut written = String::new();
        while !written.ends_with(end) {
            written += &text(self.event().await.stdout);
        }
        written
    }

    /// All that it writes to stdout, and its exit code.
    async fn end(mut self) -> (String, i32) {
        let mut written = String::new();
        loop {
            let event = self.event().await;
            if let Some(exit) = event.exit {
                let outcome = self.stream.finish().await;
                assert_eq!((&*outcome.status, outcome.messages.len()), ("0", 0));
                return (written, exit.exit_code);
            }
            written += &text(event.stdout);
        }
    }

    async fn write(&self, daemon: &Daemon, input: &'static str) -> String {
        let request = WriteStdinRequest {
            process_id: self.id,
            input: Some(input.into()),
            eof: None,
        };
        call(daemon, "WriteStdin", &request).await.status
    }

    async fn close(&self, daemon: &Daemon) -> String {
        let request = WriteStdinRequest {
            process_id: self.id,
            input: None,
            eof: Some(Empty {}),
        };
        call(daemon, "WriteStdin", &request).await.status
    }

    async fn signal(&self, daemon: &Daemon, signal: i32) -> String {
        let process_id = self.id;
        let request = SendSignalRequest { process_id, signal };
        call(daemon, "SendSignal", &request).await.status
    }

    async fn resize(&self, daemon: &Daemon, cols: u32, rows: u32) -> String {
        let process_id = self.id;
        let request = ResizeTtyRequest {
            process_id,
            cols,
            rows,
        };
        call(daemon, "ResizeTTY", &request).await.status
    }
}

#[tokio::test]
async fn what_is_executed_is_answered_with_its_outputs_and_its_exit_code() {
    let daemon = Daemon::launch_sandboxd();
    let ran = execute(&daemon, shell("printf '\\377'; echo no >&2; exit 3")).await;
    assert_eq!(ran.exit_code, 3);
    assert_eq!(ran.stdout, Some(Bytes::from_static(b"\xff")));
    assert_eq!(text(ran.stderr), "no\n");
    let ran = execute(&daemon, command(&["echo", "$HOME", "a b", ";"])).await;
    assert_eq!(
        (ran.exit_code, text(ran.stdout)),
        (0, "$HOME a b ;\n".into())
    );
    let ran = execute(&daemon, shell("kill -9 $$")).await;
    assert_eq!(ran.exit_code, -1);
}

#[tokio::test]
async fn a_process_begins_in_the_root_with_the_environment_of_the_container_and_its_own() {
    let daemon = Daemon::launch_sandboxd();
    fs::create_dir(daemon.root().join("sub")).unwrap();
    let root = daemon.root().canonicalize().unwrap();
    let script = "pwd; echo $SECRET_OF_THE_DAEMON $SANDBOX_TEMPLATE $HOME; id -u; cat";
    let (uid, _) = user_ids();
    let home = daemon.home();
    let expected = format!("{}\n1 small {}\n{uid}\n", root.display(), home.display());
    assert_eq!(text(execute(&daemon, shell(script)).await.stdout), expected);
    let set = [("SANDBOX_TEMPLATE", "large"), ("HOME", "/")];
    let mut config = shell(script);
    config.env_vars = BTreeMap::from(set.map(|(name, value)| (name.into(), value.into())));
    config.cwd = Some("/sub".into());
    let expected = format!("{}/sub\n1 large /\n{uid}\n", root.display());
    assert_eq!(text(execute(&daemon, config).await.stdout), expected);
}

#[tokio::test]
async fn what_cannot_be_executed_is_refused_with_a_code() {
    let mut daemon = Daemon::launch_sandboxd();
    fs::write(daemon.root().join("file"), "").unwrap();
    symlink("/", daemon.root().join("out")).unwrap();
    let within = |cwd: &str| ProcessConfig {
        cwd: Some(cwd.into()),
        ..command(&["true"])
    };
    let named = |name: &str| ProcessConfig {
        env_vars: BTreeMap::from([(name.into(), "x".into())]),
        ..command(&["true"])
    };
    for (config, status, says) in [
        (None, "3", "no command"),
        (Some(command(&[])), "3", "no command"),
        (Some(named("")), "3", "name of a variable"),
        (Some(named("a=b")), "3", "name of a variable"),
        (Some(within("..")), "7", "leads out"),
        (Some(within("out/etc")), "7", "leads out"),
        (Some(within("file")), "13", "not a directory"),
        (Some(command(&["no-such-program"])), "13", "no-such-program"),
        (Some(command(&["a\0b"])), "13", "error starting"),
    ] {
        let outcome = call(
            &daemon,
            "Execute",
            &ExecuteRequest {
                config: config.clone(),
            },
        )
        .await;
        assert_eq!(outcome.status, status, "{config:?}: {}", outcome.message);
        assert!(outcome.message.contains(says), "{}", outcome.message);
        let pty = None;
        let outcome = call(&daemon, "Start", &StartRequest { config, pty }).await;
        assert_eq!((&*outcome.status, outcome.messages.len()), (status, 0));
    }
    daemon.assert_alive();
}

#[tokio::test]
async fn output_without_end_is_cut_off_and_costs_no_more_memory() {
    let daemon = Daemon::launch_sandboxd();
    let ran = execute(&daemon, shell("yes | head -c 100000000")).await;
    assert_eq!((ran.exit_code, ran.stdout.unwrap().len()), (0, 4 << 20));
    assert!(text(ran.stderr).contains("stdout was cut off"));
    let peak = daemon.peak_memory();
    assert!(peak < 48 << 20, "{peak} bytes");
}

#[tokio::test]
async fn a_started_process_is_written_to_and_tells_what_it_writes_and_its_end() {
    let daemon = Daemon::launch_sandboxd();
    let mut running = Running::of(&daemon, shell("cat; echo err >&2; exit 4"), None).await;
    assert_eq!(running.write(&daemon, "one ").await, "0");
    assert_eq!(running.write(&daemon, "two").await, "0");
    assert_eq!(running.wrote("one two").await, "one two");
    assert_eq!(
        running.resize(&daemon, 1, 1).await,
        "9",
        "it has no terminal"
    );
    assert_eq!(running.close(&daemon).await, "0");
    assert_eq!(running.event().await.stderr, Some("err\n".into()));
    let id = running.id;
    assert_eq!(running.end().await, (String::new(), 4));
    let signal = SendSignalRequest {
        process_id: id,
        signal: 15,
    };
    let outcome = call(&daemon, "SendSignal", &signal).await;
    assert_eq!(outcome.status, "5");
    assert_eq!(outcome.message, format!("process {id} not found"));
}

#[tokio::test]
async fn a_signal_is_for_all_that_a_process_has_started() {
    let daemon = Daemon::launch_sandboxd();
    for signal in [2, 15] {
        // a shell comes to its trap when what it waits for has ended, and that speaks when it can be ended
        let script = "trap 'exit 5' INT TERM; sh -c 'echo ready; exec sleep 600'; true";
        let mut running = Running::of(&daemon, shell(script), None).await;
        running.wrote("ready\n").await;
        assert_eq!(running.signal(&daemon, signal).await, "0");
        assert_eq!(running.end().await, (String::new(), 5), "{signal}");
    }
    let script = "sleep 600 & echo $!; wait";
    let mut running = Running::of(&daemon, shell(script), None).await;
    let child = running.wrote("\n").await;
    for unknown in [0, 1] {
        assert_eq!(running.signal(&daemon, unknown).await, "3");
    }
    assert!(!is_gone(&child));
    assert_eq!(running.signal(&daemon, 9).await, "0");
    assert_eq!(running.end().await, (String::new(), -1));
    eventually("its child is gone", || is_gone(&child));
}

#[tokio::test]
async fn a_terminal_has_a_size_that_changes_and_an_end_of_input() {
    let daemon = Daemon::launch_sandboxd();
    let script = "stty -echo; stty size; read x; stty size; cat; echo over";
    let pty = Some(Pty {
        cols: 100,
        rows: 30,
    });
    let mut running = Running::of(&daemon, shell(script), pty).await;
    assert_eq!(running.wrote("\n").await, "30 100\r\n");
    assert_eq!(running.resize(&daemon, 70, 20).await, "0");
    assert_eq!(running.write(&daemon, "\n").await, "0");
    assert_eq!(running.wrote("\n").await, "20 70\r\n");
    assert_eq!(running.close(&daemon).await, "0");
    assert_eq!(running.end().await, ("over\r\n".into(), 0));
}

// with several threads, as below: one waits while another tells the daemon that the client has left
#[tokio::test(flavor = "multi_thread")]
async fn a_process_ends_with_its_client() {
    let daemon = Daemon::launch_sandboxd();
    let script = "sleep 600 & echo $! > child; echo $!; wait";
    let mut running = Running::of(&daemon, shell(script), None).await;
    let child = running.wrote("\n").await;
    drop(running);
    eventually("its child is gone", || is_gone(&child));

    let config = Some(shell(script));
    let headers = [("grpc-timeout", "700m")];
    let method = "/process.v1.ProcessService/Execute";
    let outcome = grpc::call(&daemon, method, &headers, &ExecuteRequest { config }).await;
    assert_eq!(outcome.status, "4", "{}", outcome.message);
    let child = fs::read_to_string(daemon.root().join("child")).unwrap();
    eventually("its child is gone", || is_gone(&child));
}

fn put(daemon: &Daemon, target: &str, content: &[u8]) -> Reply {
    daemon.request("PUT", &format!("/v1/files/{target}"), &[], content)
}

fn delete(daemon: &Daemon, target: &str) -> Reply {
    daemon.request("DELETE", &format!("/v1/files/{target}"), &[], b"")
}

fn code(reply: &Reply) -> (u16, Value) {
    (reply.status, reply.json()["code"].clone())
}

#[test]
fn a_file_is_replaced_as_a_whole_with_its_mode_and_owner() {
    let daemon = Daemon::launch_sandboxd();
    let path = daemon.root().join("a/b c");
    assert_eq!(put(&daemon, "a%2Fb%20c", b"first").status, 204);
    let before = fs::metadata(&path).unwrap();
    assert_eq!((before.uid(), before.gid()), user_ids());
    assert_eq!(before.mode() & 0o7777, 0o644);
    assert_eq!(put(&daemon, "a/b%20c?mode=0750", b"second").status, 204);
    let after = fs::metadata(&path).unwrap();
    assert_ne!(after.ino(), before.ino());
    assert_eq!(after.mode() & 0o7777, 0o750);
    assert_eq!(fs::read(&path).unwrap(), b"second");
    let directory = fs::metadata(daemon.root().join("a")).unwrap();
    assert_eq!(
        (directory.uid(), directory.mode() & 0o777),
        (user_ids().0, 0o755)
    );

    let form = "--XX\r\ncontent-disposition: form-data; name=other\r\n\r\nno\r\n--XX\r\n\
        content-disposition: form-data; name=file; filename=ignored\r\n\r\nthird\r\n--XX--\r\n";
    let multipart = [("content-type", "multipart/form-data; boundary=XX")];
    let reply = daemon.request("PUT", "/v1/files/a/b%20c", &multipart, form.as_bytes());
    assert_eq!(reply.status, 204);
    assert_eq!(fs::read(&path).unwrap(), b"third");
    assert_eq!(fs::read_dir(daemon.root().join("a")).unwrap().count(), 1);
}

#[test]
fn of_an_upload_that_breaks_off_nothing_is_seen() {
    let mut daemon = Daemon::launch_sandboxd();
    assert_eq!(put(&daemon, "file", b"old").status, 204);
    let mut connection = daemon.connect();
    connection
        .write_all(b"PUT /v1/files/file HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nnew")
        .unwrap();
    let files = || fs::read_dir(daemon.root()).unwrap().count();
    eventually("the upload has begun", || files() == 2);
    assert_eq!(daemon.get("/v1/files/file").body, b"old");
    drop(connection);
    eventually("what had come is gone", || files() == 1);
    assert_eq!(fs::read(daemon.root().join("file")).unwrap(), b"old");
    daemon.assert_alive();
}

#[test]
fn a_file_is_read_whole_in_part_or_not_at_all() {
    let daemon = Daemon::launch_sandboxd();
    assert_eq!(put(&daemon, "file.json", b"0123456789").status, 204);
    let reply = daemon.get("/v1/files/file.json");
    assert_eq!((reply.status, &*reply.body), (200, &b"0123456789"[..]));
    assert_eq!(
        reply.header("content-type"),
        Some("application/octet-stream")
    );
    let range = [("range", "bytes=2-4")];
    let reply = daemon.request("GET", "/v1/files/file.json", &range, b"");
    assert_eq!((reply.status, &*reply.body), (206, &b"234"[..]));
    assert_eq!(reply.header("content-range"), Some("bytes 2-4/10"));
    for (path, status, length) in [("file.json", 200, Some("10")), ("none", 404, None)] {
        let answer = daemon.open("HEAD", &format!("/v1/files/{path}"), &[], b"");
        assert_eq!(answer.status, status);
        if length.is_some() {
            assert_eq!(answer.header("content-length"), length);
        }
    }
}

#[test]
fn large_files_pass_through_without_being_held() {
    let daemon = Daemon::launch_sandboxd();
    let content = vec![7; 96 << 20];
    assert_eq!(put(&daemon, "large", &content).status, 204);
    assert!(daemon.get("/v1/files/large").body == content);
    let peak = daemon.peak_memory();
    assert!(peak < 32 << 20, "{peak} bytes");
}

#[test]
fn a_directory_lists_what_is_in_the_root() {
    let daemon = Daemon::launch_sandboxd();
    assert_eq!(put(&daemon, "dir/b?mode=0600", b"12345").status, 204);
    fs::create_dir(daemon.root().join("dir/a")).unwrap();
    symlink("b", daemon.root().join("dir/link")).unwrap();
    symlink("/etc", daemon.root().join("dir/out")).unwrap();
    symlink("gone", daemon.root().join("dir/nowhere")).unwrap();
    let listing = daemon.get("/v1/files/dir").json();
    assert_eq!(listing["path"], "/dir");
    let entries = listing["entries"].as_array().unwrap();
    let told: Vec<_> = entries
        .iter()
        .map(|e| (&e["name"], &e["type"], &e["mode"]))
        .collect();
    let (file, directory) = (json!("file"), json!("directory"));
    let (readable, own) = (json!("0755"), json!("0600"));
    let expected = [
        (&json!("a"), &directory, &readable),
        (&json!("b"), &file, &own),
        (&json!("link"), &file, &own),
    ];
    assert_eq!(told, expected);
    assert_eq!(entries[1]["size"], 5);
    let modified = fs::metadata(daemon.root().join("dir/b")).unwrap().mtime();
    let modified = chrono::DateTime::from_timestamp(modified, 0).unwrap();
    let modified = modified.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    assert_eq!(entries[1]["modified_at"], modified);
    assert_eq!(daemon.get("/v1/files/").json()["entries"][0]["name"], "dir");
}

#[test]
fn a_directory_that_is_not_empty_is_removed_only_as_a_whole() {
    let daemon = Daemon::launch_sandboxd();
    let left = || fs::read_dir(daemon.root()).unwrap().count();
    assert_eq!(put(&daemon, "dir/file", b"x").status, 204);
    symlink("dir", daemon.root().join("link")).unwrap();
    assert_eq!(code(&delete(&daemon, "dir")), (409, json!("CONFLICT")));
    assert_eq!(
        code(&delete(&daemon, "dir?recursive=maybe")),
        (400, json!("INVALID_ARGUMENT"))
    );
    assert_eq!(code(&delete(&daemon, "none")), (404, json!("NOT_FOUND")));
    assert_eq!(delete(&daemon, "link?recursive=true").status, 204);
    assert!(
        daemon.root().join("dir/file").exists(),
        "only the link is gone"
    );
    assert_eq!(delete(&daemon, "dir/file").status, 204);
    assert_eq!(delete(&daemon, "dir").status, 204);
    assert_eq!(left(), 0);
    assert_eq!(put(&daemon, "a/b", b"x").status, 204);
    assert_eq!(put(&daemon, "c", b"x").status, 204);
    assert_eq!(delete(&daemon, "a?recursive=true").status, 204);
    assert_eq!(left(), 1);
    assert_eq!(code(&delete(&daemon, "")), (409, json!("CONFLICT")));
    assert_eq!(delete(&daemon, "%2F?recursive=true").status, 204);
    assert_eq!(left(), 0, "the root itself stays");
}

#[test]
fn what_is_not_understood_or_leads_out_is_refused_with_a_code() {
    let mut daemon = Daemon::launch_sandboxd();
    let outside = daemon.home();
    fs::write(outside.join("secret"), "secret").unwrap();
    symlink(&outside, daemon.root().join("link")).unwrap();
    fs::create_dir(daemon.root().join("dir")).unwrap();
    for (method, target, status, code) in [
        (
            "GET",
            "/v1/files/..%2Fhome%2Fsecret",
            403,
            "PERMISSION_DENIED",
        ),
        ("GET", "/v1/files/%2E%2E", 403, "PERMISSION_DENIED"),
        ("GET", "/v1/files/link%2Fsecret", 403, "PERMISSION_DENIED"),
        ("PUT", "/v1/files/link%2Fnew", 403, "PERMISSION_DENIED"),
        ("PUT", "/v1/files/..%2Fhome%2Fnew", 403, "PERMISSION_DENIED"),
        (
            "DELETE",
            "/v1/files/link%2Fsecret",
            403,
            "PERMISSION_DENIED",
        ),
        ("GET", "/v1/files/none", 404, "NOT_FOUND"),
        ("GET", "/v1/files/a%00b", 400, "INVALID_ARGUMENT"),
        ("GET", "/v1/files/%FF", 400, "INVALID_ARGUMENT"),
        ("PUT", "/v1/files/dir", 400, "INVALID_ARGUMENT"),
        ("PUT", "/v1/files/", 400, "INVALID_ARGUMENT"),
        ("PUT", "/v1/files/x?mode=644", 400, "INVALID_ARGUMENT"),
        ("PUT", "/v1/files/x?mode=0888", 400, "INVALID_ARGUMENT"),
        ("PUT", "/v1/files/x?mode=04755", 400, "INVALID_ARGUMENT"),
        ("GET", "/v1/none", 404, "NOT_FOUND"),
    ] {
        let reply = daemon.request(method, target, &[], b"x");
        assert_eq!(
            (reply.status, &reply.json()["code"]),
            (status, &json!(code)),
            "{method} {target}"
        );
        assert_ne!(reply.message(), "");
    }
    let names = fs::read_dir(&outside).unwrap();
    assert_eq!(names.count(), 1, "nothing is written or removed outside");
    for (method, target) in [
        ("POST", "/v1/files/x"),
        ("POST", "/v1/health"),
        ("GET", "/process.v1.ProcessService/Start"),
    ] {
        assert_eq!(
            daemon.request(method, target, &[], b"").status,
            405,
            "{target}"
        );
    }
    let form = [("content-type", "multipart/form-data; boundary=XX")];
    let reply = daemon.request("PUT", "/v1/files/x", &form, b"--XX--\r\n");
    assert_eq!(reply.status, 400);
    assert!(!daemon.root().join("x").exists());
    daemon.assert_alive();
}

#[test]
fn metadata_is_what_the_template_says_without_what_may_be_secret() {
    let daemon = Daemon::launch_sandboxd();
    let metadata = daemon.get("/v1/metadata").json();
    assert_eq!(metadata["env"]["SANDBOX_TEMPLATE"], "small");
    assert_eq!(metadata["env"].get("SANDBOX_API_KEY"), None);
    let names = metadata["env"].as_object().unwrap().keys();
    assert!(names.into_iter().all(|name| name.starts_with("SANDBOX_")));
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_for_everyone_until_the_daemon_is_told_to_stop() {
    let mut daemon = Daemon::launch_sandboxd();
    daemon.init(&json!({"accessToken": "secret"}));
    let healthy = daemon.get("/v1/health");
    assert_eq!(
        (healthy.status, &healthy.json()["status"]),
        (200, &json!("ok"))
    );
    assert!(healthy.json()["uptime_seconds"].is_u64());
    assert_eq!(
        code(&daemon.get("/v1/files/")),
        (401, json!("UNAUTHENTICATED"))
    );

    // who does not listen keeps it from ending at once
    let config = Some(shell("trap '' TERM; echo ready; sleep 600"));
    let headers = [("x-access-token", "secret")];
    let method = "/process.v1.ProcessService/Start";
    let request = StartRequest { config, pty: None };
    let stream = grpc::open(&daemon, method, &headers, &request).await;
    let mut running = Running { id: 0, stream };
    running.wrote("ready\n").await;
    daemon.tell_to_stop();
    eventually("it is not healthy any more", || {
        code(&daemon.get("/v1/health")) == (503, json!("UNAVAILABLE"))
    });
    drop(running);
    assert!(daemon.terminate().success());
}

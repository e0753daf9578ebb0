//! The older runtime API of agent-sandbox.

use std::fs;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::{MetadataExt, symlink};

use serde_json::{Value, json};

use crate::client::{Answer, Reply};
use crate::daemon::{Daemon, user_ids};
use crate::process::eventually;

const MULTIPART: (&str, &str) = ("content-type", "multipart/form-data; boundary=XX");

fn execute(daemon: &Daemon, request: &Value) -> Value {
    let body = request.to_string();
    let reply = daemon.request("POST", "/execute", &[], body.as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

fn run(daemon: &Daemon, command: &str) -> Value {
    execute(daemon, &json!({"command": command}))
}

fn form(name: &str, filename: &str, content: &[u8]) -> Vec<u8> {
    let head = format!(
        "--XX\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{filename}\"\r\n\r\n"
    );
    [head.as_bytes(), content, b"\r\n--XX--\r\n"].concat()
}

fn upload(daemon: &Daemon, filename: &str, content: &[u8]) -> Reply {
    let body = form("file", filename, content);
    daemon.request("POST", "/upload", &[MULTIPART], &body)
}

/// Whether a process is no more, reaped or not.
pub(crate) fn is_gone(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

#[test]
fn a_command_is_words_and_no_shell_and_runs_in_the_root() {
    let daemon = Daemon::launch_legacy();
    let ran = run(&daemon, r#"printf '%s|' 'a b' "c\"d" $HOME ';' pwd *"#);
    let expected = json!({
        "stdout": "a b|c\"d|$HOME|;|pwd|*|", "stderr": "", "exit_code": 0, "timed_out": false,
    });
    assert_eq!(ran, expected);
    let root = daemon.root().canonicalize().unwrap();
    let pwd = format!("{}\n", root.display());
    assert_eq!(run(&daemon, "pwd")["stdout"], pwd);
}

#[test]
fn a_command_is_of_the_default_user_and_has_the_environment_of_the_container() {
    let daemon = Daemon::launch_legacy();
    daemon.init(&json!({"envVars": {"SET": "by init"}}));
    let script = "sh -c 'echo $SECRET_OF_THE_DAEMON $SET; id -u; echo $HOME; cat; touch made'";
    let home = daemon.home();
    let (uid, _) = user_ids();
    let expected = format!("1 by init\n{uid}\n{}\n", home.display());
    assert_eq!(run(&daemon, script)["stdout"], expected);
    let made = fs::metadata(daemon.root().join("made")).unwrap();
    assert_eq!(made.uid(), uid);
}

#[test]
fn a_failure_is_an_exit_code_and_never_an_error_of_the_request() {
    let daemon = Daemon::launch_legacy();
    for (command, code, says) in [
        ("sh -c 'echo no >&2; exit 7'", 7, "no\n"),
        ("sh -c 'kill -9 $$'", -9, ""),
        ("no-such-program x", 1, "'no-such-program'"),
        ("echo 'open", 1, "a quote that is not closed"),
        ("", 1, "empty"),
        ("echo a\0b", 1, ""),
    ] {
        let ran = run(&daemon, command);
        assert_eq!(ran["exit_code"], code, "{command}: {ran}");
        let stderr = ran["stderr"].as_str().unwrap();
        assert!(stderr.contains(says), "{command}: {stderr}");
    }
}

#[test]
fn a_command_that_takes_too_long_is_killed_with_all_that_it_started() {
    let daemon = Daemon::launch_legacy();
    let command = "sh -c 'sleep 600 & echo $!; wait'";
    let ran = execute(
        &daemon,
        &json!({"command": command, "timeout_seconds": 2.5}),
    );
    assert_eq!(
        (&ran["exit_code"], &ran["timed_out"]),
        (&json!(124), &json!(true))
    );
    assert!(
        ran["stderr"]
            .as_str()
            .unwrap()
            .contains("longer than 2.5 seconds"),
        "{ran}"
    );
    let started = ran["stdout"].as_str().unwrap();
    assert_ne!(started, "", "what it wrote before is told");
    eventually("its child is gone", || is_gone(started));
}

/// A client that does not wait for the answer.
fn execute_and_leave(daemon: &Daemon, request: &Value, until: &str) {
    let body = request.to_string();
    let length = body.len();
    let head = format!("POST /execute HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    let mut connection = daemon.connect();
    connection.write_all(head.as_bytes()).unwrap();
    connection.write_all(body.as_bytes()).unwrap();
    eventually("the command has begun", || {
        fs::read_to_string(daemon.root().join(until)).is_ok_and(|text| text.ends_with('\n'))
    });
}

#[test]
fn a_command_goes_on_without_its_client_until_its_time_is_over() {
    let daemon = Daemon::launch_legacy();
    let command = "sh -c 'echo > begun; sleep 1; touch done'";
    execute_and_leave(&daemon, &json!({"command": command}), "begun");
    eventually("the command is done", || {
        daemon.root().join("done").exists()
    });
    let command = "sh -c 'sleep 600 & echo $! > child; wait'";
    let request = json!({"command": command, "timeout_seconds": 2});
    execute_and_leave(&daemon, &request, "child");
    let child = fs::read_to_string(daemon.root().join("child")).unwrap();
    assert!(!is_gone(&child));
    eventually("its time is over", || is_gone(&child));
}

#[test]
fn output_without_end_is_cut_off_and_costs_no_more_memory() {
    let daemon = Daemon::launch_legacy();
    let ran = run(&daemon, "sh -c 'yes | head -c 100000000; echo last >&2'");
    assert_eq!(ran["exit_code"], 0);
    assert_eq!(ran["stdout"].as_str().unwrap().len(), 4 << 20);
    assert_eq!(
        ran["stderr"],
        "last\n\nstdout was cut off after 4194304 bytes\n"
    );
    let peak = daemon.peak_memory();
    assert!(peak < 48 << 20, "{peak} bytes");
}

#[test]
fn a_command_does_not_wait_for_ever_for_those_it_left_behind() {
    let daemon = Daemon::launch_legacy();
    let ran = run(&daemon, "sh -c 'sleep 600 & echo $!'");
    assert_eq!(
        (&ran["exit_code"], &ran["timed_out"]),
        (&json!(0), &json!(false))
    );
    let left = ran["stdout"].as_str().unwrap();
    assert!(!is_gone(left), "it goes on");
    run(&daemon, &format!("kill {left}"));
}

#[test]
fn a_file_comes_back_as_it_was_and_is_listed() {
    let daemon = Daemon::launch_legacy();
    let content: Vec<u8> = (0..=255).collect();
    let reply = upload(&daemon, "a/b c.bin", &content);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(reply.message().contains("a/b c.bin"));
    let path = daemon.root().join("a/b c.bin");
    assert_eq!(fs::read(&path).unwrap(), content);
    for made in [daemon.root(), daemon.root().join("a"), path] {
        let found = fs::metadata(&made).unwrap();
        assert_eq!((found.uid(), found.gid()), user_ids(), "{}", made.display());
    }
    let reply = daemon.get("/download/a%2Fb%20c.bin");
    assert_eq!((reply.status, &reply.body), (200, &content));
    assert_eq!(
        reply.header("content-type"),
        Some("application/octet-stream")
    );
    assert_eq!(daemon.get("/download/a/b%20c.bin").body, content);

    fs::create_dir(daemon.root().join("a/sub")).unwrap();
    let listed = daemon.get("/list/a").json();
    let named: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|e| (&e["name"], &e["type"]))
        .collect();
    let expected = [
        (&json!("b c.bin"), &json!("file")),
        (&json!("sub"), &json!("directory")),
    ];
    assert_eq!(named, expected);
    assert_eq!(listed[0]["size"], 256);
    let modified = fs::metadata(daemon.root().join("a/b c.bin")).unwrap();
    let told = listed[0]["mod_time"].as_f64().unwrap();
    let exactly = modified.mtime() as f64 + modified.mtime_nsec() as f64 / 1e9;
    assert!((told - exactly).abs() < 1e-3, "{told} is not {exactly}");

    for (path, exists) in [
        ("a%2Fsub", true),
        ("a%2Fnone", false),
        ("a%2Fb%20c.bin%2Fx", false),
    ] {
        let reply = daemon.get(&format!("/exists/{path}"));
        assert_eq!(
            (reply.status, &reply.json()["exists"]),
            (200, &json!(exists)),
            "{path}"
        );
    }
    assert_eq!(daemon.get("/exists/a%2Fsub").json()["path"], "a/sub");
}

#[test]
fn large_files_pass_through_without_being_held() {
    let daemon = Daemon::launch_legacy();
    let content = vec![7; 96 << 20];
    assert_eq!(upload(&daemon, "large", &content).status, 200);
    assert_eq!(
        fs::metadata(daemon.root().join("large")).unwrap().len(),
        96 << 20
    );
    assert!(daemon.get("/download/large").body == content);
    let peak = daemon.peak_memory();
    assert!(peak < 32 << 20, "{peak} bytes");
}

#[test]
fn no_path_leads_out_of_the_root() {
    let daemon = Daemon::launch_legacy();
    let outside = daemon.home();
    fs::write(outside.join("secret"), "secret").unwrap();
    symlink(&outside, daemon.root().join("link")).unwrap();
    symlink(outside.join("new"), daemon.root().join("dangling")).unwrap();
    for path in [
        "..%2Fhome%2Fsecret",
        "link%2Fsecret",
        "a%2F..%2F..%2Fhome",
        "link",
    ] {
        for endpoint in ["download", "list", "exists"] {
            let reply = daemon.get(&format!("/{endpoint}/{path}"));
            assert_eq!(reply.status, 403, "{endpoint} {path}: {}", reply.text());
            assert!(reply.message().contains("leads out"), "{}", reply.text());
        }
    }
    for name in ["../home/new", "link/new", "dangling"] {
        assert_eq!(upload(&daemon, name, b"x").status, 403, "{name}");
        assert!(!outside.join("new").exists(), "{name}");
    }
    assert_eq!(daemon.get("/list/").json(), json!([]));
    // a path from the top is one from the root
    assert_eq!(daemon.get("/download/%2Fetc%2Fpasswd").status, 404);
    assert_eq!(upload(&daemon, "/top", b"x").status, 200);
    assert!(daemon.root().join("top").exists());
}

#[test]
fn what_is_not_understood_is_refused_and_the_daemon_lives_on() {
    let mut daemon = Daemon::launch_legacy();
    fs::write(daemon.root().join("file"), "").unwrap();
    fs::create_dir(daemon.root().join("dir")).unwrap();
    let no_file = form("other", "x", b"x");
    let unnamed = form("file", "", b"x");
    let cut = &form("file", "cut", b"x")[..40];
    for (method, target, headers, body, status) in [
        ("POST", "/execute", &[][..], &b"{"[..], 422),
        ("POST", "/execute", &[], b"{}", 422),
        ("POST", "/execute", &[], br#"{"command": 1}"#, 422),
        (
            "POST",
            "/execute",
            &[],
            br#"{"command": "true", "timeout_seconds": -1}"#,
            422,
        ),
        (
            "POST",
            "/execute",
            &[],
            br#"{"command": "true", "timeout_seconds": 0}"#,
            422,
        ),
        (
            "POST",
            "/execute",
            &[],
            br#"{"command": "true", "timeout_seconds": 1e300}"#,
            422,
        ),
        ("GET", "/execute", &[], b"", 405),
        ("POST", "/upload", &[], b"x", 422),
        (
            "POST",
            "/upload",
            &[("content-type", "multipart/form-data")],
            b"x",
            400,
        ),
        ("POST", "/upload", &[MULTIPART], &no_file, 422),
        ("POST", "/upload", &[MULTIPART], &unnamed, 422),
        ("POST", "/upload", &[MULTIPART], cut, 400),
        (
            "POST",
            "/upload",
            &[MULTIPART],
            &form("file", "dir", b"x"),
            400,
        ),
        ("PUT", "/upload", &[], b"", 405),
        ("GET", "/download/none", &[], b"", 404),
        ("GET", "/download/dir", &[], b"", 404),
        ("GET", "/download/file%2Fx", &[], b"", 404),
        ("GET", "/download/%FF", &[], b"", 400),
        ("GET", "/download/a%00b", &[], b"", 400),
        ("POST", "/download/file", &[], b"", 405),
        ("GET", "/list/none", &[], b"", 404),
        ("GET", "/list/file", &[], b"", 404),
        ("GET", "/execute/x", &[], b"", 404),
        ("POST", "/agent", &[], b"{}", 404),
        ("POST", "/", &[], b"", 405),
    ] {
        let reply = daemon.request(method, target, headers, body);
        let text = reply.text();
        assert_eq!(reply.status, status, "{method} {target}: {text}");
        assert_ne!(reply.message(), "", "{method} {target}");
    }
    assert!(!daemon.root().join("cut").exists());
    assert_eq!(run(&daemon, "true")["exit_code"], 0);
    daemon.assert_alive();
}

#[test]
fn an_upload_that_breaks_off_harms_nobody() {
    let mut daemon = Daemon::launch_legacy();
    let mut connection: TcpStream = daemon.connect();
    let head = format!(
        "POST /upload HTTP/1.1\r\nhost: x\r\n{}: {}\r\ncontent-length: 1000\r\n\r\n",
        MULTIPART.0, MULTIPART.1
    );
    connection.write_all(head.as_bytes()).unwrap();
    connection
        .write_all(&form("file", "half", b"x")[..75])
        .unwrap();
    connection.shutdown(Shutdown::Write).unwrap();
    drop(connection);
    assert_eq!(upload(&daemon, "whole", b"x").status, 200);
    daemon.assert_alive();
}

#[test]
fn whoever_has_set_a_token_is_asked_for_it_here_too() {
    let daemon = Daemon::launch_legacy();
    daemon.init(&json!({"accessToken": "secret"}));
    let body = json!({"command": "touch made"}).to_string();
    let execute = |token| {
        let headers = [("x-access-token", token)];
        let connection = daemon.open("POST", "/execute", &headers, body.as_bytes());
        Answer::finish(connection).status
    };
    assert_eq!(execute("wrong"), 401);
    assert_eq!(daemon.get("/list/").status, 401);
    assert!(!daemon.root().join("made").exists());
    assert_eq!(execute("secret"), 200);
    assert!(daemon.root().join("made").exists());
    let probe = daemon.get("/");
    assert_eq!((probe.status, &probe.json()["status"]), (200, &json!("ok")));
}

#[test]
fn nothing_of_it_is_there_unless_it_is_asked_for() {
    let daemon = Daemon::launch();
    let body = json!({"command": "true"}).to_string();
    let reply = daemon.request("POST", "/execute", &[], body.as_bytes());
    assert_eq!(reply.status, 404);
    let sockets = fs::read_to_string(format!("/proc/{}/net/tcp", daemon.pid())).unwrap();
    let listening = sockets.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields[3] == "0A").then(|| format!("socket:[{}]", fields[9]))
    });
    let listening: Vec<String> = listening.collect();
    let open = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
    let links = open.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    let own = links.filter(|link| listening.iter().any(|socket| link.as_os_str() == &**socket));
    assert_eq!(own.count(), 1);
}

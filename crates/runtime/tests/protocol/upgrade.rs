//! A daemon that is replaced while it is in use.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Answer, Running, decode, encode, shell};
use crate::daemon::{Daemon, PROGRAM, wait_until};

pub(crate) const TOKEN: [(&str, &str); 1] = [("x-access-token", "secret")];

/// One that has had its `/init`, with a token.
pub(crate) fn launch() -> Daemon {
    let daemon = Daemon::launch();
    let init =
        json!({"accessToken": "secret", "envVars": {"WORD": "hello"}, "defaultUser": "user"});
    assert_eq!(daemon.init(&init).status, 204);
    daemon
}

/// Sends the program, or nothing; there is no answer if it was taken over.
pub(crate) fn upgrade(daemon: &Daemon, program: &[u8]) {
    let mut connection = TcpStream::connect(daemon.envd).unwrap();
    let head = format!(
        "POST /upgrade HTTP/1.1\r\nhost: sandbox\r\nx-access-token: secret\r\ncontent-length: {}\r\n\r\n",
        program.len()
    );
    connection.write_all(head.as_bytes()).unwrap();
    connection.write_all(program).unwrap();
    let mut answer = String::new();
    // that it is reset is as good as that it ends
    let _ = connection.read_to_string(&mut answer);
    assert_eq!(answer, "", "the daemon was not replaced");
}

pub(crate) fn program() -> Vec<u8> {
    std::fs::read(PROGRAM).unwrap()
}

pub(crate) fn start(daemon: &Daemon, request: &Value) -> Running {
    daemon.start_with_request(&TOKEN, request)
}

pub(crate) fn join(daemon: &Daemon, selector: &Value) -> Running {
    daemon.start_by(
        "/process.Process/Connect",
        &TOKEN,
        &json!({"process": selector}),
    )
}

pub(crate) fn call(daemon: &Daemon, method: &str, message: &Value) -> Value {
    let (status, answer) = daemon.unary_with(method, &TOKEN, message);
    assert_eq!(status, 200, "{method}: {answer}");
    answer
}

/// What a stream tells until the daemon that serves it leaves.
pub(crate) fn until_told_to_come_again(mut events: Answer) -> String {
    let mut text = String::new();
    loop {
        let (flags, message) = events.envelope();
        if flags == 2 {
            assert_eq!(message["error"]["code"], "unavailable", "{message}");
            return text;
        }
        text += &decode(&message["event"]["data"]["stdout"]);
        text += &decode(&message["event"]["data"]["pty"]);
    }
}

/// A connection on which the ten bytes of a file are to follow.
pub(crate) fn begin_upload(daemon: &Daemon, path: &str) -> TcpStream {
    let mut upload = daemon.connect();
    let head = format!(
        "POST /files?path={path} HTTP/1.1\r\nhost: sandbox\r\nx-access-token: secret\r\n\
         content-type: application/octet-stream\r\ncontent-length: 10\r\n\r\n"
    );
    upload.write_all(head.as_bytes()).unwrap();
    upload
}

#[test]
fn what_runs_goes_on_in_the_same_process_with_its_input_output_tag_and_time() {
    let daemon = launch();
    let mut request = shell("echo begun; read word; echo $WORD $word; echo no >&2; exit 5");
    request["tag"] = json!("mine");
    let mut reads = start(&daemon, &request);
    assert_eq!(reads.stdout(), "begun\n");
    let slow = shell("sleep 100");
    let limit = [TOKEN[0], ("connect-timeout-ms", "15000")];
    let ends = daemon.start_with_request(&limit, &slow);
    for program in [Vec::new(), program()] {
        upgrade(&daemon, &program);
    }
    let runs = std::fs::read_link(format!("/proc/{}/exe", daemon.pid())).unwrap();
    assert!(
        runs.starts_with("/memfd:sandbar-runtime (deleted)"),
        "{runs:?}"
    );
    assert_eq!(until_told_to_come_again(reads.events), "");
    let list = call(&daemon, "/process.Process/List", &json!({}));
    let pids: Vec<_> = list["processes"].as_array().unwrap().iter().collect();
    assert_eq!(pids.len(), 2, "{list}");
    let again = join(&daemon, &json!({"tag": "mine"}));
    assert_eq!(again.pid, reads.pid);
    let killed = join(&daemon, &json!({"pid": ends.pid}));
    let input = json!({"process": {"tag": "mine"}, "input": {"stdin": encode("world\n")}});
    call(&daemon, "/process.Process/SendInput", &input);
    let ran = again.finish();
    assert_eq!((&*ran.stdout, &*ran.stderr), ("hello world\n", "no\n"));
    assert_eq!(ran.end["exitCode"], 5);
    assert_eq!(killed.finish().end["status"], "signal: killed");
    let outcome = call(&daemon, "/sandbar.Once/Outcome", &json!({"tag": "mine"}));
    assert_eq!(decode(&outcome["stdout"]["last"]), "begun\nhello world\n");
    assert_eq!(decode(&outcome["stderr"]["last"]), "no\n");
}

#[test]
fn a_client_that_comes_back_in_time_misses_nothing_and_hears_nothing_twice() {
    let daemon = launch();
    let go = daemon.path("stop");
    let script = format!("i=0; while [ ! -e {go} ]; do i=$((i+1)); echo $i; done; echo end");
    let mut running = start(&daemon, &shell(&script));
    let pid = running.pid;
    let mut text = String::new();
    for _ in 0..3 {
        upgrade(&daemon, b"");
        text += &until_told_to_come_again(running.events);
        running = join(&daemon, &json!({"pid": pid}));
    }
    std::fs::write(&go, "").unwrap();
    text += &running.finish().stdout;
    let lines: Vec<&str> = text.lines().collect();
    let (last, numbers) = lines.split_last().unwrap();
    assert_eq!(*last, "end");
    assert!(numbers.len() > 100, "{}", numbers.len());
    for (index, number) in numbers.iter().enumerate() {
        assert_eq!(*number, (index + 1).to_string());
    }
}

#[test]
fn what_nobody_comes_back_for_goes_on_all_the_same() {
    let daemon = launch();
    let done = daemon.path("done");
    // more than a pipe holds
    let script = format!("sleep 0.5; head -c 1000000 /dev/zero; echo > {done}");
    drop(start(&daemon, &shell(&script)));
    upgrade(&daemon, b"");
    wait_until("it is done", || std::fs::exists(&done).unwrap());
}

#[test]
fn terminals_keep_their_programs_and_their_size() {
    let daemon = launch();
    let mut request = shell("stty -echo; read a; stty size; read b; stty size; exit 7");
    request["pty"] = json!({"size": {"cols": 101, "rows": 33}});
    let running = start(&daemon, &request);
    let selector = json!({"pid": running.pid});
    upgrade(&daemon, b"");
    let again = join(&daemon, &selector);
    let enter = json!({"process": selector, "input": {"pty": encode("\n")}});
    call(&daemon, "/process.Process/SendInput", &enter);
    let resize = json!({"process": selector, "pty": {"size": {"cols": 40, "rows": 20}}});
    call(&daemon, "/process.Process/Update", &resize);
    call(&daemon, "/process.Process/SendInput", &enter);
    let ran = again.finish();
    assert_eq!(ran.end["exitCode"], 7);
    assert!(ran.pty.contains("20 40"), "{}", ran.pty);
}

#[test]
fn a_watcher_tells_what_happened_before_while_and_after_the_daemon_was_replaced() {
    let daemon = launch();
    let watch = json!({"path": daemon.path(""), "recursive": true, "includeEntry": true});
    let id = call(&daemon, "/filesystem.Filesystem/CreateWatcher", &watch)["watcherId"].clone();
    std::fs::create_dir(daemon.path("dir")).unwrap();
    // so that what follows is in a directory that is watched
    let ask = json!({"watcherId": id});
    call(&daemon, "/filesystem.Filesystem/GetWatcherEvents", &ask);
    std::fs::write(daemon.path("dir/before"), "").unwrap();
    upgrade(&daemon, b"");
    std::fs::write(daemon.path("dir/after"), "").unwrap();
    let told = call(&daemon, "/filesystem.Filesystem/GetWatcherEvents", &ask);
    let created: Vec<&str> = told["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["type"] == "EVENT_TYPE_CREATE" && event.get("entry").is_some())
        .map(|event| event["name"].as_str().unwrap())
        .collect();
    assert_eq!(created, ["dir/before", "dir/after"]);
}

#[test]
fn an_upload_under_way_is_finished_first_and_nobody_who_connects_is_refused() {
    let daemon = launch();
    let path = daemon.path("uploaded");
    let mut upload = begin_upload(&daemon, &path);
    upload.write_all(b"first").unwrap();
    wait_until("the upload begins", || std::fs::exists(&path).unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    // several, so that one is always just being accepted
    let visitors = [(); 4].map(|()| {
        let (address, stopped) = (daemon.address, Arc::clone(&stop));
        std::thread::spawn(move || visit_until(&stopped, address))
    });
    std::thread::scope(|scope| {
        scope.spawn(|| upgrade(&daemon, b""));
        std::thread::sleep(Duration::from_millis(300));
        upload.write_all(b"other").unwrap();
        assert_eq!(Answer::read(upload).status, 200);
    });
    assert_eq!(daemon.read("uploaded"), b"firstother");
    for _ in 0..9 {
        upgrade(&daemon, b"");
    }
    stop.store(true, Ordering::Relaxed);
    for visitor in visitors {
        assert!(visitor.join().unwrap() > 0);
    }
}

/// How many visits there were, each answered.
fn visit_until(stopped: &AtomicBool, address: SocketAddr) -> usize {
    let mut visits = 0;
    while !stopped.load(Ordering::Relaxed) {
        let mut connection = TcpStream::connect(address).unwrap();
        connection
            .write_all(b"GET /health HTTP/1.1\r\nhost: sandbox\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
        visits += 1;
    }
    visits
}

/// A program that runs for ever and says nothing: one instruction, that jumps to itself.
fn silent() -> Vec<u8> {
    let (machine, jump): (u16, [u8; 4]) = if cfg!(target_arch = "aarch64") {
        (183, [0, 0, 0, 0x14])
    } else {
        (62, [0xeb, 0xfe, 0, 0])
    };
    let (headers, at) = (64 + 56, 0x1_0000_u64);
    let mut program = b"\x7fELF\x02\x01\x01".to_vec();
    program.resize(16, 0);
    for half in [2, machine, 1, 0] {
        program.extend(half.to_le_bytes());
    }
    for word in [at + headers, 64, 0] {
        program.extend(word.to_le_bytes());
    }
    for half in [0_u16, 0, 64, 56, 1, 0, 0, 0] {
        program.extend(half.to_le_bytes());
    }
    // one segment, to be loaded, read and run: all of the file
    for word in [1_u32, 5] {
        program.extend(word.to_le_bytes());
    }
    for word in [0, at, at, headers + 4, headers + 4, 0x1000] {
        program.extend(word.to_le_bytes());
    }
    program.extend(jump);
    program
}

#[test]
fn a_program_that_cannot_take_over_leaves_the_old_one_serving() {
    let daemon = launch();
    let running = start(&daemon, &shell("read word; echo $word"));
    let broken = [
        b"this is no program".to_vec(),
        program()[..100_000].to_vec(),
        silent(),
    ];
    for program in broken {
        let refused = daemon.request("POST", "/upgrade", &TOKEN, &program);
        assert_eq!(refused.status, 500, "{}", refused.text());
        assert!(refused.message().contains("goes on"), "{}", refused.text());
    }
    wait_until("none of them is left", || {
        let children = format!("/proc/{0}/task/{0}/children", daemon.pid());
        std::fs::read_to_string(children).unwrap().trim() == running.pid.to_string()
    });
    let input = json!({"process": running.selector(), "input": {"stdin": encode("still\n")}});
    call(&daemon, "/process.Process/SendInput", &input);
    assert_eq!(
        running.finish().stdout,
        "still\n",
        "its stream was not even ended"
    );
}

#[test]
fn only_who_may_and_only_what_is_said_in_the_right_way_replaces_the_daemon() {
    let fresh = Daemon::launch();
    assert_eq!(fresh.request("POST", "/upgrade", &[], b"").status, 409);
    let daemon = launch();
    assert_eq!(daemon.request("POST", "/upgrade", &[], b"").status, 401);
    let elsewhere = [TOKEN[0], ("x-envd-upgrade-bin", "/bin/sh")];
    assert_eq!(
        daemon.request("POST", "/upgrade", &elsewhere, b"").status,
        400
    );
    assert_eq!(daemon.request("GET", "/upgrade", &TOKEN, b"").status, 405);
    upgrade(&daemon, b"");
    assert_eq!(daemon.request("GET", "/envs", &[], b"").status, 401);
    let envs = daemon.request("GET", "/envs", &TOKEN, b"").json();
    assert_eq!(envs["WORD"], "hello");
}

#[test]
fn other_ports_of_the_daemon_are_taken_over_and_what_is_asked_there_is_finished_first() {
    let mut daemon = Daemon::launch_legacy();
    let legacy = std::mem::replace(&mut daemon.address, daemon.envd);
    assert_eq!(daemon.init(&json!({"accessToken": "secret"})).status, 204);
    daemon.address = legacy;
    let (begun, go) = (daemon.path("begun"), daemon.path("go"));
    let script = format!("echo > {begun}; while [ ! -e {go} ]; do sleep 0.01; done; echo done");
    let command = json!({"command": format!("sh -c '{script}'")}).to_string();
    let json = [TOKEN[0], ("content-type", "application/json")];
    let execute = || {
        daemon
            .request("POST", "/execute", &json, command.as_bytes())
            .json()
    };
    std::thread::scope(|scope| {
        let asked = scope.spawn(execute);
        wait_until("the command runs", || std::fs::exists(&begun).unwrap());
        let upgrading = scope.spawn(|| upgrade(&daemon, b""));
        std::thread::sleep(Duration::from_millis(300));
        std::fs::write(&go, "").unwrap();
        assert_eq!(asked.join().unwrap()["stdout"], "done\n");
        upgrading.join().unwrap();
    });
    assert_eq!(execute()["stdout"], "done\n");
}

//! A daemon that is the first process in an image with nothing in it: no users, no shell, no `/tmp`, `/dev` and `/proc`.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::{Value, json};

use crate::client::{Ran, Running, decode, shell};
use crate::daemon::{Daemon, wait_until};

const OCTETS: [(&str, &str); 1] = [("content-type", "application/octet-stream")];

fn launch() -> Option<Daemon> {
    geteuid().is_root().then(Daemon::launch_in_nothing)
}

/// The only program there is: the daemon's own.
fn program(args: &[&str]) -> Value {
    json!({"process": {"cmd": "/program", "args": args}, "stdin": false})
}

fn run(daemon: &Daemon, args: &[&str]) -> Ran {
    daemon.start_with_request(&[], &program(args)).finish()
}

#[test]
fn health_init_and_files_need_nothing() {
    let Some(mut daemon) = launch() else {
        return;
    };
    assert_eq!(daemon.get("/health").status, 204);
    assert_eq!(daemon.init(&json!({"envVars": {"A": "b"}})).status, 204);
    assert_eq!(daemon.get("/envs").json()["A"], "b");
    assert_eq!(daemon.get("/metrics").status, 200);

    let put = daemon.request("POST", "/files?path=new/f", &OCTETS, b"hello");
    assert_eq!(
        (put.status, &put.json()[0]["path"]),
        (200, &json!("/new/f"))
    );
    assert_eq!(fs::read(daemon.root().join("new/f")).unwrap(), b"hello");
    assert_eq!(daemon.get("/files?path=/new/f").text(), "hello");
    let listed = daemon.call("/filesystem.Filesystem/ListDir", &json!({"path": "/new"}));
    assert_eq!(listed["entries"][0]["owner"], "0");

    let made = daemon.call(
        "/filesystem.Filesystem/CreateWatcher",
        &json!({"path": "~/new"}),
    );
    fs::write(daemon.root().join("new/g"), "").unwrap();
    let watcher = json!({"watcherId": made["watcherId"]});
    let told = daemon.call("/filesystem.Filesystem/GetWatcherEvents", &watcher);
    assert_eq!(told["events"][0]["name"], "g");
    assert_eq!(daemon.complaints(), "");
    assert!(daemon.terminate().success());
}

#[test]
fn a_program_runs_and_what_is_missing_is_named() {
    let Some(daemon) = launch() else {
        return;
    };
    let ran = run(&daemon, &["--help"]);
    assert!(ran.stdout.contains("usage: sandbar-runtime"), "{ran:?}");
    assert_eq!(ran.end["status"], "exit status 0");
    assert_eq!(run(&daemon, &["--wrong"]).end["exitCode"], 2);

    let end = daemon
        .stream("/process.Process/Start", &shell("true"))
        .end();
    let missing = "error starting process '/bin/sh': No such file or directory (os error 2)";
    let error = json!({"code": "invalid_argument", "message": missing});
    assert_eq!(end, json!({"error": error}));
    let mut request = program(&[]);
    request["pty"] = json!({"size": {"cols": 80, "rows": 24}});
    let end = daemon.stream("/process.Process/Start", &request).end();
    assert_eq!(end["error"]["code"], "invalid_argument");

    // there is no /proc to find the program in
    daemon.init(&json!({}));
    let refused = daemon.request("POST", "/upgrade", &[], b"");
    assert_eq!(refused.status, 500, "{}", refused.text());
    assert_eq!(run(&daemon, &["--help"]).end["status"], "exit status 0");
    assert_eq!(daemon.complaints(), "");
}

/// A daemon that a daemon runs, and where it listens.
fn start_inner(daemon: &Daemon) -> (Running, String) {
    let args = ["--host", "127.0.0.1", "--port", "0", "--no-forwarding"];
    let mut running = daemon.start_with_request(&[], &program(&args));
    let event = running.event();
    let said = decode(&event["data"]["stdout"]);
    let address = said.trim().strip_prefix("listening on ").unwrap();
    let address = address.to_owned();
    (running, address)
}

fn children_of(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    children
        .split_whitespace()
        .map(|child| child.parse().unwrap())
        .collect()
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn orphans_are_reaped() {
    let Some(mut daemon) = launch() else {
        return;
    };
    let (inner, address) = start_inner(&daemon);
    let [inner_pid] = children_of(daemon.pid())[..] else {
        panic!("the daemon has other children than the one that was started");
    };
    let own = std::mem::replace(&mut daemon.address, address.parse().unwrap());
    let (_innermost, _) = start_inner(&daemon);
    daemon.address = own;
    let [orphan] = children_of(inner_pid)[..] else {
        panic!("the inner daemon has no child");
    };
    signal(inner_pid, Signal::KILL);
    assert_eq!(inner.finish().end["status"], "signal: killed");
    wait_until("the orphan is the daemon's", || {
        children_of(daemon.pid()) == [orphan]
    });
    signal(orphan, Signal::KILL);
    wait_until("the orphan is reaped", || {
        !Path::new(&format!("/proc/{orphan}")).exists()
    });
    assert_eq!(daemon.complaints(), "");
}

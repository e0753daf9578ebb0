//! Those who are being served when a daemon is replaced, and those who tell it to stop at that moment.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::thread;

use rustix::process::geteuid;
use serde_json::json;

use crate::client::{decode, shell};
use crate::daemon::{Daemon, PROGRAM, wait_until};
use crate::legacy::is_gone;
use crate::upgrade::{TOKEN, join, launch, program, start, until_told_to_come_again, upgrade};
use crate::upgrade_failing::{
    Held, ask_to_upgrade, in_use, is_draining, is_replaced, wait_until_unread,
};
use crate::upgrade_state::until_exists;

/// Spoken to on the port of another API, with a token.
fn with_token(mut daemon: Daemon) -> Daemon {
    let other = std::mem::replace(&mut daemon.address, daemon.envd);
    assert_eq!(daemon.init(&json!({"accessToken": "secret"})).status, 204);
    daemon.address = other;
    daemon
}

#[test]
fn output_is_told_to_its_end_when_whoever_asked_for_the_upgrade_has_left() {
    let daemon = launch();
    let running = start(&daemon, &shell("exec seq 1 3000000"));
    let selector = running.selector();
    wait_until_unread(running.pid);
    let held = Held::new(&daemon);
    let mut caller = in_use(&daemon);
    ask_to_upgrade(&mut caller);
    wait_until("the program was tried", || is_draining(&daemon));
    drop(caller);
    held.finish();
    let text = until_told_to_come_again(running.events);
    let text = text + &join(&daemon, &selector).finish().stdout;
    let expected: String = (1..=3_000_000).map(|n| format!("{n}\n")).collect();
    assert!(
        text == expected,
        "{} of {} bytes",
        text.len(),
        expected.len()
    );
}

#[test]
fn downloads_from_other_ports_are_finished() {
    let legacy = (Daemon::launch_legacy as fn() -> Daemon, "/download/big");
    let sandboxd = (Daemon::launch_sandboxd as fn() -> Daemon, "/v1/files/big");
    for (launch, target) in [legacy, sandboxd] {
        let daemon = with_token(launch());
        let size = 64 << 20;
        let big = fs::File::create(daemon.root().join("big")).unwrap();
        big.set_len(size).unwrap();
        let mut download = daemon.open("GET", target, &TOKEN, b"");
        assert_eq!(download.status, 200);
        thread::scope(|scope| {
            scope.spawn(|| upgrade(&daemon, b""));
            wait_until("it is being replaced", || {
                is_draining(&daemon) || is_replaced(&daemon)
            });
            let read = std::io::copy(&mut download, &mut std::io::sink()).unwrap();
            assert_eq!(read, size, "{target}");
        });
        wait_until("it is replaced", || is_replaced(&daemon));
    }
}

#[test]
fn a_stream_of_sandboxd_is_told_why_it_ends_and_its_process_goes_on() {
    let daemon = with_token(Daemon::launch_sandboxd());
    let (go, done) = (daemon.path("go"), daemon.path("done"));
    let script = format!("echo begun; {}; echo > {done}", until_exists(&go));
    let request = json!({"config": {"command": ["sh", "-c", script]}});
    let method = "/process.v1.ProcessService/Start";
    let mut stream = daemon.stream_with(method, &TOKEN, &request);
    assert!(stream.message()["init"].is_object());
    assert_eq!(decode(&stream.message()["stdout"]), "begun\n");
    upgrade(&daemon, b"");
    assert_eq!(stream.end()["error"]["code"], "unavailable");
    fs::write(&go, "").unwrap();
    wait_until("it is done", || fs::exists(&done).unwrap());
}

#[test]
fn a_command_of_the_older_runtime_is_killed_after_its_time_by_the_next_daemon() {
    let daemon = with_token(Daemon::launch_legacy());
    let pid = daemon.path("pid");
    let script = format!("echo $$ > {pid}; exec sleep 100");
    let command = json!({"command": format!("sh -c '{script}'"), "timeout_seconds": 3});
    let body = command.to_string();
    let mut client = daemon.connect();
    let head = format!(
        "POST /execute HTTP/1.1\r\nhost: x\r\nx-access-token: secret\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(head.as_bytes()).unwrap();
    let number = || fs::read_to_string(&pid).unwrap_or_default();
    wait_until("it runs", || number().ends_with('\n'));
    // who has left is not waited for
    drop(client);
    upgrade(&daemon, b"");
    wait_until("it is killed", || is_gone(&number()));
}

#[test]
fn one_that_is_told_to_stop_as_soon_as_it_is_another_program_stops() {
    let mut command = Command::new(PROGRAM);
    let dir = tempfile::tempdir().unwrap();
    // has it take its time to begin
    command.env("LD_DEBUG", "all");
    command.env("LD_DEBUG_OUTPUT", dir.path().join("loaded"));
    let mut daemon = Daemon::launch_by(command, "127.0.0.1");
    assert_eq!(daemon.init(&json!({"accessToken": "secret"})).status, 204);
    let mut caller = daemon.connect();
    ask_to_upgrade(&mut caller);
    while !is_replaced(&daemon) {}
    let status = daemon.terminate();
    assert_eq!((status.code(), status.signal()), (Some(0), None));
}

#[test]
fn a_daemon_that_was_replaced_still_stops_when_it_is_told_to() {
    let mut daemon = launch();
    upgrade(&daemon, b"");
    upgrade(&daemon, &program());
    let ran = start(&daemon, &shell("grep SigBlk /proc/self/status")).finish();
    assert_eq!(ran.stdout, "SigBlk:\t0000000000000000\n");
    assert!(daemon.terminate().success());
}

#[test]
fn a_program_is_tried_where_there_are_no_devices() {
    if !geteuid().is_root() {
        return;
    }
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs none /dev && exec \"$0\" \"$@\"";
    command.args(["--mount", "sh", "-c", script, PROGRAM]);
    let daemon = Daemon::launch_by(command, "127.0.0.1");
    assert_eq!(daemon.init(&json!({"accessToken": "secret"})).status, 204);
    let mut caller = daemon.connect();
    ask_to_upgrade(&mut caller);
    wait_until("it is replaced", || is_replaced(&daemon));
}

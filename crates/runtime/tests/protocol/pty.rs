//! Processes with a terminal.

use serde_json::{Value, json};

use crate::client::{Running, encode, shell};
use crate::daemon::Daemon;

fn start(daemon: &Daemon, script: &str, size: &Value) -> Running {
    let mut request = shell(script);
    request["pty"] = json!({"size": size});
    daemon.start_with_request(&[], &request)
}

fn input(running: &Running, text: &str) -> Value {
    json!({"process": running.selector(), "input": {"pty": encode(text)}})
}

/// Reads until this was written.
fn expect(running: &mut Running, text: &str) -> String {
    let mut read = String::new();
    while !read.contains(text) {
        let event = running.event();
        assert!(event["end"].is_null(), "{text:?} never came: {read:?}");
        read += &crate::client::decode(&event["data"]["pty"]);
    }
    read
}

#[test]
fn a_terminal_has_a_size_that_can_be_changed() {
    let daemon = Daemon::launch();
    let script = "test -t 0 && test -t 1 && stty size; read x; stty size; exit 3";
    let mut running = start(&daemon, script, &json!({"cols": 100, "rows": 30}));
    expect(&mut running, "30 100\r\n");
    let size = json!({"size": {"cols": 120, "rows": 40}});
    let update = json!({"process": running.selector(), "pty": size});
    daemon.call("/process.Process/Update", &update);
    daemon.call("/process.Process/SendInput", &input(&running, "\n"));
    expect(&mut running, "40 120\r\n");
    assert_eq!(running.finish().end["exitCode"], 3);
}

#[test]
fn a_terminal_is_the_controlling_one_and_control_characters_are_signals() {
    let daemon = Daemon::launch();
    let script = "echo from-tty > /dev/tty; trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.01; done";
    let mut running = start(&daemon, script, &json!({"cols": 80, "rows": 24}));
    expect(&mut running, "from-tty\r\nready");
    daemon.call("/process.Process/SendInput", &input(&running, "\u{3}"));
    let ran = running.finish();
    assert!(ran.pty.contains("interrupted"), "{ran:?}");
    assert_eq!(ran.end["exitCode"], 9);
}

#[test]
fn terminals_and_pipes_are_not_taken_for_each_other() {
    let daemon = Daemon::launch();
    let size = json!({"cols": 80, "rows": 24});
    let terminal = start(&daemon, "read x", &size);
    let pipe = daemon.start("read x");
    let stdin = json!({"process": terminal.selector(), "input": {"stdin": "eA=="}});
    assert_eq!(
        daemon.refusal("/process.Process/SendInput", &stdin).0,
        "internal"
    );
    assert_eq!(
        daemon
            .refusal("/process.Process/SendInput", &input(&pipe, "x"))
            .0,
        "internal"
    );
    let resize = json!({"process": pipe.selector(), "pty": {"size": size}});
    assert_eq!(
        daemon.refusal("/process.Process/Update", &resize).0,
        "internal"
    );
    let close = json!({"process": terminal.selector()});
    assert_eq!(
        daemon.refusal("/process.Process/CloseStdin", &close).0,
        "unknown"
    );
    daemon.call("/process.Process/SendInput", &input(&terminal, "\n"));
    assert_eq!(terminal.finish().end["exitCode"], 0);
}

#[test]
fn a_killed_terminal_ends() {
    let daemon = Daemon::launch();
    let running = start(&daemon, "sleep 30", &json!({"cols": 80, "rows": 24}));
    let kill = json!({"process": running.selector(), "signal": "SIGNAL_SIGKILL"});
    daemon.call("/process.Process/SendSignal", &kill);
    assert_eq!(running.finish().end["status"], "signal: killed");
}

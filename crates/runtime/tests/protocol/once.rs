//! Commands that must run once.

use serde_json::{Value, json};

use crate::client::{Running, decode, shell};
use crate::daemon::Daemon;

fn tagged(script: &str) -> Value {
    let mut request = shell(script);
    request["tag"] = json!("hook");
    request
}

fn start(daemon: &Daemon, script: &str) -> Running {
    daemon.start_by("/sandbar.Once/Start", &[], &tagged(script))
}

fn outcome(daemon: &Daemon) -> Value {
    daemon.call(
        "/sandbar.Once/Outcome",
        &json!({"tag": "hook", "wait": true}),
    )
}

fn refusal(daemon: &Daemon, method: &str) -> String {
    let request = json!({"tag": "hook"});
    daemon
        .refusal(&format!("/sandbar.Once/{method}"), &request)
        .0
}

fn text(tail: &Value) -> String {
    decode(&tail["last"])
}

#[test]
fn an_outcome_is_learned_by_one_who_comes_after_whoever_started_it() {
    let daemon = Daemon::launch();
    let go = daemon.path("go");
    let script =
        format!("echo begun; while [ ! -e {go} ]; do sleep 0.01; done; echo no >&2; exit 3");
    let first = start(&daemon, &script);
    let pid = first.pid;
    drop(first);
    let running = daemon.call("/sandbar.Once/Outcome", &json!({"tag": "hook"}));
    assert_eq!(
        (running["pid"].as_u64(), running.get("end")),
        (Some(pid), None)
    );
    std::fs::write(&go, "").unwrap();
    for _ in 0..2 {
        let outcome = outcome(&daemon);
        assert_eq!(outcome["pid"].as_u64(), Some(pid));
        assert_eq!(outcome["end"]["exitCode"], 3);
        assert_eq!(text(&outcome["stdout"]), "begun\n");
        assert_eq!(text(&outcome["stderr"]), "no\n");
    }
}

#[test]
fn what_runs_or_has_run_is_not_started_again_until_its_outcome_is_acknowledged() {
    let daemon = Daemon::launch();
    let (ran, go) = (daemon.path("ran"), daemon.path("go"));
    let script = format!("echo x >> {ran}; while [ ! -e {go} ]; do sleep 0.01; done");
    let running = start(&daemon, &script);
    let again = || {
        let request = tagged(&script);
        let refused = daemon.stream("/sandbar.Once/Start", &request);
        refused.end()["error"]["code"].clone()
    };
    assert_eq!(again(), "already_exists");
    assert_eq!(refusal(&daemon, "Acknowledge"), "failed_precondition");
    std::fs::write(&go, "").unwrap();
    drop(running);
    outcome(&daemon);
    assert_eq!(again(), "already_exists");
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "x\n");

    daemon.call("/sandbar.Once/Acknowledge", &json!({"tag": "hook"}));
    assert_eq!(refusal(&daemon, "Outcome"), "not_found");
    assert_eq!(refusal(&daemon, "Acknowledge"), "not_found");
    start(&daemon, &script).finish();
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "x\nx\n");
}

#[test]
fn one_whose_time_is_over_is_ended_though_nobody_listens_and_its_outcome_says_so() {
    let daemon = Daemon::launch();
    let limit = [("connect-timeout-ms", "3000")];
    let request = tagged("echo on my way; sleep 100");
    drop(daemon.start_by("/sandbar.Once/Start", &limit, &request));
    let outcome = outcome(&daemon);
    assert_eq!(outcome["end"]["status"], "signal: killed");
    assert_eq!(text(&outcome["stdout"]), "on my way\n");
}

#[test]
fn a_caller_that_waits_too_long_is_told_and_may_ask_again() {
    let daemon = Daemon::launch();
    let _running = start(&daemon, "sleep 100");
    let limit = [("connect-timeout-ms", "100")];
    let request = json!({"tag": "hook", "wait": true});
    let (status, answer) = daemon.unary_with("/sandbar.Once/Outcome", &limit, &request);
    assert_eq!(
        (status, &answer["code"]),
        (504, &json!("deadline_exceeded"))
    );
    let running = daemon.call("/sandbar.Once/Outcome", &json!({"tag": "hook"}));
    assert_eq!(running.get("end"), None);
}

#[test]
fn a_process_that_e2b_clients_tag_has_an_outcome_too_and_the_newest_is_meant() {
    let daemon = Daemon::launch();
    let go = daemon.path("go");
    let slow = tagged(&format!("while [ ! -e {go} ]; do sleep 0.01; done; exit 1"));
    let older = daemon.start_with_request(&[], &slow);
    daemon.start_with_request(&[], &tagged("exit 2")).finish();
    assert_eq!(outcome(&daemon)["end"]["exitCode"], 2);
    std::fs::write(&go, "").unwrap();
    assert_eq!(older.finish().end["exitCode"], 1);
    assert_eq!(outcome(&daemon)["end"]["exitCode"], 2);
    let short = daemon.start_with_request(&[], &tagged("exit 3"));
    let running = daemon.start_with_request(&[], &tagged("sleep 100"));
    assert_eq!(short.finish().end["exitCode"], 3);
    let newest = daemon.call("/sandbar.Once/Outcome", &json!({"tag": "hook"}));
    assert_eq!(newest["pid"].as_u64(), Some(running.pid));
    assert_eq!(newest.get("end"), None);
}

#[test]
fn of_a_long_output_the_last_is_kept_and_the_rest_counted() {
    let daemon = Daemon::launch();
    start(&daemon, "head -c 100000 /dev/zero | tr '\\0' a; printf end").finish();
    let stdout = &outcome(&daemon)["stdout"];
    let last = text(stdout);
    assert!(last.ends_with("aaaend"), "{last}");
    let dropped: usize = stdout["dropped"].as_str().unwrap().parse().unwrap();
    assert_eq!(last.len() + dropped, 100_003);
}

#[test]
fn a_command_without_a_tag_cannot_be_one_that_runs_once() {
    let daemon = Daemon::launch();
    let refused = daemon.stream("/sandbar.Once/Start", &shell("true"));
    assert_eq!(refused.end()["error"]["code"], "invalid_argument");
}

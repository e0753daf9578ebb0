//! What a daemon leaves to the next one, piece by piece.

use std::fs;
use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Answer, Running, encode, envelope, shell};
use crate::daemon::{Daemon, user_ids, wait_until};
use crate::upgrade::{TOKEN, call, join, launch, start, upgrade};

pub(crate) fn enter(daemon: &Daemon, running: &Running) {
    let input = json!({"process": running.selector(), "input": {"stdin": encode("word\n")}});
    call(daemon, "/process.Process/SendInput", &input);
}

fn signal(daemon: &Daemon, running: &Running, signal: &str) {
    let request = json!({"process": running.selector(), "signal": signal});
    call(daemon, "/process.Process/SendSignal", &request);
}

fn tagged(script: &str) -> Value {
    let mut request = shell(script);
    request["tag"] = json!("mine");
    request
}

/// The descriptors that a command finds open.
pub(crate) fn open_in_commands(daemon: &Daemon) -> String {
    start(daemon, &shell("ls /proc/$$/fd; true"))
        .finish()
        .stdout
}

/// Has a shell wait for a file, but not for ever: the test may fail before it is made.
pub(crate) fn until_exists(path: &str) -> String {
    format!("i=0; until [ -e {path} ] || [ $i = 300 ]; do sleep 0.1; i=$((i+1)); done")
}

#[test]
fn a_client_that_has_come_back_hears_at_once() {
    let daemon = launch();
    let running = start(&daemon, &shell("read word; echo $word; read word"));
    upgrade(&daemon, b"");
    let mut again = join(&daemon, &running.selector());
    let begin = Instant::now();
    enter(&daemon, &again);
    assert_eq!(again.stdout(), "word\n");
    // five are waited for clients that have not
    assert!(begin.elapsed() < Duration::from_secs(4));
}

#[test]
fn one_that_has_ended_while_others_hold_its_output_keeps_its_exit_code() {
    let daemon = launch();
    let running = start(&daemon, &shell("sleep 30 & exit 3"));
    let process = format!("/proc/{}", running.pid);
    wait_until("it is reaped", || !fs::exists(&process).unwrap());
    upgrade(&daemon, b"");
    let again = join(&daemon, &running.selector());
    signal(&daemon, &again, "SIGNAL_SIGKILL");
    assert_eq!(again.finish().end["exitCode"], 3);
}

#[test]
fn the_end_of_one_that_was_told_to_end_does_not_wait_for_others_who_hold_its_output() {
    let daemon = launch();
    let script = "trap '' TERM; sleep 30 & echo ready; read word; exit 4";
    let mut running = start(&daemon, &shell(script));
    assert_eq!(running.stdout(), "ready\n");
    signal(&daemon, &running, "SIGNAL_SIGTERM");
    upgrade(&daemon, b"");
    let again = join(&daemon, &running.selector());
    enter(&daemon, &again);
    assert_eq!(again.finish().end["exitCode"], 4);
}

#[test]
fn what_an_ended_process_left_in_the_background_can_go_on_writing() {
    let daemon = launch();
    let (go, done) = (daemon.path("go"), daemon.path("done"));
    let until_told = until_exists(&go);
    let background = format!("{until_told}; head -c 1000000 /dev/zero && echo > {done}");
    let script = format!("({background}) & echo ready; read word");
    let mut running = start(&daemon, &shell(&script));
    assert_eq!(running.stdout(), "ready\n");
    signal(&daemon, &running, "SIGNAL_SIGKILL");
    assert_eq!(running.finish().end["status"], "signal: killed");
    upgrade(&daemon, b"");
    fs::write(&go, "").unwrap();
    wait_until("it has written all", || fs::exists(&done).unwrap());
}

#[test]
fn the_end_of_a_process_is_learned_from_the_next_daemon_and_the_newest_of_a_tag_is_meant() {
    let daemon = launch();
    let older = start(&daemon, &tagged("read word; exit 1"));
    let newer = start(&daemon, &tagged("exit 2"));
    let ended = newer.selector();
    newer.finish();
    upgrade(&daemon, b"");
    assert_eq!(join(&daemon, &ended).finish().end["exitCode"], 2);
    let outcome = || call(&daemon, "/sandbar.Once/Outcome", &json!({"tag": "mine"}));
    assert_eq!(outcome()["end"]["exitCode"], 2);
    let older = join(&daemon, &older.selector());
    enter(&daemon, &older);
    assert_eq!(older.finish().end["exitCode"], 1);
    assert_eq!(outcome()["end"]["exitCode"], 2);
}

#[test]
fn processes_of_before_and_after_are_told_apart() {
    let daemon = launch();
    let before = start(&daemon, &tagged("read word; exit 1"));
    upgrade(&daemon, b"");
    let after = start(&daemon, &tagged("read word; exit 2"));
    let list = call(&daemon, "/process.Process/List", &json!({}));
    let listed = list["processes"].as_array().unwrap().iter();
    let listed: Vec<_> = listed
        .map(|process| (process["pid"].as_u64().unwrap(), &process["config"]["cmd"]))
        .collect();
    let shell = json!("/bin/sh");
    assert_eq!(listed, [(before.pid, &shell), (after.pid, &shell)]);
    assert_eq!(join(&daemon, &json!({"tag": "mine"})).pid, after.pid);
}

#[test]
fn watchers_of_before_and_after_are_told_apart_and_see_directories_that_are_made_later() {
    let daemon = launch();
    let watch = |name: &str| {
        fs::create_dir(daemon.path(name)).unwrap();
        let request = json!({"path": daemon.path(name), "recursive": true});
        let made = call(&daemon, "/filesystem.Filesystem/CreateWatcher", &request);
        json!({"watcherId": made["watcherId"]})
    };
    let told = |watcher: &Value| {
        let answer = call(&daemon, "/filesystem.Filesystem/GetWatcherEvents", watcher);
        let events = answer["events"].as_array().unwrap().iter();
        let names = events.map(|event| event["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let before = watch("one");
    upgrade(&daemon, b"");
    let after = watch("two");
    for directory in ["one/first", "two/second", "one/first/third"] {
        fs::create_dir(daemon.path(directory)).unwrap();
    }
    assert_eq!(told(&before), ["first", "first/third"]);
    assert_eq!(told(&after), ["second"]);
}

#[test]
fn the_defaults_of_requests_and_the_time_of_the_last_init_stay() {
    let daemon = Daemon::launch();
    let (uid, gid) = user_ids();
    let home = daemon.path("");
    daemon.name_users(&format!("other:x:{uid}:{gid}::{home}:/bin/sh\n"));
    fs::create_dir(daemon.path("work")).unwrap();
    let init = |timestamp: &str, word: &str| {
        let said = json!({
            "accessToken": "secret", "timestamp": timestamp, "envVars": {"WORD": word},
            "defaultUser": "other", "defaultWorkdir": daemon.path("work"),
        });
        assert_eq!(daemon.init(&said).status, 204);
        start(&daemon, &shell("echo $USER $PWD $WORD"))
            .finish()
            .stdout
    };
    let expected = format!("other {} first\n", daemon.path("work"));
    assert_eq!(init("2026-01-01T00:00:01.5Z", "first"), expected);
    upgrade(&daemon, b"");
    assert_eq!(init("2026-01-01T00:00:01.5Z", "same time"), expected);
}

#[test]
fn daemons_one_after_the_other_pile_nothing_up_and_commands_inherit_nothing() {
    let daemon = launch();
    let _running = start(&daemon, &tagged("read word"));
    let open = || {
        let all = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
        let links = all.filter_map(|one| fs::read_link(one.unwrap().path()).ok());
        let mut links: Vec<String> = links
            .filter_map(|link| link.to_str()?.split(':').next().map(str::to_owned))
            .filter(|kind| kind != "socket" && kind != "pipe")
            .collect();
        links.sort();
        links
    };
    let inherited = open_in_commands(&daemon);
    let before = open();
    for _ in 0..10 {
        upgrade(&daemon, b"");
        assert_eq!(open_in_commands(&daemon), inherited);
    }
    assert_eq!(open(), before);
    let arguments = fs::read_to_string(format!("/proc/{}/cmdline", daemon.pid())).unwrap();
    assert_eq!(arguments.matches("--take-over").count(), 1);
}

#[test]
fn whoever_waits_for_something_is_told_to_come_again() {
    let daemon = launch();
    let running = start(&daemon, &tagged("read word"));
    let watch = json!({"path": daemon.path("")});
    let mut watched = daemon.stream_with("/filesystem.Filesystem/WatchDir", &TOKEN, &watch);
    assert_eq!(watched.message(), json!({"start": {}}));
    let begin = |method: &str, kind: &str, length: usize, body: &[u8]| {
        let mut connection = daemon.connect();
        let head = format!(
            "POST {method} HTTP/1.1\r\nhost: sandbox\r\nx-access-token: secret\r\n\
             content-type: application/{kind}\r\ncontent-length: {length}\r\n\r\n"
        );
        connection.write_all(head.as_bytes()).unwrap();
        connection.write_all(body).unwrap();
        connection
    };
    let select = envelope(0, &json!({"start": {"process": running.selector()}}));
    let method = "/process.Process/StreamInput";
    let input = begin(method, "connect+json", 1000, &select);
    let ask = json!({"tag": "mine", "wait": true}).to_string();
    let method = "/sandbar.Once/Outcome";
    let outcome = begin(method, "json", ask.len(), ask.as_bytes());
    upgrade(&daemon, b"");
    assert_eq!(watched.end()["error"]["code"], "unavailable");
    assert_eq!(Answer::read(input).end()["error"]["code"], "unavailable");
    let outcome = Answer::read(outcome).finish().json();
    assert_eq!(outcome["code"], "unavailable");
}

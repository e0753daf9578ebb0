//! Many at once, and much at once: nothing is lost, mixed up or kept in memory.

use std::fs;
use std::io::Read as _;
use std::process::Command;

use prost::Message as _;
use runtime::messages::process::{EventResponse, ProcessConfig, ProcessEvent, StartRequest};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::client::{Answer, Running, envelope_of, shell};
use crate::daemon::{Daemon, PROGRAM, wait_until};
use crate::upgrade::{start, upgrade};

const COMMANDS: usize = 500;
const LINES: usize = 5_000;
const WATCHERS: usize = 1_500;
const WATCHING_STREAMS: usize = 500;

/// More than a daemon that kept what nobody has read yet could hide.
const OUTPUT: usize = 1 << 30;

/// As low as a container's may be.
const FEW_DESCRIPTORS: &str = "256";

/// With fewer descriptors than it needs, unless it allows itself more.
pub(crate) fn launch() -> Daemon {
    // the test has as many connections as the daemon
    let limit = getrlimit(Resource::Nofile);
    let highest = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, highest).unwrap();
    let mut shell = Command::new("sh");
    let script = format!("ulimit -Sn {FEW_DESCRIPTORS} && exec \"$0\" \"$@\"");
    shell.args(["-c", &script, PROGRAM]);
    Daemon::launch_by(shell, "127.0.0.1")
}

/// The descriptors of a daemon that has done something, and does nothing.
fn used_once(daemon: &Daemon) -> usize {
    daemon.run("true");
    daemon.descriptors()
}

/// Counts once its input is closed: first line by line, then many lines at once.
fn counting(number: usize) -> String {
    let one_by_one = "i=0; while [ $i -lt 50 ]; do i=$((i+1)); echo $i; done";
    let code = exit_code(number);
    format!("read turn; {one_by_one}; seq 51 {LINES}; exit {code}")
}

fn exit_code(number: usize) -> usize {
    number % 251
}

#[test]
fn the_daemon_allows_itself_more_descriptors_and_commands_no_more_than_before() {
    let daemon = launch();
    daemon.init(&json!({"accessToken": "secret"}));
    let hard = getrlimit(Resource::Nofile).maximum.unwrap().to_string();
    for _ in 0..2 {
        let ran = start(&daemon, &shell("ulimit -Sn; ulimit -Hn")).finish();
        assert_eq!(ran.stdout, format!("{FEW_DESCRIPTORS}\n{hard}\n"));
        let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).unwrap();
        let mut lines = limits.lines();
        let own = lines.find_map(|line| line.strip_prefix("Max open files"));
        let own: Vec<&str> = own.unwrap().split_whitespace().take(2).collect();
        assert_eq!(own, [&hard, &hard]);
        upgrade(&daemon, b"");
    }
}

#[test]
fn five_hundred_commands_at_once_are_each_heard_to_the_last_line() {
    let daemon = launch();
    let before = used_once(&daemon);
    let running: Vec<Running> = (0..COMMANDS)
        .map(|number| daemon.start(&counting(number)))
        .collect();
    let listed = || daemon.call("/process.Process/List", &json!({}))["processes"].clone();
    assert_eq!(listed().as_array().unwrap().len(), COMMANDS);
    for one in &running {
        let request = json!({"process": one.selector()});
        daemon.call("/process.Process/CloseStdin", &request);
    }
    let lines = (1..=LINES).map(|line| format!("{line}\n"));
    let expected: String = lines.collect();
    for (number, one) in running.into_iter().enumerate() {
        let ran = one.finish();
        assert!(ran.stdout == expected, "command {number} wrote {ran:?}");
        assert_eq!(
            ran.end["exitCode"].as_u64().unwrap_or(0),
            exit_code(number) as u64
        );
    }
    wait_until("none is left", || listed() == json!([]));
    wait_until("all is closed", || daemon.descriptors() <= before);
}

/// A name in a directory of its own, which is watched.
fn watched(daemon: &Daemon, number: usize) -> String {
    let name = format!("watched{number}");
    fs::create_dir(daemon.home().join(&name)).unwrap();
    name
}

fn short(event: &Value) -> String {
    let kind = event["type"].as_str().unwrap();
    let kind = kind.trim_start_matches("EVENT_TYPE_");
    format!("{kind} {}", event["name"].as_str().unwrap())
}

fn told(number: usize) -> [String; 4] {
    let all = ["CREATE", "WRITE", "RENAME", "CREATE"];
    let name = |at| if at < 3 { "file" } else { "moved" };
    std::array::from_fn(|at| format!("{} {}{number}", all[at], name(at)))
}

#[test]
fn two_thousand_watches_are_each_told_of_their_own_file() {
    let daemon = launch();
    let before = used_once(&daemon);
    let watch = |number| json!({"path": watched(&daemon, number)});
    let watchers: Vec<Value> = (0..WATCHERS)
        .map(|number| {
            let made = daemon.call("/filesystem.Filesystem/CreateWatcher", &watch(number));
            json!({"watcherId": made["watcherId"]})
        })
        .collect();
    let all = WATCHERS + WATCHING_STREAMS;
    let mut streams: Vec<Answer> = (WATCHERS..all)
        .map(|number| {
            let method = "/filesystem.Filesystem/WatchDir";
            let mut stream = daemon.stream(method, &watch(number));
            assert_eq!(stream.message(), json!({"start": {}}));
            stream
        })
        .collect();
    for number in 0..all {
        let dir = daemon.home().join(format!("watched{number}"));
        let file = dir.join(format!("file{number}"));
        fs::write(&file, "x").unwrap();
        fs::rename(&file, dir.join(format!("moved{number}"))).unwrap();
    }
    for (number, watcher) in watchers.iter().enumerate() {
        let answer = daemon.call("/filesystem.Filesystem/GetWatcherEvents", watcher);
        let events: Vec<String> = answer["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(short)
            .collect();
        assert_eq!(events, told(number));
    }
    for (number, stream) in (WATCHERS..).zip(&mut streams) {
        for expected in told(number) {
            assert_eq!(short(&stream.message()["filesystem"]), expected);
        }
    }
    // what is told next is what happens next
    for (number, stream) in (WATCHERS..).zip(&mut streams) {
        fs::create_dir(daemon.home().join(format!("watched{number}/last"))).unwrap();
        assert_eq!(short(&stream.message()["filesystem"]), "CREATE last");
    }
    assert_eq!(daemon.watched_directories(), all);
    for watcher in &watchers {
        daemon.call("/filesystem.Filesystem/RemoveWatcher", watcher);
    }
    drop(streams);
    wait_until("nothing is watched", || daemon.watched_directories() == 0);
    wait_until("all is closed", || daemon.descriptors() <= before);
}

/// Bytes that do not repeat themselves for longer than anything that the daemon reads at once.
fn noise() -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(1_000_003).collect()
}

fn start_in_protobuf(daemon: &Daemon, script: &str) -> Answer {
    let request = StartRequest {
        process: Some(ProcessConfig {
            cmd: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            ..ProcessConfig::default()
        }),
        ..StartRequest::default()
    };
    let headers = [("content-type", "application/connect+proto")];
    let body = envelope_of(0, &request.encode_to_vec());
    daemon.open("POST", "/process.Process/Start", &headers, &body)
}

fn next_event(stream: &mut Answer) -> ProcessEvent {
    let mut prefix = [0; 5];
    stream.read_exact(&mut prefix).unwrap();
    let [flags, length @ ..] = prefix;
    assert_eq!(flags, 0);
    let mut payload = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut payload).unwrap();
    EventResponse::decode(&*payload).unwrap().event.unwrap()
}

/// Where all that has come so far is what the noise is, over and over again.
fn follow(noise: &[u8], begin: usize, bytes: &[u8]) -> usize {
    let mut at = begin;
    let mut rest = bytes;
    while !rest.is_empty() {
        let expected = &noise[at % noise.len()..];
        let length = expected.len().min(rest.len());
        assert!(rest[..length] == expected[..length], "at byte {at}");
        at += length;
        rest = &rest[length..];
    }
    at
}

#[test]
fn a_slow_reader_of_much_output_gets_all_of_it_and_costs_no_memory() {
    let daemon = Daemon::launch();
    let noise = noise();
    fs::write(daemon.home().join("noise"), &noise).unwrap();
    let script = format!("while cat noise; do :; done | head -c {OUTPUT}");
    let mut stream = start_in_protobuf(&daemon, &script);
    assert!(next_event(&mut stream).start.is_some());
    let mut read = 0;
    let mut pauses = 0;
    loop {
        let event = next_event(&mut stream);
        if let Some(end) = event.end {
            assert_eq!((end.exit_code, end.exited), (0, true));
            break;
        }
        let bytes = event.data.unwrap().stdout.unwrap();
        read = follow(&noise, read, &bytes);
        if read > pauses * (OUTPUT / 4) {
            pauses += 1;
            // nobody reads it now, and it would fill much memory meanwhile
            assert_eq!(daemon.run("sleep 0.3; echo served").stdout, "served\n");
        }
    }
    assert_eq!((read, pauses), (OUTPUT, 4));
    let peak = daemon.peak_memory();
    assert!(peak < 32 << 20, "{peak} bytes");
}

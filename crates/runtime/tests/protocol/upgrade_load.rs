//! Ten daemons one after the other, one of them broken, under everything that clients do at once.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Answer, Running, decode, shell};
use crate::daemon::{Daemon, wait_until};
use crate::upgrade::{TOKEN, begin_upload, call, join, launch, start, upgrade};

const COMMANDS: usize = 100;
const TERMINALS: usize = 10;
const WATCHERS: usize = 50;
const UPGRADES: usize = 10;

/// What a process wrote and how it ended, heard by a client that connects again whenever it is told to.
fn hear(daemon: &Daemon, mut running: Running) -> (String, Value) {
    let selector = json!({"pid": running.pid});
    let mut text = String::new();
    loop {
        let (flags, message) = running.events.envelope();
        let event = &message["event"];
        text += &decode(&event["data"]["stdout"]);
        text += &decode(&event["data"]["pty"]);
        if event.get("end").is_some() {
            return (text, event["end"].clone());
        }
        if flags == 2 {
            assert_eq!(message["error"]["code"], "unavailable", "{message}");
            running = join(daemon, &selector);
        }
    }
}

fn counts_in_order(text: &str) {
    let numbers: Vec<usize> = text
        .lines()
        .map(|line| line.trim_end_matches('\r').parse().unwrap())
        .collect();
    assert!(numbers.len() > 1, "{text}");
    for (index, number) in numbers.iter().enumerate() {
        assert_eq!(*number, index + 1, "{text}");
    }
}

/// Programs that count until they are told to stop, each with an exit code of its own.
fn listeners<'scope>(
    daemon: &'scope Daemon,
    scope: &'scope Scope<'scope, '_>,
) -> Vec<ScopedJoinHandle<'scope, (String, Value)>> {
    let stop = daemon.path("stop");
    let request = |number: usize| {
        let count = format!("i=0; while [ ! -e {stop} ]; do i=$((i+1)); echo $i; sleep 0.5; done");
        let mut request = shell(&format!("{count}; exit {number}"));
        if number >= COMMANDS {
            request["pty"] = json!({"size": {"cols": 80, "rows": 24}});
        }
        request
    };
    (0..COMMANDS + TERMINALS)
        .map(|number| {
            let running = start(daemon, &request(number));
            scope.spawn(move || hear(daemon, running))
        })
        .collect()
}

/// Uploads one after the other, each with a pause in the middle. Returns how many there were.
fn upload(daemon: &Daemon, is_over: &AtomicBool) -> usize {
    let path = daemon.path("uploaded");
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        let mut upload = begin_upload(daemon, &path);
        let text = format!("{count:010}");
        for half in [&text[..5], &text[5..]] {
            thread::sleep(Duration::from_millis(50));
            upload.write_all(half.as_bytes()).unwrap();
        }
        assert_eq!(Answer::read(upload).finish().status, 200);
        assert_eq!(daemon.read("uploaded"), text.as_bytes());
        count += 1;
    }
    count
}

fn watchers(daemon: &Daemon) -> Vec<Value> {
    let dirs = (0..WATCHERS).map(|number| daemon.path(&format!("watched{number}")));
    dirs.map(|dir| {
        std::fs::create_dir(&dir).unwrap();
        let watch = json!({"path": dir});
        let watcher = call(daemon, "/filesystem.Filesystem/CreateWatcher", &watch);
        json!({"watcherId": watcher["watcherId"]})
    })
    .collect()
}

/// The names of the files that a watcher has seen being made.
fn seen(daemon: &Daemon, watcher: &Value) -> Vec<String> {
    let told = call(daemon, "/filesystem.Filesystem/GetWatcherEvents", watcher);
    let events = told["events"].as_array().unwrap().iter();
    let created = events.filter(|event| event["type"] == "EVENT_TYPE_CREATE");
    created
        .map(|event| event["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn ten_daemons_one_after_the_other_lose_no_process_output_watch_or_upload() {
    let daemon = launch();
    let is_over = AtomicBool::new(false);
    let watchers = watchers(&daemon);
    thread::scope(|scope| {
        let heard = listeners(&daemon, scope);
        let uploads = scope.spawn(|| upload(&daemon, &is_over));
        for number in 0..UPGRADES {
            for watched in 0..WATCHERS {
                std::fs::write(daemon.path(&format!("watched{watched}/{number}")), "").unwrap();
            }
            if number == UPGRADES / 2 {
                let broken = daemon.request("POST", "/upgrade", &TOKEN, b"broken");
                assert_eq!(broken.status, 500);
            } else {
                upgrade(&daemon, b"");
            }
        }
        is_over.store(true, Ordering::Relaxed);
        std::fs::write(daemon.path("stop"), "").unwrap();
        for (number, heard) in heard.into_iter().enumerate() {
            let (text, end) = heard.join().unwrap();
            counts_in_order(&text);
            assert_eq!(
                end["exitCode"].as_u64(),
                u64::try_from(number).ok(),
                "{end}"
            );
        }
        assert!(uploads.join().unwrap() > 0);
    });
    let files: Vec<String> = (0..UPGRADES).map(|number| number.to_string()).collect();
    for watcher in watchers {
        assert_eq!(seen(&daemon, &watcher), files);
    }
    let is_empty = || {
        let list = call(&daemon, "/process.Process/List", &json!({}));
        list["processes"] == json!([])
    };
    wait_until("all have ended", is_empty);
}

//! `filesystem.Filesystem`: watches, asked for and streamed.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::{Value, json};

use crate::daemon::{Daemon, wait_until};

pub(crate) struct Watcher<'a> {
    daemon: &'a Daemon,
    pub(crate) id: Value,
}

impl<'a> Watcher<'a> {
    pub(crate) fn new(daemon: &'a Daemon, request: &Value) -> Self {
        let made = daemon.call("/filesystem.Filesystem/CreateWatcher", request);
        let id = json!({"watcherId": made["watcherId"]});
        Self { daemon, id }
    }

    /// What has happened since it was asked last.
    fn events(&self) -> Vec<Value> {
        let answer = self
            .daemon
            .call("/filesystem.Filesystem/GetWatcherEvents", &self.id);
        answer["events"].as_array().unwrap().clone()
    }

    /// The same as `<type> <name>`.
    pub(crate) fn told(&self) -> Vec<String> {
        self.events().iter().map(short).collect()
    }
}

pub(crate) fn short(event: &Value) -> String {
    let kind = event["type"]
        .as_str()
        .unwrap()
        .trim_start_matches("EVENT_TYPE_");
    format!("{kind} {}", event["name"].as_str().unwrap())
}

#[test]
fn events_are_there_as_soon_as_they_have_happened() {
    let daemon = Daemon::launch();
    let watcher = Watcher::new(&daemon, &json!({"path": ""}));
    let home = daemon.home();
    for round in 0..50 {
        fs::write(home.join("f"), "x").unwrap();
        let first = if round == 0 { "CREATE f" } else { "WRITE f" };
        assert!(watcher.told().contains(&first.to_owned()), "{round}");
    }
    fs::rename(home.join("f"), home.join("g")).unwrap();
    assert_eq!(watcher.told(), ["RENAME f", "CREATE g"]);
    fs::set_permissions(home.join("g"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(watcher.told(), ["CHMOD g"]);
    fs::remove_file(home.join("g")).unwrap();
    assert_eq!(watcher.told(), ["REMOVE g"]);
    assert_eq!(watcher.told(), [""; 0]);
}

#[test]
fn a_plain_watch_does_not_look_into_directories() {
    let daemon = Daemon::launch();
    fs::create_dir(daemon.home().join("d")).unwrap();
    let watcher = Watcher::new(&daemon, &json!({"path": ""}));
    fs::write(daemon.home().join("d/f"), "x").unwrap();
    fs::create_dir(daemon.home().join("e")).unwrap();
    fs::write(daemon.home().join("e/f"), "x").unwrap();
    assert_eq!(watcher.told(), ["CREATE e"]);
}

#[test]
fn a_recursive_watch_sees_directories_that_are_made_later_and_what_is_put_into_them_at_once() {
    let daemon = Daemon::launch();
    fs::create_dir(daemon.home().join("old")).unwrap();
    let watcher = Watcher::new(&daemon, &json!({"path": "", "recursive": true}));
    fs::write(daemon.home().join("old/f"), "x").unwrap();
    fs::create_dir_all(daemon.home().join("new/er")).unwrap();
    fs::write(daemon.home().join("new/er/f"), "x").unwrap();
    let told = watcher.told();
    for (event, times) in [
        ("CREATE old/f", 1),
        ("CREATE new", 1),
        ("CREATE new/er", 1),
        ("CREATE new/er/f", 1),
    ] {
        let found = told.iter().filter(|told| *told == event).count();
        assert_eq!(found, times, "{event} in {told:?}");
    }
    assert!(told.contains(&"WRITE new/er/f".to_owned()), "{told:?}");
    fs::write(daemon.home().join("new/er/f"), "y").unwrap();
    assert!(watcher.told().contains(&"WRITE new/er/f".to_owned()));
}

#[test]
fn what_is_put_into_a_new_directory_while_it_is_looked_at_is_told_once() {
    let daemon = Daemon::launch();
    let watcher = Watcher::new(&daemon, &json!({"path": "", "recursive": true}));
    let names: Vec<String> = (0..500).map(|n| format!("new{n}/er/file")).collect();
    let mut told = Vec::new();
    for name in &names {
        let path = daemon.home().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let last = format!("CREATE {}", names[499]);
    wait_until("the last is told", || {
        told.extend(watcher.told());
        told.contains(&last)
    });
    for name in names {
        let event = format!("CREATE {name}");
        let times = told.iter().filter(|told| **told == event).count();
        assert_eq!(times, 1, "{event}");
    }
}

#[test]
fn what_becomes_of_watched_directories_themselves_is_told_once() {
    let daemon = Daemon::launch();
    let home = daemon.home();
    fs::create_dir_all(home.join("w/a/b")).unwrap();
    let watcher = Watcher::new(&daemon, &json!({"path": "w", "recursive": true}));
    let close = |name: &str| {
        fs::set_permissions(home.join(name), fs::Permissions::from_mode(0o700)).unwrap();
    };
    close("w/a");
    assert_eq!(watcher.told(), ["CHMOD a"]);
    close("w");
    assert_eq!(watcher.told(), ["CHMOD ."]);
    fs::remove_dir_all(home.join("w/a")).unwrap();
    assert_eq!(watcher.told(), ["REMOVE a/b", "REMOVE a"]);
    fs::create_dir(home.join("w/a")).unwrap();
    assert_eq!(watcher.told(), ["CREATE a"]);
    fs::create_dir(home.join("w/a/c")).unwrap();
    assert_eq!(watcher.told(), ["CREATE a/c"]);
    fs::remove_dir_all(home.join("w")).unwrap();
    assert_eq!(watcher.told(), ["REMOVE a/c", "REMOVE a", "REMOVE ."]);
}

#[test]
fn a_link_is_followed_to_what_is_watched_but_not_out_of_it() {
    let daemon = Daemon::launch();
    let home = daemon.home();
    fs::create_dir(home.join("real")).unwrap();
    fs::create_dir(home.join("outside")).unwrap();
    symlink("real", home.join("w")).unwrap();
    symlink("../outside", home.join("real/old")).unwrap();
    let watcher = Watcher::new(&daemon, &json!({"path": "w", "recursive": true}));
    symlink("../outside", home.join("real/new")).unwrap();
    assert_eq!(watcher.told(), ["CREATE new"]);
    fs::create_dir(home.join("outside/d")).unwrap();
    assert_eq!(watcher.told(), [""; 0]);
}

#[test]
fn a_directory_that_is_moved_is_known_by_its_new_name() {
    let daemon = Daemon::launch();
    let home = daemon.home();
    fs::create_dir_all(home.join("w/a/b")).unwrap();
    let watcher = Watcher::new(&daemon, &json!({"path": "w", "recursive": true}));
    fs::rename(home.join("w/a"), home.join("w/c")).unwrap();
    assert_eq!(watcher.told(), ["RENAME a", "CREATE c"]);
    fs::write(home.join("w/c/b/f"), "").unwrap();
    assert_eq!(watcher.told(), ["CREATE c/b/f"]);
    fs::rename(home.join("w/c"), home.join("outside")).unwrap();
    assert_eq!(watcher.told(), ["RENAME c"]);
    fs::write(home.join("outside/b/g"), "").unwrap();
    assert_eq!(watcher.told(), [""; 0]);
}

#[test]
fn what_happens_in_a_directory_right_after_it_was_moved_is_told_by_its_new_name() {
    let daemon = Daemon::launch();
    let home = daemon.home();
    fs::create_dir_all(home.join("w/a/b")).unwrap();
    let watcher = Watcher::new(&daemon, &json!({"path": "w", "recursive": true}));
    daemon.while_still(|| {
        fs::rename(home.join("w/a"), home.join("w/c")).unwrap();
        fs::create_dir(home.join("w/c/b/d")).unwrap();
        fs::create_dir(home.join("w/c/e")).unwrap();
    });
    let all = ["RENAME a", "CREATE c", "CREATE c/b/d", "CREATE c/e"];
    assert_eq!(watcher.told(), all);
    fs::create_dir(home.join("w/c/b/d/f")).unwrap();
    assert_eq!(watcher.told(), ["CREATE c/b/d/f"]);
    daemon.while_still(|| {
        fs::rename(home.join("w/c"), home.join("outside")).unwrap();
        fs::create_dir(home.join("outside/b/late")).unwrap();
    });
    assert_eq!(watcher.told(), ["RENAME c"]);
    assert_eq!(daemon.watched_directories(), 1);
}

#[test]
fn watches_of_the_same_directory_do_not_disturb_each_other() {
    let daemon = Daemon::launch();
    fs::create_dir(daemon.home().join("d")).unwrap();
    let outer = Watcher::new(&daemon, &json!({"path": "", "recursive": true}));
    let inner = Watcher::new(&daemon, &json!({"path": "d"}));
    fs::create_dir(daemon.home().join("d/x")).unwrap();
    assert_eq!(outer.told(), ["CREATE d/x"]);
    assert_eq!(inner.told(), ["CREATE x"]);
    daemon.call("/filesystem.Filesystem/RemoveWatcher", &inner.id);
    fs::create_dir(daemon.home().join("d/y")).unwrap();
    assert_eq!(outer.told(), ["CREATE d/y"]);
    for method in ["GetWatcherEvents", "RemoveWatcher"] {
        let refusal = daemon.refusal(&format!("/filesystem.Filesystem/{method}"), &inner.id);
        assert_eq!(refusal.0, "not_found", "{method}");
    }
}

#[test]
fn entries_come_with_events_to_those_who_ask() {
    let daemon = Daemon::launch();
    let watcher = Watcher::new(&daemon, &json!({"path": "", "includeEntry": true}));
    let other = Watcher::new(&daemon, &json!({"path": ""}));
    let file = daemon.home().join("f");
    fs::write(&file, "hello").unwrap();
    let created = watcher.events().remove(0);
    assert_eq!(created["entry"]["path"], daemon.path("f"));
    assert_eq!(other.events()[0]["entry"], Value::Null);
    // there again before the daemon looks
    daemon.while_still(|| {
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
    });
    let events = watcher.events();
    let entries: Vec<(String, &Value)> = events
        .iter()
        .map(|event| (short(event), &event["entry"]["type"]))
        .collect();
    let directory = json!("FILE_TYPE_DIRECTORY");
    assert_eq!(
        entries,
        [
            ("REMOVE f".into(), &Value::Null),
            ("CREATE f".into(), &directory)
        ]
    );
}

#[test]
fn a_stream_begins_when_the_watch_is_armed() {
    let daemon = Daemon::launch();
    let every_second = [("keepalive-ping-interval", "1")];
    let request = json!({"path": "", "recursive": true});
    let mut stream = daemon.stream_with("/filesystem.Filesystem/WatchDir", &every_second, &request);
    assert_eq!(stream.message(), json!({"start": {}}));
    fs::create_dir(daemon.home().join("d")).unwrap();
    let keepalive = json!({"keepalive": {}});
    let mut message = stream.message();
    while message == keepalive {
        message = stream.message();
    }
    assert_eq!(short(&message["filesystem"]), "CREATE d");
    assert_eq!(stream.message(), keepalive);
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let daemon = Daemon::launch();
    fs::write(daemon.home().join("file"), "").unwrap();
    for (path, code) in [("none", "not_found"), ("file", "invalid_argument")] {
        let request = json!({"path": path});
        let refusal = daemon.refusal("/filesystem.Filesystem/CreateWatcher", &request);
        assert_eq!(refusal.0, code, "{path}");
        let end = daemon
            .stream("/filesystem.Filesystem/WatchDir", &request)
            .end();
        assert_eq!(end["error"]["code"], code, "{path}");
    }
}

#[test]
fn there_may_be_more_watches_than_the_kernel_allows_instances() {
    let daemon = Daemon::launch();
    let watchers: Vec<Watcher> = (0..300)
        .map(|n| {
            let path = format!("{n}");
            fs::create_dir(daemon.home().join(&path)).unwrap();
            Watcher::new(&daemon, &json!({"path": path}))
        })
        .collect();
    for n in 0..300 {
        fs::write(daemon.home().join(format!("{n}/f")), "").unwrap();
    }
    for watcher in watchers {
        assert_eq!(watcher.told(), ["CREATE f"]);
    }
}

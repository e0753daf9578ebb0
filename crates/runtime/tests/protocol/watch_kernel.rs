//! Watches and the kernel: what it holds for them, what it loses, and what it cannot know.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;

use rustix::mount::{MountFlags, mount};
use serde_json::json;

use crate::alone::alone;
use crate::client::{Answer, Reply, send};
use crate::daemon::{Daemon, wait_until};
use crate::watch::{Watcher, short};

const CREATE: &str = "/filesystem.Filesystem/CreateWatcher";
const REMOVE: &str = "/filesystem.Filesystem/RemoveWatcher";
const EVENTS: &str = "/filesystem.Filesystem/GetWatcherEvents";
const JSON: (&str, &str) = ("content-type", "application/json");

/// Events that the daemon keeps for a watcher.
const KEPT: usize = 16_384;

/// Watchers that there can be.
const MOST: usize = 10_000;

#[test]
fn the_kernel_watches_as_long_as_somebody_wants_to_know() {
    let daemon = Daemon::launch();
    fs::create_dir_all(daemon.home().join("w/a/b")).unwrap();
    let whole = json!({"path": "w", "recursive": true});
    let watcher = Watcher::new(&daemon, &whole);
    let part = Watcher::new(&daemon, &json!({"path": "w/a"}));
    assert_eq!(daemon.watched_directories(), 3);
    daemon.call(REMOVE, &watcher.id);
    assert_eq!(daemon.watched_directories(), 1);
    daemon.call(REMOVE, &part.id);
    assert_eq!(daemon.watched_directories(), 0);
    let mut stream = daemon.stream("/filesystem.Filesystem/WatchDir", &whole);
    assert_eq!(stream.message(), json!({"start": {}}));
    assert_eq!(daemon.watched_directories(), 3);
    drop(stream);
    wait_until("nothing is watched", || daemon.watched_directories() == 0);
}

#[test]
fn who_asks_is_told_what_the_daemon_has_not_yet_read() {
    let daemon = Daemon::launch();
    let watcher = Watcher::new(&daemon, &json!({"path": ""}));
    let id = watcher.id.to_string();
    let length = id.len().to_string();
    let headers = [
        JSON,
        ("content-length", &length),
        ("expect", "100-continue"),
    ];
    let mut connection = daemon.connect();
    for round in 0..20 {
        let name = format!("{round}");
        send(&mut connection, "POST", EVENTS, &headers, b"");
        let mut go_on = *b"HTTP/1.1 100 Continue\r\n\r\n";
        connection.read_exact(&mut go_on).unwrap();
        assert!(go_on.starts_with(b"HTTP/1.1 100"));
        // the daemon finds its client at the door before the kernel
        daemon.while_still(|| {
            connection.write_all(id.as_bytes()).unwrap();
            fs::create_dir(daemon.home().join(&name)).unwrap();
        });
        let answer = Answer::read(connection.try_clone().unwrap()).finish();
        let told = answer.json()["events"].clone();
        let told: Vec<String> = told.as_array().unwrap().iter().map(short).collect();
        assert_eq!(told, [format!("CREATE {name}")]);
    }
}

#[test]
fn directories_made_while_the_kernel_could_not_tell_are_watched_and_others_no_more() {
    let daemon = Daemon::launch();
    fs::create_dir_all(daemon.home().join("w/gone")).unwrap();
    let watcher = Watcher::new(&daemon, &json!({"path": "w", "recursive": true}));
    let queue = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let queue: usize = queue.trim().parse().unwrap();
    let home = daemon.home().join("w");
    let flood = || {
        for _ in 0..=queue / 2 {
            File::create(home.join("brief")).unwrap();
            fs::remove_file(home.join("brief")).unwrap();
        }
    };
    daemon.while_still(|| {
        flood();
        fs::create_dir_all(home.join("late/r")).unwrap();
        fs::rename(home.join("gone"), daemon.home().join("elsewhere")).unwrap();
    });
    assert!(!watcher.told().contains(&"CREATE late".to_owned()));
    fs::create_dir(home.join("late/r/now")).unwrap();
    fs::create_dir(daemon.home().join("elsewhere/now")).unwrap();
    assert_eq!(watcher.told(), ["CREATE late/r/now"]);
    // and the directory itself, wherever it is
    let moved = daemon.home().join("moved");
    daemon.while_still(|| {
        flood();
        fs::rename(&home, &moved).unwrap();
    });
    watcher.told();
    fs::create_dir(moved.join("late/r/again")).unwrap();
    assert_eq!(watcher.told(), ["CREATE late/r/again"]);
}

#[test]
fn of_events_that_nobody_asks_for_the_newest_are_kept() {
    let daemon = Daemon::launch();
    let watcher = Watcher::new(&daemon, &json!({"path": ""}));
    let other = Watcher::new(&daemon, &json!({"path": ""}));
    let files = KEPT / 2 + 1_000;
    for n in 0..files {
        let path = daemon.home().join(format!("{n}"));
        File::create(&path).unwrap();
        fs::remove_file(path).unwrap();
        // the kernel keeps no more than the daemon
        if n % 1_000 == 0 {
            other.told();
        }
    }
    let newest = (1_000..files).flat_map(|n| [format!("CREATE {n}"), format!("REMOVE {n}")]);
    assert!(watcher.told() == newest.collect::<Vec<_>>());
}

#[test]
fn there_is_an_end_to_watchers_that_nobody_removes() {
    let daemon = Daemon::launch();
    let mut connection = daemon.connect();
    connection.set_nodelay(true).unwrap();
    let mut make = || -> Reply {
        send(&mut connection, "POST", CREATE, &[JSON], br#"{"path": ""}"#);
        Answer::read(connection.try_clone().unwrap()).finish()
    };
    let first = make().json();
    for _ in 1..MOST {
        assert_eq!(make().status, 200);
    }
    let refused = make();
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["code"], "resource_exhausted");
    daemon.call(REMOVE, &first);
    assert_eq!(make().status, 200);
}

/// A file system of somebody else's, which has an empty directory and nothing else. `None` where the kernel does not know such.
fn mount_foreign(at: &Path) -> Option<()> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .ok()?;
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other\0",
        device.as_raw_fd()
    );
    let data = std::ffi::CStr::from_bytes_with_nul(data.as_bytes()).unwrap();
    mount("foreign", at, "fuse", MountFlags::empty(), data).unwrap();
    std::thread::spawn(move || serve_foreign(device));
    Some(())
}

/// Answers what the kernel asks before it lets anybody look at a directory.
fn serve_foreign(mut device: File) {
    const GETATTR: u32 = 3;
    const STATFS: u32 = 17;
    const INIT: u32 = 26;
    let mut request = vec![0; 64 << 10];
    while device.read(&mut request).is_ok() {
        let number = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let words: Vec<u32> = match number(4) {
            // version 7.22, in which the answer is short
            INIT => vec![7, 22, 0, 0, 0, 4096],
            GETATTR => {
                let mut attributes = vec![0; 26];
                (attributes[4], attributes[19], attributes[20]) = (1, 0o40755, 2);
                attributes
            }
            STATFS => vec![0; 20],
            _ => Vec::new(),
        };
        let error = if words.is_empty() {
            -rustix::io::Errno::NOSYS.raw_os_error()
        } else {
            0
        };
        let length = u32::try_from(16 + 4 * words.len()).unwrap();
        let mut answer = [length.to_ne_bytes(), error.to_ne_bytes()].concat();
        answer.extend(&request[8..16]);
        answer.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        // to what wants no answer there can be none
        let _ = device.write_all(&answer);
    }
}

#[test]
fn what_changes_without_the_kernel_is_watched_only_for_those_who_know() {
    let test = "watch_kernel::what_changes_without_the_kernel_is_watched_only_for_those_who_know";
    alone(test, || {
        let daemon = Daemon::launch();
        let foreign = daemon.home().join("foreign");
        fs::create_dir(&foreign).unwrap();
        if mount_foreign(&foreign).is_none() {
            return;
        }
        let mut request = json!({"path": "foreign"});
        let (code, message) = daemon.refusal(CREATE, &request);
        assert_eq!(code, "invalid_argument");
        assert!(message.contains("network"), "{message}");
        let watch = "/filesystem.Filesystem/WatchDir";
        let end = daemon.stream(watch, &request).end();
        assert_eq!(end["error"]["code"], "invalid_argument");
        request["allowNetworkMounts"] = json!(true);
        assert_eq!(Watcher::new(&daemon, &request).told(), [""; 0]);
        let mut stream = daemon.stream(watch, &request);
        assert_eq!(stream.message(), json!({"start": {}}));
    });
}

//! Files and directories that are not as most are: of another age, without a length, behind links that lead nowhere.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::daemon::Daemon;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// In memory, where files may be of any age.
fn ageless() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn write_at(path: &Path, modified: SystemTime) {
    fs::write(path, "content").unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(modified).unwrap();
}

fn ages() -> [(&'static str, SystemTime); 3] {
    [
        ("ancient", UNIX_EPOCH - 3650 * DAY),
        ("year 10000", UNIX_EPOCH + 8030 * 366 * DAY),
        ("far", UNIX_EPOCH + Duration::from_secs(99_999_999_999_999)),
    ]
}

#[test]
fn files_of_every_age_are_downloaded() {
    let daemon = Daemon::launch();
    let dir = ageless();
    for (name, modified) in ages() {
        let path = dir.path().join("file");
        write_at(&path, modified);
        let reply = daemon.get(&format!("/files?path={}", path.display()));
        assert_eq!((reply.status, reply.text()), (200, "content"), "{name}");
        assert_eq!(reply.header("last-modified"), None, "{name}");
    }
}

#[test]
fn files_of_every_age_are_listed() {
    let daemon = Daemon::launch();
    let dir = ageless();
    for (name, modified) in ages() {
        write_at(&dir.path().join(name), modified);
    }
    let request = json!({"path": dir.path()});
    let listed = daemon.call("/filesystem.Filesystem/ListDir", &request);
    let entries = listed["entries"].as_array().unwrap().iter();
    let times: Vec<(&Value, &Value)> = entries
        .map(|entry| (&entry["name"], &entry["modifiedTime"]))
        .collect();
    let last = json!("9999-12-31T23:59:59Z");
    assert_eq!(
        times,
        [
            (&json!("ancient"), &json!("1960-01-04T00:00:00Z")),
            (&json!("far"), &last),
            (&json!("year 10000"), &last),
        ]
    );
}

#[test]
fn files_that_have_no_length_before_they_are_read_are_read_to_their_end() {
    let daemon = Daemon::launch();
    for path in [
        "/proc/version",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ] {
        let Ok(content) = fs::read_to_string(path) else {
            continue;
        };
        let target = format!("/files?path={path}");
        assert_eq!(daemon.get(&target).text(), content);
        let part = [("range", "bytes=0-1")];
        let reply = daemon.request("GET", &target, &part, b"");
        assert_eq!((reply.status, reply.text()), (200, &*content), "{path}");
        let packed = daemon.request("GET", &target, &[("accept-encoding", "gzip")], b"");
        let mut unpacked = String::new();
        let mut reader = flate2::read::GzDecoder::new(&*packed.body);
        std::io::Read::read_to_string(&mut reader, &mut unpacked).unwrap();
        assert_eq!(unpacked, content);
    }
}

#[test]
fn a_part_of_an_empty_file_is_all_of_it() {
    let daemon = Daemon::launch();
    fs::write(daemon.home().join("empty"), "").unwrap();
    let part = [("range", "bytes=0-99")];
    let reply = daemon.request("GET", "/files?path=empty", &part, b"");
    assert_eq!(
        (reply.status, reply.header("content-length")),
        (200, Some("0"))
    );
}

#[test]
fn no_directory_is_made_where_a_link_leads_nowhere() {
    let daemon = Daemon::launch();
    symlink("nowhere", daemon.home().join("link")).unwrap();
    let refusal = daemon.refusal("/filesystem.Filesystem/MakeDir", &json!({"path": "link"}));
    assert_eq!(refusal.0, "invalid_argument", "{}", refusal.1);
    assert!(!daemon.home().join("nowhere").exists());
}

#[test]
fn what_is_below_a_file_is_missing_whoever_asks() {
    let daemon = Daemon::launch();
    fs::write(daemon.home().join("file"), "").unwrap();
    let path = json!({"path": "file/x"});
    let from = json!({"source": "file/x", "destination": "y"});
    for (method, request) in [
        ("Stat", &path),
        ("ListDir", &path),
        ("CreateWatcher", &path),
        ("Move", &from),
    ] {
        let refusal = daemon.refusal(&format!("/filesystem.Filesystem/{method}"), request);
        assert_eq!(refusal.0, "not_found", "{method}: {}", refusal.1);
    }
    let compose = json!({"source_paths": ["file/x"], "destination": "y"}).to_string();
    for reply in [
        daemon.get("/files?path=file/x"),
        daemon.request("POST", "/files/compose", &[], compose.as_bytes()),
    ] {
        let message = format!("path '{}' does not exist", daemon.path("file/x"));
        assert_eq!((reply.status, reply.message()), (404, message));
    }
    assert!(!daemon.home().join("y").exists());
}

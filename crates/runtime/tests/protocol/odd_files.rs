//! Files and directories that are not as most are: of another age, without a length, behind links that lead nowhere.

use std::fs::{self, File};
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

//! `filesystem.Filesystem`: entries.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::client::basic;
use crate::daemon::{Daemon, user_ids};

fn call(daemon: &Daemon, method: &str, message: &Value) -> Value {
    daemon.call(&format!("/filesystem.Filesystem/{method}"), message)
}

fn refusal(daemon: &Daemon, method: &str, message: &Value) -> String {
    daemon
        .refusal(&format!("/filesystem.Filesystem/{method}"), message)
        .0
}

fn names(daemon: &Daemon, message: &Value) -> Vec<String> {
    let list = call(daemon, "ListDir", message);
    let entries = list["entries"].as_array().unwrap();
    entries
        .iter()
        .map(|e| e["path"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn an_entry_is_described_in_full() {
    let daemon = Daemon::launch();
    daemon.run("printf hello > f; chmod 640 f; TZ=UTC touch -d '2026-01-02T03:04:05.5Z' f");
    let entry = call(&daemon, "Stat", &json!({"path": "f"}));
    let group = "user";
    let expected = json!({
        "name": "f", "type": "FILE_TYPE_FILE", "path": daemon.path("f"), "size": "5", "mode": 0o640,
        "permissions": "-rw-r-----", "owner": "user", "group": group,
        "modifiedTime": "2026-01-02T03:04:05.500Z",
    });
    assert_eq!(entry["entry"], expected);
    assert_eq!(
        refusal(&daemon, "Stat", &json!({"path": "none"})),
        "not_found"
    );
    assert_eq!(
        refusal(&daemon, "Stat", &json!({"path": "f/below"})),
        "not_found"
    );
}

#[test]
fn links_are_described_by_what_they_lead_to() {
    let daemon = Daemon::launch();
    fs::create_dir(daemon.home().join("dir")).unwrap();
    symlink("dir", daemon.home().join("link")).unwrap();
    symlink("nowhere", daemon.home().join("broken")).unwrap();
    let entry = |path| call(&daemon, "Stat", &json!({"path": path}))["entry"].clone();
    let link = entry("link");
    assert_eq!(link["type"], "FILE_TYPE_DIRECTORY");
    assert_eq!(link["symlinkTarget"], daemon.path("dir"));
    assert_eq!(link["isSymlink"], true);
    assert_eq!(link["permissions"], "Lrwxrwxrwx");
    let broken = entry("broken");
    assert_eq!(broken["type"], "FILE_TYPE_UNSPECIFIED");
    assert_eq!(broken["symlinkTarget"], daemon.path("broken"));
    assert_eq!(entry("dir")["symlinkTarget"], Value::Null);
}

#[test]
fn lists_go_to_their_depth_in_order_and_not_through_links() {
    let daemon = Daemon::launch();
    let home = daemon.home();
    fs::create_dir_all(home.join("d/b/deep")).unwrap();
    fs::write(home.join("d/b/z"), "").unwrap();
    fs::write(home.join("d/a"), "").unwrap();
    fs::write(home.join("d/b.txt"), "").unwrap();
    symlink("b", home.join("d/c")).unwrap();
    symlink("d", home.join("root")).unwrap();
    let below = |root: &str, names: &[&str]| -> Vec<String> {
        names
            .iter()
            .map(|name| daemon.path(&format!("{root}/{name}")))
            .collect()
    };
    for depth in [0, 1] {
        let found = names(&daemon, &json!({"path": "d", "depth": depth}));
        assert_eq!(found, below("d", &["a", "b", "b.txt", "c"]));
    }
    let all = ["a", "b", "b/deep", "b/z", "b.txt", "c"];
    assert_eq!(
        names(&daemon, &json!({"path": "d", "depth": 2})),
        below("d", &all)
    );
    // a link as the root is followed, and its name stays
    assert_eq!(
        names(&daemon, &json!({"path": "root", "depth": 9})),
        below("root", &all)
    );
}

#[test]
fn what_cannot_be_listed_is_refused_by_its_reason() {
    let daemon = Daemon::launch();
    fs::write(daemon.home().join("file"), "").unwrap();
    symlink("loop", daemon.home().join("loop")).unwrap();
    for (path, code) in [
        ("none", "not_found"),
        ("file", "invalid_argument"),
        ("loop", "failed_precondition"),
    ] {
        assert_eq!(
            refusal(&daemon, "ListDir", &json!({"path": path})),
            code,
            "{path}"
        );
    }
}

#[test]
fn directories_are_made_with_those_above_them_for_the_user() {
    let daemon = Daemon::launch();
    let entry = call(&daemon, "MakeDir", &json!({"path": "a/b/c"}));
    assert_eq!(entry["entry"]["path"], daemon.path("a/b/c"));
    for name in ["a", "a/b", "a/b/c"] {
        let found = fs::metadata(daemon.home().join(name)).unwrap();
        assert_eq!(
            (found.uid(), found.gid(), found.mode() & 0o777),
            (user_ids().0, user_ids().1, 0o755)
        );
    }
    assert_eq!(
        refusal(&daemon, "MakeDir", &json!({"path": "a/b"})),
        "already_exists"
    );
    fs::write(daemon.home().join("file"), "").unwrap();
    assert_eq!(
        refusal(&daemon, "MakeDir", &json!({"path": "file"})),
        "invalid_argument"
    );
}

#[test]
fn a_move_replaces_a_file_and_makes_directories() {
    let daemon = Daemon::launch();
    fs::write(daemon.home().join("a"), "new").unwrap();
    fs::write(daemon.home().join("b"), "old").unwrap();
    let entry = call(&daemon, "Move", &json!({"source": "a", "destination": "b"}));
    assert_eq!(entry["entry"]["path"], daemon.path("b"));
    assert_eq!(daemon.read("b"), b"new");
    call(
        &daemon,
        "Move",
        &json!({"source": "b", "destination": "x/y/z"}),
    );
    assert_eq!(daemon.read("x/y/z"), b"new");
    let again = json!({"source": "b", "destination": "c"});
    assert_eq!(refusal(&daemon, "Move", &again), "not_found");
}

#[test]
fn removing_takes_all_beneath_but_not_what_links_lead_to() {
    let daemon = Daemon::launch();
    let home = daemon.home();
    fs::create_dir_all(home.join("d/e")).unwrap();
    fs::write(home.join("kept"), "").unwrap();
    symlink("../kept", home.join("d/link")).unwrap();
    for _ in 0..2 {
        assert_eq!(call(&daemon, "Remove", &json!({"path": "d"})), json!({}));
    }
    assert!(!home.join("d").exists() && home.join("kept").exists());
}

#[test]
fn paths_begin_at_the_home_of_the_user_who_is_named() {
    if !geteuid().is_root() {
        return;
    }
    let daemon = Daemon::launch();
    let root = basic("root");
    let headers = [("authorization", root.as_str())];
    let stat = |path| {
        let answer = daemon.unary_with(
            "/filesystem.Filesystem/Stat",
            &headers,
            &json!({"path": path}),
        );
        answer.1["entry"]["path"].clone()
    };
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let account = passwd.lines().find(|line| line.starts_with("root:"));
    let home = account.unwrap().split(':').nth(5).unwrap();
    assert_eq!(stat("~"), home);
    assert_eq!(stat(""), home);
    assert_eq!(stat("../etc"), "/etc");
}

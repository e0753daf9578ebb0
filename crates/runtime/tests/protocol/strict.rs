//! `--strict`: files with the rights of whom a request names. Without it the daemon's own, as with E2B. Only root can tell the two
//! apart.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::client::basic;
use crate::daemon::{Daemon, PROGRAM, wait_until};
use crate::upgrade::upgrade;

/// With what root keeps to himself in the home of `user`: a directory `closed` with a file, a file `secret`, and one that is for all
/// to write, `board`.
fn launch(strict: bool) -> Daemon {
    let mut command = Command::new(PROGRAM);
    command.args(strict.then_some("--strict"));
    let daemon = Daemon::launch_by(command, "127.0.0.1");
    fs::create_dir(daemon.path("closed")).unwrap();
    for (path, mode) in [
        ("closed/inside", 0o644),
        ("secret", 0o600),
        ("board", 0o666),
    ] {
        fs::write(daemon.path(path), "root's").unwrap();
        fs::set_permissions(daemon.path(path), Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(daemon.path("closed"), Permissions::from_mode(0o700)).unwrap();
    daemon
}

/// The status of every way to get at these files.
fn tries(daemon: &Daemon, user: &str) -> Vec<(&'static str, u16)> {
    let octets = [("content-type", "application/octet-stream")];
    let read = |path: &str| {
        let path = format!("/files?username={user}&path={}", daemon.path(path));
        daemon.request("GET", &path, &[], b"").status
    };
    let write = |path: &str| {
        let path = format!("/files?username={user}&path={}", daemon.path(path));
        daemon.request("POST", &path, &octets, b"new").status
    };
    let authorization = basic(user);
    let call = |method: &str, message: Value| {
        let headers = [
            ("content-type", "application/json"),
            ("authorization", &*authorization),
        ];
        let path = format!("/filesystem.Filesystem/{method}");
        let body = message.to_string();
        daemon
            .request("POST", &path, &headers, body.as_bytes())
            .status
    };
    let path = |name: &str| json!({"path": daemon.path(name)});
    vec![
        ("read", read("secret")),
        ("read below", read("closed/inside")),
        ("write", write("secret")),
        ("write below", write("closed/new")),
        ("describe", call("Stat", path("closed/inside"))),
        ("list", call("ListDir", path("closed"))),
        ("make", call("MakeDir", path("closed/directory"))),
        ("watch", call("CreateWatcher", path("closed"))),
        (
            "move",
            call(
                "Move",
                json!({"source": daemon.path("closed/inside"), "destination": daemon.path("taken")}),
            ),
        ),
        ("remove", call("Remove", path("closed"))),
    ]
}

fn all_are(tries: &[(&str, u16)], status: u16) {
    for (what, answered) in tries {
        assert_eq!(*answered, status, "{what}");
    }
}

#[test]
fn a_strict_daemon_refuses_what_the_user_may_not() {
    if !geteuid().is_root() {
        return;
    }
    let daemon = launch(true);
    let before = fs::metadata(daemon.path("closed")).unwrap();
    all_are(&tries(&daemon, "user"), 403);
    assert_eq!(fs::read(daemon.path("secret")).unwrap(), b"root's");
    assert_eq!(fs::read_dir(daemon.path("closed")).unwrap().count(), 1);
    assert_eq!(
        fs::metadata(daemon.path("closed")).unwrap().mtime(),
        before.mtime()
    );
    // what it did for one it does not keep for the next
    all_are(&tries(&daemon, "root"), 200);
}

#[test]
fn otherwise_it_does_on_the_users_behalf_what_root_may() {
    if !geteuid().is_root() {
        return;
    }
    all_are(&tries(&launch(false), "user"), 200);
}

#[test]
fn what_the_user_may_write_stays_whose_it_is_and_what_he_makes_is_his() {
    if !geteuid().is_root() {
        return;
    }
    let daemon = launch(true);
    let octets = [("content-type", "application/octet-stream")];
    for (path, owner) in [("board", 0), ("own/file", 1000)] {
        let at = format!("/files?username=user&path={path}");
        let reply = daemon.request("POST", &at, &octets, b"new");
        assert_eq!(reply.status, 200, "{path}: {}", reply.message());
        let about = fs::metadata(daemon.path(path)).unwrap();
        assert_eq!((about.uid(), about.len()), (owner, 3), "{path}");
    }
    // by a group that only the list of groups names him in
    let shared = daemon.path("shared");
    fs::write(&shared, "of the group").unwrap();
    std::os::unix::fs::chown(&shared, Some(0), Some(4242)).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o640)).unwrap();
    let read = daemon.request("GET", "/files?username=user&path=shared", &[], b"");
    assert_eq!((read.status, &*read.body), (200, &b"of the group"[..]));
}

#[test]
fn its_threads_are_again_who_they_were_whatever_group_that_is() {
    if !geteuid().is_root() {
        return;
    }
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--regid", "3000", "--clear-groups", PROGRAM, "--strict"]);
    let daemon = Daemon::launch_by(setpriv, "127.0.0.1");
    assert_eq!(daemon.get("/files?username=user&path=nothing").status, 404);
    for thread in fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let ids = |name: &str| -> Vec<String> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let ids = line.unwrap().split_whitespace();
            ids.map(str::to_owned).collect()
        };
        assert_eq!(ids("Uid:"), ["0"; 4]);
        assert_eq!(ids("Gid:"), ["3000"; 4]);
    }
}

#[test]
fn one_who_is_not_root_but_could_be_is_not_called_strict() {
    if !geteuid().is_root() {
        return;
    }
    let powers = "+setuid,+setgid";
    // it would serve for ever
    let output = Command::new("timeout")
        .args(["10", "setpriv", "--reuid", "65534"])
        .args(["--regid", "65534", "--clear-groups"])
        .args(["--inh-caps", powers, "--ambient-caps", powers])
        .args([PROGRAM, "--strict", "--port", "0"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("--strict is for a daemon that is root"),
        "{said}"
    );
}

#[test]
fn a_strict_watch_sees_nothing_of_what_is_closed_later_also_when_another_daemon_takes_over() {
    if !geteuid().is_root() {
        return;
    }
    let daemon = launch(true);
    daemon.init(&json!({}));
    let request = json!({"path": "", "recursive": true, "includeEntry": true});
    let made = daemon.call("/filesystem.Filesystem/CreateWatcher", &request);
    let id = json!({"watcherId": made["watcherId"]});
    let mut seen: Vec<String> = Vec::new();
    let mut until = |name: &str| {
        wait_until("it is told", || {
            let answer = daemon.call("/filesystem.Filesystem/GetWatcherEvents", &id);
            let events = answer["events"].as_array().unwrap().clone();
            let names = events.iter().map(|event| event["name"].as_str().unwrap());
            seen.extend(names.map(str::to_owned));
            seen.iter().any(|seen| seen == name)
        });
    };
    for (hidden, last) in [("hidden", "last"), ("hidden again", "last again")] {
        fs::write(daemon.path("closed/second"), "").unwrap();
        // closed before it is there
        let draft = Path::new(&daemon.path("closed")).with_file_name("../draft");
        fs::create_dir(&draft).unwrap();
        fs::set_permissions(&draft, Permissions::from_mode(0o700)).unwrap();
        fs::rename(&draft, daemon.path(hidden)).unwrap();
        until(hidden);
        fs::write(daemon.home().join(hidden).join("file"), "").unwrap();
        fs::write(daemon.path(last), "").unwrap();
        until(last);
        upgrade(&daemon, b"");
    }
    assert!(!seen.iter().any(|name| name.contains('/')), "{seen:?}");
}

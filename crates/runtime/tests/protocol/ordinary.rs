//! A daemon that is not root, or root with nothing of its power: it acts as who it is, and says so to those who want another.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use rustix::process::geteuid;
use serde_json::json;

use crate::client::{basic, shell};
use crate::daemon::{Daemon, ORDINARY, PROGRAM};

const OCTETS: [(&str, &str); 1] = [("content-type", "application/octet-stream")];

fn launch() -> Option<Daemon> {
    geteuid().is_root().then(Daemon::launch_ordinary)
}

#[test]
fn commands_and_files_are_those_of_who_runs_it_though_no_file_names_them() {
    let Some(daemon) = launch() else {
        return;
    };
    assert_eq!(daemon.get("/health").status, 204);
    assert_eq!(daemon.init(&json!({"envVars": {"A": "b"}})).status, 204);
    let ran = daemon.run("id -u; id -G; echo $USER $A; pwd");
    let home = daemon.home();
    let home = home.display();
    let expected = format!("{ORDINARY}\n{ORDINARY}\n{ORDINARY} b\n{home}\n");
    assert_eq!((ran.stdout, ran.stderr), (expected, String::new()));

    let put = daemon.request("POST", "/files?path=a/f", &OCTETS, b"hello");
    assert_eq!(put.status, 200, "{}", put.text());
    assert_eq!(daemon.get("/files?path=a/f").text(), "hello");
    let stat = daemon.call("/filesystem.Filesystem/Stat", &json!({"path": "a/f"}));
    assert_eq!(stat["entry"]["owner"], ORDINARY.to_string());
    daemon.call("/filesystem.Filesystem/MakeDir", &json!({"path": "b/c"}));
    let made = fs::metadata(daemon.home().join("b/c")).unwrap();
    assert_eq!((made.uid(), made.gid()), (ORDINARY, ORDINARY));
    daemon.call("/filesystem.Filesystem/Remove", &json!({"path": "b"}));
    assert_eq!(daemon.complaints(), "");
}

#[test]
fn what_its_user_may_not_do_is_refused_by_the_system() {
    let Some(daemon) = launch() else {
        return;
    };
    fs::write(daemon.root().with_file_name("locked"), "secret").unwrap();
    let path = daemon.root().with_file_name("locked");
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&path, permissions).unwrap();
    let target = format!("/files?path={}", path.display());
    assert_eq!(daemon.get(&target).status, 403);
    assert_eq!(daemon.request("POST", &target, &OCTETS, b"x").status, 403);
    assert_eq!(fs::read(&path).unwrap(), b"secret");
    let request = json!({"path": path.with_file_name("d")});
    let refusal = daemon.refusal("/filesystem.Filesystem/MakeDir", &request);
    assert_eq!(refusal.0, "permission_denied");
    assert_eq!(daemon.complaints(), "");
}

#[test]
fn other_users_are_refused_by_name_before_anything_is_done() {
    let Some(daemon) = launch() else {
        return;
    };
    let said = format!("the daemon runs as '{ORDINARY}' and cannot act as 'root'");
    let root = basic("root");
    let headers = [("authorization", &*root)];
    let request = shell("touch started");
    let answer = daemon.stream_with("/process.Process/Start", &headers, &request);
    let error = json!({"code": "permission_denied", "message": said});
    assert_eq!(answer.end(), json!({"error": error}));

    let path = daemon.path("f");
    fs::write(&path, "kept").unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let target = format!("/files?username=root&path={path}");
    let put = daemon.request("POST", &target, &OCTETS, b"changed");
    assert_eq!((put.status, put.message()), (403, said));
    assert_eq!(fs::read(&path).unwrap(), b"kept");
    assert!(!daemon.home().join("started").exists());
}

#[test]
fn a_user_that_it_cannot_be_is_not_the_default_and_its_group_is_the_one_it_has() {
    let Some(daemon) = launch() else {
        return;
    };
    let home = daemon.home();
    let home = home.display();
    let passwd = format!("user:x:1000:1000::/home/user:/bin/sh\nme:x:{ORDINARY}:77::{home}:\n");
    daemon.name_users(&passwd);
    let ran = daemon.run("echo $USER; id -u; id -g");
    assert_eq!(ran.stdout, format!("me\n{ORDINARY}\n{ORDINARY}\n"));
    let put = daemon.request("POST", "/files?username=me&path=d/f", &OCTETS, b"x");
    assert_eq!(put.status, 200, "{}", put.text());
    let written = fs::metadata(daemon.home().join("d/f")).unwrap();
    assert_eq!((written.uid(), written.gid()), (ORDINARY, ORDINARY));
}

#[test]
fn root_who_cannot_be_another_runs_commands_as_root_alone() {
    if !geteuid().is_root() {
        return;
    }
    let without_capabilities: &[&str] =
        &["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"];
    // as the sandboxes of an ordinary user are
    let of_a_namespace = &["unshare", "--user", "--map-root-user"];
    for way in [without_capabilities, of_a_namespace] {
        let mut command = Command::new(way[0]);
        command.args(&way[1..]).arg(PROGRAM);
        let daemon = Daemon::launch_by(command, "127.0.0.1");
        assert_eq!(daemon.run("id -u").stdout, "0\n", "{way:?}");
        let put = daemon.request("POST", "/files?path=f", &OCTETS, b"x");
        assert_eq!(put.status, 200, "{way:?}: {}", put.text());
        let user = basic("user");
        let headers = [("authorization", &*user)];
        let answer = daemon.stream_with("/process.Process/Start", &headers, &shell("true"));
        let said = "the daemon runs as 'root' and cannot act as 'user'";
        assert_eq!(answer.end()["error"]["message"], said, "{way:?}");
    }
}

#[test]
fn a_file_that_cannot_be_given_to_its_user_is_not_said_to_be_written() {
    if !geteuid().is_root() {
        return;
    }
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--bounding-set", "-chown", "--inh-caps", "-chown", PROGRAM]);
    let daemon = Daemon::launch_by(setpriv, "127.0.0.1");
    let put = |user: &str| {
        let target = format!("/files?username={user}&path={}", daemon.path("f"));
        daemon.request("POST", &target, &OCTETS, b"x").status
    };
    assert_eq!((put("user"), put("root")), (403, 200));
}

#[test]
fn nobody_becomes_root_because_users_cannot_be_looked_up() {
    let daemon = Daemon::launch();
    let passwd = daemon.root().with_file_name("passwd");
    fs::remove_file(&passwd).unwrap();
    fs::create_dir(&passwd).unwrap();
    let answer = daemon.stream("/process.Process/Start", &shell("true"));
    assert_eq!(answer.end()["error"]["code"], "unavailable");
    let target = format!("/files?path={}", daemon.path("f"));
    assert_eq!(daemon.request("POST", &target, &OCTETS, b"").status, 503);
    assert!(!daemon.home().join("f").exists());
}

//! Volumes that are mounted into a sandbox: over HTTP, and by the program that controllers execute in it.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use prost::Message as _;
use runtime::messages::csi::{MountVolume, NodePublishVolumeRequest, VolumeCapability};
use serde_json::{Value, json};

use crate::alone::alone;
use crate::client::{Reply, basic, encode};
use crate::daemon::{Daemon, wait_until};

/// The daemon's own program, under the name by which it is this.
const PROGRAM: &str = env!("CARGO_BIN_EXE_sandbar-runtime");

fn mount_over_http(daemon: &Daemon, driver: &str, request: &Value) -> Reply {
    let body = json!({"driver": driver, "publishRequest": request}).to_string();
    daemon.request("POST", "/v1/storage/mounts", &[], body.as_bytes())
}

fn bind(source: &str, target: &str) -> NodePublishVolumeRequest {
    NodePublishVolumeRequest {
        target_path: target.to_owned(),
        volume_context: [("path".to_owned(), source.to_owned())].into(),
        ..NodePublishVolumeRequest::default()
    }
}

fn config(request: &NodePublishVolumeRequest) -> String {
    encode(request.encode_to_vec())
}

fn program() -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg0("/mnt/envd/sandbox-runtime-storage");
    command
}

fn execution(driver: &str, request: &NodePublishVolumeRequest) -> Command {
    let mut command = program();
    command.args(["mount", "--driver", driver, "--config", &config(request)]);
    command
}

fn execute(driver: &str, request: &NodePublishVolumeRequest) -> Output {
    execution(driver, request).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// How many mounts there are at a place, one above the other.
fn mounts_at(target: &str) -> usize {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let at = |line: &&str| line.split(' ').nth(1) == Some(target);
    mounts.lines().filter(at).count()
}

/// Two directories, each with a file that says which it is, and a place that does not exist yet.
struct Volumes {
    one: String,
    other: String,
    target: String,
}

/// Alone with a daemon that has them.
fn with_volumes(test: &str, body: impl FnOnce(&Daemon, Volumes)) {
    alone(test, || {
        let daemon = Daemon::launch();
        for name in ["one", "other"] {
            fs::create_dir(daemon.path(name)).unwrap();
            fs::set_permissions(daemon.path(name), Permissions::from_mode(0o777)).unwrap();
            fs::write(daemon.path(name) + "/which", name).unwrap();
        }
        let volumes = Volumes {
            one: daemon.path("one"),
            other: daemon.path("other"),
            target: daemon.path("mnt/volume"),
        };
        body(&daemon, volumes);
    });
}

fn which(target: &str) -> String {
    fs::read_to_string(Path::new(target).join("which")).unwrap()
}

#[test]
fn a_directory_is_bound_over_http_and_seen_by_commands() {
    with_volumes(
        "storage::a_directory_is_bound_over_http_and_seen_by_commands",
        |daemon, Volumes { one, target, .. }| {
            let request = json!({
                "volumeId": "pv-1-abcdef",
                "targetPath": target,
                "stagingTargetPath": null,
                "volumeCapability": {"mount": {"fsType": "ext4"}, "accessMode": {"mode": "MULTI_NODE_MULTI_WRITER"}},
                "volumeContext": {"path": one},
            });
            let reply = mount_over_http(daemon, "bind", &request);
            let mounted = json!({"success": true, "mountPath": target, "message": "mounted"});
            assert_eq!((reply.status, reply.json()), (200, mounted.clone()));
            let ran = daemon.run(&format!("cat {target}/which; echo new > {target}/written"));
            assert_eq!((&*ran.stdout, &*ran.stderr), ("one", ""));
            assert_eq!(daemon.read("one/written"), b"new\n");
            // again is the same, also by the names that the fields have in protobuf
            let again = json!({"target_path": target, "volume_context": {"path": one}});
            let reply = mount_over_http(daemon, "bind", &again);
            assert_eq!((reply.status, reply.json()), (200, mounted));
            assert_eq!(mounts_at(&target), 1);
        },
    );
}

#[test]
fn the_program_that_controllers_execute_mounts_the_same() {
    with_volumes(
        "storage::the_program_that_controllers_execute_mounts_the_same",
        |daemon, Volumes { one, target, .. }| {
            let arguments = ["mount", "--driver", "bind", "--config"];
            let config = config(&bind(&one, &target));
            let arguments: Vec<&str> = arguments.into_iter().chain([&*config]).collect();
            let program = daemon.path("sandbox-runtime-storage");
            symlink(PROGRAM, &program).unwrap();
            let start =
                json!({"process": {"cmd": program, "args": arguments, "envs": {"POD_UID": "1"}}});
            let root = [("authorization", &*basic("root"))];
            for _ in 0..2 {
                let ran = daemon.start_with_request(&root, &start).finish();
                assert_eq!(ran.stdout, format!("mounted at {target}\n"), "{ran:?}");
                assert_eq!(ran.end["exited"], true);
                assert_eq!((which(&target), mounts_at(&target)), ("one".into(), 1));
            }
        },
    );
}

#[test]
fn another_source_at_the_same_place_is_refused() {
    with_volumes(
        "storage::another_source_at_the_same_place_is_refused",
        |daemon, Volumes { one, other, target }| {
            assert!(execute("bind", &bind(&one, &target)).status.success());
            let refused = execute("bind", &bind(&other, &target));
            assert_eq!(refused.status.code(), Some(1));
            let said = text(&refused.stderr);
            let says = format!("cannot mount {other} at '{target}'");
            assert!(said.contains(&says) && said.contains("one' of"), "{said}");
            let request = json!({"targetPath": target, "volumeContext": {"path": other}});
            let reply = mount_over_http(daemon, "bind", &request);
            assert_eq!(reply.status, 409);
            assert_eq!(reply.json()["success"], false);
            assert_eq!(reply.json()["mountPath"], target);
            assert!(reply.message().contains(&says), "{}", reply.message());
            // nor can the whole machine be hidden
            assert!(!execute("bind", &bind(&one, "/")).status.success());
            assert_eq!((which(&target), mounts_at(&target)), ("one".into(), 1));
        },
    );
}

#[test]
fn a_volume_is_as_read_only_as_it_was_asked_for() {
    with_volumes(
        "storage::a_volume_is_as_read_only_as_it_was_asked_for",
        |daemon, Volumes { one, target, .. }| {
            let writable = bind(&one, &target);
            let read_only = NodePublishVolumeRequest {
                readonly: true,
                ..writable.clone()
            };
            for _ in 0..2 {
                assert!(execute("bind", &read_only).status.success());
            }
            let written = fs::write(format!("{target}/new"), "");
            assert_eq!(
                written.unwrap_err().kind(),
                std::io::ErrorKind::ReadOnlyFilesystem
            );
            fs::write(format!("{one}/new"), "").unwrap();
            let refused = execute("bind", &writable);
            assert_eq!(refused.status.code(), Some(1));
            assert!(text(&refused.stderr).contains("but read-only"));
            // the reverse is no better: somebody relies on it
            let elsewhere = daemon.path("elsewhere");
            assert!(execute("bind", &bind(&one, &elsewhere)).status.success());
            let read_only = NodePublishVolumeRequest {
                target_path: elsewhere,
                ..read_only
            };
            let refused = execute("bind", &read_only);
            assert_eq!(refused.status.code(), Some(1));
            assert!(text(&refused.stderr).contains("but writable"));
            // what lies in a read-only place stays so, and may be asked for again
            let deeper = daemon.path("deeper");
            for _ in 0..2 {
                let output = execute("bind", &bind(&target, &deeper));
                assert!(output.status.success(), "{}", text(&output.stderr));
            }
            assert!(fs::write(format!("{deeper}/new"), "").is_err());
            assert_eq!((mounts_at(&target), mounts_at(&deeper)), (1, 1));
        },
    );
}

#[test]
fn flags_are_those_of_the_volume_and_of_where_it_lies() {
    with_volumes(
        "storage::flags_are_those_of_the_volume_and_of_where_it_lies",
        |_, Volumes { one, target, .. }| {
            let mount = ["-t", "tmpfs", "-o", "noexec", "tmpfs", &one];
            assert!(
                Command::new("mount")
                    .args(mount)
                    .status()
                    .unwrap()
                    .success()
            );
            let mut request = bind(&one, &target);
            request.volume_capability = Some(VolumeCapability {
                mount: Some(MountVolume {
                    mount_flags: vec!["nosuid".into()],
                }),
                block: None,
            });
            assert!(execute("bind", &request).status.success());
            let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
            let line = mounts.lines().find(|line| line.contains(&target)).unwrap();
            assert!(line.contains("nosuid") && line.contains("noexec"), "{line}");
        },
    );
}

#[test]
fn the_same_asked_for_twice_at_once_is_mounted_once() {
    with_volumes(
        "storage::the_same_asked_for_twice_at_once_is_mounted_once",
        |_, Volumes { one, target, .. }| {
            fs::create_dir_all(&target).unwrap();
            // this test is the first of the two, and has not mounted it yet
            let place = File::open(&target).unwrap();
            place.lock().unwrap();
            let second = execution("bind", &bind(&one, &target))
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let waiting = format!("-> FLOCK  ADVISORY  WRITE {} ", second.id());
            wait_until("the second waits", || {
                fs::read_to_string("/proc/locks")
                    .unwrap()
                    .contains(&waiting)
            });
            let mount = ["--bind", &one, &target];
            assert!(
                Command::new("mount")
                    .args(mount)
                    .status()
                    .unwrap()
                    .success()
            );
            drop(place);
            let output = second.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", text(&output.stderr));
            assert_eq!((which(&target), mounts_at(&target)), ("one".into(), 1));
        },
    );
}

#[test]
fn a_driver_that_is_not_there_is_named_with_those_that_are() {
    let daemon = Daemon::launch();
    let request = json!({"targetPath": "/mnt/x", "volumeContext": {}});
    let reply = mount_over_http(&daemon, "oss.example.com", &request);
    assert_eq!(
        (reply.status, &reply.json()["success"]),
        (501, &json!(false))
    );
    let executed = execute("oss.example.com", &bind("/", "/mnt/x"));
    assert_eq!(executed.status.code(), Some(1));
    for said in [&*reply.message(), text(&executed.stderr)] {
        for name in ["'oss.example.com'", "'bind'", "'nfs'"] {
            assert!(said.contains(name), "{said}");
        }
    }
}

/// Where the kernel has NFS, there is no server at this address.
#[test]
fn an_export_that_cannot_be_mounted_leaves_nothing_behind() {
    alone(
        "storage::an_export_that_cannot_be_mounted_leaves_nothing_behind",
        || {
            let daemon = Daemon::launch();
            let target = daemon.path("volume");
            let mut request = bind("/data", &target);
            let server = ("server".to_owned(), "127.0.0.1".to_owned());
            request.volume_context.extend([server]);
            let refused = execute("nfs", &request);
            assert_eq!(refused.status.code(), Some(1));
            let said = text(&refused.stderr);
            let says = format!("cannot mount 127.0.0.1:/data at '{target}'");
            assert!(said.contains(&says), "{said}");
            let kernel = fs::read_to_string("/proc/filesystems").unwrap();
            if !kernel.contains("nfs") {
                assert!(said.contains("this kernel has no NFS"), "{said}");
            }
            assert_eq!(mounts_at(&target), 0);
        },
    );
}

#[test]
fn what_cannot_be_understood_is_refused() {
    let daemon = Daemon::launch();
    for body in ["", "[]", r#"{"driver": 1}"#] {
        let reply = daemon.request("POST", "/v1/storage/mounts", &[], body.as_bytes());
        assert_eq!(
            (reply.status, &reply.json()["success"]),
            (400, &json!(false))
        );
    }
    assert_eq!(daemon.get("/v1/storage/mounts").status, 405);
    for arguments in [
        &["mount", "--driver", "bind"][..],
        &["mount", "--driver", "bind", "--config", "%"],
        &["mount", "--driver", "bind", "--config=AAAA"],
        &["unmount"],
        &[],
    ] {
        let output = program().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

//! What must not keep a daemon from its work: clients that leave or stall, a log that nobody reads, its own end.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write as _;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use crate::alone::alone;
use crate::client::{Answer, shell};
use crate::daemon::{Daemon, PROGRAM, wait_until};
use crate::upgrade::begin_upload;

#[test]
fn a_log_that_nobody_reads_any_more_is_no_reason_to_end() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new(PROGRAM);
    // below a file, which is something to complain about
    command.args(["--legacy-port", "0", "--legacy-root"]);
    command.arg(file.path().join("root")).stderr(writer);
    let mut daemon = Daemon::launch_by(command, "127.0.0.1");
    assert_eq!(daemon.get("/health").status, 204);
    daemon.assert_alive();
}

#[test]
fn uploads_that_stall_keep_nobody_from_other_files() {
    let daemon = Daemon::launch();
    fs::write(daemon.home().join("file"), "content").unwrap();
    let stalled: Vec<_> = (0..520)
        .map(|number| {
            let mut upload = begin_upload(&daemon, &daemon.path(&number.to_string()));
            upload.write_all(b"first").unwrap();
            upload
        })
        .collect();
    // all of them have arrived, as this comes after them
    wait_until("some have begun", || daemon.home().join("100").exists());
    assert_eq!(daemon.get("/health").status, 204);
    assert_eq!(daemon.get("/files?path=file").text(), "content");
    let listed = daemon.call("/filesystem.Filesystem/ListDir", &json!({"path": ""}));
    assert!(listed["entries"].as_array().unwrap().len() > 100);
    for mut upload in stalled {
        upload.write_all(b"other").unwrap();
        assert_eq!(Answer::read(upload).finish().status, 200);
    }
    assert_eq!(daemon.read("519"), b"firstother");
}

#[test]
fn an_init_is_carried_out_also_for_a_client_that_has_left() {
    alone(
        "lasting::an_init_is_carried_out_also_for_a_client_that_has_left",
        || {
            // certificates are added to what can only be read when somebody writes to it
            let hidden = Command::new("mount")
                .args(["-t", "tmpfs", "none", "/etc/ssl"])
                .status();
            assert!(hidden.unwrap().success());
            fs::create_dir("/etc/ssl/certs").unwrap();
            let bundle = "/etc/ssl/certs/ca-certificates.crt";
            let path = CString::new(bundle).unwrap();
            mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();

            let daemon = Daemon::launch();
            let init = json!({"envVars": {"WORD": "hello"}, "caBundle": "certificate"}).to_string();
            let mut client = daemon.connect();
            let head = format!(
                "POST /init HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{init}",
                init.len()
            );
            client.write_all(head.as_bytes()).unwrap();
            wait_until("it is under way", || daemon.init(&json!({})).status == 503);
            drop(client);
            for _ in 0..10 {
                assert_eq!(daemon.get("/health").status, 204);
            }
            let mut feed = File::options().write(true).open(bundle).unwrap();
            feed.write_all(b"certificate").unwrap();
            drop(feed);
            wait_until("its variables are there", || {
                daemon.get("/envs").json()["WORD"] == "hello"
            });
        },
    );
}

#[test]
fn nothing_is_started_any_more_by_a_daemon_that_was_told_to_stop() {
    let mut daemon = Daemon::launch();
    let mut running = daemon.start("trap 'echo told; read word; exit' TERM; echo ready; read word");
    assert_eq!(running.stdout(), "ready\n");
    daemon.tell_to_stop();
    assert_eq!(running.stdout(), "told\n");
    let refused = daemon.stream("/process.Process/Start", &shell("echo no"));
    let end = refused.end();
    assert_eq!(end["error"]["code"], "unavailable", "{end}");
    let close = json!({"process": running.selector()});
    daemon.call("/process.Process/CloseStdin", &close);
    running.finish();
    assert!(daemon.terminate().success());
}

#[test]
fn whoever_is_connected_is_asked_by_the_kernel_whether_he_is_still_there() {
    let daemon = Daemon::launch();
    let mut client = daemon.connect();
    client
        .write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        .unwrap();
    let own = client.local_addr().unwrap().port();
    assert_eq!(Answer::read(client.try_clone().unwrap()).status, 204);
    let ports = (
        format!(":{:04X}", daemon.address.port()),
        format!(":{own:04X}"),
    );
    wait_until("a timer asks for it", || {
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let mut rows = table
            .lines()
            .map(|row| row.split_whitespace().collect::<Vec<_>>());
        let row = rows.find(|row| row[1].ends_with(&ports.0) && row[2].ends_with(&ports.1));
        row.is_some_and(|row| row[5].starts_with("02:"))
    });
}

#[test]
fn every_refusal_of_sandboxd_has_a_code_with_a_name() {
    let daemon = Daemon::launch_sandboxd();
    for (method, target, allowed) in [
        ("POST", "/v1/files/x", "GET, HEAD, PUT, DELETE"),
        ("POST", "/v1/health", "GET"),
        ("PUT", "/v1/metadata", "GET"),
    ] {
        let refused = daemon.request(method, target, &[], b"");
        assert_eq!(refused.status, 405, "{target}");
        assert_eq!(refused.json()["code"], "METHOD_NOT_ALLOWED", "{target}");
        assert_eq!(refused.header("allow"), Some(allowed));
    }
}

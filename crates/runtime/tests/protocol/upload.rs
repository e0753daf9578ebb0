//! `POST /files`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde_json::{Value, json};

use crate::client::{Headers, Reply, gzip};
use crate::daemon::{Daemon, user_ids};

const OCTETS: (&str, &str) = ("content-type", "application/octet-stream");
const MULTIPART: (&str, &str) = ("content-type", "multipart/form-data; boundary=XX");

fn put(daemon: &Daemon, query: &str, headers: Headers, body: &[u8]) -> Reply {
    daemon.request("POST", &format!("/files?{query}"), headers, body)
}

/// Each a name of the form, a file name and a content.
fn form(parts: &[(&str, &str, &str)]) -> Vec<u8> {
    let part = |(name, filename, content): &(&str, &str, &str)| {
        format!(
            "--XX\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{filename}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n{content}\r\n"
        )
    };
    let parts: String = parts.iter().map(part).collect();
    format!("{parts}--XX--\r\n").into_bytes()
}

#[test]
fn an_upload_and_its_directories_belong_to_the_user() {
    let daemon = Daemon::launch();
    let reply = put(&daemon, "path=a/b/c.txt", &[OCTETS], b"hello");
    let path = daemon.path("a/b/c.txt");
    let written = json!([{"path": path, "name": "c.txt", "type": "file"}]);
    assert_eq!((reply.status, reply.json()), (200, written));
    assert_eq!(daemon.read("a/b/c.txt"), b"hello");
    for (name, mode) in [("a", 0o755), ("a/b", 0o755), ("a/b/c.txt", 0o644)] {
        let found = fs::metadata(daemon.home().join(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), user_ids(), "{name}");
        assert_eq!(found.mode() & 0o7777, mode, "{name}");
    }
}

#[test]
fn an_existing_file_stays_the_same_inode_with_the_same_mode() {
    let daemon = Daemon::launch();
    let path = daemon.home().join("f");
    fs::write(&path, "a longer content").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    let before = fs::metadata(&path).unwrap();
    assert_eq!(put(&daemon, "path=f", &[OCTETS], b"short").status, 200);
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.ino(), after.mode()), (before.ino(), before.mode()));
    assert_eq!((after.uid(), after.gid()), user_ids());
    assert_eq!(daemon.read("f"), b"short");
}

#[test]
fn parts_of_a_form_keep_the_directories_of_their_names() {
    let daemon = Daemon::launch();
    let absolute = daemon.path("deep/er/two");
    let body = form(&[
        ("note", "ignored", "not a file"),
        ("file", "dir/one", "1"),
        ("file", &absolute, "2"),
    ]);
    let reply = put(&daemon, "", &[MULTIPART], &body);
    let paths: Vec<Value> = reply
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["path"].clone())
        .collect();
    assert_eq!(paths, [daemon.path("dir/one"), absolute]);
    assert_eq!(daemon.read("dir/one"), b"1");
    assert_eq!(daemon.read("deep/er/two"), b"2");
    assert!(!daemon.home().join("ignored").exists());
}

#[test]
fn a_path_in_the_query_is_that_of_the_only_part() {
    let daemon = Daemon::launch();
    let one = form(&[("file", "other-name", "content")]);
    assert_eq!(put(&daemon, "path=named", &[MULTIPART], &one).status, 200);
    assert_eq!(daemon.read("named"), b"content");
    for twice in [
        put(
            &daemon,
            "path=x",
            &[MULTIPART],
            &form(&[("file", "a", ""), ("file", "b", "")]),
        ),
        put(
            &daemon,
            "",
            &[MULTIPART],
            &form(&[("file", "y", ""), ("file", "./y", "")]),
        ),
    ] {
        assert_eq!(twice.status, 400, "{}", twice.text());
    }
}

#[test]
fn compressed_uploads_are_unpacked() {
    let daemon = Daemon::launch();
    let encoded = ("content-encoding", "gzip");
    let content = b"0123456789".repeat(100_000);
    assert_eq!(
        put(&daemon, "path=f", &[OCTETS, encoded], &gzip(&content)).status,
        200
    );
    assert!(daemon.read("f") == content);
    let twice_packed = [gzip(b"one, "), gzip(b"two")].concat();
    put(&daemon, "path=f", &[OCTETS, encoded], &twice_packed);
    assert_eq!(daemon.read("f"), b"one, two");
    let cut_off = &gzip(&content)[..1_000];
    assert_eq!(
        put(&daemon, "path=f", &[OCTETS, encoded], cut_off).status,
        400
    );
    let packed_form = gzip(&form(&[("file", "g", "form")]));
    assert_eq!(
        put(&daemon, "", &[MULTIPART, encoded], &packed_form).status,
        200
    );
    assert_eq!(daemon.read("g"), b"form");
    assert_eq!(
        put(&daemon, "path=h", &[OCTETS, encoded], b"not gzip").status,
        400
    );
    let unknown = put(
        &daemon,
        "path=h",
        &[OCTETS, ("content-encoding", "br")],
        b"",
    );
    assert_eq!(unknown.status, 400);
}

#[test]
fn uploads_without_a_length_are_taken() {
    let daemon = Daemon::launch();
    let chunked = ("transfer-encoding", "chunked");
    let body = b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";
    assert_eq!(put(&daemon, "path=f", &[OCTETS, chunked], body).status, 200);
    assert_eq!(daemon.read("f"), b"abcdefg");
}

#[test]
fn what_cannot_be_written_is_refused() {
    let mut daemon = Daemon::launch();
    fs::create_dir(daemon.home().join("dir")).unwrap();
    fs::write(daemon.home().join("file"), "").unwrap();
    let text = ("content-type", "text/plain");
    for (query, headers, body, status) in [
        ("path=dir", &[OCTETS][..], &b"x"[..], 400),
        ("path=file/below", &[OCTETS], b"x", 400),
        ("", &[OCTETS], b"x", 400),
        ("path=f", &[text], b"x", 400),
        ("path=f", &[], b"x", 400),
        (
            "path=f",
            &[("content-type", "multipart/form-data")],
            b"x",
            400,
        ),
        ("path=f", &[MULTIPART], b"no form", 400),
        ("path=f&username=who", &[OCTETS], b"x", 401),
        ("path=~who/f", &[OCTETS], b"x", 400),
    ] {
        let reply = put(&daemon, query, headers, body);
        assert_eq!(reply.status, status, "{query}: {}", reply.text());
        assert_eq!(reply.json()["code"], status, "{query}");
    }
    assert!(!daemon.home().join("f").exists());
    daemon.assert_alive();
}

/// Not every file system that tests run on does.
fn stores_attributes(daemon: &Daemon) -> bool {
    let path = daemon.home().join("probe");
    fs::write(&path, "").unwrap();
    rustix::fs::setxattr(&path, "user.probe", b"", rustix::fs::XattrFlags::empty()).is_ok()
}

#[test]
fn metadata_is_stored_with_the_file_and_replaced_as_a_whole() {
    let daemon = Daemon::launch();
    if !stores_attributes(&daemon) {
        let reply = put(&daemon, "path=f", &[OCTETS, ("x-metadata-n", "1")], b"x");
        assert_eq!(
            (reply.status, &reply.json()[0]["metadata"]),
            (200, &Value::Null)
        );
        return;
    }
    let stat = || {
        let entry = daemon.call("/filesystem.Filesystem/Stat", &json!({"path": "f"}));
        entry["entry"]["metadata"].clone()
    };
    let twice = [
        OCTETS,
        ("x-metadata-Author", "me"),
        ("X-Metadata-author", "you"),
        ("x-metadata-n", "1"),
    ];
    let reply = put(&daemon, "path=f", &twice, b"x");
    let expected = json!({"author": "me", "n": "1"});
    assert_eq!(reply.json()[0]["metadata"], expected);
    assert_eq!(stat(), expected);
    put(
        &daemon,
        "path=f",
        &[OCTETS, ("x-metadata-other", "o")],
        b"x",
    );
    assert_eq!(stat(), json!({"other": "o"}));
    put(&daemon, "path=f", &[OCTETS], b"x");
    assert_eq!(stat(), Value::Null);
}

#[test]
fn metadata_that_cannot_be_stored_is_refused_before_anything_is_written() {
    let daemon = Daemon::launch();
    let long_key = format!("x-metadata-{}", "k".repeat(247));
    let long_value = "v".repeat(4096);
    for header in [
        (long_key.as_str(), "v"),
        ("x-metadata-k", long_value.as_str()),
        ("x-metadata-k", "caf\u{e9}"),
        ("x-metadata-", "v"),
    ] {
        let reply = put(&daemon, "path=f", &[OCTETS, header], b"x");
        assert_eq!(reply.status, 400, "{}", reply.text());
    }
    assert!(!daemon.home().join("f").exists());
}

#[test]
fn a_new_small_file_is_three_events_however_it_arrives() {
    let daemon = Daemon::launch();
    let watch = daemon.call("/filesystem.Filesystem/CreateWatcher", &json!({"path": ""}));
    let id = json!({"watcherId": watch["watcherId"]});
    let chunked = ("transfer-encoding", "chunked");
    let pieces = b"1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n";
    put(&daemon, "path=f", &[OCTETS, chunked], pieces);
    let events = daemon.call("/filesystem.Filesystem/GetWatcherEvents", &id);
    let types: Vec<&str> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        types,
        ["EVENT_TYPE_CREATE", "EVENT_TYPE_CHMOD", "EVENT_TYPE_WRITE"]
    );
}

#[test]
fn a_refusal_reaches_a_client_that_sends_much() {
    let daemon = Daemon::launch();
    daemon.init(&json!({"accessToken": "secret"}));
    let reply = put(&daemon, "path=f", &[OCTETS], &vec![0; 5_000_000]);
    assert_eq!(reply.message(), "missing signature query parameter");
}

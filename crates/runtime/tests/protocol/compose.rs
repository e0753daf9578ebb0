//! `POST /files/compose`.

use std::fs;

use serde_json::{Value, json};

use crate::client::Reply;
use crate::daemon::Daemon;

fn compose(daemon: &Daemon, body: &Value) -> Reply {
    daemon.request("POST", "/files/compose", &[], body.to_string().as_bytes())
}

#[test]
fn sources_become_one_file_and_are_gone() {
    let daemon = Daemon::launch();
    for (name, content) in [("1", "one "), ("2", "two "), ("3", "three")] {
        fs::write(daemon.home().join(name), content).unwrap();
    }
    let body = json!({"source_paths": ["1", daemon.path("2"), "~/3"], "destination": "new/all"});
    let reply = compose(&daemon, &body);
    let entry = json!({"path": daemon.path("new/all"), "name": "all", "type": "file"});
    assert_eq!((reply.status, reply.json()), (200, entry));
    assert_eq!(daemon.read("new/all"), b"one two three");
    for source in ["1", "2", "3"] {
        assert!(!daemon.home().join(source).exists());
    }
}

#[test]
fn a_missing_source_leaves_everything_as_it_was() {
    let daemon = Daemon::launch();
    fs::write(daemon.home().join("1"), "one").unwrap();
    fs::write(daemon.home().join("all"), "before").unwrap();
    for (body, status) in [
        (
            json!({"source_paths": ["1", "2"], "destination": "all"}),
            404,
        ),
        (
            json!({"source_paths": ["1", "all"], "destination": "all"}),
            400,
        ),
        (json!({"source_paths": [], "destination": "all"}), 400),
        (
            json!({"source_paths": ["1"], "destination": "all", "username": "who"}),
            401,
        ),
        (json!({"destination": "all"}), 400),
    ] {
        let reply = compose(&daemon, &body);
        assert_eq!(reply.status, status, "{}", reply.text());
    }
    assert_eq!(daemon.read("1"), b"one");
    assert_eq!(daemon.read("all"), b"before");
}

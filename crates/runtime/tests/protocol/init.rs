//! `/init`, `/envs`, `/metrics`, and the access token.

use serde_json::json;

use crate::client::shell;
use crate::daemon::Daemon;

const UNAUTHORIZED: &str =
    "unauthorized access, please provide a valid access token or method signing if supported";

#[test]
fn init_says_its_version_and_takes_an_empty_body() {
    let daemon = Daemon::launch();
    let reply = daemon.request("POST", "/init", &[], b"");
    assert_eq!((reply.status, reply.text()), (204, ""));
    assert_eq!(reply.header("x-envd-version"), Some("0.6.7"));
}

#[test]
fn variables_are_replaced_as_a_whole_and_internal_ones_stay() {
    let daemon = Daemon::launch();
    daemon.init(&json!({"envVars": {"A": "1", "B": "2"}}));
    daemon.init(&json!({"envVars": {"B": "3"}}));
    let variables = daemon.get("/envs").json();
    assert_eq!(variables, json!({"B": "3", "E2B_SANDBOX": "true"}));
    daemon.init(&json!({}));
    assert_eq!(daemon.get("/envs").json(), variables);
}

#[test]
fn a_token_once_set_can_be_repeated_but_neither_changed_nor_left_out() {
    let daemon = Daemon::launch();
    assert_eq!(daemon.init(&json!({"accessToken": "one"})).status, 204);
    assert_eq!(daemon.init(&json!({"accessToken": "one"})).status, 204);
    assert_eq!(
        daemon
            .init(&json!({"accessToken": "two", "envVars": {"A": "1"}}))
            .status,
        401
    );
    assert_eq!(daemon.init(&json!({})).status, 401);
    let with_token = [("x-access-token", "one")];
    let variables = daemon.request("GET", "/envs", &with_token, b"");
    assert_eq!(variables.json(), json!({"E2B_SANDBOX": "true"}));
}

#[test]
fn what_is_not_newer_changes_nothing() {
    let daemon = Daemon::launch();
    let init = |timestamp: &str, value: &str| {
        let body = json!({"timestamp": timestamp, "envVars": {"A": value}});
        let status = daemon.init(&body).status;
        assert_eq!(status, 204);
        daemon.get("/envs").json()["A"].clone()
    };
    assert_eq!(init("2026-01-01T00:00:01Z", "first"), "first");
    assert_eq!(init("2026-01-01T00:00:01Z", "same"), "first");
    assert_eq!(
        init("2026-01-01T02:00:00.999+02:00", "older, in another zone"),
        "first"
    );
    assert_eq!(init("2026-01-01T00:00:01.001Z", "newer"), "newer");
    daemon.init(&json!({"envVars": {"A": "without a time"}}));
    assert_eq!(daemon.get("/envs").json()["A"], "without a time");
    assert_eq!(
        init("2026-01-01T00:00:01Z", "still older"),
        "without a time"
    );
}

#[test]
fn what_cannot_be_read_is_refused_in_plain_text() {
    let daemon = Daemon::launch();
    for body in [&b"{"[..], b"[]", br#"{"timestamp": "yesterday"}"#, b"\xff"] {
        let reply = daemon.request("POST", "/init", &[], body);
        assert_eq!(reply.status, 400, "{}", reply.text());
        let kind = reply.header("content-type").unwrap();
        assert!(kind.starts_with("text/plain"), "{kind}");
    }
    let volume = json!({"volumeMounts": [{"nfs_target": "nowhere", "path": "/x"}]});
    assert_eq!(daemon.init(&volume).status, 400);
}

#[test]
fn with_a_token_everything_but_health_init_and_files_needs_it() {
    let daemon = Daemon::launch();
    daemon.init(&json!({"accessToken": "secret"}));
    for (method, target) in [
        ("GET", "/envs"),
        ("GET", "/metrics"),
        ("POST", "/files/compose"),
        ("POST", "/v1/storage/mounts"),
        ("POST", "/process.Process/List"),
        ("POST", "/process.Process/Start"),
        ("GET", "/nowhere"),
    ] {
        for wrong in [
            &[][..],
            &[("x-access-token", "secre")],
            &[("x-access-token", "")],
        ] {
            let reply = daemon.request(method, target, wrong, b"{}");
            assert_eq!(reply.status, 401, "{target}");
            assert_eq!(reply.json(), json!({"code": 401, "message": UNAUTHORIZED}));
        }
    }
    let token = [("x-access-token", "secret")];
    let mut running = daemon.start_with_request(&token, &shell("echo hello"));
    assert_eq!(running.stdout(), "hello\n");
}

#[test]
fn default_user_and_workdir_serve_requests_that_name_none() {
    let daemon = Daemon::launch();
    let work = daemon.path("work");
    std::fs::create_dir(&work).unwrap();
    daemon.init(&json!({"defaultWorkdir": work}));
    assert_eq!(daemon.run("pwd").stdout, format!("{work}\n"));
    // only an empty path is the working directory; a relative one is below the home
    let entry = |path| daemon.call("/filesystem.Filesystem/Stat", &json!({"path": path}));
    assert_eq!(entry("")["entry"]["path"], work);
    assert_eq!(entry("work")["entry"]["path"], work);

    daemon.init(&json!({"defaultUser": "stranger"}));
    let (code, message) = daemon.refusal("/filesystem.Filesystem/Stat", &json!({"path": "/"}));
    assert_eq!(
        (&*code, &*message),
        ("unauthenticated", "invalid username: 'stranger'")
    );
}

#[test]
fn metrics_are_those_of_the_machine() {
    let daemon = Daemon::launch();
    let metrics = daemon.get("/metrics").json();
    let number = |name: &str| metrics[name].as_f64().unwrap_or_else(|| panic!("{name}"));
    assert!(number("cpu_count") >= 1.0);
    assert!((0.0..=100.0).contains(&number("cpu_used_pct")));
    for (used, total) in [("mem_used", "mem_total"), ("disk_used", "disk_total")] {
        assert!(
            number(used) > 0.0 && number(used) <= number(total),
            "{metrics}"
        );
    }
    assert!(number("mem_cache") > 0.0 && number("ts") > 1.7e9);
    assert_eq!(
        (number("mem_total") / 1_048_576.0).floor(),
        number("mem_total_mib")
    );
}

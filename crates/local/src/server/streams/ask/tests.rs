#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{container, has_terminal, log_options, logged_run, ports, streams};
use crate::server::options::Query;
use crate::server::streams::node::{LogStream, Streams};
use crate::status::Failure;

fn pod(containers: &[&str]) -> Value {
    let containers: Vec<Value> = containers
        .iter()
        .map(|name| json!({"name": name}))
        .collect();
    json!({
        "metadata": {"name": "p"},
        "spec": {"initContainers": [{"name": "init", "tty": true}], "containers": containers},
    })
}

fn message<T: std::fmt::Debug>(result: Result<T, Failure>) -> (u16, String) {
    let failure = result.unwrap_err();
    (failure.code(), failure.message().to_owned())
}

#[test]
fn the_only_container_need_not_be_named() {
    assert_eq!(container(&pod(&["a"]), None), Ok("a".to_owned()));
    assert_eq!(container(&pod(&["a"]), Some("init")), Ok("init".to_owned()));
    let several = "a container name must be specified for pod p, choose one of: [init a b]";
    let refused = message(container(&pod(&["a", "b"]), None));
    assert_eq!(refused, (400, several.to_owned()));
    let unknown = "container x is not valid for pod p";
    let refused = message(container(&pod(&["a"]), Some("x")));
    assert_eq!(refused, (400, unknown.to_owned()));
}

#[test]
fn a_terminal_is_the_containers() {
    let pod = pod(&["a"]);
    assert!(has_terminal(&pod, "init"));
    assert!(!has_terminal(&pod, "a"));
}

#[test]
fn a_log_is_of_the_run_that_the_status_names() {
    let running = json!({"name": "a", "containerID": "x://2", "state": {"running": {}},
        "lastState": {"terminated": {"containerID": "x://1"}}});
    let terminated = json!({"name": "a", "containerID": "x://2", "state": {"terminated": {"containerID": "x://2"}}});
    let unborn = json!({"name": "a", "state": {"terminated": {}}, "lastState": {"terminated": {"containerID": "x://1"}}});
    let waiting = json!({"name": "a", "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"containerID": "x://1"}}});
    for (status, previous, id) in [
        (&running, false, "x://2"),
        (&running, true, "x://1"),
        (&terminated, false, "x://2"),
        (&unborn, false, "x://1"),
        (&waiting, false, "x://1"),
    ] {
        let mut pod = pod(&["a"]);
        pod["status"] = json!({"containerStatuses": [status]});
        assert_eq!(
            logged_run(&pod, "a", previous),
            Ok(id.to_owned()),
            "{status}"
        );
    }
}

#[test]
fn a_log_that_is_not_there_is_missed_in_the_words_of_a_kubelet() {
    let waiting = |reason: &str| json!({"name": "a", "state": {"waiting": {"reason": reason}}});
    for (status, previous, expected) in [
        (
            json!({"name": "b"}),
            false,
            r#"container "a" in pod "p" is not available"#,
        ),
        (
            waiting("ContainerCreating"),
            false,
            r#"container "a" in pod "p" is waiting to start: ContainerCreating"#,
        ),
        (
            waiting("ErrImagePull"),
            false,
            r#"container "a" in pod "p" is waiting to start: image can't be pulled"#,
        ),
        (
            waiting("ImagePullBackOff"),
            false,
            r#"container "a" in pod "p" is waiting to start: trying and failing to pull image"#,
        ),
        (
            json!({"name": "a", "state": {}}),
            false,
            r#"container "a" in pod "p" is waiting to start - no logs yet"#,
        ),
        (
            json!({"name": "a", "state": {"terminated": {}}}),
            false,
            r#"container "a" in pod "p" is terminated"#,
        ),
        (
            json!({"name": "a", "containerID": "x://1", "state": {"running": {}}}),
            true,
            r#"previous terminated container "a" in pod "p" not found"#,
        ),
    ] {
        let mut pod = pod(&["a"]);
        pod["status"] = json!({"containerStatuses": [status]});
        let refused = message(logged_run(&pod, "a", previous));
        assert_eq!(refused, (400, expected.to_owned()));
    }
}

#[test]
fn at_least_one_stream_is_asked_for_and_a_terminal_has_no_stderr() {
    let read = |query: &str| streams(&Query::parse(Some(query)));
    let expected = Streams {
        stdin: true,
        stdout: true,
        stderr: false,
        tty: true,
    };
    assert_eq!(
        read("stdin=true&stdout=1&stderr=true&tty=true"),
        Ok(expected)
    );
    let nothing = "you must specify at least 1 of stdin, stdout, stderr";
    assert_eq!(message(read("stdin=false")), (400, nothing.to_owned()));
    assert_eq!(
        message(read("stderr=true&tty=true")),
        (400, nothing.to_owned())
    );
}

#[test]
fn ports_are_numbers() {
    let read = |query: &str| ports(&Query::parse(Some(query)));
    assert_eq!(read("ports=80&ports=8080,81"), Ok(vec![80, 8080, 81]));
    for (query, expected) in [
        ("", r#"query parameter "port" is required"#),
        ("ports=0", r#"port "0" must be > 0"#),
        ("ports=65536", r#"unable to parse "65536" as a port"#),
        ("ports=", r#"unable to parse "" as a port"#),
    ] {
        assert_eq!(message(read(query)), (400, expected.to_owned()));
    }
    let many = vec!["ports=1"; 128].join("&");
    assert_eq!(message(read(&many)).0, 400);
}

#[test]
fn options_of_logs_are_checked_in_the_words_of_the_real_server() {
    let now: Timestamp = "2026-11-16T17:00:10Z".parse().unwrap();
    let read = |query: &str| log_options(&Query::parse(Some(query)), "p", now);
    let options =
        read("tailLines=3&limitBytes=9&sinceSeconds=10&timestamps=true&follow=1").unwrap();
    assert_eq!((options.tail, options.limit), (Some(3), Some(9)));
    assert_eq!(options.since, Some("2026-11-16T17:00:00Z".parse().unwrap()));
    assert!(options.timestamps && options.follow && !options.previous);
    let options = read("sinceTime=2026-11-16T18:00:00.9%2B01:00&stream=Stderr").unwrap();
    assert_eq!(options.since, Some("2026-11-16T17:00:00Z".parse().unwrap()));
    assert_eq!(options.stream, LogStream::Stderr);
    for (query, code, expected) in [
        (
            "tailLines=-1",
            422,
            "PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "limitBytes=0",
            422,
            "PodLogOptions \"p\" is invalid: limitBytes: Invalid value: 0: must be greater than 0",
        ),
        (
            "sinceSeconds=0",
            422,
            "PodLogOptions \"p\" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            "tailLines=x",
            400,
            "strconv.ParseInt: parsing \"x\": invalid syntax",
        ),
        (
            "stream=Both",
            422,
            "PodLogOptions \"p\" is invalid: stream: Unsupported value: \"Both\": supported values: \"All\", \"Stderr\", \"Stdout\"",
        ),
    ] {
        assert_eq!(message(read(query)), (code, expected.to_owned()));
    }
    assert_eq!(
        message(read("sinceSeconds=1&sinceTime=2026-11-16T17:00:00Z")).0,
        422
    );
    assert_eq!(message(read("stream=Stdout&tailLines=1")).0, 422);
    assert_eq!(message(read("sinceTime=yesterday")).0, 400);
}

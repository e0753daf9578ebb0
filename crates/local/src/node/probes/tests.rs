use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::course::{Answer, Course, Kind};
use super::{Finding, Rhythm, Watching, port_number, run};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// What is found by probes that answer as they are told, `+` or `-`, and always the same in the end; and when.
async fn found(
    container: &Container,
    age: Duration,
    answers: &[(Kind, &str)],
    until: Duration,
) -> Vec<(u64, Finding)> {
    let start = Instant::now();
    let answers: HashMap<Kind, Vec<char>> = answers
        .iter()
        .map(|(kind, answers)| (*kind, answers.chars().rev().collect()))
        .collect();
    let answers = Mutex::new(answers);
    let ask = move |kind: Kind| {
        let mut answers = answers.lock().unwrap();
        let left = answers.get_mut(&kind).unwrap();
        let answer = match left.len() {
            1 => left[0],
            _ => left.pop().unwrap(),
        };
        async move {
            match answer {
                '+' => Answer::Good,
                _ => Answer::Bad("no".to_owned()),
            }
        }
    };
    let found = Arc::new(Mutex::new(Vec::new()));
    let say = {
        let found = Arc::clone(&found);
        move |finding| {
            let at = start.elapsed().as_secs();
            found.lock().unwrap().push((at, finding));
        }
    };
    let rhythm = {
        let container = container.clone();
        move |kind: Kind| Rhythm::of(kind.probe(&container).unwrap())
    };
    let began = start.checked_sub(age).unwrap();
    let course = Course::of(container);
    let watching = Watching(tokio::spawn(run(course, began, rhythm, ask, say)));
    sleep(until).await;
    drop(watching);
    sleep(seconds(100)).await;
    let found = found.lock().unwrap();
    found.clone()
}

#[tokio::test(start_paused = true)]
async fn probes_keep_their_times_and_wait_for_the_start() {
    let container: Container = serde_json::from_value(json!({
        "name": "c",
        "startupProbe": {"initialDelaySeconds": 3, "periodSeconds": 2, "failureThreshold": 10},
        "readinessProbe": {"periodSeconds": 5},
    }))
    .unwrap();
    let answers = [(Kind::Startup, "--+"), (Kind::Readiness, "-+")];
    let found = found(&container, seconds(1), &answers, seconds(60)).await;
    let at: Vec<u64> = found.iter().map(|(at, _)| *at).collect();
    // one second of the delay has passed
    assert_eq!(at, [2, 4, 6, 6, 11], "{found:?}");
    assert_eq!(found[2].1, Finding::Started);
    assert_eq!(found[4].1, Finding::Ready(true));
}

#[tokio::test(start_paused = true)]
async fn a_delay_counts_from_the_start_of_the_container() {
    let container: Container = serde_json::from_value(json!({
        "name": "c",
        "startupProbe": {"periodSeconds": 1, "failureThreshold": 10},
        "readinessProbe": {"initialDelaySeconds": 4, "periodSeconds": 5},
    }))
    .unwrap();
    let answers = [(Kind::Startup, "-+"), (Kind::Readiness, "+")];
    let found = found(&container, seconds(0), &answers, seconds(60)).await;
    assert_eq!(
        found[1..],
        [(1, Finding::Started), (4, Finding::Ready(true))]
    );
}

#[tokio::test(start_paused = true)]
async fn who_does_not_live_is_killed_once_while_readiness_is_still_asked() {
    let container: Container = serde_json::from_value(json!({
        "name": "c",
        "livenessProbe": {"periodSeconds": 1, "failureThreshold": 3},
        "readinessProbe": {"periodSeconds": 4, "failureThreshold": 1},
    }))
    .unwrap();
    let answers = [(Kind::Liveness, "-"), (Kind::Readiness, "++-")];
    let found = found(&container, seconds(0), &answers, seconds(9)).await;
    let kills: Vec<u64> = found
        .iter()
        .filter(|(_, finding)| matches!(finding, Finding::Unhealthy { kill: true, .. }))
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(kills, [2]);
    assert_eq!(found.last().unwrap(), &(8, Finding::Ready(false)));
}

#[tokio::test(start_paused = true)]
async fn nobody_hears_of_probes_that_are_given_up() {
    let container: Container = serde_json::from_value(json!({
        "name": "c",
        "livenessProbe": {"periodSeconds": 1, "failureThreshold": 100},
    }))
    .unwrap();
    let found = found(&container, seconds(0), &[(Kind::Liveness, "-")], seconds(3)).await;
    assert!(found.iter().all(|(at, _)| *at <= 3), "{found:?}");
}

#[test]
fn what_a_probe_does_not_say_is_the_default() {
    let rhythm = |probe| Rhythm::of(&serde_json::from_value(probe).unwrap());
    let expected = |delay, period| Rhythm {
        delay: seconds(delay),
        period: seconds(period),
    };
    assert_eq!(rhythm(json!({})), expected(0, 10));
    assert_eq!(rhythm(json!({"periodSeconds": 0})), expected(0, 10));
    let given = json!({"initialDelaySeconds": 2, "periodSeconds": 3});
    assert_eq!(rhythm(given), expected(2, 3));
}

#[test]
fn a_port_is_found_by_number_or_name() {
    let container: Container = serde_json::from_value(json!({
        "name": "c",
        "ports": [{"containerPort": 81}, {"name": "web", "containerPort": 8080}],
    }))
    .unwrap();
    let name = |name: &str| IntOrString::String(name.to_owned());
    let table = [
        (IntOrString::Int(80), Ok(80)),
        (name("web"), Ok(8080)),
        (name("90"), Ok(90)),
        (
            name("http"),
            Err("strconv.Atoi: parsing \"http\": invalid syntax"),
        ),
        (IntOrString::Int(0), Err("invalid port number: 0")),
        (IntOrString::Int(65536), Err("invalid port number: 65536")),
    ];
    for (port, expected) in table {
        let expected = expected.map_err(str::to_owned);
        assert_eq!(port_number(&port, &container), expected);
    }
}

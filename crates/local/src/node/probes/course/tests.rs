use k8s_openapi::api::core::v1::Container;
use serde_json::{Value, json};

use super::{Answer, Course, Heard, Kind};
use crate::node::probes::Finding;

fn course(probes: Value) -> Course {
    let mut container = json!({"name": "c"});
    for (name, probe) in probes.as_object().unwrap() {
        container[name] = probe.clone();
    }
    let container: Container = serde_json::from_value(container).unwrap();
    Course::of(&container)
}

fn bad() -> Answer {
    Answer::Bad("no".to_owned())
}

fn failed(probe: &'static str, kill: bool) -> Finding {
    Finding::Unhealthy {
        probe,
        message: format!("{probe} probe failed: no"),
        kill,
        grace: None,
    }
}

/// What each of some answers to one probe leads to: findings, and whether it is asked again.
fn hear_all(course: &mut Course, kind: Kind, answers: &str) -> Vec<(Vec<Finding>, Vec<Kind>)> {
    let answers = answers.chars().map(|answer| match answer {
        '+' => Answer::Good,
        '-' => bad(),
        _ => Answer::Unknown("odd".to_owned()),
    });
    let heard = answers.map(|answer| course.hear(kind, answer));
    heard
        .map(|Heard { findings, ask }| (findings, ask))
        .collect()
}

#[test]
fn a_container_without_probes_is_started_and_ready_at_once() {
    let heard = course(json!({})).begin();
    assert_eq!(heard.findings, [Finding::Started, Finding::Ready(true)]);
    assert_eq!(heard.ask, []);
}

#[test]
fn nothing_else_is_asked_before_the_container_has_started() {
    let mut course = course(json!({
        "startupProbe": {"failureThreshold": 5},
        "livenessProbe": {},
        "readinessProbe": {},
    }));
    let heard = course.begin();
    assert_eq!((heard.findings, heard.ask), (vec![], vec![Kind::Startup]));
    let heard = hear_all(&mut course, Kind::Startup, "--+");
    let again = (vec![failed("Startup", false)], vec![Kind::Startup]);
    let started = (
        vec![Finding::Started],
        vec![Kind::Liveness, Kind::Readiness],
    );
    assert_eq!(heard, [again.clone(), again, started]);
}

#[test]
fn who_starts_without_being_asked_for_readiness_is_ready() {
    let mut course = course(json!({"startupProbe": {}}));
    course.begin();
    let heard = course.hear(Kind::Startup, Answer::Good);
    assert_eq!(heard.findings, [Finding::Started, Finding::Ready(true)]);
    assert_eq!(heard.ask, []);
}

#[test]
fn a_start_that_fails_too_often_kills() {
    let mut course = course(json!({
        "startupProbe": {"failureThreshold": 2, "terminationGracePeriodSeconds": 7},
        "readinessProbe": {},
    }));
    course.begin();
    let heard = hear_all(&mut course, Kind::Startup, "--");
    let kill = Finding::Unhealthy {
        probe: "Startup",
        message: "Startup probe failed: no".to_owned(),
        kill: true,
        grace: Some(7),
    };
    assert_eq!(heard[0].0, [failed("Startup", false)]);
    assert_eq!(heard[1], (vec![kill], vec![]));
}

#[test]
fn only_failures_in_a_row_kill() {
    // the answers, and after which of them the container is killed
    let table = [
        (3, "---", Some(2)),
        (3, "--+--+--", None),
        (3, "--+---", Some(5)),
        (1, "++-", Some(2)),
        // what could not be asked neither counts nor interrupts
        (2, "-?-", Some(2)),
        (2, "????", None),
    ];
    for (threshold, answers, killed) in table {
        let mut course = course(json!({"livenessProbe": {"failureThreshold": threshold}}));
        assert_eq!(course.begin().ask, [Kind::Liveness]);
        let heard = hear_all(&mut course, Kind::Liveness, answers);
        let kills = heard.iter().position(|(findings, ask)| {
            let kills = findings.contains(&failed("Liveness", true));
            assert_eq!(kills, ask.is_empty(), "{answers}");
            kills
        });
        assert_eq!(kills, killed, "{answers}");
    }
}

#[test]
fn readiness_turns_when_enough_answers_agree() {
    // thresholds of success and failure, the answers, and what becomes of the container
    type Turns = &'static [(usize, bool)];
    let table: [(i32, i32, &str, Turns); 5] = [
        (1, 3, "+", &[(0, true)]),
        (1, 3, "---", &[(2, false)]),
        (2, 3, "+-++", &[(3, true)]),
        (1, 2, "+-+--+", &[(0, true), (4, false), (5, true)]),
        (1, 2, "+++", &[(0, true)]),
    ];
    for (successes, failures, answers, turns) in table {
        let mut course = course(json!({
            "readinessProbe": {"successThreshold": successes, "failureThreshold": failures},
        }));
        assert_eq!(course.begin().findings, [Finding::Started]);
        let heard = hear_all(&mut course, Kind::Readiness, answers);
        let mut seen = Vec::new();
        for (index, (findings, ask)) in heard.iter().enumerate() {
            assert_eq!(*ask, [Kind::Readiness], "{answers}");
            for finding in findings {
                match finding {
                    Finding::Ready(ready) => seen.push((index, *ready)),
                    Finding::Unhealthy { kill, .. } => assert!(!kill, "{answers}"),
                    Finding::Started => panic!("{answers}"),
                }
            }
        }
        assert_eq!(seen, turns, "{answers}");
    }
}

#[test]
fn a_question_that_cannot_be_asked_is_told_as_such() {
    let mut course = course(json!({"readinessProbe": {"failureThreshold": 1}}));
    course.begin();
    let heard = course.hear(Kind::Readiness, Answer::Unknown("odd".to_owned()));
    let told = Finding::Unhealthy {
        probe: "Readiness",
        message: "Readiness probe errored and resulted in unknown state: odd".to_owned(),
        kill: false,
        grace: None,
    };
    assert_eq!(heard.findings, [told]);
}

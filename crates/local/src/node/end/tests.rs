use std::fs;

use container::ContainerState;
use k8s_openapi::api::core::v1::Container;
use serde_json::json;

use super::{End, of};
use crate::node::place::PodPlace;

/// How a run ended that has left these last words, and this log.
fn ended(exit: (i32, bool), policy: &str, last_words: &str, log: &str) -> End {
    let directory = tempfile::tempdir().unwrap();
    let place = PodPlace::new(directory.path(), "u");
    for (path, text) in [
        (place.last_words("a", 3), last_words),
        (place.log("a", 3), log),
    ] {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let (code, oom_killed) = exit;
    let time = json!({"secs_since_epoch": 1_900_000_000, "nanos_since_epoch": 0});
    let state: ContainerState = serde_json::from_value(json!({
        "name": "a",
        "attempt": 3,
        "process": {"pid": 1, "started": 1, "boot": ""},
        "started_at": time,
        "exit": {"code": code, "signal": null, "oom_killed": oom_killed, "finished_at": time},
        "log_dropped": 0,
        "limits_not_applied": null,
    }))
    .unwrap();
    let container = json!({"name": "a", "terminationMessagePolicy": policy});
    let container: Container = serde_json::from_value(container).unwrap();
    of(&state, Some(&container), &place)
}

fn line(tag: &str, words: &str) -> String {
    format!("2030-01-01T00:00:00.000000000Z stdout {tag} {words}\n")
}

fn from_log(log: &str) -> Option<String> {
    ended((1, false), "FallbackToLogsOnError", "", log).message
}

#[test]
fn want_of_memory_is_told_whatever_the_code() {
    for (exit, reason) in [
        ((0, false), "Completed"),
        ((137, false), "Error"),
        ((137, true), "OOMKilled"),
        ((0, true), "OOMKilled"),
    ] {
        let end = ended(exit, "File", "", "");
        assert_eq!((end.code, end.reason), (exit.0, reason));
    }
}

#[test]
fn a_log_stands_for_last_words_only_after_a_failure_and_only_if_there_are_none() {
    let fallback = "FallbackToLogsOnError";
    for (code, policy, last_words, message) in [
        (1, fallback, "", Some("logged\n")),
        (1, fallback, "said", Some("said")),
        (0, fallback, "", None),
        (0, fallback, "said", Some("said")),
        (1, "File", "", None),
    ] {
        let end = ended((code, false), policy, last_words, &line("F", "logged"));
        assert_eq!(
            end.message.as_deref(),
            message,
            "{code} {policy} {last_words}"
        );
    }
}

#[test]
fn of_a_long_log_the_end_is_told_and_no_mark() {
    let lines: String = (0..5000).map(|n| line("F", &format!("{n:07}"))).collect();
    let told: String = (4744..5000).map(|n| format!("{n:07}\n")).collect();
    assert_eq!(from_log(&lines), Some(told));
}

#[test]
fn the_rest_of_a_line_whose_beginning_was_not_read_is_not_told() {
    let log = line("F", &"word ".repeat(1000)) + &line("F", "").repeat(790);
    assert_eq!(from_log(&log), Some("\n".repeat(790)));
}

#[test]
fn of_a_last_line_that_is_too_long_the_end_is_told() {
    let log = line("F", "before") + &line("F", &"x".repeat(10_000));
    let end = "x".repeat(2047) + "\n";
    assert_eq!(from_log(&log), Some(end));
    // never half a letter
    let log = line("F", &"ä".repeat(5000));
    let end = "ä".repeat(1023) + "\n";
    assert_eq!(from_log(&log), Some(end));
}

#[test]
fn a_line_that_was_logged_in_pieces_is_told_as_one() {
    let log = line("P", "one ") + &line("F", "line") + &line("P", "no end");
    assert_eq!(from_log(&log).as_deref(), Some("one line\nno end"));
}

//! How a process ended, in the words that clients know.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use crate::messages::process::EndEvent;

const SIGNALS: [(i32, &str); 16] = [
    (1, "hangup"),
    (2, "interrupt"),
    (3, "quit"),
    (4, "illegal instruction"),
    (5, "trace/breakpoint trap"),
    (6, "aborted"),
    (7, "bus error"),
    (8, "floating point exception"),
    (9, "killed"),
    (10, "user defined signal 1"),
    (11, "segmentation fault"),
    (12, "user defined signal 2"),
    (13, "broken pipe"),
    (14, "alarm clock"),
    (15, "terminated"),
    (16, "stack fault"),
];

pub(super) fn end_event(status: ExitStatus) -> EndEvent {
    if let Some(code) = status.code() {
        let text = format!("exit status {code}");
        return EndEvent {
            exit_code: code,
            exited: true,
            error: (code != 0).then(|| text.clone()),
            status: text,
        };
    }
    let number = status.signal().unwrap_or_default();
    let known = SIGNALS.iter().find(|(known, _)| *known == number);
    let name = known.map_or_else(
        || format!("signal {number}"),
        |(_, name)| (*name).to_owned(),
    );
    let core = if status.core_dumped() {
        " (core dumped)"
    } else {
        ""
    };
    let text = format!("signal: {name}{core}");
    EndEvent {
        exit_code: -1,
        exited: false,
        error: Some(text.clone()),
        status: text,
    }
}

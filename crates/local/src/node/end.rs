//! How runs of containers ended, from what their shim has written down.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
    time::Duration,
};

use container::ContainerState;
use k8s_openapi::{api::core::v1::Container, jiff::Timestamp};
use tokio::{task::spawn_blocking, time::sleep};

use super::{
    acts::moment,
    facts::{End, START_ERROR},
    place::PodPlace,
};
use crate::kubelet::container::KILLED;

/// More than this of a container's last words is not told.
const LONGEST_MESSAGE: u64 = 4096;
/// Of what was said in a log that has to stand for last words.
const LONGEST_TAIL: usize = 2048;
/// So much of the end of a log has a whole line in it, however long that is.
const LOG_END: u64 = 32 << 10;
/// A shim that answers no more is gone in moments.
const LOOKS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);
/// The exit code of what could not be run.
const UNSTARTED: i32 = 128;

/// What is recorded of a pod whose shim ends, once it has, with everything else of it ended.
pub(crate) async fn settle(shim: &Path) -> Vec<ContainerState> {
    // the second time one that does not answer is not asked any more
    for is_killed in [false, true] {
        if is_killed {
            container::kill_shim(shim);
        }
        for _ in 0..LOOKS {
            if !container::has_shim(shim) {
                break;
            }
            sleep(PAUSE).await;
        }
    }
    let dir = shim.to_owned();
    let swept = spawn_blocking(move || match container::sweep(&dir) {
        Ok(remains) => remains,
        Err(_) => container::remains(&dir),
    });
    swept
        .await
        .map(|remains| remains.containers)
        .unwrap_or_default()
}

/// How the run ended. One whose end nobody saw is taken for killed.
pub(crate) fn of(state: &ContainerState, container: Option<&Container>, place: &PodPlace) -> End {
    let Some(exit) = &state.exit else {
        return unseen(Timestamp::now());
    };
    let reason = match exit.code {
        _ if exit.oom_killed => "OOMKilled",
        0 => "Completed",
        _ => "Error",
    };
    let (name, attempt) = (&state.name, state.attempt);
    let from_logs = container
        .and_then(|container| container.termination_message_policy.as_deref())
        .is_some_and(|policy| policy == "FallbackToLogsOnError");
    let mut message = text(&place.last_words(name, attempt), 0, LONGEST_MESSAGE);
    if message.is_empty() && from_logs && exit.code != 0 {
        message = last_said(&log_end(&place.log(name, attempt)));
    }
    End {
        code: exit.code,
        reason,
        message: (!message.is_empty()).then_some(message),
        at: moment(exit.finished_at),
    }
}

/// The end of a run that never began, as containerd tells it.
pub(crate) fn unstarted(message: String, at: Timestamp) -> End {
    End {
        code: UNSTARTED,
        reason: START_ERROR,
        message: Some(message),
        at,
    }
}

/// The end of a run that is over, and that nobody has seen.
pub(crate) fn unseen(now: Timestamp) -> End {
    let message = "The container could not be located when the pod was terminated";
    End {
        code: KILLED,
        reason: "ContainerStatusUnknown",
        message: Some(message.to_owned()),
        at: now,
    }
}

fn text(path: &Path, from: u64, longest: u64) -> String {
    let read = || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(longest).read_to_end(&mut bytes)?;
        std::io::Result::Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// Whole lines.
fn log_end(path: &Path) -> String {
    let length = path.metadata().map(|file| file.len()).unwrap_or_default();
    let from = length.saturating_sub(LOG_END);
    let text = text(path, from, LOG_END);
    match text.split_once('\n') {
        Some((_, whole)) if from > 0 => whole.to_owned(),
        _ => text,
    }
}

/// The end of what lines of a log say without their times, streams and tags.
fn last_said(log: &str) -> String {
    let mut said = String::new();
    for line in log.lines() {
        if let [_, _, tag, words] = line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            said += words;
            // the rest of a line that was too long, or is not finished, follows
            said += if tag == "P" { "" } else { "\n" };
        }
    }
    let from = said.len().saturating_sub(LONGEST_TAIL);
    said.split_off(said.ceil_char_boundary(from))
}

#[cfg(test)]
mod tests;

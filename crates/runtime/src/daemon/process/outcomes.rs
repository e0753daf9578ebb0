//! What is kept of tagged processes: the last of their output while they run, and how they ended until somebody has
//! acknowledged it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Stream;
use crate::daemon::upgrade::state;
use crate::messages::once::Outcome;
use crate::messages::process::EndEvent;
use crate::tail::Last;

/// How long an outcome is kept for someone to ask.
const KEPT: Duration = Duration::from_secs(60 * 60);

/// How much is kept of each of the outputs of a process.
const TAIL: usize = 8 << 10;

/// What all kept outcomes may take. Those of longest ago go first, which nobody who asks within the hour should notice: it is
/// hundreds of commands that wrote all they could.
const MOST_KEPT: usize = 4 << 20;

/// What an outcome takes beside its output.
const OUTCOME: usize = 512;

pub(super) struct Tails {
    stdout: Last,
    stderr: Last,
}

impl Default for Tails {
    fn default() -> Self {
        Self::resume(&Outcome::default())
    }
}

impl Tails {
    pub(super) fn resume(told: &Outcome) -> Self {
        Self {
            stdout: Last::new(TAIL, told.stdout.as_ref()),
            stderr: Last::new(TAIL, told.stderr.as_ref()),
        }
    }

    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        match stream {
            Stream::Stdout | Stream::Pty => self.stdout.push(bytes),
            Stream::Stderr => self.stderr.push(bytes),
        }
    }

    pub(super) fn outcome(&self, pid: u32, end: Option<EndEvent>) -> Outcome {
        Outcome {
            pid,
            end,
            stdout: Some(self.stdout.tell()),
            stderr: Some(self.stderr.tell()),
        }
    }
}

/// Outcomes that nobody has acknowledged, by tag.
#[derive(Default)]
pub(super) struct Outcomes {
    kept: BTreeMap<String, Kept>,
    /// What they take.
    size: usize,
}

struct Kept {
    at: Instant,
    /// Of the process: those of one tag are told apart by it.
    number: u64,
    outcome: Outcome,
}

impl Outcomes {
    /// Of two processes with one tag the newer is meant, also if it ends first.
    pub(super) fn keep(&mut self, tag: &str, number: u64, outcome: Outcome) {
        self.keep_since(Instant::now(), tag, number, outcome);
    }

    fn keep_since(&mut self, at: Instant, tag: &str, number: u64, outcome: Outcome) {
        if self.kept.get(tag).is_some_and(|kept| kept.number > number) {
            return;
        }
        self.forget(tag);
        self.size += size(tag, &outcome);
        let kept = Kept {
            at,
            number,
            outcome,
        };
        self.kept.insert(tag.to_owned(), kept);
        self.forget_old();
    }

    pub(super) fn get(&mut self, tag: &str) -> Option<&Outcome> {
        self.forget_old();
        self.kept.get(tag).map(|kept| &kept.outcome)
    }

    pub(super) fn hand_over(&self) -> Vec<state::Kept> {
        let kept = self.kept.iter().map(|(tag, kept)| state::Kept {
            millis_ago: state::millis(kept.at.elapsed()),
            tag: tag.clone(),
            number: kept.number,
            outcome: kept.outcome.clone(),
        });
        kept.collect()
    }

    pub(super) fn take_over(kept: Vec<state::Kept>) -> Self {
        let mut outcomes = Self::default();
        for one in kept {
            let at = state::ago(one.millis_ago);
            outcomes.keep_since(at, &one.tag, one.number, one.outcome);
        }
        outcomes
    }

    /// Whether there was one.
    pub(super) fn forget(&mut self, tag: &str) -> bool {
        let gone = self.kept.remove(tag);
        if let Some(kept) = &gone {
            self.size -= size(tag, &kept.outcome);
        }
        gone.is_some()
    }

    fn forget_old(&mut self) {
        loop {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.at);
            match oldest {
                Some((tag, kept)) if kept.at.elapsed() >= KEPT || self.size > MOST_KEPT => {
                    let tag = tag.clone();
                    self.forget(&tag);
                }
                _ => return,
            }
        }
    }
}

fn size(tag: &str, outcome: &Outcome) -> usize {
    let tails = [&outcome.stdout, &outcome.stderr].into_iter().flatten();
    let output: usize = tails.flat_map(|tail| &tail.last).map(Bytes::len).sum();
    OUTCOME + tag.len() + output
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{KEPT, MOST_KEPT, Outcome, Outcomes, TAIL, Tails};
    use crate::daemon::process::Stream;
    use crate::daemon::upgrade::state;

    #[test]
    fn an_outcome_is_not_kept_longer_because_daemons_take_over() {
        let mut outcomes = Outcomes::default();
        let nearly = KEPT.saturating_sub(Duration::from_secs(60));
        let since = state::ago(state::millis(nearly));
        outcomes.keep_since(since, "tag", 1, Outcome::default());
        for _ in 0..2 {
            outcomes = Outcomes::take_over(outcomes.hand_over());
            assert!(outcomes.kept["tag"].at.elapsed() >= nearly);
        }
    }

    #[test]
    fn outcomes_take_no_more_memory_than_they_may_and_the_oldest_goes_first() {
        let mut outcomes = Outcomes::default();
        let mut tails = Tails::default();
        tails.push(Stream::Stderr, &[b'x'; TAIL]);
        let count = MOST_KEPT / TAIL;
        for number in 0..count {
            outcomes.keep(&format!("{number:04}"), 1, tails.outcome(1, None));
        }
        assert!(outcomes.size <= MOST_KEPT);
        assert_eq!(outcomes.get("0000"), None);
        assert!(outcomes.get(&format!("{:04}", count - 1)).is_some());
        let tags: Vec<String> = outcomes.kept.keys().cloned().collect();
        for tag in tags {
            outcomes.keep(&tag, 1, Outcome::default());
            assert!(outcomes.forget(&tag));
        }
        assert_eq!(outcomes.size, 0);
    }
}

//! When members that have ended are replaced.
//!
//! One that ends is replaced at once while more work than have ended lately. Otherwise the next would most likely end as
//! well, as fast as pods can start: then whoever has ended keeps its place, for longer each time, and says so.

use crate::member::{Revision, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// The waits of a kubelet before it starts a container again: twice as long each time, up to the longest.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
/// After so long, half of what was replaced is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(40);
/// So many rounds are no accident: the first is free, and whoever it made has ended too.
const LASTING: u32 = 2;

/// Twice as long each time.
pub(super) fn backoff(doublings: u32) -> Duration {
    FIRST
        .saturating_mul(2u32.saturating_pow(doublings))
        .min(LONGEST)
}

/// How members have ended, by revision. Lost with the process; the next one replaces one round at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endings(BTreeMap<Revision, Spell>);

/// Endings of one revision that follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spell {
    /// How often in a row members were replaced though fewer worked than had ended.
    rounds: u32,
    /// When the last round was.
    last: Time,
    /// How many were replaced lately.
    recent: u32,
    faded: Time,
}

/// What may be done about members that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Release {
    /// So many are replaced now.
    pub(super) count: u32,
    /// The others keep their places until then.
    pub(super) until: Option<Time>,
}

impl Endings {
    /// Decides about the members of a revision that have ended, and takes what it allows for done.
    pub(super) fn release(
        &mut self,
        revision: &Revision,
        ended: u32,
        working: u32,
        now: Time,
    ) -> Release {
        let spell = self.0.entry(revision.clone()).or_default();
        spell.fade(now);
        let release = spell.release(ended, working, now);
        spell.recent = spell.recent.saturating_add(release.count);
        if spell.is_over(now) {
            self.0.remove(revision);
        }
        release
    }

    /// Whether members of this revision ended again when they had been replaced.
    pub(super) fn are_lasting(&self, revision: &Revision) -> bool {
        self.0
            .get(revision)
            .is_some_and(|spell| spell.rounds >= LASTING)
    }

    pub(super) fn revisions(&self) -> impl Iterator<Item = &Revision> {
        self.0.keys()
    }
}

impl Spell {
    fn release(&mut self, ended: u32, working: u32, now: Time) -> Release {
        if self.is_long_ago(now) {
            self.rounds = 0;
        }
        if ended.saturating_add(self.recent) < working {
            self.rounds = 0;
            return Release {
                count: ended,
                until: None,
            };
        }
        let due = self.last + self.wait();
        if ended == 0 || now < due {
            return Release {
                count: 0,
                until: (ended > 0).then_some(due),
            };
        }
        // while nothing works, one is enough to find out
        let count = match self.rounds > 0 && working == 0 {
            true => 1,
            false => ended,
        };
        self.rounds = self.rounds.saturating_add(1);
        self.last = now;
        Release {
            count,
            until: (count < ended).then(|| now + self.wait()),
        }
    }

    fn wait(&self) -> Duration {
        match self.rounds.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => backoff(doublings),
        }
    }

    fn fade(&mut self, now: Time) {
        let halvings = now.since(self.faded).as_millis() / HALF_LIFE.as_millis();
        if halvings > 0 {
            let halvings = u32::try_from(halvings).unwrap_or(u32::MAX);
            self.recent = self.recent.checked_shr(halvings).unwrap_or(0);
            self.faded = now;
        }
    }

    /// Whoever was made in the last round has worked for longer than anybody waits: what ends now is another story.
    fn is_long_ago(&self, now: Time) -> bool {
        now.since(self.last) > 2 * LONGEST
    }

    fn is_over(&self, now: Time) -> bool {
        self.recent == 0 && (self.rounds == 0 || self.is_long_ago(now))
    }
}

#[cfg(test)]
mod tests {
    use super::{Endings, Release};
    use crate::member::{Revision, Time};

    const START: u64 = 1_000_000_000;

    fn release(endings: &mut Endings, ended: u32, working: u32, second: u64) -> Release {
        let at = Time(START + second * 1000);
        endings.release(&Revision::from("new"), ended, working, at)
    }

    fn kept(until: u64) -> Release {
        Release {
            count: 0,
            until: Some(Time(START + until * 1000)),
        }
    }

    fn at_once(count: u32) -> Release {
        Release { count, until: None }
    }

    #[test]
    fn whoever_ends_among_others_that_work_is_replaced_at_once_and_nothing_is_remembered() {
        let mut endings = Endings::default();
        for second in 0..4 {
            assert_eq!(release(&mut endings, 1, 9, second), at_once(1));
        }
        assert_eq!(release(&mut endings, 0, 10, 3600), at_once(0));
        assert_eq!(endings, Endings::default());
    }

    #[test]
    fn the_first_round_is_free_and_each_later_one_waits_twice_as_long() {
        let mut endings = Endings::default();
        assert_eq!(release(&mut endings, 3, 0, 0), at_once(3));
        let mut due = 10;
        for wait in [20, 40, 80, 160, 300, 300] {
            assert_eq!(release(&mut endings, 3, 0, due - 1), kept(due));
            let next = Time(START + (due + wait) * 1000);
            let one = Release {
                count: 1,
                until: Some(next),
            };
            assert_eq!(release(&mut endings, 3, 0, due), one, "at {due}");
            due += wait;
        }
    }

    #[test]
    fn those_that_work_only_for_a_moment_are_found_out() {
        let mut endings = Endings::default();
        let mut replaced = 0;
        // each works for five seconds
        let mut born = [0; 10];
        for second in 0..600 {
            let (working, ended): (Vec<_>, Vec<_>) =
                born.iter_mut().partition(|born| second < **born + 5);
            let [working, count] =
                [working.len(), ended.len()].map(|it| u32::try_from(it).unwrap_or(u32::MAX));
            let release = release(&mut endings, count, working, second);
            replaced += release.count;
            for born in ended.into_iter().take(release.count as usize) {
                *born = second;
            }
        }
        assert!(replaced <= 20, "{replaced}, and 1200 without a wait");
    }

    #[test]
    fn when_more_work_again_than_have_ended_the_next_ending_is_a_first_one() {
        let mut endings = Endings::default();
        release(&mut endings, 1, 0, 0);
        release(&mut endings, 1, 0, 10);
        assert!(endings.are_lasting(&Revision::from("new")));
        assert_eq!(release(&mut endings, 0, 0, 15), at_once(0));
        assert!(endings.are_lasting(&Revision::from("new")));
        release(&mut endings, 0, 3, 20);
        assert!(!endings.are_lasting(&Revision::from("new")));
        assert_eq!(release(&mut endings, 1, 0, 25), at_once(1));
    }

    #[test]
    fn accidents_that_lie_far_apart_are_a_first_one_each() {
        let mut endings = Endings::default();
        for day in [0, 1, 7] {
            assert_eq!(release(&mut endings, 3, 0, day * 86_400), at_once(3));
            assert!(!endings.are_lasting(&Revision::from("new")));
        }
    }

    #[test]
    fn revisions_are_told_apart() {
        let mut endings = Endings::default();
        release(&mut endings, 1, 0, 0);
        assert_eq!(release(&mut endings, 1, 0, 1), kept(10));
        let other = endings.release(&Revision::from("mended"), 1, 0, Time(START + 1000));
        assert_eq!(other, at_once(1));
    }
}

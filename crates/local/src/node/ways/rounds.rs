//! One piece of work, done again and again: one at a time, and no more often than it takes for everybody to have been served.

use std::time::Duration;

use tokio::sync::watch;

use crate::kubelet::act::retry_after;

pub(super) struct Rounds {
    wanted: watch::Sender<u64>,
    progress: watch::Sender<Progress>,
}

#[derive(Default)]
struct Progress {
    /// All that was wanted up to here has been done.
    done: u64,
    /// What was wanted up to there has failed; it is tried again.
    failure: Option<(u64, String)>,
}

impl Rounds {
    pub(super) fn new() -> Self {
        Self {
            wanted: watch::Sender::new(0),
            progress: watch::Sender::new(Progress::default()),
        }
    }

    /// Asks for a round that begins after this.
    pub(super) fn want(&self) -> u64 {
        let mut round = 0;
        self.wanted.send_modify(|wanted| {
            *wanted += 1;
            round = *wanted;
        });
        round
    }

    /// Waits for a round that was asked for.
    pub(super) async fn outcome(&self, round: u64) -> Result<(), String> {
        let failed = |progress: &Progress| {
            let failure = progress.failure.as_ref();
            failure.is_some_and(|(until, _)| *until >= round)
        };
        let mut progress = self.progress.subscribe();
        let settled = progress.wait_for(|it| it.done >= round || failed(it)).await;
        match settled {
            Ok(progress) if progress.done >= round => Ok(()),
            Ok(progress) => Err(progress.failure.as_ref().map_or_else(String::new, of)),
            // this has the sender
            Err(_) => Err(String::new()),
        }
    }

    /// Works until it is dropped: once at first, and then when it is wanted. After a failure it tries again.
    pub(super) async fn run<F: Future<Output = Result<(), String>>>(&self, work: impl Fn() -> F) {
        let mut wanted = self.wanted.subscribe();
        let mut failures = 0;
        loop {
            let round = *wanted.borrow_and_update();
            let pause = match work().await {
                Ok(()) => {
                    failures = 0;
                    self.progress.send_replace(Progress {
                        done: round,
                        failure: None,
                    });
                    Duration::MAX
                }
                Err(error) => {
                    failures += 1;
                    let failure = Some((round, error));
                    self.progress.send_modify(|it| it.failure = failure);
                    retry_after(failures)
                }
            };
            // whoever wants a round does not wait for the failures of others
            let _ = tokio::time::timeout(pause, wanted.changed()).await;
        }
    }

    /// Nobody has to wait any more.
    pub(super) fn end(&self, why: &str) {
        let failure = Some((u64::MAX, why.to_owned()));
        self.progress.send_modify(|it| it.failure = failure);
    }
}

fn of((_, error): &(u64, String)) -> String {
    error.clone()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use futures::future::join_all;
    use tokio::time::timeout;

    use super::Rounds;

    #[tokio::test(start_paused = true)]
    async fn many_who_come_at_once_share_a_round() {
        let rounds = Arc::new(Rounds::new());
        let count = Arc::new(AtomicUsize::new(0));
        let task = {
            let (rounds, count) = (rounds.clone(), count.clone());
            tokio::spawn(async move {
                let work = || async {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    count.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                };
                rounds.run(work).await;
            })
        };
        tokio::time::sleep(Duration::from_millis(5)).await;
        // in the middle of the first round, which does not count for them
        let all = (0..20).map(|_| async { rounds.outcome(rounds.want()).await });
        assert!(join_all(all).await.into_iter().all(|it| it.is_ok()));
        assert_eq!(count.load(Ordering::Relaxed), 2);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(count.load(Ordering::Relaxed), 2);
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_and_the_work_tried_again() {
        let rounds = Arc::new(Rounds::new());
        let broken = Arc::new(AtomicBool::new(true));
        let task = {
            let (rounds, broken) = (rounds.clone(), broken.clone());
            tokio::spawn(async move {
                let work = || async {
                    match broken.load(Ordering::Relaxed) {
                        true => Err("no".to_owned()),
                        false => Ok(()),
                    }
                };
                rounds.run(work).await;
            })
        };
        let round = rounds.want();
        let told = timeout(Duration::from_secs(60), rounds.outcome(round)).await;
        assert_eq!(told, Ok(Err("no".to_owned())));
        broken.store(false, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(rounds.outcome(round).await, Ok(()));
        task.abort();
    }

    #[tokio::test]
    async fn nobody_waits_for_rounds_that_will_not_be() {
        let rounds = Rounds::new();
        rounds.end("it is over");
        let outcome = rounds.outcome(rounds.want()).await;
        assert_eq!(outcome, Err("it is over".to_owned()));
    }
}

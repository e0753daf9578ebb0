//! Where claims are made and answers are waited for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bench::client::{Access, Ask, Connection};
use bench::times::{Times, millis};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use crate::arrivals::{Arrivals, Pace};
use crate::objects::{self, CLAIMS, Claim};
use bench::watch::{Change, follow};

/// Who has not been answered by then is lost.
const PATIENCE: Duration = Duration::from_secs(60);
const CONNECTIONS: usize = 4;

type Waiting = Mutex<HashMap<String, oneshot::Sender<(Instant, String)>>>;

pub(crate) struct Desk {
    access: Access,
    connections: Mutex<Vec<Connection>>,
    waiting: Arc<Waiting>,
    next: AtomicU64,
    answered: AtomicUsize,
    keeps: AtomicBool,
    watch: JoinHandle<Result<()>>,
}

/// What came of a claim.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Just before the request was sent.
    pub(crate) sent: Instant,
    /// When its creation was answered.
    created: Instant,
    /// When a watch said that it is ready, and what it got.
    ready: Option<(Instant, String)>,
}

impl Outcome {
    /// How long whoever asked has waited.
    pub(crate) fn waited(&self) -> Duration {
        self.since(self.sent)
    }

    fn since(&self, begin: Instant) -> Duration {
        let ready = self.ready.as_ref();
        ready.map_or(PATIENCE, |(at, _)| at.saturating_duration_since(begin))
    }

    pub(crate) fn sandbox(&self) -> Option<&str> {
        self.ready.as_ref().map(|(_, name)| name.as_str())
    }
}

pub(crate) fn waits<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> Times {
    outcomes.into_iter().map(Outcome::waited).collect()
}

/// The slowest claims, each with when it was sent, to see whether they come together.
pub(crate) fn slowest(outcomes: &[Outcome]) -> String {
    let Some(first) = outcomes.iter().map(|one| one.sent).min() else {
        return String::new();
    };
    let mut all: Vec<&Outcome> = outcomes.iter().collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.waited()));
    let one = |one: &&Outcome| {
        format!(
            "{:.0} ms ({:.0} to create) at {:.1} s",
            millis(one.waited()),
            millis(one.created - one.sent),
            (one.sent - first).as_secs_f64()
        )
    };
    let shown: Vec<String> = all.iter().take(8).map(one).collect();
    shown.join(", ")
}

pub(crate) fn waits_after_creation(outcomes: &[Outcome]) -> Times {
    let since = |outcome: &Outcome| outcome.since(outcome.created);
    outcomes.iter().map(since).collect()
}

/// From the first request to the last answer.
pub(crate) fn span(outcomes: &[Outcome]) -> Duration {
    let first = outcomes.iter().map(|one| one.sent).min();
    let last = outcomes.iter().map(|one| one.sent + one.waited()).max();
    let both = first.zip(last);
    both.map_or(Duration::ZERO, |(first, last)| last - first)
}

pub(crate) fn lost(outcomes: &[Outcome]) -> usize {
    outcomes.iter().filter(|one| one.ready.is_none()).count()
}

impl Desk {
    pub(crate) async fn open(access: &Access) -> Result<Arc<Self>> {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(access.connect().await?);
        }
        let waiting: Arc<Waiting> = Arc::default();
        let told = Arc::clone(&waiting);
        let watch = follow::<Claim>(access, CLAIMS, move |change, at| {
            if let Change::Is(claim) = change
                && let Some(sandbox) = claim.answer()
                && let Some(waiter) = lock(&told).remove(&claim.metadata.name)
            {
                // who is no longer waiting has given up
                let _ = waiter.send((at, sandbox.to_owned()));
            }
        });
        Ok(Arc::new(Self {
            access: access.clone(),
            connections: Mutex::new(connections),
            waiting,
            next: AtomicU64::new(0),
            answered: AtomicUsize::new(0),
            keeps: AtomicBool::new(false),
            watch: watch.await?,
        }))
    }

    /// One of the connections, made anew if the server has ended it.
    async fn connection(&self, number: u64) -> Result<Connection> {
        let index = usize::try_from(number).unwrap_or_default() % CONNECTIONS;
        let found = lock(&self.connections)[index].clone();
        if !found.is_closed() {
            return Ok(found);
        }
        let made = self.access.connect().await?;
        lock(&self.connections)[index] = made.clone();
        Ok(made)
    }

    /// Has the server do something that is no claim.
    pub(crate) async fn ask(&self, ask: Ask) -> Result<()> {
        self.connection(0).await?.whole(ask).await.map(drop)
    }

    /// An error if nobody would be told of answers any more.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(!self.watch.is_finished(), "the watch of claims ended");
        Ok(())
    }

    /// Whether claims stay when they have been answered.
    pub(crate) fn keep(&self, keeps: bool) {
        self.keeps.store(keeps, Ordering::Relaxed);
    }

    pub(crate) fn keeps(&self) -> bool {
        self.keeps.load(Ordering::Relaxed)
    }

    /// Claims so far.
    pub(crate) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// Makes a claim, waits for its answer and gives the sandbox back.
    async fn serve(&self, pool: &str) -> Result<Outcome> {
        let (name, outcome) = self.claim(pool).await?;
        self.give_back(&name).await?;
        Ok(outcome)
    }

    pub(crate) async fn claim(&self, pool: &str) -> Result<(String, Outcome)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("claim-{number}");
        let body = objects::claim(&name, pool).to_string();
        let (sender, answer) = oneshot::channel();
        lock(&self.waiting).insert(name.clone(), sender);
        let connection = self.connection(number).await?;
        let sent = Instant::now();
        let made = connection.whole(Ask::post(CLAIMS, body)).await;
        made.with_context(|| format!("creating {name}"))?;
        let created = Instant::now();
        let ready = tokio::time::timeout(PATIENCE, answer).await.ok();
        let ready = ready.transpose().context("the watch of claims ended")?;
        lock(&self.waiting).remove(&name);
        self.answered.fetch_add(1, Ordering::Relaxed);
        let outcome = Outcome {
            sent,
            created,
            ready,
        };
        Ok((name, outcome))
    }

    pub(crate) async fn give_back(&self, name: &str) -> Result<()> {
        if self.keeps() {
            return Ok(());
        }
        let ask = Ask::delete(format!("{CLAIMS}/{name}"));
        let gone = self.ask(ask).await;
        gone.with_context(|| format!("deleting {name}"))
    }

    /// One after the other, with a pause between them.
    pub(crate) async fn one_at_a_time(
        &self,
        pool: &str,
        count: usize,
        pause: Duration,
    ) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::with_capacity(count);
        for _ in 0..count {
            outcomes.push(self.serve(pool).await?);
            tokio::time::sleep(pause).await;
        }
        Ok(outcomes)
    }

    /// As many at any time: who is answered asks again at once.
    pub(crate) async fn in_parallel(
        self: &Arc<Self>,
        pool: &str,
        clients: usize,
        count: usize,
    ) -> Result<Vec<Outcome>> {
        let left = Arc::new(AtomicUsize::new(count));
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            let (desk, pool, left) = (Arc::clone(self), pool.to_owned(), Arc::clone(&left));
            tasks.spawn(async move {
                let (mut outcomes, mut returns) = (Vec::new(), JoinSet::new());
                let take = |left: usize| left.checked_sub(1);
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                    .is_ok()
                {
                    let (name, outcome) = desk.claim(&pool).await?;
                    outcomes.push(outcome);
                    let desk = Arc::clone(&desk);
                    returns.spawn(async move { desk.give_back(&name).await });
                }
                finish(returns).await?;
                anyhow::Ok(outcomes)
            });
        }
        let mut outcomes = Vec::with_capacity(count);
        while let Some(done) = tasks.join_next().await {
            outcomes.extend(done??);
        }
        Ok(outcomes)
    }

    /// Claims arrive whether others have been answered or not, until it is stopped.
    pub(crate) fn open_loop(self: &Arc<Self>, pool: &str, rate: f64, pace: Pace) -> OpenLoop {
        let outcomes: Arc<Mutex<Vec<Outcome>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (desk, pool) = (Arc::clone(self), pool.to_owned());
        let (into, stopped) = (Arc::clone(&outcomes), Arc::clone(&stop));
        let task = tokio::spawn(async move {
            let mut tasks = JoinSet::new();
            let mut due = tokio::time::Instant::now();
            for gap in Arrivals::new(rate, pace) {
                due += gap;
                tokio::time::sleep_until(due).await;
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                while let Some(done) = tasks.try_join_next() {
                    done??;
                }
                let (desk, pool, into) = (Arc::clone(&desk), pool.clone(), Arc::clone(&into));
                tasks.spawn(async move {
                    let (name, outcome) = desk.claim(&pool).await?;
                    lock(&into).push(outcome);
                    desk.give_back(&name).await
                });
            }
            finish(tasks).await
        });
        OpenLoop {
            outcomes,
            stop,
            task,
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

async fn finish(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// A load that runs beside whatever else happens.
pub(crate) struct OpenLoop {
    outcomes: Arc<Mutex<Vec<Outcome>>>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<()>>,
}

impl OpenLoop {
    pub(crate) fn answered(&self) -> usize {
        lock(&self.outcomes).len()
    }

    /// An error if it has failed.
    pub(crate) async fn check(&mut self) -> Result<()> {
        if self.task.is_finished() {
            (&mut self.task).await??;
        }
        Ok(())
    }

    /// All outcomes, in the order of the requests, when the last has come.
    pub(crate) async fn stop(self) -> Result<Vec<Outcome>> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await??;
        let mut outcomes = std::mem::take(&mut *lock(&self.outcomes));
        outcomes.sort_by_key(|outcome| outcome.sent);
        Ok(outcomes)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

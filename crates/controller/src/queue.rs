//! Which object is looked at next.
//!
//! A key is in work once at a time: what happens to it meanwhile makes it wait for another pass. A pass that failed is
//! repeated after a while that doubles with each failure. Nothing is lost with the process, because a new one begins
//! with every key.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::future::{Either, pending};
use k8s_openapi::jiff::Timestamp;
use tokio::{sync::Notify, task::JoinSet};

use crate::{
    clock::{Clock, after},
    metrics::Work,
};

const FIRST_RETRY: Duration = Duration::from_millis(5);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// When a key is looked at again, if nothing happens to it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Never,
    In(Duration),
    /// Something failed.
    Retry,
}

/// One look at an object.
pub struct Pass<K> {
    pub key: K,
    /// How many passes in a row have failed before this one.
    pub failures: u32,
    queue: Queue<K>,
}

impl<K: Clone + Eq + Hash + Send + 'static> Pass<K> {
    /// Whatever has happened to the object is seen from here on, so that it is no reason for another pass. The watch often
    /// tells of a write before its answer comes. Not for a pass that goes on with what it has read before.
    pub fn look(&self) {
        self.queue.backlog().look(&self.key);
    }
}

/// Clones are one queue.
pub struct Queue<K> {
    shared: Arc<(Mutex<Backlog<K>>, Notify)>,
    clock: Clock,
    work: Work,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            clock: self.clock.clone(),
            work: self.work.clone(),
        }
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> Queue<K> {
    pub(crate) fn new(clock: Clock, work: Work) -> Self {
        Self {
            shared: Arc::new((Mutex::new(Backlog::new()), Notify::new())),
            clock,
            work,
        }
    }

    /// Something happened to this one.
    pub fn add(&self, key: K) {
        let mut backlog = self.backlog();
        backlog.add(key);
        backlog.tell(&self.work);
        drop(backlog);
        self.shared.1.notify_one();
    }

    /// Something happened to this one that need not be seen at once.
    pub fn add_within(&self, time: Duration, key: K) {
        let latest = after(self.clock.now(), time);
        self.backlog().add_until(latest, key);
        self.shared.1.notify_one();
    }

    /// Lets `pass` look at every key that is due, at so many at a time. Never returns.
    pub async fn drive<Work>(&self, at_a_time: usize, pass: impl Fn(Pass<K>) -> Work)
    where
        Work: Future<Output = Next> + Send + 'static,
    {
        let mut running = JoinSet::new();
        let mut keys = HashMap::new();
        let mut awake = None;
        loop {
            while running.len() < at_a_time
                && let Some(next) = self.take()
            {
                let (held, key) = (self.clock.hold(), next.key.clone());
                let work = pass(next);
                let task = running.spawn(async move { (work.await, held) });
                keys.insert(task.id(), (key, Instant::now()));
            }
            self.work.working(running.len(), at_a_time);
            // a full house waits for one to end
            let deadline = self
                .backlog()
                .next_deadline()
                .filter(|_| running.len() < at_a_time);
            let sleep = match deadline {
                Some(deadline) => Either::Left(self.clock.sleep_until(deadline)),
                None => Either::Right(pending()),
            };
            // only now that the next sleep has begun may time go on
            drop(awake.take());
            tokio::select! {
                token = sleep => awake = Some(token),
                () = self.shared.1.notified() => awake = Some(self.clock.hold()),
                Some(ended) = running.join_next_with_id() => {
                    // one that panicked failed like any other
                    let (id, next) = match ended {
                        Ok((id, (next, held))) => {
                            awake = Some(held);
                            (id, next)
                        }
                        Err(error) => {
                            self.work.panicked();
                            (error.id(), Next::Retry)
                        }
                    };
                    if let Some((key, start)) = keys.remove(&id) {
                        self.work.ended(next, start.elapsed());
                        self.backlog().finish(&key, next, self.clock.now());
                    }
                }
            }
        }
    }

    fn take(&self) -> Option<Pass<K>> {
        let mut backlog = self.backlog();
        let taken = backlog.take(self.clock.now());
        backlog.tell(&self.work);
        let (key, failures, since) = taken?;
        self.work.took(since.elapsed());
        let queue = self.clone();
        Some(Pass {
            key,
            failures,
            queue,
        })
    }

    fn backlog(&self) -> MutexGuard<'_, Backlog<K>> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queue without time and tasks.
struct Backlog<K> {
    /// Who waits, and since when.
    ready: VecDeque<(K, Instant)>,
    /// How many have begun to wait since it was last told.
    new: u64,
    keys: HashMap<K, Entry>,
    timers: BTreeMap<(Timestamp, u64), K>,
    arrivals: u64,
}

#[derive(Default)]
struct Entry {
    is_ready: bool,
    is_running: bool,
    failures: u32,
    timer: Option<(Timestamp, u64)>,
    /// When the pass that comes after the one in work is due, whatever that says.
    due: Option<Timestamp>,
}

impl<K: Clone + Eq + Hash> Backlog<K> {
    fn new() -> Self {
        Self {
            ready: VecDeque::new(),
            new: 0,
            keys: HashMap::new(),
            timers: BTreeMap::new(),
            arrivals: 0,
        }
    }

    fn add(&mut self, key: K) {
        let entry = self.keys.entry(key.clone()).or_default();
        if !std::mem::replace(&mut entry.is_ready, true) && !entry.is_running {
            self.push(key);
        }
    }

    fn add_until(&mut self, latest: Timestamp, key: K) {
        let entry = self.keys.entry(key.clone()).or_default();
        if entry.is_running {
            entry.due = Some(entry.due.map_or(latest, |due| due.min(latest)));
        } else if !entry.is_ready && entry.timer.is_none_or(|(at, _)| latest < at) {
            self.set_timer(latest, key);
        }
    }

    fn set_timer(&mut self, at: Timestamp, key: K) {
        self.arrivals += 1;
        let timer = (at, self.arrivals);
        let entry = self.keys.entry(key.clone()).or_default();
        if let Some(old) = entry.timer.replace(timer) {
            self.timers.remove(&old);
        }
        self.timers.insert(timer, key);
    }

    fn look(&mut self, key: &K) {
        if let Some(entry) = self.keys.get_mut(key) {
            entry.is_ready = false;
            entry.due = None;
        }
    }

    fn push(&mut self, key: K) {
        self.ready.push_back((key, Instant::now()));
        self.new += 1;
    }

    fn tell(&mut self, work: &Work) {
        work.waiting(self.ready.len(), std::mem::take(&mut self.new));
    }

    /// The next one that nobody works on, how often it has failed, and since when it has waited. The pass itself says when there is to be another.
    fn take(&mut self, now: Timestamp) -> Option<(K, u32, Instant)> {
        while let Some(timer) = self.timers.first_entry()
            && timer.key().0 <= now
        {
            let key = timer.remove();
            if let Some(entry) = self.keys.get_mut(&key) {
                entry.timer = None;
            }
            self.add(key);
        }
        let (key, since) = self.ready.pop_front()?;
        let entry = self.keys.entry(key.clone()).or_default();
        entry.is_ready = false;
        entry.is_running = true;
        if let Some(timer) = entry.timer.take() {
            self.timers.remove(&timer);
        }
        Some((key, entry.failures, since))
    }

    fn finish(&mut self, key: &K, next: Next, now: Timestamp) {
        let Some(entry) = self.keys.get_mut(key) else {
            return;
        };
        entry.is_running = false;
        let wait = match next {
            Next::Never => None,
            Next::In(time) => Some(time),
            Next::Retry => Some(retry_after(entry.failures)),
        };
        let next_look = wait.map(|wait| after(now, wait));
        let next_look = next_look.into_iter().chain(entry.due.take()).min();
        entry.failures = match next {
            Next::Retry => entry.failures.saturating_add(1),
            Next::Never | Next::In(_) => 0,
        };
        if entry.is_ready {
            self.push(key.clone());
        } else if let Some(at) = next_look {
            self.set_timer(at, key.clone());
        } else {
            self.keys.remove(key);
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }
}

/// How long to wait after one more failure than these.
pub(crate) fn retry_after(failures: u32) -> Duration {
    FIRST_RETRY
        .saturating_mul(2_u32.saturating_pow(failures))
        .min(LONGEST_RETRY)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::jiff::Timestamp;

    use super::{Backlog, Next, after, retry_after};

    const NOON: Timestamp = Timestamp::UNIX_EPOCH;

    fn at(millis: u64) -> Timestamp {
        after(NOON, Duration::from_millis(millis))
    }

    fn take(backlog: &mut Backlog<&'static str>, millis: u64) -> Option<(&'static str, u32)> {
        let taken = backlog.take(at(millis));
        taken.map(|(key, failures, _)| (key, failures))
    }

    #[test]
    fn a_key_waits_once_however_often_it_is_added() {
        let mut backlog = Backlog::new();
        for key in ["a", "b", "a", "a"] {
            backlog.add(key);
        }
        assert_eq!(take(&mut backlog, 0), Some(("a", 0)));
        assert_eq!(take(&mut backlog, 0), Some(("b", 0)));
        assert_eq!(take(&mut backlog, 0), None);
    }

    #[test]
    fn a_key_in_work_is_not_given_to_another_and_is_looked_at_again() {
        let mut backlog = Backlog::new();
        backlog.add("a");
        assert_eq!(take(&mut backlog, 0), Some(("a", 0)));
        backlog.add("a");
        assert_eq!(take(&mut backlog, 0), None);
        backlog.finish(&"a", Next::Never, NOON);
        assert_eq!(take(&mut backlog, 0), Some(("a", 0)));
        backlog.finish(&"a", Next::Never, NOON);
        assert_eq!(take(&mut backlog, 0), None);
        assert!(backlog.keys.is_empty());
    }

    #[test]
    fn what_is_told_before_a_look_is_no_reason_for_another_pass() {
        let mut backlog = Backlog::new();
        backlog.add("a");
        take(&mut backlog, 0);
        backlog.add("a");
        backlog.add_until(at(5), "a");
        backlog.look(&"a");
        backlog.finish(&"a", Next::Never, NOON);
        assert_eq!(take(&mut backlog, 1000), None);
        assert!(backlog.keys.is_empty());
    }

    #[test]
    fn what_can_wait_is_seen_in_time() {
        let mut backlog = Backlog::new();
        backlog.add_until(at(50), "idle");
        backlog.add_until(at(90), "idle");
        assert_eq!(take(&mut backlog, 49), None);
        assert_eq!(take(&mut backlog, 50), Some(("idle", 0)));
        backlog.finish(&"idle", Next::Never, at(50));
        assert_eq!(take(&mut backlog, 1000), None);

        backlog.add("busy");
        take(&mut backlog, 1000);
        backlog.add_until(at(1040), "busy");
        let later = Next::In(Duration::from_secs(1));
        backlog.finish(&"busy", later, at(1001));
        assert_eq!(backlog.next_deadline(), Some(at(1040)));
        backlog.add_until(at(1030), "busy");
        assert_eq!(backlog.timers.len(), 1);
        assert_eq!(take(&mut backlog, 1030), Some(("busy", 0)));
    }

    #[test]
    fn failures_wait_ever_longer_and_success_forgets_them() {
        let mut backlog = Backlog::new();
        backlog.add("a");
        let mut now = 0;
        for (failures, wait) in [(0, 5), (1, 10), (2, 20)] {
            assert_eq!(take(&mut backlog, now), Some(("a", failures)));
            backlog.finish(&"a", Next::Retry, at(now));
            assert_eq!(backlog.next_deadline(), Some(at(now + wait)));
            assert_eq!(take(&mut backlog, now + wait - 1), None);
            now += wait;
        }
        assert_eq!(take(&mut backlog, now), Some(("a", 3)));
        backlog.finish(&"a", Next::In(Duration::from_millis(7)), at(now));
        assert_eq!(take(&mut backlog, now + 7), Some(("a", 0)));
        assert_eq!(retry_after(0), Duration::from_millis(5));
        assert_eq!(retry_after(u32::MAX), Duration::from_secs(60));
    }

    #[test]
    fn what_happens_before_the_time_comes_replaces_the_wait() {
        let mut backlog = Backlog::new();
        backlog.add("a");
        take(&mut backlog, 0);
        backlog.finish(&"a", Next::In(Duration::from_secs(60)), NOON);
        backlog.add("a");
        assert_eq!(take(&mut backlog, 1), Some(("a", 0)));
        assert_eq!(backlog.next_deadline(), None);
        backlog.finish(&"a", Next::Never, at(1));
        assert_eq!(take(&mut backlog, 100_000), None);
    }
}

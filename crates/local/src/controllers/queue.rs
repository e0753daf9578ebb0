//! What a controller has yet to look at. An object stands in it once, however often it is named, and is never worked
//! on twice at the same time.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::jiff::Timestamp;
use tokio::sync::{Notify, Semaphore};

use super::Controller;
use crate::clock::{Awake, Clock};
use crate::store::Key;

/// How many objects a controller works on at the same time: writes that wait together are committed together.
const AT_ONCE: usize = 16;
const FIRST_WAIT: Duration = Duration::from_millis(5);
/// 5 ms doubled so often are 40 s.
const DOUBLINGS: u32 = 13;
/// How often something blocked is tried, in case that what it lacks is just being made: 5 s in all.
const BLOCKED_TRIES: u32 = 10;

/// How the work on an object went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// There is more to do then, on the cluster's clock.
    At(Timestamp),
    /// It failed: to be tried again after a while of real time.
    Again,
    /// It needs a kind that is not served.
    Blocked,
}

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Key>,
    /// Those in `ready`.
    queued: HashSet<Key>,
    working: HashSet<Key>,
    /// Named again while they were worked on.
    again: HashSet<Key>,
    failures: HashMap<Key, u32>,
    /// Those that a failure has somebody wait for.
    resting: HashSet<Key>,
    blocked: BTreeSet<Key>,
    timers: HashMap<Key, Timestamp>,
    /// Time stands still until the work that was due is done.
    awake: HashMap<Key, Awake>,
}

/// What to wait for before an object is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    None,
    Rest(Duration),
    Until(Timestamp),
}

impl Queue {
    pub(super) fn add(&self, key: &Key) {
        let mut state = self.lock();
        if state.working.contains(key) {
            state.again.insert(key.clone());
        } else if state.queued.insert(key.clone()) {
            state.ready.push_back(key.clone());
            drop(state);
            self.changed.notify_one();
        }
    }

    /// A kind has appeared or changed: whatever lacked one is tried again.
    pub(super) fn unblock(&self) {
        let blocked = std::mem::take(&mut self.lock().blocked);
        for key in blocked {
            self.lock().failures.remove(&key);
            self.add(&key);
        }
    }

    /// The object is gone.
    pub(super) fn forget(&self, key: &Key) {
        let mut state = self.lock();
        state.blocked.remove(key);
        state.failures.remove(key);
    }

    async fn next(&self) -> (Key, Option<Awake>) {
        loop {
            let changed = self.changed.notified();
            if let Some(next) = self.take() {
                return next;
            }
            changed.await;
        }
    }

    fn take(&self) -> Option<(Key, Option<Awake>)> {
        let mut state = self.lock();
        let key = state.ready.pop_front()?;
        state.queued.remove(&key);
        state.working.insert(key.clone());
        let awake = state.awake.remove(&key);
        Some((key, awake))
    }

    fn finish(&self, key: &Key, outcome: Outcome) -> Pause {
        let mut state = self.lock();
        state.working.remove(key);
        let pause = state.pause(key, outcome);
        let again = state.again.remove(key);
        drop(state);
        if again {
            self.add(key);
        }
        pause
    }

    fn rested(&self, key: &Key) {
        self.lock().resting.remove(key);
        self.add(key);
    }

    fn due(&self, key: &Key, awake: Awake) {
        let mut state = self.lock();
        state.timers.remove(key);
        state.awake.insert(key.clone(), awake);
        drop(state);
        self.add(key);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn pause(&mut self, key: &Key, outcome: Outcome) -> Pause {
        match outcome {
            Outcome::Done | Outcome::At(_) => {
                self.failures.remove(key);
                self.blocked.remove(key);
                match outcome {
                    // an earlier timer looks again in time, and then sets the next
                    Outcome::At(time) if self.timers.get(key).is_none_or(|set| *set > time) => {
                        self.timers.insert(key.clone(), time);
                        Pause::Until(time)
                    }
                    _ => Pause::None,
                }
            }
            Outcome::Again | Outcome::Blocked => {
                let failures = self.failures.entry(key.clone()).or_default();
                *failures += 1;
                let failures = *failures;
                if outcome == Outcome::Blocked {
                    self.blocked.insert(key.clone());
                    if failures > BLOCKED_TRIES {
                        return Pause::None;
                    }
                }
                let doublings = (failures - 1).min(DOUBLINGS);
                match self.resting.insert(key.clone()) {
                    true => Pause::Rest(FIRST_WAIT * 2_u32.pow(doublings)),
                    false => Pause::None,
                }
            }
        }
    }
}

/// Works on what is named until the task is ended.
pub(super) async fn run<C: Controller>(controller: Arc<C>, queue: Arc<Queue>, clock: Clock) {
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let named = stream::unfold(Arc::clone(&queue), |queue| async move {
        let next = queue.next().await;
        Some((next, queue))
    });
    // unlimited, since what only rests takes no slot
    named
        .for_each_concurrent(None, |(key, awake)| {
            let (controller, slots) = (Arc::clone(&controller), Arc::clone(&slots));
            let (queue, clock) = (Arc::clone(&queue), clock.clone());
            async move {
                let slot = slots.acquire().await;
                let held = clock.hold();
                // one object that nobody thought of must not end the work on all others
                let work = AssertUnwindSafe(controller.work(&key)).catch_unwind();
                let outcome = work.await.unwrap_or(Outcome::Again);
                drop((slot, awake));
                match queue.finish(&key, outcome) {
                    Pause::None => {}
                    Pause::Rest(time) => {
                        drop(held);
                        tokio::time::sleep(time).await;
                        queue.rested(&key);
                    }
                    Pause::Until(time) => {
                        let sleep = clock.sleep_until(time);
                        drop(held);
                        queue.due(&key, sleep.await);
                    }
                }
            }
        })
        .await;
}

#[cfg(test)]
mod tests {
    use super::{BLOCKED_TRIES, FIRST_WAIT, Outcome, Pause, Queue};
    use crate::store::Key;

    fn key(name: &str) -> Key {
        Key::new("pods", "default", name)
    }

    fn names(queue: &Queue) -> Vec<String> {
        std::iter::from_fn(|| queue.take())
            .map(|(key, _)| key.name().to_owned())
            .collect()
    }

    #[test]
    fn an_object_named_often_stands_in_the_queue_once() {
        let queue = Queue::default();
        for name in ["a", "b", "a"] {
            queue.add(&key(name));
        }
        assert_eq!(names(&queue), ["a", "b"]);
    }

    #[test]
    fn what_is_named_during_the_work_on_it_comes_again_afterwards() {
        let queue = Queue::default();
        queue.add(&key("a"));
        assert_eq!(names(&queue), ["a"]);
        queue.add(&key("a"));
        assert!(names(&queue).is_empty());
        assert_eq!(queue.finish(&key("a"), Outcome::Done), Pause::None);
        assert_eq!(names(&queue), ["a"]);
    }

    #[test]
    fn failures_rest_longer_each_time_and_success_forgets_them() {
        let queue = Queue::default();
        let fail = || {
            let pause = queue.finish(&key("a"), Outcome::Again);
            queue.rested(&key("a"));
            queue.take();
            pause
        };
        assert_eq!(fail(), Pause::Rest(FIRST_WAIT));
        assert_eq!(fail(), Pause::Rest(FIRST_WAIT * 2));
        assert_eq!(fail(), Pause::Rest(FIRST_WAIT * 4));
        queue.finish(&key("a"), Outcome::Done);
        assert_eq!(
            queue.finish(&key("a"), Outcome::Again),
            Pause::Rest(FIRST_WAIT)
        );
    }

    #[test]
    fn what_lacks_a_kind_is_given_up_until_there_are_new_kinds() {
        let queue = Queue::default();
        for _ in 0..BLOCKED_TRIES {
            assert_ne!(queue.finish(&key("a"), Outcome::Blocked), Pause::None);
            queue.rested(&key("a"));
            assert_eq!(names(&queue), ["a"]);
        }
        assert_eq!(queue.finish(&key("a"), Outcome::Blocked), Pause::None);
        assert!(names(&queue).is_empty());
        queue.unblock();
        assert_eq!(names(&queue), ["a"]);
        assert_eq!(
            queue.finish(&key("a"), Outcome::Blocked),
            Pause::Rest(FIRST_WAIT)
        );
    }

    #[test]
    fn the_same_appointment_is_made_once() {
        let queue = Queue::default();
        let noon = "2026-01-31T12:00:00Z".parse().unwrap();
        assert_eq!(
            queue.finish(&key("a"), Outcome::At(noon)),
            Pause::Until(noon)
        );
        assert_eq!(queue.finish(&key("a"), Outcome::At(noon)), Pause::None);
    }
}

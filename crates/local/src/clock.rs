//! The clock of the embedded cluster: the system's, or one that a test moves by hand.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::sync::{oneshot, watch};

/// How often others get to run before an advance looks whether all of them sleep again.
const YIELDS: usize = 16;
/// How long, in real time, an advance waits while none of those awake gets on with it.
const PATIENCE: Duration = Duration::from_secs(5);

/// A cheap handle; clones tell the same time.
#[derive(Clone)]
pub struct Clock(Option<Arc<Manual>>);

struct Manual {
    state: Mutex<State>,
    awake: watch::Sender<Count>,
}

#[derive(Default)]
struct Count {
    /// How many [`Awake`] exist.
    awake: usize,
    /// How many of them an advance has waited for in vain, and no further one waits for.
    stuck: usize,
}

struct State {
    now: Timestamp,
    /// By deadline, then in the order of arrival.
    sleepers: BTreeMap<(Timestamp, u64), oneshot::Sender<Awake>>,
    arrivals: u64,
}

/// Time moved by hand stands still while one of these is kept.
///
/// A sleeper gets one when it wakes, so that what it does next is done at the time it woke for.
pub struct Awake(Option<Arc<Manual>>);

impl Clock {
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock that shows `start` until [`Clock::advance`] moves it.
    pub fn manual(start: Timestamp) -> Self {
        Self(Some(Arc::new(Manual {
            state: Mutex::new(State {
                now: start,
                sleepers: BTreeMap::new(),
                arrivals: 0,
            }),
            awake: watch::Sender::default(),
        })))
    }

    pub fn now(&self) -> Timestamp {
        match &self.0 {
            None => Timestamp::now(),
            Some(manual) => manual.state().now,
        }
    }

    pub fn sleep(&self, time: Duration) -> impl Future<Output = Awake> + Send + use<> {
        self.sleep_until(after(self.now(), time))
    }

    /// The sleep begins with the call: who calls this before dropping its [`Awake`] misses no time.
    pub fn sleep_until(&self, deadline: Timestamp) -> impl Future<Output = Awake> + Send + use<> {
        let bed = self.0.as_ref().map(|manual| Bed::new(manual, deadline));
        async move {
            match bed {
                None => system_sleep(deadline).await,
                Some(bed) => bed.sleep().await,
            }
        }
    }

    /// Keeps time moved by hand from passing while the answer is kept.
    pub fn hold(&self) -> Awake {
        Awake::new(self.0.as_ref())
    }

    /// When the next sleeper wakes. The system's clock does not know.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let state = self.0.as_ref()?.state();
        state
            .sleepers
            .first_key_value()
            .map(|((deadline, _), _)| *deadline)
    }

    /// Lets time pass, waking sleepers one by one in the order of their deadlines. Who sleeps again
    /// until a deadline within that time wakes again. The system's time passes by itself.
    pub async fn advance(&self, by: Duration) {
        match &self.0 {
            None => tokio::time::sleep(by).await,
            Some(manual) => manual.advance(by).await,
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.0.is_some() { "manual" } else { "system" };
        write!(out, "Clock({kind}, {})", self.now())
    }
}

async fn system_sleep(deadline: Timestamp) -> Awake {
    // the system's time may be set back meanwhile
    while let Ok(left) = Duration::try_from(deadline.duration_since(Timestamp::now()))
        && !left.is_zero()
    {
        tokio::time::sleep(left).await;
    }
    Awake(None)
}

impl Manual {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn advance(self: &Arc<Self>, by: Duration) {
        let end = after(self.state().now, by);
        loop {
            self.settle().await;
            let due = {
                let mut state = self.state();
                let Some(entry) = state
                    .sleepers
                    .first_entry()
                    .filter(|entry| entry.key().0 <= end)
                else {
                    state.now = state.now.max(end);
                    break;
                };
                let ((deadline, _), waker) = entry.remove_entry();
                state.now = state.now.max(deadline);
                waker
            };
            // one that no longer listens gives its token back, which is dropped here
            let _ = due.send(Awake::new(Some(self)));
        }
        self.settle().await;
    }

    /// Lets others run until nobody is awake any more who gets on with it.
    async fn settle(&self) {
        let mut awake = self.awake.subscribe();
        loop {
            yield_often().await;
            if awake.borrow_and_update().is_still() {
                // who has just dropped its token may be about to take another
                yield_often().await;
                if awake.borrow().is_still() {
                    return;
                }
            } else if tokio::time::timeout(PATIENCE, awake.changed())
                .await
                .is_err()
            {
                self.awake.send_modify(|count| count.stuck = count.awake);
                return;
            }
        }
    }
}

impl Count {
    fn is_still(&self) -> bool {
        self.awake == self.stuck
    }
}

async fn yield_often() {
    for _ in 0..YIELDS {
        tokio::task::yield_now().await;
    }
}

/// The place of a sleeper, given up when its future is dropped.
struct Bed {
    manual: Arc<Manual>,
    place: Option<((Timestamp, u64), oneshot::Receiver<Awake>)>,
}

impl Bed {
    fn new(manual: &Arc<Manual>, deadline: Timestamp) -> Self {
        let mut state = manual.state();
        let place = (deadline > state.now).then(|| {
            state.arrivals += 1;
            let place = (deadline, state.arrivals);
            let (waker, woken) = oneshot::channel();
            state.sleepers.insert(place, waker);
            (place, woken)
        });
        drop(state);
        Self {
            manual: Arc::clone(manual),
            place,
        }
    }

    async fn sleep(mut self) -> Awake {
        let woken = match &mut self.place {
            Some((_, woken)) => woken.await.ok(),
            None => None,
        };
        woken.unwrap_or_else(|| Awake::new(Some(&self.manual)))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let Some((place, _)) = &self.place {
            self.manual.state().sleepers.remove(place);
        }
    }
}

impl Awake {
    fn new(manual: Option<&Arc<Manual>>) -> Self {
        if let Some(manual) = manual {
            manual.awake.send_modify(|count| count.awake += 1);
        }
        Self(manual.cloned())
    }
}

impl Clone for Awake {
    fn clone(&self) -> Self {
        Self::new(self.0.as_ref())
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        if let Some(manual) = &self.0 {
            manual.awake.send_modify(|count| {
                count.awake -= 1;
                count.stuck = count.stuck.min(count.awake);
            });
        }
    }
}

/// The end of time where `time` would lead beyond it.
pub fn after(start: Timestamp, time: Duration) -> Timestamp {
    SignedDuration::try_from(time)
        .ok()
        .and_then(|time| start.checked_add(time).ok())
        .unwrap_or(Timestamp::MAX)
}

/// As Kubernetes writes `Time`: `2026-01-31T12:00:00Z`.
pub fn rfc3339_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// As Kubernetes writes `MicroTime`: `2026-01-31T12:00:00.000000Z`.
pub fn rfc3339_micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::{Clock, Duration, Timestamp, after, rfc3339_micros, rfc3339_seconds};

    const NOON: &str = "2026-01-31T12:00:00Z";

    fn noon() -> Timestamp {
        NOON.parse().unwrap()
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    async fn until_sleeping(clock: &Clock, count: usize) {
        let manual = clock.0.as_ref().unwrap();
        while manual.state().sleepers.len() < count {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn times_are_written_as_kubernetes_writes_them() {
        let time = after(noon(), Duration::from_micros(1_500_001));
        assert_eq!(rfc3339_seconds(time), "2026-01-31T12:00:01Z");
        assert_eq!(rfc3339_micros(time), "2026-01-31T12:00:01.500001Z");
        assert_eq!(rfc3339_micros(noon()), "2026-01-31T12:00:00.000000Z");
        assert_eq!(after(noon(), Duration::MAX), Timestamp::MAX);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn sleepers_wake_in_the_order_of_their_deadlines() {
        let clock = Clock::manual(noon());
        let woken = Arc::new(Mutex::new(Vec::new()));
        for delay in [30, 10, 20, 40] {
            let (clock, woken) = (clock.clone(), Arc::clone(&woken));
            tokio::spawn(async move {
                let awake = clock.sleep(seconds(delay)).await;
                woken.lock().unwrap().push((delay, clock.now()));
                drop(awake);
            });
        }
        until_sleeping(&clock, 4).await;
        assert_eq!(clock.next_deadline(), Some(after(noon(), seconds(10))));
        clock.advance(seconds(35)).await;
        let at = |delay| (delay, after(noon(), seconds(delay)));
        assert_eq!(*woken.lock().unwrap(), [at(10), at(20), at(30)]);
        assert_eq!(clock.now(), after(noon(), seconds(35)));
        assert_eq!(clock.next_deadline(), Some(after(noon(), seconds(40))));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn one_advance_wakes_a_sleeper_as_often_as_it_falls_asleep_again() {
        let clock = Clock::manual(noon());
        let ticks = Arc::new(Mutex::new(Vec::new()));
        let ticking = tokio::spawn({
            let (clock, ticks) = (clock.clone(), Arc::clone(&ticks));
            async move {
                let mut next = Box::pin(clock.sleep(seconds(1)));
                for _ in 1..=5 {
                    let awake = next.await;
                    // the work of a tick may take real time; none passes on this clock
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    ticks.lock().unwrap().push(clock.now());
                    next = Box::pin(clock.sleep(seconds(1)));
                    drop(awake);
                }
            }
        });
        until_sleeping(&clock, 1).await;
        clock.advance(seconds(60)).await;
        ticking.await.unwrap();
        let expected: Vec<_> = (1..=5).map(|tick| after(noon(), seconds(tick))).collect();
        assert_eq!(*ticks.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn time_goes_on_past_one_that_hangs_and_waits_for_the_next_one() {
        tokio::time::pause();
        let clock = Clock::manual(noon());
        let hanging = clock.hold();
        let start = tokio::time::Instant::now();
        for _ in 0..3 {
            clock.advance(seconds(1)).await;
        }
        assert!(start.elapsed() < super::PATIENCE * 2);
        drop(hanging);
        let busy = clock.hold();
        let done = tokio::spawn(async move {
            tokio::time::sleep(super::PATIENCE / 2).await;
            drop(busy);
        });
        clock.advance(seconds(1)).await;
        assert!(done.is_finished());
    }

    #[tokio::test]
    async fn a_sleep_given_up_leaves_no_deadline() {
        let clock = Clock::manual(noon());
        let sleep = clock.sleep(seconds(5));
        tokio::select! {
            biased;
            _ = sleep => panic!("time does not pass by itself"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(clock.next_deadline(), None);
    }

    #[tokio::test]
    async fn a_deadline_in_the_past_is_no_wait() {
        for clock in [Clock::manual(noon()), Clock::system()] {
            clock.sleep_until(noon()).await;
            clock.sleep(Duration::ZERO).await;
        }
    }

    #[tokio::test]
    async fn the_clock_of_the_system_passes_by_itself() {
        let clock = Clock::system();
        let start = clock.now();
        clock.sleep(Duration::from_millis(20)).await;
        clock.advance(Duration::from_millis(20)).await;
        assert!(clock.now() >= after(start, Duration::from_millis(40)));
        assert_eq!(clock.next_deadline(), None);
    }
}

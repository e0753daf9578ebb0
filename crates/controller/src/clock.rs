//! The time that controllers go by: the system's, or one that a test moves.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// Time that is moved by hand stands still while one of these is kept.
pub type Awake = Box<dyn Send>;

/// A source of time.
pub trait Time: Send + Sync {
    fn now(&self) -> Timestamp;
    /// The sleep begins with the call.
    fn sleep_until(&self, deadline: Timestamp) -> BoxFuture<'static, Awake>;
    /// Keeps time from passing while something is being done.
    fn hold(&self) -> Awake;
}

/// A cheap handle; clones tell the same time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Time>);

impl Clock {
    pub fn new(time: impl Time + 'static) -> Self {
        Self(Arc::new(time))
    }

    pub fn system() -> Self {
        Self::new(System)
    }

    /// The system's time as it was at the call, and from then on as much later as has passed, however the system's is set
    /// meanwhile: for what must end in time.
    pub fn steady() -> Self {
        Self::new(Steady {
            start: Timestamp::now(),
            since: Instant::now(),
        })
    }

    pub fn now(&self) -> Timestamp {
        self.0.now()
    }

    pub fn sleep(&self, time: Duration) -> BoxFuture<'static, Awake> {
        self.sleep_until(after(self.now(), time))
    }

    pub fn sleep_until(&self, deadline: Timestamp) -> BoxFuture<'static, Awake> {
        self.0.sleep_until(deadline)
    }

    pub fn hold(&self) -> Awake {
        self.0.hold()
    }
}

/// The end of time where `time` would lead beyond it.
pub fn after(start: Timestamp, time: Duration) -> Timestamp {
    SignedDuration::try_from(time)
        .ok()
        .and_then(|time| start.checked_add(time).ok())
        .unwrap_or(Timestamp::MAX)
}

struct System;

impl Time for System {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn sleep_until(&self, deadline: Timestamp) -> BoxFuture<'static, Awake> {
        Box::pin(async move {
            // the system's time may be set back meanwhile
            while let Ok(left) = Duration::try_from(deadline.duration_since(Timestamp::now()))
                && !left.is_zero()
            {
                tokio::time::sleep(left).await;
            }
            Box::new(()) as Awake
        })
    }

    fn hold(&self) -> Awake {
        Box::new(())
    }
}

struct Steady {
    start: Timestamp,
    since: Instant,
}

impl Time for Steady {
    fn now(&self) -> Timestamp {
        after(self.start, self.since.elapsed())
    }

    fn sleep_until(&self, deadline: Timestamp) -> BoxFuture<'static, Awake> {
        let left = Duration::try_from(deadline.duration_since(self.now())).unwrap_or_default();
        let sleep = tokio::time::sleep(left);
        Box::pin(async move {
            sleep.await;
            Box::new(()) as Awake
        })
    }

    fn hold(&self) -> Awake {
        Box::new(())
    }
}

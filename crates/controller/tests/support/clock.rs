//! The clock of the embedded cluster, as the controllers know it.

use controller::clock::{Awake, Clock, Time};
use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use local::clock;

struct Moved(clock::Clock);

impl Time for Moved {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn sleep_until(&self, deadline: Timestamp) -> BoxFuture<'static, Awake> {
        let sleep = self.0.sleep_until(deadline);
        Box::pin(async move { Box::new(sleep.await) as Awake })
    }

    fn hold(&self) -> Awake {
        Box::new(self.0.hold())
    }
}

pub(crate) fn of(clock: &clock::Clock) -> Clock {
    Clock::new(Moved(clock.clone()))
}

//! The usual course of a pod's life: what a kubelet tells though nothing is wrong.
//!
//! Nobody waits for it. It is written by one task, one at a time and some time later, when whatever it speaks of is done; and so
//! seldom that even pods that come and go all the time do not fill the store with it in the hour that events are kept.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use k8s_openapi::{api::core::v1::Event, jiff::Timestamp};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::mpsc;

/// A pod has mostly started by then.
const LATER: Duration = Duration::from_secs(1);
/// So many are told at once, some fifty starts, and then so many per second: a store has no more than 20,000 of them.
const AT_ONCE: u32 = 250;
const PER_SECOND: u32 = 5;
/// Those that wait to be written; more than are told at once.
const WAITING: usize = 512;

/// One thing that happened, perhaps not for the first time.
pub(super) struct Occasion {
    pub(super) event: Event,
    pub(super) count: i32,
    pub(super) due: Instant,
}

/// What has been told of one pod, by reason and message: how often, and in which event.
pub(super) type Telling = HashMap<(&'static str, String), (i32, String)>;

/// Where occasions are left to be written.
pub(super) fn desk(client: Client) -> mpsc::Sender<Occasion> {
    let (leave, occasions) = mpsc::channel(WAITING);
    tokio::spawn(write(client, occasions));
    leave
}

pub(super) fn due() -> Instant {
    Instant::now() + LATER
}

/// What cannot be written is lost.
async fn write(client: Client, mut occasions: mpsc::Receiver<Occasion>) {
    while let Some(Occasion { event, count, due }) = occasions.recv().await {
        tokio::time::sleep_until(due.into()).await;
        let namespace = event.namespace().unwrap_or_default();
        let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
        if count > 1 {
            let again = json!({"count": count, "lastTimestamp": event.last_timestamp});
            let params = PatchParams::default();
            let patched = events
                .patch(&event.name_any(), &params, &Patch::Merge(again))
                .await;
            let is_gone = matches!(&patched, Err(kube::Error::Api(status)) if status.code == 404);
            if !is_gone {
                continue;
            }
        }
        let _ = events.create(&PostParams::default(), &event).await;
    }
}

/// How many may still be told.
#[derive(Default)]
pub(super) struct Allowance {
    /// How many have been told lately, and until when that was counted.
    told: u32,
    since: Option<Timestamp>,
}

impl Allowance {
    pub(super) fn take(&mut self, now: Timestamp) -> bool {
        // from a clock that was set back it is counted anew
        let since = self.since.map_or(now, |since| since.min(now));
        self.since = Some(since);
        let seconds = u32::try_from(now.duration_since(since).as_secs()).unwrap_or_default();
        if seconds > 0 {
            self.told = self.told.saturating_sub(seconds.saturating_mul(PER_SECOND));
            self.since = Some(now);
        }
        let is_left = self.told < AT_ONCE;
        self.told += u32::from(is_left);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::{SignedDuration, Timestamp};

    use super::{AT_ONCE, Allowance, PER_SECOND};

    #[test]
    fn many_are_told_at_once_and_then_no_more_than_the_store_can_bear() {
        let mut allowance = Allowance::default();
        let mut now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let told = (0..1000).filter(|_| allowance.take(now)).count();
        assert_eq!(told, AT_ONCE as usize);
        let mut hour = 0;
        for _ in 0..3600 {
            now += SignedDuration::from_secs(1);
            hour += (0..100).filter(|_| allowance.take(now)).count();
        }
        assert_eq!(hour, 3600 * PER_SECOND as usize);
        now += SignedDuration::from_secs(3600);
        let rested = (0..1000).filter(|_| allowance.take(now)).count();
        assert_eq!(rested, AT_ONCE as usize);
        now -= SignedDuration::from_secs(60);
        assert!(
            !allowance.take(now),
            "a clock that is set back gives nothing"
        );
        now += SignedDuration::from_secs(1);
        let next = (0..100).filter(|_| allowance.take(now)).count();
        assert_eq!(next, PER_SECOND as usize, "and takes nothing");
    }
}

//! Events are kept for an hour after they were last written.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::queue::{Outcome, Queue};
use super::seen::Seen;
use super::{Controller, settled};
use crate::server::Server;
use crate::server::act::DeleteOptions;
use crate::store::Key;

const EVENTS: &str = "events";
const KEPT: SignedDuration = SignedDuration::from_hours(1);

pub(super) struct Expiry {
    server: Server,
}

impl Expiry {
    pub(super) fn new(server: &Server) -> Self {
        Self {
            server: server.clone(),
        }
    }
}

impl Controller for Expiry {
    fn notice(&self, seen: &Seen<'_>, queue: &Queue) {
        if seen.key.resource() == EVENTS && seen.after.is_some() {
            queue.add(seen.key);
        }
    }

    async fn work(&self, key: &Key) -> Outcome {
        let Some(entry) = self.server.store().get(key) else {
            return Outcome::Done;
        };
        let event: Value = serde_json::from_slice(entry.value.rest()).unwrap_or_default();
        let due = expires(&event);
        match due {
            Some(due) if due > self.server.clock().now() => Outcome::At(due),
            _ => {
                let options = DeleteOptions {
                    version: Some(entry.revision.to_string()),
                    ..DeleteOptions::default()
                };
                settled(self.server.end(key, &options).await)
            }
        }
    }
}

/// An hour after the latest time that the event names.
fn expires(event: &Value) -> Option<Timestamp> {
    let times = [
        &event["metadata"]["creationTimestamp"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["series"]["lastObservedTime"],
    ];
    let times = times.into_iter().filter_map(Value::as_str);
    let latest = times
        .filter_map(|time| time.parse::<Timestamp>().ok())
        .max();
    latest.and_then(|latest| latest.checked_add(KEPT).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::expires;

    #[test]
    fn an_event_lasts_an_hour_from_its_latest_time() {
        let event = json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "lastTimestamp": "2026-01-01T00:30:00Z",
            "eventTime": null,
        });
        assert_eq!(
            expires(&event).map(|time| time.to_string()).as_deref(),
            Some("2026-01-01T01:30:00Z")
        );
        assert_eq!(expires(&json!({})), None);
    }
}

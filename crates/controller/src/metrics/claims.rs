//! How claims were answered, and how fast.

use k8s_openapi::jiff::Timestamp;

use super::{
    Metrics,
    text::{Bounds, Counter, Family, Histogram, Text},
};

struct StartupMillis;

impl Bounds for StartupMillis {
    const BOUNDS: &'static [f64] = &[
        100.0, 250.0, 500.0, 750.0, 1000.0, 1250.0, 1500.0, 2000.0, 2500.0, 5000.0, 10000.0,
        30000.0, 60000.0, 120_000.0, 240_000.0,
    ];
}

struct CreationMillis;

impl Bounds for CreationMillis {
    const BOUNDS: &'static [f64] = &[
        50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10000.0, 30000.0, 60000.0, 120_000.0,
        240_000.0, 300_000.0, 600_000.0,
    ];
}

/// A warm claim takes milliseconds; the buckets above begin where it is over.
struct ReadySeconds;

impl Bounds for ReadySeconds {
    const BOUNDS: &'static [f64] = &[
        0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
        120.0, 300.0,
    ];
}

/// What is told of a claim whose template is not known.
const NO_TEMPLATE: &str = "__unknown__";
const OF_A_CLAIM: [&str; 2] = ["launch_type", "sandbox_template"];

pub(super) struct Claims {
    since_webhook: Family<Histogram, 2>,
    since_controller: Family<Histogram, 2>,
    since_client: Family<Histogram, 2>,
    creation: Family<Histogram, 3>,
    answered: Family<Counter, 6>,
    ready: Family<Histogram, 2>,
}

impl Default for Claims {
    fn default() -> Self {
        Self {
            since_webhook: Family::of::<StartupMillis>(
                "agent_sandbox_claim_startup_latency_ms",
                OF_A_CLAIM,
                "From the admission of a claim until it was Ready, in milliseconds.",
            ),
            since_controller: Family::of::<StartupMillis>(
                "agent_sandbox_claim_controller_startup_latency_ms",
                OF_A_CLAIM,
                "From the controller's first sight of a claim until it was Ready, in milliseconds.",
            ),
            since_client: Family::of::<StartupMillis>(
                "agent_sandbox_client_claim_startup_latency_ms",
                OF_A_CLAIM,
                "From the client's request for a claim until it was Ready, in milliseconds.",
            ),
            creation: Family::of::<CreationMillis>(
                "agent_sandbox_creation_latency_ms",
                ["namespace", "launch_type", "sandbox_template"],
                "From the creation of a sandbox until it was Ready, in milliseconds.",
            ),
            answered: Family::new(
                "agent_sandbox_claim_creation_total",
                [
                    "namespace",
                    "sandbox_template",
                    "launch_type",
                    "warmpool_name",
                    "pod_condition",
                    "created_by",
                ],
                "Claims that were given a sandbox.",
            ),
            ready: Family::of::<ReadySeconds>(
                "sandbar_claim_ready_seconds",
                OF_A_CLAIM,
                "From the controller's first sight of a claim until it was Ready, in seconds.",
            ),
        }
    }
}

impl Claims {
    pub(super) fn write(&self, to: &mut Text) {
        let Self {
            since_webhook,
            since_controller,
            since_client,
            creation,
            answered,
            ready,
        } = self;
        since_webhook.write(to);
        since_controller.write(to);
        since_client.write(to);
        creation.write(to);
        answered.write(to);
        ready.write(to);
    }
}

/// What is known when a claim is Ready for the first time.
#[derive(Clone, Debug)]
pub struct FirstReady<'a> {
    pub namespace: &'a str,
    /// `warm`, `cold` or nothing if it is not known.
    pub launch_type: Option<&'a str>,
    pub template: Option<&'a str>,
    pub now: Timestamp,
    /// When the client says that it asked.
    pub requested: Option<Timestamp>,
    /// When a webhook saw the claim.
    pub admitted: Option<Timestamp>,
    /// When the controller first saw the claim.
    pub first_seen: Option<Timestamp>,
    /// When its sandbox was made, and since when that is Ready.
    pub sandbox: Option<(Timestamp, Timestamp)>,
}

impl Metrics {
    /// A claim has got a member of a pool, and whether that was Ready.
    pub fn claim_adopted(
        &self,
        namespace: &str,
        template: Option<&str>,
        pool: &str,
        is_ready: bool,
        created_by: &str,
    ) {
        let condition = if is_ready { "ready" } else { "not_ready" };
        self.claim_answered([
            namespace,
            template.unwrap_or(NO_TEMPLATE),
            "warm",
            pool,
            condition,
            created_by,
        ]);
    }

    /// A sandbox was made for a claim, which no pool could serve.
    pub fn claim_created_cold(
        &self,
        namespace: &str,
        template: Option<&str>,
        pool: &str,
        created_by: &str,
    ) {
        self.claim_answered([
            namespace,
            template.unwrap_or(NO_TEMPLATE),
            "cold",
            pool,
            "not_ready",
            created_by,
        ]);
    }

    fn claim_answered(&self, labels: [&str; 6]) {
        self.0.claims.answered.with(labels).add(1);
    }

    /// A claim is Ready for the first time.
    pub fn claim_first_ready(&self, told: &FirstReady<'_>) {
        let launch = told.launch_type.unwrap_or("unknown");
        let template = told.template.unwrap_or(NO_TEMPLATE);
        let (claims, labels) = (&self.0.claims, [launch, template]);
        let since = |start: Option<Timestamp>| took(start?, told.now);
        if let Some(seconds) = since(told.admitted) {
            claims.since_webhook.with(labels).observe(seconds * 1e3);
        }
        if let Some(seconds) = since(told.requested) {
            claims.since_client.with(labels).observe(seconds * 1e3);
        }
        if let Some(seconds) = since(told.first_seen) {
            claims.since_controller.with(labels).observe(seconds * 1e3);
            claims.ready.with(labels).observe(seconds);
        }
        let creation = told.sandbox.and_then(|(made, ready)| took(made, ready));
        if let Some(seconds) = creation {
            let labels = [told.namespace, launch, template];
            claims.creation.with(labels).observe(seconds * 1e3);
        }
    }
}

/// Clocks of others may be ahead: what ends before it begins was not measured.
fn took(start: Timestamp, end: Timestamp) -> Option<f64> {
    let seconds = end.duration_since(start).as_secs_f64();
    (seconds >= 0.0).then_some(seconds)
}

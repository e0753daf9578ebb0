//! What is asked of the API server, as client-go tells it.

use std::{sync::Arc, time::Instant};

use http::Request;
use kube::{Client, client::Body};

use super::{
    Metrics,
    text::{Bounds, Counter, Family, Histogram, Text},
};

struct RequestSeconds;

impl Bounds for RequestSeconds {
    const BOUNDS: &'static [f64] = &[
        0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
    ];
}

pub(super) struct Requests {
    answered: Family<Counter, 3>,
    seconds: Family<Histogram, 2>,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            answered: Family::new(
                "rest_client_requests_total",
                ["code", "host", "method"],
                "Requests to the API server, by answer.",
            ),
            seconds: Family::of::<RequestSeconds>(
                "rest_client_request_duration_seconds",
                ["host", "verb"],
                "How long the API server took to answer, in seconds.",
            ),
        }
    }
}

impl Requests {
    pub(super) fn write(&self, to: &mut Text) {
        self.answered.write(to);
        self.seconds.write(to);
    }

    fn ended(&self, code: &str, host: &str, method: &str, start: Instant) {
        self.answered.with([code, host, method]).add(1);
        let seconds = start.elapsed().as_secs_f64();
        self.seconds.with([host, method]).observe(seconds);
    }
}

impl Metrics {
    /// The same client, counted. A watch is answered when it begins.
    pub fn counted(&self, client: Client, host: &str) -> Client {
        let namespace = client.default_namespace().to_owned();
        let (metrics, host) = (self.clone(), Arc::<str>::from(host));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (metrics, host, client) = (metrics.clone(), Arc::clone(&host), client.clone());
            async move {
                let (start, method) = (Instant::now(), request.method().clone());
                let answer = client.send(request).await;
                let code = match &answer {
                    Ok(answer) => answer.status().as_str().to_owned(),
                    Err(_) => "<error>".to_owned(),
                };
                let requests = &metrics.0.requests;
                requests.ended(&code, &host, method.as_str(), start);
                answer
            }
        });
        Client::new(service, namespace)
    }
}

//! Spans by OTLP over gRPC.
//!
//! Where they go, under which name, and how many of them, the environment says in the variables of OpenTelemetry; the crates
//! read it themselves.

use std::{collections::HashMap, env, time::Duration};

use anyhow::{Context as _, Result};
use controller::trace::{self, Headers, Traces};
use opentelemetry::{
    InstrumentationScope, Key, propagation::TextMapPropagator as _, trace::TracerProvider as _,
};
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, SpanExporter,
    WithTonicConfig as _, tonic_types::transport::ClientTlsConfig,
};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use tracing::{Level, Span, Subscriber, warn};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{Layer, filter::Targets, registry::LookupSpan};

/// What the process is called where nothing else is said.
const SERVICE: &str = "sandbar-controller";
/// How long the last spans may take; after that, stopping is more important.
const FAREWELL: Duration = Duration::from_secs(3);

/// The way of spans out of the process.
pub(super) struct Export(SdkTracerProvider);

impl Export {
    /// To be called where tokio runs: it keeps the connection.
    pub(super) fn start() -> Result<Self> {
        let exporter = SpanExporter::builder().with_tonic();
        let exporter = match is_plain() {
            true => exporter,
            false => exporter.with_tls_config(ClientTlsConfig::new().with_native_roots()),
        };
        let exporter = exporter
            .build()
            .context("--enable-tracing: cannot export spans; see OTEL_EXPORTER_OTLP_ENDPOINT")?;
        let provider = SdkTracerProvider::builder()
            .with_resource(resource())
            .with_batch_exporter(exporter)
            .build();
        Ok(Self(provider))
    }

    /// Takes the controllers' spans, and nothing else, from everything that is told.
    pub(super) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let scope = InstrumentationScope::builder("sandbar");
        let scope = scope.with_version(env!("CARGO_PKG_VERSION")).build();
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer_with_scope(scope))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(Targets::new().with_target(trace::TARGET, Level::INFO))
    }

    pub(super) fn traces(&self) -> Traces {
        Traces::with(Tracer(TraceContextPropagator::new()))
    }

    /// Sends what has not been sent. The wait is another thread's, because this one has the connection.
    pub(super) async fn end(self) {
        // what was under way when the work stopped has a span too, which ends when its task is dropped
        tokio::task::yield_now().await;
        let sent = tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(FAREWELL));
        match sent.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!("the last spans could not be exported: {error}"),
            Err(error) => warn!("the last spans could not be exported: {error}"),
        }
    }
}

/// Whether spans go where no certificates are needed: there may be none on this machine.
fn is_plain() -> bool {
    let variables = [
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
        OTEL_EXPORTER_OTLP_ENDPOINT,
    ];
    let mut given = variables.iter().filter_map(|name| env::var(name).ok());
    let address = given.find(|address| !address.is_empty());
    // one that names no protocol is taken for https
    address.is_none_or(|it| it.contains("://") && !it.starts_with("https://"))
}

/// Named by the environment, or by us.
fn resource() -> Resource {
    let given = Resource::builder().build();
    let name = given.get(&Key::from_static_str("service.name"));
    let is_named = name.is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    match is_named {
        true => given,
        false => Resource::builder().with_service_name(SERVICE).build(),
    }
}

struct Tracer(TraceContextPropagator);

impl trace::Tracer for Tracer {
    fn join(&self, span: &Span, headers: &Headers) {
        let headers: HashMap<_, _> = headers.clone().into_iter().collect();
        // a span that nobody listens to has no parent either
        let _ = span.set_parent(self.0.extract(&headers));
    }

    fn headers(&self, span: &Span) -> Headers {
        let mut headers = HashMap::new();
        self.0.inject_context(&span.context(), &mut headers);
        // one without vendors is not worth a word
        headers.retain(|_, value| !value.is_empty());
        headers.into_iter().collect()
    }
}

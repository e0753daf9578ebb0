//! `sandbar controller --enable-tracing`, a cluster, and somebody who collects the spans.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use api::sigs::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use k8s_openapi::{NamespaceResourceScope, api::core::v1::Pod};
use kube::{Api, Resource, ResourceExt as _, api::ListParams};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{KeyValue, any_value::Value as Attribute},
    trace::v1::status::StatusCode,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::PrivateKeyDer},
};

use support::{Served, until};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const ANNOTATION: &str = "opentelemetry.io/trace-context";

/// A span as one looks at it.
#[derive(Clone, Debug)]
struct Span {
    name: String,
    id: String,
    trace: String,
    /// Empty if it is the first of its trace.
    parent: String,
    attributes: BTreeMap<String, String>,
    is_error: bool,
    service: BTreeMap<String, String>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |pair: &KeyValue| {
        let value = pair.value.clone().and_then(|value| value.value);
        match value {
            Some(Attribute::StringValue(text)) => (pair.key.clone(), text),
            other => (pair.key.clone(), format!("{other:?}")),
        }
    };
    attributes.iter().map(text).collect()
}

/// Keeps every span that it is sent.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        for resource in request.into_inner().resource_spans {
            let service = resource.resource.map(|it| texts(&it.attributes));
            let service = service.unwrap_or_default();
            let spans = resource.scope_spans.into_iter().flat_map(|it| it.spans);
            self.0.lock().unwrap().extend(spans.map(|span| Span {
                id: hex(&span.span_id),
                trace: hex(&span.trace_id),
                parent: hex(&span.parent_span_id),
                attributes: texts(&span.attributes),
                is_error: span.status.is_some_and(|it| it.code() == StatusCode::Error),
                name: span.name,
                service: service.clone(),
            }));
        }
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    async fn start() -> (Self, SocketAddr) {
        Self::start_with(None).await
    }

    async fn start_with(tls: Option<TlsAcceptor>) -> (Self, SocketAddr) {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = collector.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (heard, tls) = (heard.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => heard.answer(stream).await,
                        Some(tls) => heard.answer(tls.accept(stream).await.unwrap()).await,
                    }
                });
            }
        });
        (collector, address)
    }

    async fn answer(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let service = TowerToHyperService::new(TraceServiceServer::new(self));
        let server = auto::Builder::new(TokioExecutor::new()).http2_only();
        let served = server.serve_connection(TokioIo::new(stream), service);
        drop(served.await);
    }

    fn spans(&self) -> Vec<Span> {
        self.0.lock().unwrap().clone()
    }

    /// Those with this name of the object of this name, of which there must be some.
    fn of(&self, name: &str, object: &str) -> Vec<Span> {
        let mut found = self.spans();
        found.retain(|span| span.name == name && span.attributes["name"] == object);
        let all = self.spans();
        assert!(!found.is_empty(), "no {name} of {object} in {all:#?}");
        found
    }
}

/// A cluster on which pods become ready.
struct World(Served);

impl World {
    async fn start() -> Self {
        Self(Served::start().await)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        self.0.api()
    }

    async fn create_pool(&self, replicas: u32) {
        let volume = json!({"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        }});
        self.0
            .create::<SandboxTemplate>(json!({
                "metadata": {"name": "template"},
                "spec": {"podTemplate": pod_template(), "volumeClaimTemplates": [volume]},
            }))
            .await;
        self.0
            .create::<SandboxWarmPool>(json!({
                "metadata": {"name": "pool"},
                "spec": {"replicas": replicas, "sandboxTemplateRef": {"name": "template"}},
            }))
            .await;
    }

    async fn create_claim(&self, annotations: Value) {
        self.0
            .create::<SandboxClaim>(json!({
                "metadata": {"name": "claim", "annotations": annotations},
                "spec": {"warmPoolRef": {"name": "pool"}},
            }))
            .await;
    }

    async fn create_sandbox(&self, name: &str, annotations: Value) {
        self.0
            .create::<Sandbox>(json!({
                "metadata": {"name": name, "annotations": annotations},
                "spec": {"podTemplate": pod_template()},
            }))
            .await;
    }

    /// The sandbox of this name once it is Ready.
    async fn until_ready(&self, name: &str) -> Sandbox {
        let sandboxes: Api<Sandbox> = self.api();
        until("ready", async || {
            let sandbox = sandboxes.get_opt(name).await.unwrap()?;
            let conditions = sandbox.status.as_ref()?.conditions.clone()?;
            let mut ready = conditions.iter().filter(|one| one.type_ == "Ready");
            ready.next().filter(|one| one.status == "True")?;
            Some(sandbox)
        })
        .await
    }
}

fn pod_template() -> Value {
    json!({"spec": {"containers": [{"name": "main", "image": "app:1"}]}})
}

fn annotation<K: Resource>(object: &K) -> Option<&str> {
    object.annotations().get(ANNOTATION).map(String::as_str)
}

/// The trace and the span that an annotation names.
fn named(annotation: &str) -> (String, String) {
    let headers: BTreeMap<String, String> = serde_json::from_str(annotation).unwrap();
    let parts: Vec<_> = headers["traceparent"].split('-').collect();
    assert_eq!((parts.len(), parts[0], parts[3]), (4, "00", "01"));
    (parts[1].to_owned(), parts[2].to_owned())
}

/// A controller that is killed with the test.
struct Controller(Child);

impl Controller {
    /// Only what is sent in the end is sent at all.
    fn start(world: &World, endpoint: &str, environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandbar"));
        command
            .args([
                "controller",
                "--extensions",
                "--leader-elect=false",
                "--metrics-bind-address=0",
                "--health-probe-bind-address=0",
                "--enable-tracing",
                "--kubeconfig",
            ])
            .arg(&world.0.kubeconfig)
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
            .env("OTEL_BSP_SCHEDULE_DELAY", "3600000")
            .envs(environment.iter().copied());
        Self(command.spawn().unwrap())
    }

    /// How long it takes to stop.
    async fn stop(mut self) -> Duration {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args(["-s", "TERM", &id]).status();
        assert!(sent.unwrap().success());
        let start = Instant::now();
        let status = until("it ends", async || self.0.try_wait().unwrap()).await;
        assert!(status.success(), "{status}");
        start.elapsed()
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_done_for_a_claim_is_in_its_trace() {
    let world = World::start().await;
    let (collector, address) = Collector::start().await;
    let controller = Controller::start(&world, &format!("http://{address}"), &[]);
    world.create_pool(0).await;
    let trace = json!({"traceparent": format!("00-{TRACE}-{PARENT}-01"), "tracestate": "a=b"});
    let trace = trace.to_string();
    world.create_claim(json!({ANNOTATION: trace})).await;
    let sandbox = world.until_ready("claim").await;
    assert_eq!(annotation(&sandbox), Some(&*trace));
    let claims: Api<SandboxClaim> = world.api();
    let has_answer = |claim: &SandboxClaim| claim.annotations().len() > 1;
    until("all is written", async || {
        claims.get_opt("claim").await.unwrap().filter(has_answer)
    })
    .await;
    controller.stop().await;

    let mut of_sandbox = Vec::new();
    for name in ["ReconcileSandboxClaim", "ReconcileSandbox"] {
        for span in collector.of(name, "claim") {
            assert_eq!((&*span.trace, &*span.parent), (TRACE, PARENT), "{span:#?}");
            assert_eq!(span.attributes["namespace"], "default");
            assert_eq!(span.service["service.name"], "sandbar-controller");
            of_sandbox.extend((name == "ReconcileSandbox").then_some(span.id));
        }
    }
    for name in ["reconcilePod", "reconcilePVCs"] {
        for span in collector.of(name, "claim") {
            assert_eq!(span.trace, TRACE, "{span:#?}");
            assert!(of_sandbox.contains(&span.parent), "{span:#?}");
            assert!(!span.is_error, "{span:#?}");
        }
    }
    for (name, object) in [
        ("ReconcileSandboxTemplate", "template"),
        ("ReconcileSandboxWarmPool", "pool"),
    ] {
        for span in collector.of(name, object) {
            assert_ne!(span.trace, TRACE, "{span:#?}");
            assert_eq!(span.parent, "", "{span:#?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_begins_where_none_is_named() {
    let world = World::start().await;
    let (collector, address) = Collector::start().await;
    let environment = [
        ("OTEL_SERVICE_NAME", "boxes"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test"),
    ];
    let controller = Controller::start(&world, &format!("http://{address}"), &environment);
    world.create_pool(1).await;
    world.create_sandbox("plain", json!({})).await;
    let malformed = json!({ANNOTATION: "{\"traceparent\": 7}"});
    world.create_sandbox("malformed", malformed).await;
    let invalid = json!({ANNOTATION: "{\"traceparent\": \"00-0-0-01\"}"});
    world.create_sandbox("invalid", invalid).await;
    let plain = world.until_ready("plain").await;
    let malformed = world.until_ready("malformed").await;
    let invalid = world.until_ready("invalid").await;
    let members = ListParams::default().labels("agents.x-k8s.io/warm-pool-sandbox");
    let member = until("a member", async || {
        let members = world.api::<Sandbox>().list(&members).await.unwrap();
        members.items.first().map(|member| member.name_any())
    })
    .await;
    let member = world.until_ready(&member).await;
    let before = annotation(&member).unwrap().to_owned();
    world.create_claim(json!({})).await;
    let claims: Api<SandboxClaim> = world.api();
    let claim = until("the claim says all", async || {
        let claim = claims.get("claim").await.unwrap();
        annotation(&claim).is_some().then_some(claim)
    })
    .await;
    // the pod is labelled in a pass of the sandbox that knows of the claim
    let pods: Api<Pod> = world.api();
    until("the pod is the claim's", async || {
        let pod = pods.get(&member.name_any()).await.unwrap();
        let pool = pod.labels().get("agents.x-k8s.io/warm-pool-sandbox");
        pool.is_none().then_some(())
    })
    .await;
    let bound = world.api::<Sandbox>().get(&member.name_any()).await;
    controller.stop().await;

    let (trace, first) = named(annotation(&plain).unwrap());
    let spans = collector.of("ReconcileSandbox", "plain");
    assert!(spans.iter().all(|span| span.trace == trace), "{spans:#?}");
    let begins = |span: &Span| span.id == first && span.parent.is_empty();
    assert!(spans.iter().any(begins), "{first} in {spans:#?}");
    assert!(
        spans
            .iter()
            .all(|span| begins(span) || span.parent == first)
    );
    let service = &spans[0].service;
    assert_eq!(service["service.name"], "boxes");
    assert_eq!(service["deployment.environment"], "test");

    assert_eq!(annotation(&malformed), Some("{\"traceparent\": 7}"));
    assert!(annotation(&invalid).unwrap().contains("00-0-0-01"));
    for name in ["malformed", "invalid"] {
        let spans = collector.of("ReconcileSandbox", name);
        assert!(spans.iter().all(|span| span.parent.is_empty()));
    }

    let bound = bound.unwrap();
    assert_eq!(annotation(&bound), annotation(&claim));
    assert_ne!(annotation(&bound), Some(&*before));
    let (trace, _) = named(annotation(&claim).unwrap());
    let spans = collector.of("ReconcileSandboxClaim", "claim");
    assert!(spans.iter().all(|span| span.trace == trace), "{spans:#?}");
    let spans = collector.of("ReconcileSandbox", &member.name_any());
    assert!(spans.iter().any(|span| span.trace == trace), "{spans:#?}");
    let (trace, _) = named(&before);
    assert!(spans.iter().any(|span| span.trace == trace), "{spans:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_whose_certificate_the_system_knows_is_believed() {
    let world = World::start().await;
    let directory = TempDir::new().unwrap();
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let known = directory.path().join("known.pem");
    std::fs::write(&known, own.cert.pem()).unwrap();
    let key = PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
    let mut tls = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let (collector, address) = Collector::start_with(Some(Arc::new(tls).into())).await;
    let endpoint = format!("https://localhost:{}", address.port());
    let environment = [("SSL_CERT_FILE", known.to_str().unwrap())];
    let controller = Controller::start(&world, &endpoint, &environment);
    world.create_sandbox("box", json!({})).await;
    world.until_ready("box").await;
    controller.stop().await;
    assert!(!collector.of("ReconcileSandbox", "box").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_not_there_holds_up_nobody() {
    let world = World::start().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    drop(taken);
    let controller = Controller::start(&world, &format!("http://{address}"), &[]);
    world.create_sandbox("box", json!({})).await;
    world.until_ready("box").await;
    let took = controller.stop().await;
    // three seconds are allowed for; the machine may be busy
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn an_endpoint_that_cannot_be_one_is_told() {
    let output = Command::new(env!("CARGO_BIN_EXE_sandbar"))
        .args(["controller", "--enable-tracing"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "not a place")
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    for told in [
        "--enable-tracing",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "not a place",
    ] {
        assert!(error.contains(told), "{error}");
    }
}

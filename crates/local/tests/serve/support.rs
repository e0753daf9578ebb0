//! A server in a directory of its own, before a service that tells what reaches it, and clients of every kind.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::config::{KubeConfigOptions, Kubeconfig};
use local::serve::{self, Attributes, Home, Identity, Limits, Running, Serves, StartError};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

type Body = UnsyncBoxBody<Bytes, Infallible>;

pub(crate) const WATCH: &str = "/api/v1/namespaces/default/pods?watch=1";
/// Answered after a moment.
pub(crate) const SLOW: &str = "/api/v1/slow";
/// Never answered.
pub(crate) const STUCK: &str = "/api/v1/stuck";

/// Becomes a stream that gives back what it gets.
pub(crate) const UPGRADE: &str = "/api/v1/namespaces/default/pods/a/exec";

/// Says what reached it.
pub(crate) async fn answer(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    if request.uri().path() == UPGRADE {
        return Ok(echo(request));
    }
    let uri = request.uri().to_string();
    let body = match uri.as_str() {
        path if path.ends_with("/healthz") => Full::from("ok").boxed_unsync(),
        path if path.ends_with(WATCH) => {
            let first = Frame::data(Bytes::from("{\"type\":\"ADDED\"}\n"));
            let events = stream::once(async { Ok(first) }).chain(stream::pending());
            StreamBody::new(events).boxed_unsync()
        }
        path if path.ends_with(STUCK) => std::future::pending().await,
        other => {
            if other.ends_with(SLOW) {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            let (identity, attributes): (Option<&Identity>, Option<&Attributes>) =
                (request.extensions().get(), request.extensions().get());
            let said = json!({
                "user": identity.map(|identity| &identity.name),
                "groups": identity.map(|identity| &identity.groups),
                "verb": attributes.map(|attributes| &attributes.verb),
                "token": request.headers().contains_key("authorization"),
            });
            Full::from(said.to_string()).boxed_unsync()
        }
    };
    Ok(Response::new(body))
}

fn echo(request: Request<Incoming>) -> Response<Body> {
    tokio::spawn(async move {
        let stream = hyper::upgrade::on(request).await.unwrap();
        let (mut reader, mut writer) = tokio::io::split(TokioIo::new(stream));
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
    });
    let response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "upgrade")
        .header("upgrade", "echo");
    response.body(Empty::new().boxed_unsync()).unwrap()
}

pub(crate) fn options() -> serve::Options {
    serve::Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        names: Vec::new(),
        limits: Limits::default(),
    }
}

pub(crate) async fn start(
    directory: &Path,
    options: serve::Options,
) -> Result<Running, StartError> {
    let home = Home::open(directory)?;
    serve::start(home, tower::service_fn(answer), options).await
}

/// A running server and its directory.
pub(crate) struct Server {
    pub(crate) directory: TempDir,
    pub(crate) running: Running,
}

impl Server {
    pub(crate) async fn start() -> Server {
        Server::with(Limits::default()).await
    }

    pub(crate) async fn with(limits: Limits) -> Server {
        Server::before(tower::service_fn(answer), limits).await
    }

    pub(crate) async fn before(service: impl Serves, limits: Limits) -> Server {
        let directory = TempDir::new().unwrap();
        let options = serve::Options {
            limits,
            ..options()
        };
        let home = Home::open(directory.path()).unwrap();
        let running = serve::start(home, service, options).await.unwrap();
        Server { directory, running }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running.address()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn token(&self, user: &str) -> String {
        let text = std::fs::read_to_string(self.path("tokens").join(user)).unwrap();
        text.trim().to_owned()
    }

    pub(crate) async fn admin(&self) -> kube::Client {
        client(&self.running.kubeconfig()).await
    }

    pub(crate) async fn viewer(&self) -> kube::Client {
        client(&self.running.viewer_kubeconfig()).await
    }

    pub(crate) async fn http1(&self) -> Session {
        let stream = self.tls(&[b"http/1.1"]).await;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        Session::One(sender)
    }

    pub(crate) async fn http2(&self) -> Session {
        let stream = self.tls(&[b"h2"]).await;
        let io = TokioIo::new(stream);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        Session::Two(sender)
    }

    async fn tls(&self, protocols: &[&[u8]]) -> TlsStream<TcpStream> {
        connect(
            self.address(),
            &self.path("pki/ca.crt"),
            "localhost",
            protocols,
        )
        .await
        .unwrap()
    }

    /// Sends one request with the admin's token, beside everything else that is going on.
    pub(crate) async fn is_healthy(&self) -> bool {
        let request = Request::get("/healthz").body(Vec::new()).unwrap();
        self.admin().await.request_text(request).await.unwrap() == "ok"
    }
}

pub(crate) async fn client(kubeconfig: &Path) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
    kube::Client::try_from(config.await.unwrap()).unwrap()
}

/// What the service said of a request.
pub(crate) async fn said_to(client: &kube::Client, path: &str) -> Result<Value, kube::Error> {
    let request = Request::get(path).body(Vec::new()).unwrap();
    client.request(request).await
}

pub(crate) async fn connect(
    address: SocketAddr,
    authority: &Path,
    name: &str,
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    connect_with(address, authority, name, protocols, rustls::ALL_VERSIONS).await
}

pub(crate) async fn connect_with(
    address: SocketAddr,
    authority: &Path,
    name: &str,
    protocols: &[&[u8]],
    versions: &[&'static SupportedProtocolVersion],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(authority).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

/// A connection whose protocol the test has chosen.
pub(crate) enum Session {
    One(http1::SendRequest<Empty<Bytes>>),
    Two(http2::SendRequest<Empty<Bytes>>),
}

impl Session {
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Response<Incoming> {
        self.begin(method, path, headers).await.unwrap()
    }

    /// The answer may come while other requests are sent.
    pub(crate) fn begin(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> BoxFuture<'static, hyper::Result<Response<Incoming>>> {
        let mut request = Request::builder().method(method).uri(match self {
            Session::One(_) => path.to_owned(),
            Session::Two(_) => format!("https://localhost{path}"),
        });
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Empty::new()).unwrap();
        match self {
            Session::One(sender) => Box::pin(sender.send_request(request)),
            Session::Two(sender) => Box::pin(sender.send_request(request)),
        }
    }

    pub(crate) async fn get(&mut self, path: &str, token: &str) -> Response<Incoming> {
        self.send(Method::GET, path, &[("authorization", &bearer(token))])
            .await
    }
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

pub(crate) async fn whole(response: Response<Incoming>) -> (StatusCode, HeaderMap, String) {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    (parts.status, parts.headers, text)
}

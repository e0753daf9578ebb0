//! A client that says what it likes.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::stage::Stage;

pub(crate) type Socket = TokioIo<Upgraded>;

pub(crate) const SPDY: &[(&str, &str)] = &[
    ("connection", "Upgrade"),
    ("upgrade", "SPDY/3.1"),
    ("x-stream-protocol-version", "v4.channel.k8s.io"),
];
pub(crate) const WEBSOCKET: &[(&str, &str)] = &[
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("sec-websocket-version", "13"),
    ("sec-websocket-protocol", "v5.channel.k8s.io"),
];

fn trust(authority: &Path) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(authority).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

impl Stage {
    /// Sends one request as the user whose token this is.
    pub(crate) async fn send(
        &self,
        user: &str,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Response<Incoming> {
        let stream = TcpStream::connect(self.running.address()).await.unwrap();
        let config = trust(&self.path("home/pki/ca.crt"));
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream);
        let stream = TokioIo::new(stream.await.unwrap());
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let token = std::fs::read_to_string(self.path("home/tokens").join(user)).unwrap();
        let path = format!("/api/v1/namespaces/default/pods/{path}");
        let mut request = Request::builder().method(method).uri(path);
        request = request.header("host", "localhost");
        request = request.header("authorization", format!("Bearer {}", token.trim()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        sender.send_request(request).await.unwrap()
    }

    /// A connection that has become something else.
    pub(crate) async fn upgrade(&self, path: &str, headers: &[(&str, &str)]) -> Socket {
        let method = match headers {
            WEBSOCKET => Method::GET,
            _ => Method::POST,
        };
        let answer = self.send("admin", method, path, headers).await;
        assert_eq!(answer.status(), 101);
        TokioIo::new(hyper::upgrade::on(answer).await.unwrap())
    }

    /// The answer to a request that becomes nothing.
    pub(crate) async fn answer(
        &self,
        user: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (u16, String) {
        let answer = self.send(user, Method::GET, path, headers).await;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }
}

/// Frames of SPDY.
pub(crate) struct Frames(Compress);

impl Frames {
    pub(crate) fn new() -> Frames {
        Frames(Compress::new(Compression::fast(), true))
    }

    pub(crate) fn open(&mut self, stream: u32, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut block = u32::try_from(headers.len()).unwrap().to_be_bytes().to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            block.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
            block.extend_from_slice(text.as_bytes());
        }
        let mut packed = Vec::with_capacity(64 * 1024);
        self.0
            .compress_vec(&block, &mut packed, FlushCompress::Sync)
            .unwrap();
        let payload = [&stream.to_be_bytes(), &[0; 6][..], &packed].concat();
        Frames::control(1, &payload)
    }

    pub(crate) fn control(kind: u16, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap();
        let head = [&[0x80, 3], &kind.to_be_bytes()[..], &length.to_be_bytes()].concat();
        [head, payload.to_vec()].concat()
    }

    pub(crate) fn data(stream: u32, bytes: &[u8]) -> Vec<u8> {
        let length = u32::try_from(bytes.len()).unwrap();
        [&stream.to_be_bytes(), &length.to_be_bytes()[..], bytes].concat()
    }
}

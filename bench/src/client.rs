//! One client for both sides: HTTP/2 over TLS, with what a kubeconfig says, and nothing between that costs time.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::ConfigExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How servers know these programs.
pub const AGENT: &str = "bench/1";
const WINDOW: u32 = 1 << 24;

/// Where a server is and how it knows us.
#[derive(Clone)]
pub struct Access {
    tls: Arc<ClientConfig>,
    host: String,
    port: u16,
    token: Option<HeaderValue>,
}

/// A request that is not yet bound to a server.
pub struct Ask {
    pub method: Method,
    pub path: String,
    pub content_type: &'static str,
    pub body: Bytes,
}

impl Ask {
    pub fn get(path: &str) -> Self {
        Self {
            method: Method::GET,
            path: path.to_owned(),
            content_type: "application/json",
            body: Bytes::new(),
        }
    }

    pub fn post(path: &str, body: String) -> Self {
        Self {
            method: Method::POST,
            body: body.into(),
            ..Self::get(path)
        }
    }

    pub fn merge(path: String, body: String) -> Self {
        Self {
            method: Method::PATCH,
            path,
            content_type: "application/merge-patch+json",
            body: body.into(),
        }
    }

    pub fn delete(path: String) -> Self {
        Self {
            method: Method::DELETE,
            path,
            ..Self::get("")
        }
    }

    pub fn request<B>(self, base: &str, body: impl Fn(Bytes) -> B) -> Result<Request<B>> {
        let request = Request::builder()
            .method(self.method)
            .uri(format!("{base}{}", self.path))
            .header(CONTENT_TYPE, self.content_type)
            .header(USER_AGENT, AGENT);
        Ok(request.body(body(self.body))?)
    }
}

impl Access {
    pub async fn read(kubeconfig: &Path) -> Result<Self> {
        let read = Kubeconfig::read_from(kubeconfig)
            .with_context(|| format!("reading {}", kubeconfig.display()))?;
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(read, &options).await?;
        let mut tls = config.rustls_client_config()?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let auth = serde_json::to_value(&config.auth_info)?;
        let token = auth["token"]
            .as_str()
            .map(|token| format!("Bearer {token}"));
        Ok(Self {
            tls: Arc::new(tls),
            host: config
                .cluster_url
                .host()
                .context("a server has a host")?
                .to_owned(),
            port: config
                .cluster_url
                .port_u16()
                .context("a server has a port")?,
            token: token.map(HeaderValue::try_from).transpose()?,
        })
    }

    pub async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(self.host.clone())?;
        let tls = TlsConnector::from(Arc::clone(&self.tls));
        let stream = tls.connect(name, stream).await?;
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.initial_stream_window_size(WINDOW);
        http.initial_connection_window_size(WINDOW);
        let (sender, connection) = http.handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Connection {
            sender,
            base: format!("https://{}:{}", self.host, self.port),
            token: self.token.clone(),
        })
    }
}

#[derive(Clone)]
pub struct Connection {
    sender: http2::SendRequest<Full<Bytes>>,
    base: String,
    token: Option<HeaderValue>,
}

impl Connection {
    /// Whether the server has ended it, as it does with those that are idle.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub async fn send(&self, ask: Ask) -> Result<Response<Incoming>> {
        let mut request = ask.request(&self.base, Full::new)?;
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        let mut sender = self.sender.clone();
        sender.ready().await?;
        Ok(sender.send_request(request).await?)
    }

    /// The answer, whole; anything but a success is an error.
    pub async fn whole(&self, ask: Ask) -> Result<Bytes> {
        let (parts, body) = self.send(ask).await?.into_parts();
        let bytes = body.collect().await?.to_bytes();
        if !parts.status.is_success() {
            bail!("{}: {}", parts.status, String::from_utf8_lossy(&bytes));
        }
        Ok(bytes)
    }
}

/// Whole lines of a stream that comes in pieces.
#[derive(Default)]
pub struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    /// The lines that end in this piece.
    pub fn cut(&mut self, piece: &[u8]) -> Vec<Vec<u8>> {
        let mut parts = piece.split(|byte| *byte == b'\n').peekable();
        let mut whole = Vec::new();
        while let Some(part) = parts.next() {
            self.begun.extend_from_slice(part);
            if parts.peek().is_some() {
                whole.push(std::mem::take(&mut self.begun));
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn lines_are_put_together_from_pieces() {
        let mut lines = Lines::default();
        assert!(lines.cut(b"on").is_empty());
        assert_eq!(lines.cut(b"e\ntwo\nth"), [b"one".to_vec(), b"two".to_vec()]);
        assert_eq!(lines.cut(b"ree\n"), [b"three".to_vec()]);
    }
}

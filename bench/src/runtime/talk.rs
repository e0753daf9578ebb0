//! What a client says, over one connection.

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// As large as what an HTTP client reads from a disk at once.
const PIECE: usize = 1 << 20;

pub(crate) struct Connection {
    sender: SendRequest<Body>,
    /// One that still goes on.
    events: Option<Incoming>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let events = None;
        Ok(Self { sender, events })
    }

    async fn send(&mut self, request: Request<Body>) -> Result<Response<Incoming>> {
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }

    pub(crate) async fn is_healthy(&mut self) -> bool {
        let Ok(request) = request(Method::GET, "/health").body(full(Bytes::new())) else {
            return false;
        };
        let answer = self.send(request).await;
        answer.is_ok_and(|answer| answer.status() == StatusCode::NO_CONTENT)
    }

    /// Starts a command and has its first event.
    pub(crate) async fn start(&mut self, words: &[&str]) -> Result<()> {
        let message = json!({"process": {"cmd": words[0], "args": words[1..]}}).to_string();
        let length = u32::try_from(message.len())?.to_be_bytes();
        let body = [&[0], &length[..], message.as_bytes()].concat();
        let request = request(Method::POST, "/process.Process/Start")
            .header(CONTENT_TYPE, "application/connect+json")
            .header("connect-protocol-version", "1")
            .body(full(body.into()))?;
        let answer = self.send(request).await?;
        ensure!(answer.status() == StatusCode::OK, "{}", answer.status());
        let mut events = answer.into_body();
        events.frame().await.context("no event")??;
        self.events = Some(events);
        Ok(())
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&mut self, words: &[&str]) -> Result<()> {
        self.start(words).await?;
        let events = self.events.take().context("not started")?;
        let rest = events.collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&rest);
        ensure!(text.contains("exit status 0"), "{text}");
        Ok(())
    }

    pub(crate) async fn upload(&mut self, path: &str, length: usize) -> Result<()> {
        let piece = Bytes::from(vec![b'x'; PIECE]);
        let pieces = std::iter::repeat_n(piece, length / PIECE);
        let pieces = pieces.map(|piece| Ok(Frame::data(piece)));
        let body = StreamBody::new(futures::stream::iter(pieces)).boxed_unsync();
        let request = request(Method::POST, &format!("/files?username=root&path={path}"))
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, length)
            .body(body)?;
        let answer = self.send(request).await?;
        ensure!(answer.status() == StatusCode::OK, "{}", answer.status());
        answer.into_body().collect().await?;
        Ok(())
    }

    /// How many bytes came.
    pub(crate) async fn download(&mut self, path: &str) -> Result<usize> {
        let request = request(Method::GET, &format!("/files?username=root&path={path}"))
            .header(ACCEPT_ENCODING, "identity")
            .body(full(Bytes::new()))?;
        let answer = self.send(request).await?;
        ensure!(answer.status() == StatusCode::OK, "{}", answer.status());
        let mut body = answer.into_body();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            length += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(length)
    }
}

fn request(method: Method, target: &str) -> http::request::Builder {
    // root, so that the daemon need not know another
    Request::builder()
        .method(method)
        .uri(target)
        .header(HOST, "sandbox")
        .header(AUTHORIZATION, "Basic cm9vdDo=")
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes).boxed_unsync()
}

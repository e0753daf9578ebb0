//! One request over a connection of its own, and its answer.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::Error;

/// What an answer that is no file may have.
pub(super) const SMALL: usize = 1 << 20;

/// A machine that is there answers at once; one that is gone never does.
const CONNECT: Duration = Duration::from_secs(5);

pub(super) struct Request {
    method: Method,
    target: String,
    headers: HeaderMap,
    body: Bytes,
}

pub(super) struct Answer {
    pub(super) status: StatusCode,
    address: String,
    body: Incoming,
    /// Moves the bytes, for as long as somebody wants them.
    connection: JoinHandle<()>,
}

impl Request {
    pub(super) fn new(method: Method, target: impl Into<String>) -> Self {
        Self {
            method,
            target: target.into(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// What no header may hold is left out, and the daemon then says what it lacks.
    pub(super) fn text_header(mut self, name: impl TryInto<HeaderName>, value: &str) -> Self {
        if let (Ok(name), Ok(value)) = (name.try_into(), HeaderValue::from_str(value)) {
            self.headers.insert(name, value);
        }
        self
    }

    pub(super) fn body(self, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        Self { body, ..self }
    }

    pub(super) async fn send(self, address: &str) -> Result<Answer, Error> {
        let unreachable = |cause: String| Error::Unreachable {
            address: address.to_owned(),
            cause,
        };
        let connecting = tokio::time::timeout(CONNECT, TcpStream::connect(address));
        let stream = match connecting.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(unreachable(error.to_string())),
            Err(_) => return Err(unreachable(format!("no connection within {CONNECT:?}"))),
        };
        // small requests must not wait for more to come
        let _ = stream.set_nodelay(true);
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| unreachable(e.to_string()))?;
        let connection = tokio::spawn(async move {
            // whoever reads the answer hears of it
            let _ = connection.await;
        });
        let mut request = http::Request::new(Full::new(self.body));
        *request.method_mut() = self.method;
        *request.uri_mut() = self
            .target
            .parse()
            .map_err(|e| unreachable(format!("{}: {e}", self.target)))?;
        *request.headers_mut() = self.headers;
        if let Ok(host) = HeaderValue::from_str(address) {
            request.headers_mut().insert(HOST, host);
        }
        match sender.send_request(request).await {
            Ok(response) => {
                let (head, body) = response.into_parts();
                let address = address.to_owned();
                let status = head.status;
                Ok(Answer {
                    status,
                    address,
                    body,
                    connection,
                })
            }
            Err(error) => {
                connection.abort();
                Err(unreachable(error.to_string()))
            }
        }
    }
}

impl Answer {
    /// The next piece of the body. `None` at its end.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| self.broken_off(&error.to_string()))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// All of it, unless it is more than that.
    pub(super) async fn body(&mut self, most: usize) -> Result<Option<Bytes>, Error> {
        let mut all = BytesMut::new();
        while let Some(piece) = self.piece().await? {
            if all.len() + piece.len() > most {
                return Ok(None);
            }
            all.extend_from_slice(&piece);
        }
        Ok(Some(all.freeze()))
    }

    pub(super) fn broken_off(&self, cause: &str) -> Error {
        Error::Unreachable {
            address: self.address.clone(),
            cause: cause.to_owned(),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

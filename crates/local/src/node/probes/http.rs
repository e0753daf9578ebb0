//! The GET requests of probes and hooks.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures::future::pending;
use http::header::{ACCEPT, CONNECTION, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use reqwest::Url;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Way, authority, port_number, tls};
use crate::node::dial::{in_words, not_connected};

/// More of an answer is not read.
const MOST: usize = 10 << 10;
const MOST_REDIRECTS: usize = 10;
/// The release that those who answer may look for in `User-Agent`.
pub(super) const RELEASE: &str = "1.36";
/// What cannot stand in a request as it is.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A request that is to be sent.
#[derive(Clone, Debug)]
pub(in crate::node) struct Get {
    place: Place,
    headers: HeaderMap,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    is_encrypted: bool,
    host: String,
    port: u16,
    /// With the query, if there is one.
    path: String,
}

impl Get {
    pub(in crate::node) fn of(
        action: &HTTPGetAction,
        container: &Container,
        way: &Way,
        agent: &str,
    ) -> Result<Self, String> {
        let host = action.host.clone().filter(|host| !host.is_empty());
        let path = action.path.as_deref().unwrap_or_default();
        let path = path.split('#').next().unwrap_or_default();
        let slash = if path.starts_with('/') { "" } else { "/" };
        let scheme = action.scheme.as_deref().unwrap_or_default();
        Ok(Self {
            place: Place {
                is_encrypted: scheme.eq_ignore_ascii_case("https"),
                host: host.unwrap_or_else(|| way.host()),
                port: port_number(&action.port, container)?,
                path: format!("{slash}{}", utf8_percent_encode(path, ESCAPED)),
            },
            headers: headers(action, agent)?,
        })
    }

    pub(in crate::node) fn url(&self) -> String {
        self.place.url()
    }

    /// The status of the answer. Redirections are followed as long as they lead to the same host.
    pub(in crate::node) async fn send(&self, way: &Way, patience: Duration) -> Result<u16, String> {
        let mut place = self.place.clone();
        for _ in 0..MOST_REDIRECTS {
            let answered = self.send_to(&place, way, patience).await;
            let (status, location) =
                answered.map_err(|why| format!("Get \"{}\": {why}", place.url()))?;
            match location.and_then(|location| place.redirected(&location)) {
                Some(next) if next.host == self.place.host => place = next,
                _ => return Ok(status),
            }
        }
        Err(format!(
            "Get \"{}\": stopped after {MOST_REDIRECTS} redirects",
            place.url()
        ))
    }

    /// The status of the answer, and where it sends one instead.
    async fn send_to(
        &self,
        place: &Place,
        way: &Way,
        patience: Duration,
    ) -> Result<(u16, Option<String>), String> {
        let Place { host, port, .. } = place;
        let connected = way.connect(host, *port, patience).await;
        let stream = connected.map_err(|error| not_connected(&authority(host, *port), &error))?;
        let request = self.request(place)?;
        match place.is_encrypted {
            false => exchange(stream, request).await,
            true => {
                let greeted = tls::greet(host, stream).await;
                let stream = greeted.map_err(|error| format!("tls: {}", in_words(&error)))?;
                exchange(stream, request).await
            }
        }
    }

    fn request(&self, place: &Place) -> Result<Request<Empty<Bytes>>, String> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = place
            .path
            .parse()
            .map_err(|error| format!("invalid URL path {:?}: {error}", place.path))?;
        *request.headers_mut() = self.headers.clone();
        if !self.headers.contains_key(HOST) {
            let host = HeaderValue::from_str(&authority(&place.host, place.port));
            let host = host.map_err(|_| format!("invalid host {:?}", place.host))?;
            request.headers_mut().insert(HOST, host);
        }
        Ok(request)
    }
}

/// Those of the action, and what is said where they say nothing. One that is given without a value is not sent.
fn headers(action: &HTTPGetAction, agent: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for header in action.http_headers.iter().flatten() {
        let (name, value) = (&header.name, &header.value);
        let parsed = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_str(value),
        );
        let (Ok(name), Ok(value)) = parsed else {
            return Err(format!("invalid header {name:?} with value {value:?}"));
        };
        headers.append(name, value);
    }
    let agent = HeaderValue::try_from(format!("{agent}/{RELEASE}")).map_err(|e| e.to_string())?;
    for (name, value) in [
        (USER_AGENT, agent),
        (ACCEPT, HeaderValue::from_static("*/*")),
    ] {
        match headers.get(&name) {
            Some(given) if given.is_empty() => _ = headers.remove(name),
            Some(_) => {}
            None => _ = headers.insert(name, value),
        }
    }
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(headers)
}

impl Place {
    fn url(&self) -> String {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        let authority = authority(&self.host, self.port);
        format!("{scheme}://{authority}{}", self.path)
    }

    fn redirected(&self, location: &str) -> Option<Self> {
        let url = Url::parse(&self.url()).ok()?.join(location).ok()?;
        let is_encrypted = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let query = url.query().map(|query| format!("?{query}"));
        Some(Self {
            is_encrypted,
            host: url.host_str()?.trim_matches(['[', ']']).to_owned(),
            port: url.port_or_known_default()?,
            path: format!("{}{}", url.path(), query.unwrap_or_default()),
        })
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Empty<Bytes>>,
) -> Result<(u16, Option<String>), String> {
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| broken(&error))?;
    let answer = async {
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| broken(&error))?;
        let status = answer.status().as_u16();
        let location = match status {
            301 | 302 | 303 | 307 | 308 => answer.headers().get(LOCATION),
            _ => None,
        };
        let location = location.and_then(|location| location.to_str().ok());
        let location = location.map(str::to_owned);
        read(answer).await?;
        Ok((status, location))
    };
    // a connection that has ended may still have something to read
    let connection = async {
        let _ = connection.await;
        pending().await
    };
    tokio::select! {
        answer = answer => answer,
        never = connection => never,
    }
}

/// Nobody wants the body, but whoever cannot send it is not well.
async fn read(answer: Response<Incoming>) -> Result<(), String> {
    let mut body = pin!(answer.into_body());
    let mut length = 0;
    while length < MOST
        && let Some(frame) = body.frame().await
    {
        let frame = frame.map_err(|error| broken(&error))?;
        length += frame.data_ref().map_or(0, Bytes::len);
    }
    Ok(())
}

fn broken(error: &hyper::Error) -> String {
    let source = std::error::Error::source(error);
    if let Some(error) = source.and_then(|source| source.downcast_ref::<std::io::Error>()) {
        return format!("read: {}", in_words(error));
    }
    match error.is_incomplete_message() {
        true => "EOF".to_owned(),
        false if error.is_parse() => {
            format!(
                "net/http: HTTP/1.x transport connection broken: malformed HTTP response: {error}"
            )
        }
        false => error.to_string(),
    }
}

#[cfg(test)]
mod tests;

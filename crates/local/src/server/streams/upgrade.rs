//! How a request becomes a stream: what the client offers to speak, what is chosen, and the answer that says so.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, UPGRADE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body_util::{Either, Full};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::websocket::{Codec, Dialect};
use crate::server::Body;

const SPDY: &str = "SPDY/3.1";
const TUNNEL: &str = "SPDY/3.1+";
const VERSIONS: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const ACCEPTED: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");
const WEBSOCKET_PROTOCOL: HeaderName = HeaderName::from_static("sec-websocket-protocol");
const WEBSOCKET_KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
const WEBSOCKET_VERSION: HeaderName = HeaderName::from_static("sec-websocket-version");
const WEBSOCKET_ACCEPT: HeaderName = HeaderName::from_static("sec-websocket-accept");

/// What `exec` and `attach` may be spoken in, from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    /// Failures are plain text, and there is no exit code.
    One,
    Two,
    /// Terminals can be resized.
    Three,
    /// The end is told as a `Status`.
    Four,
    /// Standard input can be closed over a WebSocket.
    Five,
}

/// What was chosen for `exec` and `attach`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandProtocol {
    WebSocket(Dialect, Version),
    Spdy(Version),
}

/// What was chosen for `portforward`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForwardProtocol {
    /// Two channels for each port of the query.
    Channels(Dialect),
    /// SPDY in the messages of a WebSocket.
    Tunnel,
    Spdy,
}

/// A choice, and the answer that tells the client of it.
#[derive(Debug)]
pub(super) struct Chosen<P> {
    pub(super) protocol: P,
    answer: HeaderMap,
}

/// Why there is no stream, in plain text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) code: u16,
    pub(super) text: String,
    /// What would have been understood.
    accepted: &'static [&'static str],
}

const BINARY: Dialect = Dialect {
    codec: Codec::Binary,
    closes_channels: false,
};
const BASE64: Dialect = Dialect {
    codec: Codec::Base64,
    closes_channels: false,
};
const CLOSING: Dialect = Dialect {
    codec: Codec::Binary,
    closes_channels: true,
};

/// Over a WebSocket. A client that names no protocol speaks the first one.
const COMMAND_CHANNELS: [(&str, Dialect, Version); 6] = [
    ("", BINARY, Version::One),
    ("channel.k8s.io", BINARY, Version::One),
    ("base64.channel.k8s.io", BASE64, Version::One),
    ("v4.channel.k8s.io", BINARY, Version::Four),
    ("v4.base64.channel.k8s.io", BASE64, Version::Four),
    ("v5.channel.k8s.io", CLOSING, Version::Five),
];
const COMMAND_STREAMS: &[&str] = &[
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
];
const FORWARD_CHANNELS: [(&str, Dialect); 3] = [
    ("", BINARY),
    ("v4.channel.k8s.io", BINARY),
    ("v4.base64.channel.k8s.io", BASE64),
];
const FORWARD_STREAMS: &[&str] = &["portforward.k8s.io"];

/// Whether the client wants another protocol at all.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONNECTION).iter();
    values.any(|value| contains(value, "upgrade"))
}

/// Whether it is the WebSocket.
pub(super) fn is_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    is_wanted(headers) && upgrade.is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}

/// Whether SPDY is to be spoken within it.
pub(super) fn is_tunnel(headers: &HeaderMap) -> bool {
    let tunnelled = |offer: &&str| offer.starts_with(TUNNEL) && offer.ends_with(".k8s.io");
    is_websocket(headers) && listed(headers, &WEBSOCKET_PROTOCOL).iter().any(tunnelled)
}

pub(super) fn command(
    method: &Method,
    headers: &HeaderMap,
) -> Result<Chosen<CommandProtocol>, Refused> {
    if !is_websocket(headers) {
        let (name, answer) = spdy(headers, COMMAND_STREAMS)?;
        let version = match name {
            "v4.channel.k8s.io" => Version::Four,
            "v3.channel.k8s.io" => Version::Three,
            "v2.channel.k8s.io" => Version::Two,
            _ => Version::One,
        };
        let protocol = CommandProtocol::Spdy(version);
        return Ok(Chosen { protocol, answer });
    }
    let mut answer = websocket(method, headers)?;
    let known = |name: &str| COMMAND_CHANNELS.into_iter().find(|known| known.0 == name);
    let offered = listed(headers, &WEBSOCKET_PROTOCOL);
    // only one of these can close standard input: who offers it wants it
    let newest = offered
        .contains(&"v5.channel.k8s.io")
        .then_some("v5.channel.k8s.io");
    let (name, dialect, version) = match newest {
        Some(newest) => known(newest),
        None => offers(&offered).find_map(known),
    }
    .ok_or_else(Refused::unknown_websocket)?;
    name_protocol(&mut answer, name);
    let protocol = CommandProtocol::WebSocket(dialect, version);
    Ok(Chosen { protocol, answer })
}

pub(super) fn forward(
    method: &Method,
    headers: &HeaderMap,
) -> Result<Chosen<ForwardProtocol>, Refused> {
    if !is_websocket(headers) {
        let (_, answer) = spdy(headers, FORWARD_STREAMS)?;
        let protocol = ForwardProtocol::Spdy;
        return Ok(Chosen { protocol, answer });
    }
    let mut answer = websocket(method, headers)?;
    let offered = listed(headers, &WEBSOCKET_PROTOCOL);
    if is_tunnel(headers) {
        let known = |offer: &&str| {
            let inner = offer.strip_prefix(TUNNEL);
            inner.is_some_and(|inner| FORWARD_STREAMS.contains(&inner))
        };
        let inner: Vec<&str> = offered
            .iter()
            .filter_map(|offer| offer.strip_prefix(TUNNEL))
            .collect();
        let chosen = offered.iter().copied().find(known);
        let chosen = chosen.ok_or_else(|| Refused::unknown(&inner, FORWARD_STREAMS))?;
        name_protocol(&mut answer, chosen);
        let protocol = ForwardProtocol::Tunnel;
        return Ok(Chosen { protocol, answer });
    }
    let known = |name: &str| FORWARD_CHANNELS.into_iter().find(|known| known.0 == name);
    let (name, dialect) = offers(&offered)
        .find_map(known)
        .ok_or_else(Refused::unknown_websocket)?;
    name_protocol(&mut answer, name);
    let protocol = ForwardProtocol::Channels(dialect);
    Ok(Chosen { protocol, answer })
}

/// What a client offers that may offer nothing.
fn offers<'a>(offered: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let nothing = offered.is_empty().then_some("");
    offered.iter().copied().chain(nothing)
}

/// The answer to a WebSocket's handshake, but for the protocol.
fn websocket(method: &Method, headers: &HeaderMap) -> Result<HeaderMap, Refused> {
    if method != Method::GET {
        return Err(Refused::new(405, "bad method"));
    }
    let key = headers.get(WEBSOCKET_KEY).filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| Refused::new(400, "mismatch challenge/response"))?;
    if headers
        .get(WEBSOCKET_VERSION)
        .is_none_or(|version| version != "13")
    {
        return Err(Refused::new(400, "missing or bad WebSocket Version"));
    }
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes()));
    let accept = accept.map_err(|_| Refused::new(400, "mismatch challenge/response"))?;
    let mut answer = HeaderMap::new();
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(WEBSOCKET_ACCEPT, accept);
    Ok(answer)
}

fn name_protocol(answer: &mut HeaderMap, name: &str) {
    if !name.is_empty()
        && let Ok(name) = HeaderValue::from_str(name)
    {
        answer.insert(WEBSOCKET_PROTOCOL, name);
    }
}

/// The first protocol that the client offers and we know, and the answer to its handshake.
fn spdy(
    headers: &HeaderMap,
    known: &'static [&'static str],
) -> Result<(&'static str, HeaderMap), Refused> {
    if !headers.contains_key(VERSIONS) {
        let count = headers.len();
        return Err(Refused::new(
            400,
            format!(
                "unable to upgrade: header X-Stream-Protocol-Version does not exist in request with {count} headers"
            ),
        ));
    }
    let offered = listed(headers, &VERSIONS);
    if offered.is_empty() {
        return Err(Refused::new(
            400,
            "unable to upgrade: header X-Stream-Protocol-Version contains [], but no valid protocols",
        ));
    }
    let chosen = offered.iter().find_map(|offer| {
        let mut known = known.iter().copied();
        known.find(|known| known == offer)
    });
    let chosen = chosen.ok_or_else(|| Refused::unknown(&offered, known))?;
    let wants_spdy = headers
        .get(UPGRADE)
        .is_some_and(|value| contains(value, SPDY));
    if !wants_spdy {
        return Err(Refused::new(
            400,
            "unable to upgrade: missing upgrade headers in request",
        ));
    }
    let mut answer = HeaderMap::new();
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(UPGRADE, HeaderValue::from_static(SPDY));
    answer.insert(VERSIONS, HeaderValue::from_static(chosen));
    Ok((chosen, answer))
}

fn contains(value: &HeaderValue, word: &str) -> bool {
    let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
    text.contains(&word.to_ascii_lowercase())
}

/// The values of a header that is a list, however many times it comes.
fn listed<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a str> {
    let values = headers.get_all(name).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let items = texts.flat_map(|text| text.split(',')).map(str::trim);
    items.filter(|item| !item.is_empty()).collect()
}

impl<P> Chosen<P> {
    pub(super) fn answer(self) -> Response<Body> {
        let mut response = Response::new(Either::Left(Full::default()));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = self.answer;
        response
    }
}

impl Refused {
    pub(super) fn new(code: u16, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            accepted: &[],
        }
    }

    fn unknown(offered: &[&str], known: &'static [&'static str]) -> Self {
        let text = format!(
            "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]",
            offered.join(" "),
            known.join(" ")
        );
        Self {
            accepted: known,
            ..Self::new(403, text)
        }
    }

    /// The real server says nothing about it.
    fn unknown_websocket() -> Self {
        Self::new(403, "")
    }

    pub(super) fn answer(self) -> Response<Body> {
        let body = match self.text.is_empty() {
            true => Bytes::new(),
            false => Bytes::from(self.text + "\n"),
        };
        let mut response = Response::new(Either::Left(Full::new(body)));
        *response.status_mut() =
            StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        headers.insert(CONTENT_TYPE, text);
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        for protocol in self.accepted {
            headers.append(ACCEPTED, HeaderValue::from_static(protocol));
        }
        response
    }
}

#[cfg(test)]
mod tests;

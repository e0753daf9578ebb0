//! One call: what its headers say, and how its outcome is put on the wire.

use std::future::Future;
use std::time::{Duration, Instant};

use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version, request};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};

use super::codec::{Codec, Tell};
use crate::code::Code;
use crate::daemon::body::{Body, Piece};
use crate::daemon::channel;
use crate::daemon::error::Error;
use crate::envelope::{self, END_OF_STREAM};

/// How long a stream may be silent when the client names no interval.
const KEEPALIVE: Duration = Duration::from_secs(90);

/// What gRPC wants escaped in a message: all but printable ASCII, and the escape itself.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// Messages are headers in gRPC, escaped three times as long, and clients close a connection on which 16 KiB of these come.
const LONGEST_MESSAGE: usize = 4 << 10;

const SPOKEN: [(&str, Wire, Codec); 7] = [
    ("application/json", Wire::ConnectUnary, Codec::Json),
    ("application/proto", Wire::ConnectUnary, Codec::Proto),
    ("application/connect+json", Wire::ConnectStream, Codec::Json),
    (
        "application/connect+proto",
        Wire::ConnectStream,
        Codec::Proto,
    ),
    ("application/grpc", Wire::Grpc, Codec::Proto),
    ("application/grpc+proto", Wire::Grpc, Codec::Proto),
    ("application/grpc+json", Wire::Grpc, Codec::Json),
];

const ACCEPTED: &str = "application/json, application/proto, application/connect+json, \
                        application/connect+proto, application/grpc, application/grpc+proto, \
                        application/grpc+json";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wire {
    ConnectUnary,
    ConnectStream,
    Grpc,
}

pub(crate) struct Call {
    wire: Wire,
    codec: Codec,
    content_type: &'static str,
    compressed: Result<bool, Error>,
    deadline: Result<Option<Instant>, Error>,
    keepalive: Duration,
    /// Why nobody may ask for anything in this user's name.
    unknown_user: Option<Error>,
}

impl Call {
    /// A request that is no call is refused with a status. One whose user is not known is answered as a call, and does nothing.
    pub(crate) fn of(
        request: &request::Parts,
        unknown_user: Option<Error>,
    ) -> Result<Self, StatusCode> {
        let headers = &request.headers;
        let content_type = headers
            .get(CONTENT_TYPE)
            .ok_or(StatusCode::UNSUPPORTED_MEDIA_TYPE)?;
        let (content_type, wire, codec) =
            spoken(content_type).ok_or(StatusCode::UNSUPPORTED_MEDIA_TYPE)?;
        if wire == Wire::Grpc && request.version < Version::HTTP_2 {
            return Err(StatusCode::HTTP_VERSION_NOT_SUPPORTED);
        }
        Ok(Self {
            wire,
            codec,
            content_type,
            compressed: compressed(wire, headers),
            deadline: timeout(wire, headers).map(deadline),
            keepalive: keepalive(headers),
            unknown_user,
        })
    }

    pub(super) fn codec(&self) -> Codec {
        self.codec
    }

    pub(super) fn compressed(&self) -> bool {
        matches!(self.compressed, Ok(true))
    }

    pub(super) fn is_connect_unary(&self) -> bool {
        self.wire == Wire::ConnectUnary
    }

    pub(super) fn is_connect_stream(&self) -> bool {
        self.wire == Wire::ConnectStream
    }

    /// Whether its headers are understood and its user is known. One that is not so must not have begun.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.compressed.clone()?;
        self.deadline.clone()?;
        self.unknown_user.clone().map_or(Ok(()), Err)
    }

    /// Until when the client waits.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline.clone().ok().flatten()
    }

    pub(crate) fn keepalive(&self) -> Duration {
        self.keepalive
    }

    pub(super) async fn within_deadline<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.check()?;
        let Some(deadline) = self.deadline() else {
            return work.await;
        };
        let outcome = tokio::time::timeout_at(deadline.into(), work).await;
        outcome.unwrap_or_else(|_| {
            Err(Error::new(
                Code::DeadlineExceeded,
                "the time that the client gave is over",
            ))
        })
    }

    pub(super) fn answer_once<A: Tell>(&self, outcome: Result<A, Error>) -> Response<Body> {
        if self.wire == Wire::ConnectUnary {
            return match outcome.and_then(|message| self.codec.encode(&message)) {
                Ok(bytes) => self.respond(StatusCode::OK, Body::Full(bytes)),
                Err(error) => connect_error(&error),
            };
        }
        let (pieces, receiver) = channel::bounded(2);
        let send = |piece| {
            // two always fit
            let _ = pieces.offer(piece);
        };
        let outcome = outcome.and_then(|message| {
            send(Piece::Data(self.codec.enclose(&message)?));
            Ok(())
        });
        send(self.end_of_stream(outcome));
        self.stream_of(Body::Pieces(receiver))
    }

    pub(super) fn stream_of(&self, body: Body) -> Response<Body> {
        self.respond(StatusCode::OK, body)
    }

    fn respond(&self, status: StatusCode, body: Body) -> Response<Body> {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let content_type = HeaderValue::from_static(self.content_type);
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    }

    pub(super) fn end_of_stream(&self, outcome: Result<(), Error>) -> Piece {
        if self.wire == Wire::Grpc {
            return Piece::Trailers(Box::new(grpc_trailers(outcome)));
        }
        let end = match &outcome {
            Ok(()) => json!({}),
            Err(error) => json!({"error": error_body(error)}),
        };
        let envelope = envelope::enclose(END_OF_STREAM, end.to_string().as_bytes());
        Piece::Data(envelope.unwrap_or_default())
    }
}

/// How it is spoken, and the content type that says so in requests and answers.
fn spoken(content_type: &HeaderValue) -> Option<(&'static str, Wire, Codec)> {
    let essence = content_type.to_str().ok()?.split(';').next()?.trim();
    SPOKEN
        .into_iter()
        .find(|(name, _, _)| name.eq_ignore_ascii_case(essence))
}

fn compressed(wire: Wire, headers: &HeaderMap) -> Result<bool, Error> {
    let header = match wire {
        Wire::ConnectUnary => CONTENT_ENCODING,
        Wire::ConnectStream => HeaderName::from_static("connect-content-encoding"),
        Wire::Grpc => HeaderName::from_static("grpc-encoding"),
    };
    match headers.get(header).map(HeaderValue::as_bytes) {
        None | Some(b"" | b"identity") => Ok(false),
        Some(b"gzip") => Ok(true),
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            let message = format!("unknown compression '{other}': only gzip and identity are");
            Err(Error::new(Code::Unimplemented, message))
        }
    }
}

fn timeout(wire: Wire, headers: &HeaderMap) -> Result<Option<Duration>, Error> {
    let header = match wire {
        Wire::Grpc => "grpc-timeout",
        Wire::ConnectUnary | Wire::ConnectStream => "connect-timeout-ms",
    };
    let Some(value) = headers.get(header) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    let limit = match wire {
        Wire::Grpc => grpc_timeout(text),
        Wire::ConnectUnary | Wire::ConnectStream => digits(text, 10).map(Duration::from_millis),
    };
    limit
        .map(Some)
        .ok_or_else(|| Error::invalid(format!("{header} '{text}' is no length of time")))
}

/// None where it lies beyond all time.
fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(timeout?)
}

fn grpc_timeout(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number = digits(number, 8)?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

fn digits(text: &str, most: usize) -> Option<u64> {
    let only_digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (only_digits && text.len() <= most).then(|| text.parse().ok())?
}

fn keepalive(headers: &HeaderMap) -> Duration {
    headers
        .get("keepalive-ping-interval")
        .and_then(|value| digits(value.to_str().ok()?, 9))
        .filter(|seconds| *seconds > 0)
        .map_or(KEEPALIVE, Duration::from_secs)
}

fn error_body(error: &Error) -> Value {
    json!({"code": error.code.name(), "message": error.message})
}

fn connect_error(error: &Error) -> Response<Body> {
    let mut response = Response::new(Body::Full(error_body(error).to_string().into()));
    *response.status_mut() = error.code.http();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn grpc_trailers(outcome: Result<(), Error>) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    let code = outcome.as_ref().err().map_or(0, |error| error.code.grpc());
    trailers.insert("grpc-status", u16::from(code).into());
    if let Err(error) = outcome {
        let message = &error.message[..error.message.floor_char_boundary(LONGEST_MESSAGE)];
        let message = utf8_percent_encode(message, ESCAPED).to_string();
        if let Ok(message) = HeaderValue::from_str(&message) {
            trailers.insert("grpc-message", message);
        }
    }
    trailers
}

/// The content type of one who reads an answer as gRPC, whatever its status is.
pub(crate) fn grpc_type<B>(request: &Request<B>) -> Option<&'static str> {
    let (content_type, wire, _) = spoken(request.headers().get(CONTENT_TYPE)?)?;
    let speaks_grpc = wire == Wire::Grpc && request.version() == Version::HTTP_2;
    speaks_grpc.then_some(content_type)
}

/// What is refused with a status of HTTP, said to such a client.
pub(crate) fn refuse_in_grpc(
    content_type: &'static str,
    refused: Response<Body>,
) -> Response<Body> {
    let code = match refused.status() {
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Code::Unimplemented,
        _ => Code::Unknown,
    };
    let status = refused.status().to_string();
    let said: Option<Value> = match refused.into_body() {
        Body::Full(body) => serde_json::from_slice(&body).ok(),
        Body::Pieces(_) | Body::File(_) => None,
    };
    let message = said.as_ref().and_then(|said| said["message"].as_str());
    let error = Error::new(code, message.unwrap_or(&status));
    let mut response = Response::new(Body::empty());
    *response.headers_mut() = grpc_trailers(Err(error));
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// The answer to a request that is no call, or one of another kind.
pub(crate) fn refuse(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    if status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        let accepted = HeaderValue::from_static(ACCEPTED);
        response.headers_mut().insert(ACCEPT, accepted);
    }
    response
}

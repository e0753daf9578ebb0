//! The health check that gRPC servers offer: `grpc.health.v1.Health/Check`, of which one message each way is all there is.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures::future::pending;
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use percent_encoding::percent_decode_str;
use tokio::net::TcpStream;

use super::http::RELEASE;

/// Much longer than any answer.
const MOST: usize = 64 << 10;
const SERVING: u64 = 1;
/// The code of a call that the server does not know.
const UNIMPLEMENTED: &str = "12";

/// Whether the service is served; otherwise, what is wrong.
pub(super) async fn check(stream: TcpStream, authority: &str, service: &str) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("error: health rpc probe failed: {error}");
    let request = request(authority, service).map_err(|error| failed(&error))?;
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| failed(&error))?;
    let answer = async {
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| failed(&error))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MOST).collect().await;
        let body = body.map_err(|error| failed(&error))?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        if head.status != StatusCode::OK {
            return Err(failed(&format!(
                "unexpected HTTP status code {}",
                head.status
            )));
        }
        judge(&head.headers, &trailers, body.to_bytes())
    };
    let connection = async {
        let _ = connection.await;
        pending().await
    };
    tokio::select! {
        answer = answer => answer,
        never = connection => never,
    }
}

fn request(authority: &str, service: &str) -> http::Result<Request<Full<Bytes>>> {
    Request::builder()
        .method(Method::POST)
        .uri(format!("http://{authority}/grpc.health.v1.Health/Check"))
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .header(USER_AGENT, format!("kube-probe/{RELEASE}"))
        .body(Full::new(question(service)))
}

/// A frame: uncompressed, its length, and a message whose field 1 is the service.
fn question(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        let mut length = service.len();
        while length > 0x7f {
            message.put_u8(length.to_le_bytes()[0] | 0x80);
            length >>= 7;
        }
        message.put_u8(length.to_le_bytes()[0]);
        message.put_slice(service.as_bytes());
    }
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.extend_from_slice(&message);
    frame.freeze()
}

fn judge(headers: &HeaderMap, trailers: &HeaderMap, body: Bytes) -> Result<(), String> {
    // an answer without a message has its trailers among its headers
    let text = |name: &str| {
        let value = trailers.get(name).or_else(|| headers.get(name));
        value.and_then(|value| value.to_str().ok())
    };
    let message = text("grpc-message").unwrap_or_default();
    let message = percent_decode_str(message).decode_utf8_lossy();
    match text("grpc-status") {
        Some("0") => {}
        Some(UNIMPLEMENTED) => {
            return Err(format!(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
            ));
        }
        Some(code) => {
            return Err(format!(
                "error: health rpc probe failed: rpc error: code = {code} desc = {message}"
            ));
        }
        None => {
            let problem =
                "error: health rpc probe failed: server closed the stream without sending trailers";
            return Err(problem.to_owned());
        }
    }
    match health(body) {
        Some(SERVING) => Ok(()),
        status => Err(format!(
            "service unhealthy (responded with {:?})",
            health_name(status)
        )),
    }
}

fn health_name(status: Option<u64>) -> &'static str {
    match status {
        Some(SERVING) => "SERVING",
        Some(2) => "NOT_SERVING",
        Some(3) => "SERVICE_UNKNOWN",
        _ => "UNKNOWN",
    }
}

/// Field 1 of the message in a frame; a message without it says 0. Nothing if it is none.
fn health(mut frame: Bytes) -> Option<u64> {
    if frame.len() < 5 || frame.get_u8() != 0 {
        return None;
    }
    let length = usize::try_from(frame.get_u32()).ok()?;
    let mut message = frame.get(..length)?;
    let mut status = 0;
    while message.has_remaining() {
        let tag = varint(&mut message)?;
        match tag & 7 {
            0 if tag >> 3 == 1 => status = varint(&mut message)?,
            0 => _ = varint(&mut message)?,
            1 => message = message.get(8..)?,
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                message = message.get(length..)?;
            }
            5 => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests;

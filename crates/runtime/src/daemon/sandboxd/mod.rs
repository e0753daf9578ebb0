//! The API of agent-sandbox's `sandboxd`: files over HTTP, processes over gRPC.
//!
//! Clients expect the two on ports of their own, 8080 and 9090 by default; here every port answers both. `files` is confined to
//! a root, `process` begins there, and `metadata` is what a pod's template says about its sandbox.

mod files;
mod metadata;
mod process;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::header::ALLOW;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::json;

use super::Daemon;
use super::body::Body;
use super::files::Refusal;
use super::route::{self, Asked};

const SERVICE: &str = "/process.v1.ProcessService/";
const FILES: &str = "/v1/files/";

pub(super) async fn answer(daemon: Arc<Daemon>, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    // whoever looks whether it is up has no token
    let is_probe = head.uri.path() == "/v1/health";
    if !is_probe && !daemon.settings.admits(head.headers.get("x-access-token")) {
        return refuse(&Refusal::new(StatusCode::UNAUTHORIZED, route::UNAUTHORIZED));
    }
    let path = head.uri.path();
    if let Some(method) = path.strip_prefix(SERVICE) {
        return call(daemon, &head, method, body).await;
    }
    if let Some(encoded) = path.strip_prefix(FILES) {
        let answer = files::answer(daemon, &head, encoded, body).await;
        return answer.unwrap_or_else(|refusal| refuse(&refusal));
    }
    match (&head.method, path) {
        (&Method::GET, "/v1/health") => health(&daemon),
        (&Method::GET, "/v1/metadata") => route::json(StatusCode::OK, &metadata::read()),
        (_, "/v1/health" | "/v1/metadata") => not_allowed("GET"),
        _ => refuse(&Refusal::new(
            StatusCode::NOT_FOUND,
            format!("there is no '{path}' here"),
        )),
    }
}

async fn call(daemon: Arc<Daemon>, head: &Parts, method: &str, body: Incoming) -> Response<Body> {
    let asked = match Asked::of(head, method, daemon.user(None), body) {
        Ok(asked) => asked,
        Err(status) => return route::refuse_call(status),
    };
    let answered = daemon.answer_process_service(asked).await;
    answered.unwrap_or_else(|| route::not_found(head.uri.path()))
}

fn health(daemon: &Daemon) -> Response<Body> {
    if daemon.stopping.load(Ordering::Relaxed) {
        let message = "the sandbox is being stopped";
        return refuse(&Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message));
    }
    let uptime = daemon.started.elapsed().as_secs();
    let healthy = json!({"status": "ok", "uptime_seconds": uptime});
    route::json(StatusCode::OK, &healthy)
}

fn not_allowed(allowed: &'static str) -> Response<Body> {
    let message = format!("only {allowed} is served here");
    let mut response = refuse(&Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message));
    let headers = response.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

fn refuse(refusal: &Refusal) -> Response<Body> {
    let code = match refusal.status {
        StatusCode::BAD_REQUEST => "INVALID_ARGUMENT",
        StatusCode::UNAUTHORIZED => "UNAUTHENTICATED",
        StatusCode::FORBIDDEN => "PERMISSION_DENIED",
        StatusCode::NOT_FOUND => "NOT_FOUND",
        StatusCode::METHOD_NOT_ALLOWED => "METHOD_NOT_ALLOWED",
        StatusCode::CONFLICT => "CONFLICT",
        StatusCode::SERVICE_UNAVAILABLE => "UNAVAILABLE",
        _ => "INTERNAL",
    };
    let body = json!({"code": code, "message": refusal.message});
    route::json(refusal.status, &body)
}

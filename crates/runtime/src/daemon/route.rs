//! The way of a request: browsers' preflights, the access token, then whoever answers its path.

use std::sync::Arc;

use http::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::Serialize;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::body::Body;
use super::error::Error;
use super::rpc::{self, Call};
use super::users::User;
use super::{Daemon, cors, files, init, storage, upgrade};

pub(super) const UNAUTHORIZED: &str =
    "unauthorized access, please provide a valid access token or method signing if supported";

pub(super) async fn answer(daemon: Arc<Daemon>, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    if cors::is_preflight(&head.method, &head.headers) {
        return cors::preflight(&head.headers);
    }
    let from_browser = head.headers.contains_key(ORIGIN);
    let mut response = if allowed(&daemon, &head) {
        dispatch(daemon, head, body).await
    } else {
        refuse(StatusCode::UNAUTHORIZED, UNAUTHORIZED)
    };
    if from_browser {
        cors::expose(&mut response);
    }
    response
}

/// Health is for everyone; `/init` and `/files` look at tokens themselves.
fn allowed(daemon: &Daemon, head: &Parts) -> bool {
    let answers_for_itself = matches!(
        (&head.method, head.uri.path()),
        (&Method::GET, "/health" | "/files") | (&Method::POST, "/files" | "/init")
    );
    answers_for_itself || daemon.settings.admits(head.headers.get("x-access-token"))
}

async fn dispatch(daemon: Arc<Daemon>, head: Parts, body: Incoming) -> Response<Body> {
    match (&head.method, head.uri.path()) {
        (&Method::GET, "/health") => health(),
        (&Method::GET, "/envs") => json(StatusCode::OK, &daemon.settings.environment()),
        (&Method::GET, "/metrics") => json(StatusCode::OK, &daemon.meter.read()),
        (&Method::POST, "/upgrade") => upgrade::answer(&daemon, &head, body).await,
        (&Method::POST, "/init") => init::answer(&daemon, body).await,
        (&Method::GET, "/files") => files::download(daemon, head).await,
        (&Method::POST, "/files") => {
            let _finished_first = daemon.handover.finishing();
            files::upload(&daemon, &head, body).await
        }
        (&Method::POST, "/files/compose") => {
            let _finished_first = daemon.handover.finishing();
            files::compose(&daemon, body).await
        }
        (&Method::POST, "/v1/storage/mounts") => storage::answer(body).await,
        (_, "/health" | "/envs" | "/metrics") => not_allowed("GET"),
        (_, "/init" | "/upgrade" | "/files/compose" | "/v1/storage/mounts") => not_allowed("POST"),
        (_, "/files") => not_allowed("GET, POST"),
        (_, path) => match path.strip_prefix('/').and_then(|p| p.split_once('/')) {
            Some((
                service @ ("process.Process" | "filesystem.Filesystem" | "sandbar.Once"),
                method,
            )) => call(daemon, &head, (service, method), body).await,
            _ => not_found(path),
        },
    }
}

async fn call(
    daemon: Arc<Daemon>,
    head: &Parts,
    (service, method): (&str, &str),
    body: Incoming,
) -> Response<Body> {
    let user = user_of(&daemon, &head.headers);
    let asked = match Asked::of(head, method, user, body) {
        Ok(asked) => asked,
        Err(status) => return refuse_call(status),
    };
    let answered = match service {
        "process.Process" => daemon.answer_process(asked).await,
        "sandbar.Once" => daemon.answer_once(asked).await,
        _ => daemon.answer_filesystem(asked).await,
    };
    answered.unwrap_or_else(|| not_found(head.uri.path()))
}

/// The answer to what is no call.
pub(super) fn refuse_call(status: StatusCode) -> Response<Body> {
    match status {
        StatusCode::METHOD_NOT_ALLOWED => not_allowed("POST"),
        other => rpc::refuse(other),
    }
}

/// What somebody wants of a service.
pub(super) struct Asked<'a> {
    pub(super) method: &'a str,
    pub(super) call: Call,
    pub(super) user: Result<User, Error>,
    pub(super) body: Incoming,
}

impl<'a> Asked<'a> {
    pub(super) fn of(
        head: &Parts,
        method: &'a str,
        user: Result<User, Error>,
        body: Incoming,
    ) -> Result<Self, StatusCode> {
        if head.method != Method::POST {
            return Err(StatusCode::METHOD_NOT_ALLOWED);
        }
        Ok(Self {
            method,
            call: Call::of(head, user.as_ref().err().cloned())?,
            user,
            body,
        })
    }
}

/// Basic authorization names the user; there is no password.
fn user_of(daemon: &Daemon, headers: &HeaderMap) -> Result<User, Error> {
    let named = headers.get(AUTHORIZATION).and_then(basic_user);
    daemon.user(named.as_deref())
}

fn basic_user(value: &HeaderValue) -> Option<String> {
    let (scheme, credentials) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(credentials.trim()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    text.split_once(':').map(|(user, _)| user.to_owned())
}

fn health() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub(super) fn not_found(path: &str) -> Response<Body> {
    refuse(StatusCode::NOT_FOUND, &format!("there is no '{path}' here"))
}

pub(super) fn not_allowed(allowed: &'static str) -> Response<Body> {
    let mut response = refuse(
        StatusCode::METHOD_NOT_ALLOWED,
        &format!("only {allowed} is served here"),
    );
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

pub(super) fn json(status: StatusCode, content: &impl Serialize) -> Response<Body> {
    // maps with text for keys always can be written
    let text = serde_json::to_vec(content).unwrap_or_default();
    let mut response = Response::new(Body::Full(text.into()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// An error of a plain endpoint.
pub(super) fn refuse(status: StatusCode, message: &str) -> Response<Body> {
    let body = serde_json::json!({"code": status.as_u16(), "message": message});
    json(status, &body)
}

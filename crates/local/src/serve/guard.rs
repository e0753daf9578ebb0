//! Stands before the API: nobody gets past it who does not show a token and may do what they ask for.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _, ready};
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use tower::Service;

use crate::status::Failure;

use super::attributes::{Attributes, Target};
use super::authorize::{Identity, PUBLIC, authorize};
use super::tokens::{Shown, Tokens};

/// A service behind its guard. The requests that reach it carry the [`Identity`] of their sender and the
/// [`Attributes`] that were authorised, as extensions.
#[derive(Clone)]
pub struct Guard<S> {
    tokens: Arc<Tokens>,
    inner: S,
}

impl<S> Guard<S> {
    pub fn new(tokens: Arc<Tokens>, inner: S) -> Guard<S> {
        Guard { tokens, inner }
    }
}

impl<S, In, Out> Service<Request<In>> for Guard<S>
where
    S: Service<Request<In>, Response = Response<Out>, Error = Infallible>,
    S::Future: Send + 'static,
    Out: Send + 'static,
{
    type Response = Response<Either<Out, Full<Bytes>>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        match admit(&self.tokens, &mut parts) {
            Ok(()) => {
                let answer = self.inner.call(Request::from_parts(parts, body));
                let passed = |answer: Response<Out>| answer.map(Either::Left);
                answer.map(move |answer| answer.map(passed)).boxed()
            }
            Err(failure) => ready(Ok(refusal(&failure).map(Either::Right))).boxed(),
        }
    }
}

fn admit(tokens: &Tokens, request: &mut Parts) -> Result<(), Failure> {
    let attributes = Attributes::of(&request.method, &request.uri);
    let sender = match tokens.shown(&request.headers) {
        Shown::Token(identity) => identity,
        Shown::Nothing if PUBLIC.contains(&attributes.path.as_str()) => Identity::anonymous(),
        Shown::Nothing | Shown::WrongToken => return Err(Failure::unauthorized()),
    };
    let sender = impersonated(&request.headers, &sender)?.unwrap_or(sender);
    authorize(&sender, &attributes)?;
    request.headers.remove(AUTHORIZATION);
    request.extensions.insert(sender);
    request.extensions.insert(attributes);
    Ok(())
}

const IMPERSONATE_USER: &str = "impersonate-user";
const IMPERSONATE_GROUP: &str = "impersonate-group";
const IMPERSONATE: &str = "impersonate-";

/// Whom the sender wants to act as (`kubectl --as`), with that user's rights and not their own.
fn impersonated(headers: &HeaderMap, sender: &Identity) -> Result<Option<Identity>, Failure> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let user = headers.get(IMPERSONATE_USER).map(text).unwrap_or_default();
    if user.is_empty() {
        let asks = |name: &http::HeaderName| {
            name.as_str().starts_with(IMPERSONATE) && name != IMPERSONATE_USER
        };
        return match headers.keys().find(|name| asks(name)) {
            Some(name) => Err(Failure::bad_request(format!(
                "requested {name} without impersonating a user name"
            ))),
            None => Ok(None),
        };
    }
    let target = Target {
        resource: "users".to_owned(),
        name: user.clone(),
        ..Target::default()
    };
    let attributes = Attributes {
        verb: "impersonate".to_owned(),
        path: String::new(),
        target: Some(target),
    };
    authorize(sender, &attributes)?;
    let groups = headers.get_all(IMPERSONATE_GROUP).iter().map(text);
    Ok(Some(Identity::impersonated(&user, groups.collect())))
}

fn refusal(failure: &Failure) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{}\n", failure.body())));
    *response.status_mut() =
        StatusCode::from_u16(failure.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    let json = HeaderValue::from_static("application/json");
    let private = HeaderValue::from_static("no-cache, private");
    headers.insert(CONTENT_TYPE, json);
    headers.insert(CACHE_CONTROL, private);
    if response.status() == StatusCode::FORBIDDEN {
        let nosniff = HeaderValue::from_static("nosniff");
        response
            .headers_mut()
            .insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    }
    response
}

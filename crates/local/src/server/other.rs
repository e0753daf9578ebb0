//! Paths that name no resource: health, discovery, the description of the API, questions about the caller.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderValue, Method, Response, request};
use serde_json::Value;

use super::answer::{Answer, Body, failed, json_bytes, text, whole};
use super::discovery::{self, Aggregated};
use super::media::{self, Endpoint, Form};
use super::options::Query;
use super::registry::Registry;
use super::route::Target;
use super::{Asked, Server, Warnings, openapi, reviews, write};
use crate::serve::{Attributes, Identity, authorize};
use crate::status::Failure;

/// The links to all OpenAPI documents, with the registry they were made from: making them hashes every document.
#[derive(Default)]
pub(super) struct Documents(Mutex<Option<(Arc<Registry>, Bytes)>>);

impl Documents {
    fn get(&self, registry: &Arc<Registry>, path: &str) -> Option<Bytes> {
        if path != "/openapi/v3" {
            return openapi::answer(registry, path).map(Bytes::from);
        }
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some((of, links)) if Arc::ptr_eq(of, registry) => Some(links.clone()),
            _ => {
                let links = Bytes::from(openapi::answer(registry, path)?);
                *made = Some((Arc::clone(registry), links.clone()));
                Some(links)
            }
        }
    }
}

impl Server {
    pub(super) fn other(&self, registry: &Arc<Registry>, parts: &request::Parts) -> Response<Body> {
        let path = parts.uri.path();
        if matches!(path, "/healthz" | "/livez" | "/readyz") {
            return text(200, "ok");
        }
        if path.starts_with("/openapi/") {
            return self.open_api(registry, parts);
        }
        self.discovery(registry, parts)
            .unwrap_or_else(|failure| failed(&failure))
    }

    fn discovery(
        &self,
        registry: &Registry,
        parts: &request::Parts,
    ) -> Result<Response<Body>, Failure> {
        let path = parts.uri.path();
        let header = |name| {
            parts
                .headers
                .get(name)
                .and_then(|value: &HeaderValue| value.to_str().ok())
        };
        let endpoint = match path.trim_end_matches('/') {
            "/api" | "/apis" => Endpoint::Groups,
            _ => Endpoint::Discovery,
        };
        let accept = header(http::header::ACCEPT);
        let mut how = media::negotiate(accept, endpoint, false)?;
        let query = Query::parse(parts.uri.query());
        how.pretty |= media::pretty(query.get("pretty"), header(http::header::USER_AGENT));
        let aggregated = match how.form {
            Form::AggregatedDiscovery => Aggregated::V2,
            _ => Aggregated::No,
        };
        let steps = path.split('/').filter(|step| !step.is_empty()).count();
        let Some(document) = discovery::answer(registry, path, aggregated) else {
            let unknown_version = path.starts_with("/api/")
                || (path.starts_with("/apis/")
                    && steps == 3
                    && path
                        .split('/')
                        .nth(2)
                        .is_some_and(|group| registry.has_group(group)));
            return match unknown_version {
                true => Err(Failure::unknown_path()),
                false => Ok(text(404, "404 page not found\n")),
            };
        };
        // the real server looks at the method of all discovery but that of one group
        let one_group = path.starts_with("/apis/") && steps == 2;
        if parts.method != Method::GET && !one_group {
            return Err(Failure::method_not_allowed());
        }
        let tag = discovery::etag(&document);
        if header(IF_NONE_MATCH) == Some(tag.as_str()) {
            return Ok(whole(304, how.content_type(), Bytes::new()));
        }
        let bytes = how.render(&document)?;
        let mut response = whole(200, how.content_type(), bytes.into());
        if how.form == Form::AggregatedDiscovery {
            set(&mut response, ETAG, &tag);
            set(&mut response, VARY, "Accept");
        }
        Ok(response)
    }

    /// The document of version 2, as JSON or protobuf.
    fn open_api_v2(registry: &Registry, parts: &request::Parts) -> Response<Body> {
        const JSON: &str = "application/json";
        const BINARY: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
        /// Its name in older clients, which no answer carries.
        const OLD_BINARY: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
        let header = |name| {
            parts
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        let accept = header(http::header::ACCEPT);
        let (content_type, document) = match media::preferred(accept, &[JSON, OLD_BINARY, BINARY]) {
            None => {
                let mut refused = whole(406, JSON, Bytes::new());
                refused.headers_mut().remove(CONTENT_TYPE);
                set(&mut refused, VARY, "Accept");
                return refused;
            }
            Some(JSON) => (JSON, openapi::json(registry)),
            Some(_) => (BINARY, openapi::binary(registry)),
        };
        let tag = format!("\"{}\"", openapi::hash(&document));
        let mut response = match header(IF_NONE_MATCH) == Some(tag.as_str()) {
            true => whole(304, content_type, Bytes::new()),
            false => whole(200, content_type, document.into()),
        };
        set(&mut response, ETAG, &tag);
        set(&mut response, VARY, "Accept");
        response
    }

    fn open_api(&self, registry: &Arc<Registry>, parts: &request::Parts) -> Response<Body> {
        let path = parts.uri.path().trim_end_matches('/');
        if path == "/openapi/v2" {
            return Self::open_api_v2(registry, parts);
        }
        let Some(document) = self.documents.get(registry, path) else {
            let mut missing = whole(404, "text/plain", Bytes::new());
            missing.headers_mut().remove(CONTENT_TYPE);
            return missing;
        };
        let hash = openapi::hash(&document);
        let tag = format!("\"{hash}\"");
        let query = Query::parse(parts.uri.query());
        let asked = query.text("hash");
        if asked.is_some_and(|asked| asked != hash) {
            let mut moved = whole(301, "text/plain; charset=utf-8", Bytes::new());
            set(&mut moved, LOCATION, &format!("{path}?hash={hash}"));
            return moved;
        }
        if parts
            .headers
            .get(IF_NONE_MATCH)
            .is_some_and(|sent| *sent == *tag)
        {
            return whole(304, "application/json", Bytes::new());
        }
        let mut response = match path {
            "/openapi/v3" => whole(200, "text/plain; charset=utf-8", document),
            _ => json_bytes(200, document),
        };
        if asked.is_some() {
            set(&mut response, CACHE_CONTROL, "public, immutable");
            set(&mut response, VARY, "Accept");
        }
        set(&mut response, ETAG, &tag);
        response
    }

    /// What is created but never stored: reviews, and bindings that name their pod in the body.
    pub(super) async fn unstored(
        &self,
        registry: &Arc<Registry>,
        parts: &request::Parts,
        body: &Bytes,
    ) -> Option<Result<Response<Body>, Failure>> {
        if parts.method != Method::POST {
            return None;
        }
        let path: Vec<&str> = parts.uri.path().split('/').collect();
        let ["", "api", "v1", "namespaces", namespace, "bindings"] = path.as_slice() else {
            return self.review(parts, body);
        };
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let name = sent["metadata"]["name"].as_str().unwrap_or_default();
        let pods = registry.find("", "v1", "pods")?;
        let target = Target::object(pods, namespace, name);
        let (query, warnings) = (Query::parse(parts.uri.query()), Warnings::default());
        let asked = Asked {
            method: &parts.method,
            headers: &parts.headers,
            extensions: &parts.extensions,
            query: &query,
            body,
            warnings: &warnings,
        };
        Some(match self.bind(&target, &asked).await {
            Ok(Answer::Status { status, code }) => Ok(json_bytes(code, status.to_string().into())),
            Ok(_) => Err(Failure::internal("a binding answered with an object")),
            Err(failure) => Err(failure),
        })
    }

    /// Questions about the caller. Who calls in process may do everything.
    fn review(
        &self,
        parts: &request::Parts,
        body: &Bytes,
    ) -> Option<Result<Response<Body>, Failure>> {
        let who = parts.extensions.get::<Identity>();
        let read = |api_version: &str, kind: &str| {
            let content_type = parts.headers.get(CONTENT_TYPE);
            let body = write::Body {
                bytes: body,
                content_type: content_type.and_then(|value| value.to_str().ok()),
            };
            body.part(kind, api_version)
        };
        let answer = match parts.uri.path() {
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
                let sent = match read("authorization.k8s.io/v1", "SelfSubjectAccessReview") {
                    Ok(sent) => sent,
                    Err(failure) => return Some(Err(failure)),
                };
                let allowed = who.is_none_or(|who| {
                    authorize(who, &Attributes::of_review(&sent["spec"])).is_ok()
                });
                let kind = sent["kind"].as_str().unwrap_or_default();
                reviews::access(&sent, allowed)
                    .map_err(|errors| Failure::invalid("authorization.k8s.io", kind, "", &errors))
            }
            "/apis/authentication.k8s.io/v1/selfsubjectreviews" => {
                let admin = Identity::admin();
                let who = who.unwrap_or(&admin);
                Ok(reviews::identity(&who.name, &who.groups, &self.now()))
            }
            _ => return None,
        };
        Some(answer.map(|answer| json_bytes(201, answer.to_string().into())))
    }
}

fn set(response: &mut Response<Body>, name: http::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

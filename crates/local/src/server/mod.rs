//! The Kubernetes API over the store: one set of handlers over JSON for every kind.

pub(crate) mod act;
mod answer;
mod create;
mod definitions;
mod delete;
mod discovery;
mod encode;
mod events;
mod kind;
pub(crate) mod media;
pub(crate) mod metadata;
mod openapi;
mod options;
mod other;
mod patch;
mod pods;
mod read;
mod recent;
pub mod registry;
pub mod resource;
mod reviews;
mod route;
mod scale;
mod select;
pub mod streams;
mod update;
mod warnings;
mod watch;
mod write;

use std::borrow::Cow;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use api::patch::apply::manager_from_user_agent;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{Extensions, HeaderMap, HeaderName, Method, Request, Response};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use serde_json::Value;
use tokio::sync::watch as watch_channel;

use crate::clock::{Clock, rfc3339_seconds};
use crate::kinds::{Others, Part};
use crate::status::Failure;
use crate::store::{Key, Scope, Store};
use crate::table::Include;
pub use answer::Body;
use answer::{Answer, View, failed, text, warn};
use definitions::Definitions;
pub(crate) use encode::from_metadata;
use media::{Endpoint, Form, PatchKind};
use options::{DeleteOptions, ListOptions, Query, WriteOptions};
use other::Documents;
use recent::Recent;
use registry::Registry;
use resource::Resource;
use route::{Route, Target, route};
use streams::Door;
use streams::node::Nodes;
use warnings::Warnings;
use write::Caller;

/// The API; clones are the same one.
#[derive(Clone)]
pub struct Server {
    store: Store,
    clock: Clock,
    registry: Arc<watch_channel::Sender<Arc<Registry>>>,
    documents: Arc<Documents>,
    definitions: Arc<Definitions>,
    recent: Arc<Recent>,
    /// Held while a service gets its address.
    addresses: Arc<tokio::sync::Mutex<()>>,
    nodes: Arc<Nodes>,
    /// Watches from before this revision are told that it is gone.
    started: u64,
}

impl Server {
    /// Serves what is in the store.
    pub async fn open(store: Store, clock: Clock) -> Self {
        let server = Self::new(store, clock);
        server.settle_definitions().await;
        server
    }

    /// How it reads what it has stored.
    pub(crate) const READ: fn(&[u8]) -> crate::store::Value = encode::split;

    /// The same, but what has been written so far is the past: watches do not reach it.
    pub(crate) fn starting_now(self) -> Self {
        Self {
            started: self.store.revision(),
            ..self
        }
    }

    fn new(store: Store, clock: Clock) -> Self {
        let registry = Arc::new(watch_channel::Sender::new(Arc::new(Registry::built_in())));
        let started = store.revision();
        Self {
            store,
            clock,
            registry,
            documents: Arc::default(),
            definitions: Arc::default(),
            recent: Arc::default(),
            addresses: Arc::default(),
            nodes: Arc::default(),
            started,
        }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry.borrow())
    }

    fn now(&self) -> String {
        rfc3339_seconds(self.clock.now())
    }

    fn new_uid(&self) -> String {
        uuid::Uuid::new_v4().to_string()
    }

    fn random(&self) -> usize {
        let random = uuid::Uuid::new_v4();
        usize::from(random.as_bytes()[15])
    }

    /// What a write of an object means for the API itself: a CRD changes what is served.
    async fn after_write(&self, resource: &Resource) {
        if resource.defines() {
            self.settle_definitions().await;
        }
    }

    fn set_registry(&self, registry: Registry) {
        self.registry.send_replace(Arc::new(registry));
    }

    /// Answers one request.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<tower::BoxError>,
    {
        let (parts, body) = request.into_parts();
        let body = match Limited::new(body, media::LIMIT).collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => {
                let why = format!("limit is {}", media::LIMIT);
                return failed(&Failure::too_large(&why));
            }
        };
        let registry = self.registry();
        let target = match route(&registry, parts.uri.path()) {
            Route::Resource(target) => target,
            Route::Other => return self.other(&registry, &parts),
            unknown => {
                if let Some(answer) = self.unstored(&registry, &parts, &body).await {
                    return answer.unwrap_or_else(|failure| failed(&failure));
                }
                return match unknown {
                    Route::UnknownResource => failed(&Failure::unknown_path()),
                    _ => text(404, "404 page not found\n"),
                };
            }
        };
        let query = Query::parse(parts.uri.query());
        let warnings = Warnings::default();
        let asked = Asked {
            method: &parts.method,
            headers: &parts.headers,
            extensions: &parts.extensions,
            query: &query,
            body: &body,
            warnings: &warnings,
        };
        let answered = self.answer(&target, &asked).await;
        let mut response = answered.unwrap_or_else(|failure| failed(&failure));
        warn(&mut response, &warnings.take());
        if parts.method == Method::HEAD {
            *response.body_mut() = Either::Left(Full::default());
        }
        response
    }

    async fn answer(&self, target: &Target, asked: &Asked<'_>) -> Result<Response<Body>, Failure> {
        if let Some(door) = Door::of(target) {
            target.check_name()?;
            return self.door(target, door, asked).await;
        }
        let view = self.view(target, asked)?;
        target.check_name()?;
        let custom = target.resource.custom();
        if let Some(warning) = custom.and_then(|custom| custom.warning.as_deref()) {
            asked.warnings.add(warning);
        }
        let answer = self.dispatch(target, asked, &view).await?;
        view.respond(&target.resource, answer)
    }

    /// How the client wants to see the answer.
    fn view(&self, target: &Target, asked: &Asked<'_>) -> Result<View, Failure> {
        let list = asked.method == Method::GET && target.name.is_none();
        let endpoint = match (target.resource.custom(), list) {
            (Some(_), _) => Endpoint::Custom,
            (None, true) => Endpoint::BuiltInList,
            (None, false) => Endpoint::BuiltIn,
        };
        let watch = list && (target.watch || asked.query.flag("watch"));
        let mut how = media::negotiate(asked.header(ACCEPT), endpoint, watch)?;
        how.pretty |= media::pretty(asked.query.get("pretty"), asked.header(USER_AGENT));
        let include = match how.form {
            Form::Table(_) => Include::parse(asked.query.get("includeObject"))?,
            _ => Include::default(),
        };
        Ok(View {
            how,
            include,
            now: self.clock.now(),
        })
    }

    async fn dispatch(
        &self,
        target: &Target,
        asked: &Asked<'_>,
        view: &View,
    ) -> Result<Answer, Failure> {
        if target.watch && (asked.method != Method::GET || target.subresource.is_some()) {
            return Err(Failure::method_not_allowed());
        }
        if let Some(subresource) = &target.subresource {
            return self.subresource(target, subresource, asked).await;
        }
        match (asked.method.as_str(), &target.name) {
            ("GET", Some(_)) if target.watch => {
                let options = ListOptions::read(asked.query, true)?;
                self.watch(target, options, view.events(&target.resource))
            }
            ("GET", Some(_)) => self.get(target, asked.query),
            ("GET", None) => {
                let options = ListOptions::read(asked.query, target.watch)?;
                match options.watch {
                    true => self.watch(target, options, view.events(&target.resource)),
                    false => self.list(target, options),
                }
            }
            ("POST", None) if target.namespace.is_some() || !target.resource.namespaced => {
                let caller = asked.caller();
                self.post(target, &caller, asked.query, &asked.body()).await
            }
            ("PUT", Some(_)) => {
                let caller = asked.caller();
                self.put(target, Part::Main, &caller, asked.query, &asked.body())
                    .await
            }
            ("PATCH", Some(_)) => self.patch_part(target, Part::Main, asked).await,
            ("DELETE", Some(_)) => {
                let options = DeleteOptions::read(asked.query, asked.body().options()?.as_ref())?;
                self.delete(target, &options).await
            }
            ("DELETE", None)
                if target
                    .resource
                    .verbs()
                    .any(|verb| verb == "deletecollection")
                    && (target.namespace.is_some() || !target.resource.namespaced) =>
            {
                let options = DeleteOptions::read(asked.query, asked.body().options()?.as_ref())?;
                let list = ListOptions::read(asked.query, false)?;
                self.delete_collection(target, list, &options).await
            }
            _ => Err(Failure::method_not_allowed()),
        }
    }

    async fn patch_part(
        &self,
        target: &Target,
        part: Part,
        asked: &Asked<'_>,
    ) -> Result<Answer, Failure> {
        let kind = asked.patch_kind(target)?;
        let options = WriteOptions::read(asked.query, "PatchOptions", kind == PatchKind::Apply)?;
        self.patch(target, part, &asked.caller(), &options, kind, &asked.body())
            .await
    }

    async fn subresource(
        &self,
        target: &Target,
        name: &str,
        asked: &Asked<'_>,
    ) -> Result<Answer, Failure> {
        if target.resource.subresource(name).is_none() {
            let name = target.name.as_deref().unwrap_or_default();
            return Err(Failure::not_found(target.resource.qualified(), name));
        }
        let part = match name {
            "status" => Part::Status,
            "resize" => Part::Resize,
            "ephemeralcontainers" => Part::EphemeralContainers,
            "finalize" => Part::Finalize,
            "scale" => return self.scale(target, asked).await,
            "binding" => return self.bind(target, asked).await,
            "eviction" => return self.evict(target, asked).await,
            _ => return Err(Failure::unknown_path()),
        };
        match asked.method.as_str() {
            "GET" if part != Part::Finalize => self.get(target, asked.query),
            "PUT" => {
                let caller = asked.caller();
                self.put(target, part, &caller, asked.query, &asked.body())
                    .await
            }
            "PATCH" if part != Part::Finalize => self.patch_part(target, part, asked).await,
            "POST" if target.resource.custom().is_some() => Err(target.resource.refuses("create")),
            "DELETE" if target.resource.custom().is_some() => {
                Err(target.resource.refuses("delete"))
            }
            _ => Err(Failure::method_not_allowed()),
        }
    }
}

/// A request, apart from what it names.
struct Asked<'a> {
    method: &'a Method,
    headers: &'a HeaderMap,
    /// What those have added through whom the request came.
    extensions: &'a Extensions,
    query: &'a Query,
    body: &'a Bytes,
    warnings: &'a Warnings,
}

impl<'a> Asked<'a> {
    fn header(&self, name: HeaderName) -> Option<&'a str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    fn caller(&self) -> Caller<'a> {
        let manager = match self.query.text("fieldManager") {
            Some(manager) => Cow::Borrowed(manager),
            None => {
                let agent = self.header(USER_AGENT).unwrap_or_default();
                Cow::Owned(manager_from_user_agent(agent))
            }
        };
        Caller {
            manager,
            patches: self.method == Method::PATCH,
            warnings: Some(self.warnings),
            subresource: None,
        }
    }

    fn body(&self) -> write::Body<'a> {
        write::Body {
            bytes: self.body,
            content_type: self.header(CONTENT_TYPE),
        }
    }

    fn patch_kind(&self, target: &Target) -> Result<PatchKind, Failure> {
        let built_in = target.resource.custom().is_none();
        media::patch_kind(self.header(CONTENT_TYPE), built_in)
    }
}

impl Others for Server {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let entry = self.store.get(&Key::new(resource, namespace, name))?;
        serde_json::from_slice(entry.value.rest()).ok()
    }

    fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Value> {
        let scope = match namespace {
            Some(namespace) => Scope::namespaced(resource, namespace),
            None => Scope::all(resource),
        };
        let snapshot = self.store.snapshot();
        let objects = snapshot.list(&scope);
        objects
            .filter_map(|entry| serde_json::from_slice(entry.value.rest()).ok())
            .collect()
    }
}

impl<B> tower::Service<Request<B>> for Server
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.handle(request).await) })
    }
}

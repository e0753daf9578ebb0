//! Logs and streams of pods: `log`, `exec`, `attach` and `portforward`, as clients of Kubernetes speak them.
//!
//! A node registers what it offers (`node::PodStreams`); a request goes to the node that the pod is bound to. What an API
//! server and a kubelet check is checked here (`ask`), in their words. Then a connection becomes a stream (`upgrade`): a
//! WebSocket with channels (`websocket`) or SPDY (`spdy`), on which a command (`command`) or forwarded ports (`forward`)
//! see no difference (`wire`). `log_file` reads what containers have written.

mod ask;
mod command;
mod forward;
pub mod log_file;
pub(super) mod node;
mod spdy;
mod upgrade;
mod websocket;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Response};
use http_body::Frame;
use http_body_util::{Either, StreamBody};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::time::sleep;

pub use node::{
    AttachAsk, Duplex, ExecAsk, Log, LogOptions, LogStream, PodRef, PodStreams, Session, Streams,
    TerminalSize,
};
pub use spdy::{Decoder, Event, FrameError, Headers};

use super::route::Target;
use super::{Asked, Body, Server};
use crate::serve::Tenure;
use crate::status::Failure;
use command::{Ask, Command};
use forward::Forward;
use upgrade::{Chosen, Refused};

/// How long a client has for what it is told when the server stops; less than the grace that requests have.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// What only a node can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    Attach,
    Exec,
    Log,
    PortForward,
    Proxy,
}

impl Door {
    /// The door that a request stands at.
    pub(super) fn of(target: &Target) -> Option<Self> {
        if !target.resource.is_core("Pod") || target.watch {
            return None;
        }
        match target.subresource.as_deref()? {
            "attach" => Some(Door::Attach),
            "exec" => Some(Door::Exec),
            "log" => Some(Door::Log),
            "portforward" => Some(Door::PortForward),
            "proxy" => Some(Door::Proxy),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Door::Attach => "attach",
            Door::Exec => "exec",
            Door::Log => "log",
            Door::PortForward => "portforward",
            Door::Proxy => "proxy",
        }
    }

    fn takes(self, method: &Method) -> bool {
        match self {
            Door::Log => method == Method::GET,
            Door::Attach | Door::Exec | Door::PortForward => {
                method == Method::GET || method == Method::POST
            }
            Door::Proxy => true,
        }
    }
}

/// A pod, and the node that runs it.
struct Found {
    pod: Value,
    reference: PodRef,
    node: Arc<dyn PodStreams>,
}

impl Server {
    /// Offers what a node lets one do with its pods.
    pub fn set_streams(&self, node: &str, streams: Arc<dyn PodStreams>) {
        self.nodes.set(node, streams);
    }

    /// The node offers nothing any more. What has begun goes on.
    pub fn remove_streams(&self, node: &str) {
        self.nodes.remove(node);
    }

    /// No node offers anything: they may hold the server as it holds them.
    pub(crate) fn forget_streams(&self) {
        self.nodes.clear();
    }

    pub(super) async fn door(
        &self,
        target: &Target,
        door: Door,
        asked: &Asked<'_>,
    ) -> Result<Response<Body>, Failure> {
        if !door.takes(asked.method) {
            return Err(Failure::method_not_allowed());
        }
        match door {
            Door::Log => self.log(target, asked).await,
            Door::Exec | Door::Attach => self.command(target, door, asked).await,
            Door::PortForward => self.forward(target, asked).await,
            Door::Proxy => {
                let pod = target.resource.read(&*self.find(target)?)?;
                let node = node_of(&pod)?;
                Err(no_door(node, &pod, door))
            }
        }
    }

    async fn log(&self, target: &Target, asked: &Asked<'_>) -> Result<Response<Body>, Failure> {
        let name = target.name.as_deref().unwrap_or_default();
        let mut options = ask::log_options(asked.query, name, self.clock.now())?;
        let pod = target.resource.read(&*self.find(target)?)?;
        options.container = ask::container(&pod, asked.query.text("container"))?;
        if node_of(&pod).is_err() {
            return Ok(nothing());
        }
        let Found {
            pod,
            reference,
            node,
        } = self.found(pod, Door::Log)?;
        options.container_id = ask::logged_run(&pod, &options.container, options.previous)?;
        let log = node.log(reference, options).await?;
        let frames = log.map(|bytes| bytes.map(Frame::data));
        let mut response = Response::new(Either::Right(StreamBody::new(frames.boxed())));
        let text = HeaderValue::from_static("text/plain");
        response.headers_mut().insert(CONTENT_TYPE, text);
        Ok(response)
    }

    async fn command(
        &self,
        target: &Target,
        door: Door,
        asked: &Asked<'_>,
    ) -> Result<Response<Body>, Failure> {
        let pod = target.resource.read(&*self.find(target)?)?;
        let container = ask::container(&pod, asked.query.text("container"))?;
        let Found {
            pod,
            reference,
            node,
        } = self.found(pod, door)?;
        let line = Line::of(asked)?;
        let mut streams = match ask::streams(asked.query) {
            Ok(streams) => streams,
            Err(failure) => return Ok(in_words(&failure)),
        };
        let runs =
            !ask::is_over(&pod) && node.runs(reference.clone(), Some(container.clone())).await;
        if !runs {
            let PodRef {
                name, namespace, ..
            } = &reference;
            let problem = match door {
                Door::Attach => {
                    format!("container {container} not found in pod {name}_{namespace}")
                }
                _ => format!("container not found ({container:?})"),
            };
            return Ok(Refused::new(500, problem).answer());
        }
        let chosen = match upgrade::command(asked.method, asked.headers) {
            Ok(chosen) => chosen,
            Err(refused) => return Ok(refused.answer()),
        };
        let ask = match door {
            Door::Attach => {
                streams.tty = ask::has_terminal(&pod, &container);
                streams.stderr &= !streams.tty;
                Ask::Attach(AttachAsk { container, streams })
            }
            _ => Ask::Exec(ExecAsk {
                container,
                command: asked
                    .query
                    .all("command")
                    .into_iter()
                    .map(str::to_owned)
                    .collect(),
                streams,
            }),
        };
        let command = Command {
            node,
            pod: reference,
            ask,
        };
        let protocol = chosen.protocol;
        Ok(line.upgrade(chosen, move |io, stopped| async move {
            command.serve(io, protocol, stopped).await;
        }))
    }

    async fn forward(&self, target: &Target, asked: &Asked<'_>) -> Result<Response<Body>, Failure> {
        let pod = target.resource.read(&*self.find(target)?)?;
        let Found {
            pod,
            reference,
            node,
        } = self.found(pod, Door::PortForward)?;
        let line = Line::of(asked)?;
        let by_channels =
            upgrade::is_websocket(asked.headers) && !upgrade::is_tunnel(asked.headers);
        let ports = match by_channels.then(|| ask::ports(asked.query)).transpose() {
            Ok(ports) => ports.unwrap_or_default(),
            Err(failure) => return Ok(in_words(&failure)),
        };
        if ask::is_over(&pod) || !node.runs(reference.clone(), None).await {
            let full_name = format!("{}_{}", reference.name, reference.namespace);
            let problem = format!("pod not found ({full_name:?})");
            return Ok(Refused::new(500, problem).answer());
        }
        let chosen = match upgrade::forward(asked.method, asked.headers) {
            Ok(chosen) => chosen,
            Err(refused) => return Ok(refused.answer()),
        };
        let forward = Forward {
            node,
            pod: reference,
            ports,
        };
        let protocol = chosen.protocol;
        Ok(line.upgrade(chosen, move |io, stopped| async move {
            forward.serve(io, protocol, stopped).await;
        }))
    }

    fn found(&self, pod: Value, door: Door) -> Result<Found, Failure> {
        let name = node_of(&pod)?;
        let node = self
            .nodes
            .get(name)
            .ok_or_else(|| no_door(name, &pod, door))?;
        let text = |key: &str| pod["metadata"][key].as_str().unwrap_or_default().to_owned();
        let reference = PodRef {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
        };
        Ok(Found {
            pod,
            reference,
            node,
        })
    }
}

fn node_of(pod: &Value) -> Result<&str, Failure> {
    let node = pod["spec"]["nodeName"].as_str();
    node.filter(|node| !node.is_empty()).ok_or_else(|| {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        Failure::bad_request(format!("pod {name} does not have a host assigned"))
    })
}

fn no_door(node: &str, pod: &Value, door: Door) -> Failure {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let door = door.name();
    Failure::internal(format!(
        "error dialing backend: node {node:?} of pod {name} offers no {door}"
    ))
}

/// What a kubelet says, which is no `Status`.
fn in_words(failure: &Failure) -> Response<Body> {
    Refused::new(failure.code(), failure.message()).answer()
}

/// The log of a pod that has never been anywhere.
fn nothing() -> Response<Body> {
    let mut response = Response::new(Either::Left(http_body_util::Full::default()));
    *response.status_mut() = http::StatusCode::NO_CONTENT;
    response
}

async fn stopped(tenure: Option<Tenure>) {
    match tenure {
        Some(tenure) => tenure.ending().await,
        None => std::future::pending().await,
    }
}

/// A client's connection that is to become something else.
struct Line {
    coming: OnUpgrade,
    tenure: Option<Tenure>,
}

impl Line {
    fn of(asked: &Asked<'_>) -> Result<Self, Failure> {
        let coming = asked.extensions.get::<OnUpgrade>();
        let coming = coming.filter(|_| upgrade::is_wanted(asked.headers));
        let coming = coming.ok_or_else(|| Failure::bad_request("Upgrade request required"))?;
        Ok(Line {
            coming: coming.clone(),
            tenure: asked.extensions.get().cloned(),
        })
    }

    /// Answers, and serves what the client makes of it. Whoever serves is told when the server stops.
    fn upgrade<P, S>(
        self,
        chosen: Chosen<P>,
        serve: impl FnOnce(TokioIo<Upgraded>, BoxFuture<'static, ()>) -> S + Send + 'static,
    ) -> Response<Body>
    where
        S: Future<Output = ()> + Send + 'static,
    {
        let Line { coming, tenure } = self;
        tokio::spawn(async move {
            let Ok(upgraded) = coming.await else {
                return;
            };
            let _held = tenure.clone();
            let stopped = stopped(tenure).shared();
            let cut = async {
                stopped.clone().await;
                sleep(LAST_WORDS).await;
            };
            tokio::select! {
                () = serve(TokioIo::new(upgraded), stopped.clone().boxed()) => {}
                () = cut => {}
            }
        });
        chosen.answer()
    }
}

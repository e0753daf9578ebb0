//! A wire between the controllers and the server on which a request is late, an answer is lost, or a watch falls silent.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use futures::StreamExt as _;
use http::{Method, Request, Response};
use http_body_util::{BodyStream, StreamBody};
use kube::{Client, client::Body};
use serde_json::Value;
use tokio::sync::watch;

/// A request as it goes over the wire.
pub(crate) struct Sent {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Value,
}

impl Sent {
    pub(crate) fn deletes_a_sandbox(&self) -> bool {
        self.method == Method::DELETE && self.path.contains("/sandboxes/")
    }

    pub(crate) fn binds_a_sandbox(&self) -> bool {
        let owners = self.body["metadata"].get("ownerReferences");
        self.method == Method::PATCH && self.path.contains("/sandboxes/") && owners.is_some()
    }

    pub(crate) fn fences_a_sandbox(&self) -> bool {
        let fence = &self.body["metadata"]["annotations"]["sandbar.dev/update"];
        self.method == Method::PATCH && self.path.contains("/sandboxes/") && fence.is_string()
    }

    pub(crate) fn makes_a_sandbox(&self) -> bool {
        self.method == Method::POST && self.path.ends_with("/sandboxes")
    }

    pub(crate) fn makes_a_pod(&self) -> bool {
        self.method == Method::POST && self.path.ends_with("/pods")
    }
}

/// What becomes of the first request that is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It reaches the server only when it is let go, whatever becomes of whoever sent it.
    Late,
    /// It is done, the answer is lost, and the watches of this resource tell nothing of it.
    Unanswered(&'static str),
}

/// How far the first request that is meant has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    Unsent,
    OnTheWire,
    LetGo,
    Arrived,
}

/// Clones are one wire.
#[derive(Clone)]
pub(crate) struct Wire {
    fate: Fate,
    is_meant: fn(&Sent) -> bool,
    /// What the requests that are meant were about.
    meant: Arc<Mutex<Vec<String>>>,
    progress: watch::Sender<Progress>,
    /// Resources of which watches tell nothing.
    silent: watch::Sender<Option<&'static str>>,
    /// What hangs for ever once the request was let go.
    hanging: fn(&Sent) -> bool,
}

impl Wire {
    pub(crate) fn new(fate: Fate, is_meant: fn(&Sent) -> bool) -> Self {
        Self {
            fate,
            is_meant,
            meant: Arc::default(),
            progress: watch::Sender::new(Progress::Unsent),
            silent: watch::Sender::new(None),
            hanging: |_| false,
        }
    }

    pub(crate) fn hanging_then(self, hanging: fn(&Sent) -> bool) -> Self {
        Self { hanging, ..self }
    }

    pub(crate) fn to(&self, server: Client) -> Client {
        let namespace = server.default_namespace().to_owned();
        let wire = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (wire, server) = (wire.clone(), server.clone());
            async move {
                let uri = request.uri().to_string();
                let silent = wire.silent.clone();
                let response = wire.pass(server, request).await?;
                let frames = move |body| {
                    BodyStream::new(body).then(move |frame| {
                        let (mut silent, uri) = (silent.subscribe(), uri.clone());
                        async move {
                            let tells = |of: &Option<&str>| !of.is_some_and(|of| watches(&uri, of));
                            drop(silent.wait_for(tells).await);
                            frame
                        }
                    })
                };
                let response = response.map(|body| StreamBody::new(frames(body).boxed()));
                Ok::<_, kube::Error>(response)
            }
        });
        Client::new(service, namespace)
    }

    async fn pass(
        self,
        server: Client,
        request: Request<Body>,
    ) -> Result<Response<Body>, kube::Error> {
        let (head, body) = request.into_parts();
        let bytes = body.collect_bytes().await?.to_vec();
        let sent = Sent {
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
        };
        let request = Request::from_parts(head, Body::from(bytes));
        if *self.progress.borrow() >= Progress::LetGo && (self.hanging)(&sent) {
            return std::future::pending().await;
        }
        let is_first = (self.is_meant)(&sent) && self.note(&sent) == 1;
        if !is_first {
            return server.send(request).await;
        }
        self.progress.send_replace(Progress::OnTheWire);
        match self.fate {
            Fate::Late => {
                let late = tokio::spawn(async move {
                    self.until(Progress::LetGo).await;
                    let answer = server.send(request).await;
                    self.progress.send_replace(Progress::Arrived);
                    answer
                });
                late.await.unwrap()
            }
            Fate::Unanswered(resource) => {
                self.silence(resource);
                server.send(request).await?;
                self.progress.send_replace(Progress::Arrived);
                Err(kube::Error::Service("the answer was lost".into()))
            }
        }
    }

    pub(crate) async fn until(&self, wanted: Progress) {
        let mut progress = self.progress.subscribe();
        progress.wait_for(|now| *now == wanted).await.unwrap();
    }

    /// Lets a late request go, and waits until it has arrived.
    pub(crate) async fn let_go(&self) {
        self.progress.send_replace(Progress::LetGo);
        self.until(Progress::Arrived).await;
    }

    /// How many requests that are meant there were with this one.
    fn note(&self, sent: &Sent) -> usize {
        let name = sent.path.rsplit('/').next().unwrap_or_default();
        let mut meant = self.meant.lock().unwrap();
        meant.push(name.to_owned());
        meant.len()
    }

    /// What the requests of the kind that is meant were about, one name for each of them.
    pub(crate) fn meant(&self) -> Vec<String> {
        self.meant.lock().unwrap().clone()
    }

    pub(crate) fn silence(&self, resource: &'static str) {
        self.silent.send_replace(Some(resource));
    }

    pub(crate) fn speak(&self) {
        self.silent.send_replace(None);
    }
}

fn watches(uri: &str, resource: &str) -> bool {
    uri.contains("watch=true") && uri.contains(&format!("/{resource}?"))
}

/// How many requests the server has answered.
#[derive(Clone, Default)]
pub(crate) struct Answers(Arc<AtomicUsize>);

impl Answers {
    pub(crate) fn counted(&self, server: Client) -> Client {
        let namespace = server.default_namespace().to_owned();
        let answers = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (server, answers) = (server.clone(), answers.clone());
            async move {
                let answer = server.send(request).await;
                answers.0.fetch_add(1, Ordering::Relaxed);
                answer
            }
        });
        Client::new(service, namespace)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

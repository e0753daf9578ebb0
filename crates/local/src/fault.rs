//! Things that go wrong between a controller and the API, at a chosen request.
//!
//! [`Faults::client`] puts itself between any client and its server. A run of a scenario makes
//! requests 0, 1, 2, …; a [`Fault`] strikes at one of them. [`every_point`] repeats a scenario with
//! the fault at each request in turn, until a run no longer gets that far.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use tokio::sync::watch;
use tower::BoxError;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The caller dies before the request leaves.
    DieBefore,
    /// The caller dies after the server has committed, before it learns of it.
    DieAfter,
    /// The server refuses.
    Refuse(Refusal),
    /// The server commits, and the answer is lost.
    LoseAnswer,
    /// The request reaches the server only after [`Faults::release`], and no other follows: what a leader had on the wire
    /// when it lost its lease.
    Hold,
    /// Watches deliver nothing for a while: the cache is old.
    StallWatches(Duration),
    /// Watches break, and when they come back they begin at the oldest version ever watched from.
    RewindWatches,
    /// The server has forgotten where watches were. The lists that take their place are read at once and arrive late: what
    /// happens meanwhile is not in them.
    LateLists(Duration),
}

impl Fault {
    /// What strikes one request, or breaks a watch, and is over.
    pub const SUDDEN: [Fault; 7] = [
        Fault::DieBefore,
        Fault::DieAfter,
        Fault::Refuse(Refusal::Conflict),
        Fault::Refuse(Refusal::TooManyRequests),
        Fault::Refuse(Refusal::ServerError),
        Fault::LoseAnswer,
        Fault::RewindWatches,
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    Conflict,
    TooManyRequests,
    ServerError,
}

impl Refusal {
    fn answer(self) -> Response<UnsyncBoxBody<Bytes, BoxError>> {
        let (code, reason) = match self {
            Self::Conflict => (StatusCode::CONFLICT, "Conflict"),
            Self::TooManyRequests => (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
            Self::ServerError => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        };
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure",
            "message": "injected fault", "reason": reason, "code": code.as_u16(),
        });
        let mut response = Response::new(
            Full::from(status.to_string())
                .map_err(Into::into)
                .boxed_unsync(),
        );
        *response.status_mut() = code;
        response
    }
}

/// One request that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    pub method: Method,
    pub path: String,
    /// What struck here.
    pub struck: Option<Fault>,
}

#[derive(Debug, thiserror::Error)]
#[error("injected fault: the answer to {method} {path} was lost")]
struct AnswerLost {
    method: Method,
    path: String,
}

/// The faults of one run, shared by all clients made from it.
#[derive(Clone)]
pub struct Faults {
    shared: Arc<Shared>,
}

struct Shared {
    plan: Option<(usize, Fault)>,
    state: Mutex<State>,
    gate: watch::Sender<Gate>,
}

#[derive(Default)]
struct State {
    points: Vec<Point>,
    oldest_watch: Option<u64>,
    rewind: bool,
}

/// What requests and watch streams wait for.
#[derive(Clone, Copy, Default)]
struct Gate {
    dead: bool,
    held: bool,
    released: bool,
    stalled: bool,
    expired: bool,
    /// Watch streams of an earlier epoch end.
    epoch: u64,
}

impl Faults {
    /// Counts requests and lets all of them pass.
    pub fn none() -> Self {
        Self::planned(None)
    }

    /// Strikes at the request of this index, counted from 0.
    pub fn at(index: usize, fault: Fault) -> Self {
        Self::planned(Some((index, fault)))
    }

    fn planned(plan: Option<(usize, Fault)>) -> Self {
        let (gate, _) = watch::channel(Gate::default());
        Self {
            shared: Arc::new(Shared {
                plan,
                state: Mutex::default(),
                gate,
            }),
        }
    }

    /// A client whose requests pass through here.
    pub fn client(&self, inner: kube::Client) -> kube::Client {
        let namespace = inner.default_namespace().to_owned();
        let faults = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (faults, inner) = (faults.clone(), inner.clone());
            async move { faults.pass(&inner, request).await }
        });
        kube::Client::new(service, namespace)
    }

    /// All requests so far.
    pub fn points(&self) -> Vec<Point> {
        self.state().points.clone()
    }

    /// Whether the fault has struck.
    pub fn struck(&self) -> bool {
        self.state()
            .points
            .iter()
            .any(|point| point.struck.is_some())
    }

    /// Resolves when the caller has died or hangs, which is when a successor would take over. The
    /// requests of one that died hang from then on; its task is the test's to abort.
    pub async fn stopped(&self) {
        // the sender lives in `self`
        let _ = self
            .shared
            .gate
            .subscribe()
            .wait_for(|gate| gate.dead || gate.held)
            .await;
    }

    /// Whether watches deliver nothing at present, or a request still hangs.
    pub fn is_waiting(&self) -> bool {
        let gate = *self.shared.gate.borrow();
        gate.stalled || (gate.held && !gate.released)
    }

    /// Lets a held request go, and watches that deliver nothing deliver.
    pub fn release(&self) {
        self.shared.gate.send_modify(|gate| {
            gate.released = true;
            gate.stalled = false;
            gate.expired = false;
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the request and tells what strikes it.
    fn note(&self, request: &Request<Body>) -> Option<Fault> {
        let mut state = self.state();
        let index = state.points.len();
        let struck = self
            .shared
            .plan
            .filter(|(at, _)| *at == index)
            .map(|(_, fault)| fault);
        state.points.push(Point {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            struck,
        });
        struck
    }

    async fn pass(
        &self,
        inner: &kube::Client,
        mut request: Request<Body>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError> {
        let Gate { dead, held, .. } = *self.shared.gate.borrow();
        if dead || held {
            return std::future::pending().await;
        }
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let fault = self.note(&request);
        match fault {
            Some(Fault::Refuse(refusal)) => return Ok(refusal.answer()),
            Some(Fault::DieBefore) => return self.die().await,
            Some(Fault::Hold) => {
                self.shared.gate.send_modify(|gate| gate.held = true);
                let _ = self
                    .shared
                    .gate
                    .subscribe()
                    .wait_for(|gate| gate.released)
                    .await;
            }
            Some(Fault::StallWatches(time)) => self.stall(time),
            Some(Fault::RewindWatches) => {
                self.state().rewind = true;
                self.shared.gate.send_modify(|gate| gate.epoch += 1);
            }
            Some(Fault::LateLists(time)) => self.expire(time),
            Some(Fault::DieAfter | Fault::LoseAnswer) | None => {}
        }
        let (watching, listing) = (is_watch(&request), is_list(&request));
        if watching && self.shared.gate.borrow().expired {
            return Ok(too_old());
        }
        if watching {
            self.rewind(&mut request)?;
        }
        let response = inner.send(request).await?;
        if listing {
            let mut gate = self.shared.gate.subscribe();
            let _ = gate.wait_for(|gate| !gate.expired).await;
        }
        match fault {
            Some(Fault::DieAfter) => self.die().await,
            Some(Fault::LoseAnswer) => Err(AnswerLost { method, path }.into()),
            _ if watching => Ok(response.map(|body| self.gated(body))),
            _ => Ok(response.map(|body| body.map_err(Into::into).boxed_unsync())),
        }
    }

    async fn die<T>(&self) -> T {
        self.shared.gate.send_modify(|gate| gate.dead = true);
        std::future::pending().await
    }

    fn stall(&self, time: Duration) {
        self.for_a_while(time, |gate, is_on| gate.stalled = is_on);
    }

    fn expire(&self, time: Duration) {
        self.for_a_while(time, |gate, is_on| gate.expired = is_on);
        self.shared.gate.send_modify(|gate| gate.epoch += 1);
    }

    fn for_a_while(&self, time: Duration, set: fn(&mut Gate, bool)) {
        self.shared.gate.send_modify(|gate| set(gate, true));
        let faults = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            faults.shared.gate.send_modify(|gate| set(gate, false));
        });
    }

    /// Remembers where watches begin, and sends one back there if it is due.
    fn rewind(&self, request: &mut Request<Body>) -> Result<(), BoxError> {
        let Some(version) = query(request, "resourceVersion").and_then(|text| text.parse().ok())
        else {
            return Ok(());
        };
        let mut state = self.state();
        let oldest = state
            .oldest_watch
            .map_or(version, |oldest| oldest.min(version));
        state.oldest_watch = Some(oldest);
        if std::mem::take(&mut state.rewind) {
            let from = format!("resourceVersion={version}");
            let uri = request
                .uri()
                .to_string()
                .replace(&from, &format!("resourceVersion={oldest}"));
            *request.uri_mut() = uri.parse()?;
        }
        Ok(())
    }

    /// The stream of a watch, held back while watches are stalled and ended when they break.
    fn gated(&self, body: Body) -> UnsyncBoxBody<Bytes, BoxError> {
        let gate = self.shared.gate.subscribe();
        let epoch = gate.borrow().epoch;
        let frames = body
            .into_data_stream()
            .map(|chunk| chunk.map_err(Into::into));
        StreamBody::new(through(gate, epoch, Box::pin(frames)).map(|chunk| chunk.map(Frame::data)))
            .boxed_unsync()
    }
}

fn through<S>(
    gate: watch::Receiver<Gate>,
    epoch: u64,
    chunks: S,
) -> impl Stream<Item = Result<Bytes, BoxError>>
where
    S: Stream<Item = Result<Bytes, BoxError>> + Unpin,
{
    stream::unfold((gate, chunks), move |(mut gate, mut chunks)| async move {
        let broken = {
            let mut gate = gate.clone();
            async move { gate.wait_for(|gate| gate.epoch != epoch).await.map(drop) }
        };
        let next = async {
            let chunk = chunks.next().await;
            let _ = gate.wait_for(|gate| !gate.stalled).await;
            chunk
        };
        tokio::select! {
            biased;
            _ = broken => None,
            chunk = next => chunk.map(|chunk| (chunk, (gate, chunks))),
        }
    })
}

/// What a server says to a watch from a version that it has no history of any more.
fn too_old() -> Response<UnsyncBoxBody<Bytes, BoxError>> {
    let event = serde_json::json!({"type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "injected fault", "reason": "Expired", "code": 410,
    }});
    let body = Full::new(Bytes::from(format!("{event}\n")));
    Response::new(body.map_err(Into::into).boxed_unsync())
}

/// Whether it reads a page of a list.
fn is_list(request: &Request<Body>) -> bool {
    query(request, "limit").is_some()
}

fn is_watch(request: &Request<Body>) -> bool {
    query(request, "watch").is_some_and(|value| value == "true" || value == "1")
}

fn query<'a>(request: &'a Request<Body>, name: &str) -> Option<&'a str> {
    let mut pairs = request
        .uri()
        .query()?
        .split('&')
        .filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Where faults struck, over all runs of a scenario.
#[derive(Debug, Default)]
pub struct Report {
    pub runs: usize,
    /// Fault and method → how many requests it struck.
    pub struck: BTreeMap<(Fault, String), usize>,
}

/// Runs the scenario once for each fault and each of its requests. The scenario asserts what must
/// hold afterwards; one that fails names the fault and the request through `Faults::points`.
pub async fn every_point(faults: &[Fault], scenario: impl AsyncFn(Faults)) -> Report {
    points(faults, 0, 1, scenario).await
}

/// Tells which fault a scenario did not survive.
struct Witness<'a>(&'a Faults);

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let points = self.0.points();
            let struck = points.iter().enumerate();
            let struck = struck.filter(|(_, point)| point.struck.is_some());
            eprintln!("the fault was {:?}", struck.collect::<Vec<_>>());
        }
    }
}

/// The same at every so-manieth request only, the first of them with each fault another one: a sample for when time is short.
pub async fn points(
    faults: &[Fault],
    first: usize,
    stride: usize,
    scenario: impl AsyncFn(Faults),
) -> Report {
    let stride = stride.max(1);
    let mut report = Report::default();
    for (turn, fault) in faults.iter().enumerate() {
        for index in ((first + turn) % stride..).step_by(stride) {
            let run = Faults::at(index, *fault);
            let witness = Witness(&run);
            scenario(run.clone()).await;
            drop(witness);
            report.runs += 1;
            let struck = run
                .points()
                .into_iter()
                .find(|point| point.struck.is_some());
            let Some(point) = struck else { break };
            *report
                .struck
                .entry((*fault, point.method.to_string()))
                .or_default() += 1;
        }
    }
    report
}

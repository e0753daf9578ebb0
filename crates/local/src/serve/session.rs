//! The requests of one connection, and how they end when the server does.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tower::Service;

/// How far a server is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Open,
    /// What would go on for ever ends; what is being answered is answered.
    Ending,
    /// Nothing goes on.
    Over,
}

/// Resolves when the server has come to `phase`.
pub(super) async fn reached(mut now: watch::Receiver<Phase>, phase: Phase) {
    // an error says that the server is no more, which is past every phase
    let _ = now.wait_for(|now| *now >= phase).await;
}

/// What a request carries so that its connection may become a stream: whoever holds it is a connection still, counted as
/// one, and waited for when the server stops.
#[derive(Clone)]
pub(crate) struct Tenure {
    phase: watch::Receiver<Phase>,
    _slot: Arc<OwnedSemaphorePermit>,
}

impl Tenure {
    /// Resolves when the server is to stop.
    pub(crate) async fn ending(self) {
        reached(self.phase, Phase::Ending).await;
    }
}

/// The service of one connection.
#[derive(Clone)]
pub(super) struct Session<S> {
    inner: S,
    phase: watch::Receiver<Phase>,
    slot: Arc<OwnedSemaphorePermit>,
    used: Arc<AtomicBool>,
}

impl<S> Session<S> {
    pub(super) fn new(
        inner: S,
        phase: watch::Receiver<Phase>,
        slot: OwnedSemaphorePermit,
    ) -> Session<S> {
        Session {
            inner,
            phase,
            slot: Arc::new(slot),
            used: Arc::default(),
        }
    }

    /// Tells whether there has been a request.
    pub(super) fn used(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.used)
    }
}

impl<S, In, Out> Service<Request<In>> for Session<S>
where
    S: Service<Request<In>, Response = Response<Out>, Error = Infallible>,
    S::Future: Send + 'static,
    Out: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<Ending<Out>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<In>) -> Self::Future {
        self.used.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(Tenure {
            phase: self.phase.clone(),
            _slot: Arc::clone(&self.slot),
        });
        let answer = self.inner.call(request);
        let phase = self.phase.clone();
        async move {
            tokio::select! {
                biased;
                answer = answer => answer.map(|answer| answer.map(|body| Ending::new(body, phase))),
                // the task of a request outlives its connection, and must not outlive the server
                () = reached(phase.clone(), Phase::Over) => {
                    let mut gone = Response::new(Ending::nothing());
                    *gone.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                    Ok(gone)
                }
            }
        }
        .boxed()
    }
}

/// A body that ends, in good order, when the server does and there is nothing more to send at that moment: so
/// end watches, which otherwise go on for ever.
pub(super) struct Ending<B> {
    body: Option<Pin<Box<B>>>,
    /// Absent where the whole body is there from the start.
    end: Option<BoxFuture<'static, ()>>,
}

impl<B: Body> Ending<B> {
    fn new(body: B, phase: watch::Receiver<Phase>) -> Ending<B> {
        let is_complete = body.size_hint().exact().is_some();
        Ending {
            body: Some(Box::pin(body)),
            end: (!is_complete).then(|| reached(phase, Phase::Ending).boxed()),
        }
    }

    fn nothing() -> Ending<B> {
        Ending {
            body: None,
            end: None,
        }
    }
}

impl<B: Body<Data = Bytes>> Body for Ending<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(frame) = body.as_mut().poll_frame(cx) {
            return Poll::Ready(frame);
        }
        let is_over = |end: &mut BoxFuture<'static, ()>| end.as_mut().poll(cx).is_ready();
        if self.end.as_mut().is_some_and(is_over) {
            self.body = None;
            return Poll::Ready(None);
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let none = || SizeHint::with_exact(0);
        self.body
            .as_ref()
            .map_or_else(none, |body| body.size_hint())
    }
}

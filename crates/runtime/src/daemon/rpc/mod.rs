//! Remote calls in the Connect and gRPC wire formats, JSON and protobuf.
//!
//! `call` reads from a request's headers how it is to be answered, `envelope` takes a request's body apart, `codec` turns bytes
//! into messages. Here are the three kinds of methods.

mod call;
mod codec;
mod envelope;

use std::future::Future;
use std::marker::PhantomData;

use http::{Response, StatusCode};
use hyper::body::Incoming;

pub(crate) use self::call::{Call, grpc_type, refuse, refuse_in_grpc};
pub(crate) use self::codec::{Ask, Codec, Tell, from_json};
pub(crate) use self::envelope::Requests;
#[cfg(feature = "fuzz")]
pub(crate) use self::envelope::{Messages, Read};
use super::body::{Body, Piece};
use super::channel;
use super::error::Error;

/// One message in, one out.
pub(crate) async fn unary<Q: Ask, A: Tell, F>(
    call: Call,
    body: Incoming,
    work: impl FnOnce(Q) -> F,
) -> Response<Body>
where
    F: Future<Output = Result<A, Error>>,
{
    if call.is_connect_stream() {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    let outcome = call.within_deadline(async {
        let request = envelope::read_one(&call, body).await?;
        work(request).await
    });
    let outcome = outcome.await;
    call.answer_once(outcome)
}

/// Many messages in, one out.
pub(crate) async fn client_stream<Q: Ask, A: Tell, F>(
    call: Call,
    body: Incoming,
    work: impl FnOnce(Requests<Q>) -> F,
) -> Response<Body>
where
    F: Future<Output = Result<A, Error>>,
{
    if call.is_connect_unary() {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    let requests = Requests::new(&call, body);
    let outcome = call.within_deadline(work(requests)).await;
    call.answer_once(outcome)
}

/// One message in, many out. The work is dropped when the client leaves and when its time is over.
pub(crate) async fn server_stream<Q: Ask, A: Tell, F>(
    call: Call,
    body: Incoming,
    work: impl FnOnce(Q, Sink<A>) -> F,
) -> Response<Body>
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    if call.is_connect_unary() {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    let (pieces, receiver) = channel::bounded(1);
    let sink = Sink {
        pieces: pieces.clone(),
        codec: call.codec(),
        message: PhantomData,
    };
    let head = call.stream_of(Body::Pieces(receiver));
    let request = envelope::read_one(&call, body).await;
    // boxed, because each future that another is made of holds all of it again
    let work = |request| Box::pin(work(request, sink));
    let work = call.check().and(request).map(work);
    tokio::spawn(async move {
        let all = call.within_deadline(async { work?.await });
        let outcome = tokio::select! {
            outcome = all => outcome,
            () = pieces.closed() => return,
        };
        // a client that has left meanwhile misses nothing
        let _ = pieces.send(call.end_of_stream(outcome)).await;
    });
    head
}

/// Where the messages of a server stream go.
pub(crate) struct Sink<A> {
    pieces: channel::Sender<Piece>,
    codec: Codec,
    message: PhantomData<fn(A)>,
}

impl<A: Tell> Sink<A> {
    /// Waits until the client has taken what was sent before.
    pub(crate) async fn send(&self, message: &A) -> Result<(), Error> {
        let piece = Piece::Data(self.codec.enclose(message)?);
        let gone = |_| Error::broken("the client has left");
        self.pieces.send(piece).await.map_err(gone)
    }
}

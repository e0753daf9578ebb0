//! The TLS listener: many clients, of whom none can hold up another.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::Service;

use super::session::{Phase, Session, reached};

/// How much and how long a client may ask for.
#[derive(Debug, Clone)]
pub struct Limits {
    /// More wait until others have gone. Well below the 1024 files that a process usually may open.
    pub connections: usize,
    /// For the TLS handshake, and then again for the first request.
    pub patience: Duration,
    /// How long a connection of HTTP/1.1 may be idle or send the head of its next request.
    pub idle: Duration,
    /// How often a silent peer is asked whether it is still there, and how long it has for the answer.
    pub ping: Duration,
    /// How long requests may go on once the server is to stop.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 512,
            patience: Duration::from_secs(10),
            idle: Duration::from_secs(90),
            ping: Duration::from_secs(30),
            grace: Duration::from_secs(5),
        }
    }
}

/// A client of HTTP/2 has one connection, and each of its watches is a stream in it.
const STREAMS: u32 = 1000;

/// What can be served: any service whose clones answer requests of their own.
pub trait Serves:
    Service<
        Request<Incoming>,
        Response = Response<Self::Out>,
        Error = Infallible,
        Future: Send + 'static,
    > + Clone
    + Send
    + 'static
{
    type Out: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;
}

impl<S, Out> Serves for S
where
    S: Service<Request<Incoming>, Response = Response<Out>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
    Out: Body<Data = Bytes> + Send + 'static,
    Out::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Out = Out;
}

/// Serves until `stop` resolves; then watches end, requests get the grace of `limits`, and what is left is dropped.
pub async fn serve<S: Serves>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    service: S,
    limits: Limits,
    stop: impl Future<Output = ()>,
) {
    let (phase, now) = watch::channel(Phase::Open);
    let mut server = Server {
        listener,
        tls: TlsAcceptor::from(tls),
        slots: Arc::new(Semaphore::new(limits.connections)),
        limits,
        connections: JoinSet::new(),
    };
    tokio::select! {
        () = stop => {}
        () = server.accept_all(service, &now) => {}
    }
    let Server {
        mut connections,
        limits,
        listener,
        ..
    } = server;
    drop(listener);
    phase.send_replace(Phase::Ending);
    let all_gone = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(limits.grace, all_gone).await;
    phase.send_replace(Phase::Over);
    connections.shutdown().await;
    // whoever works on a request holds a receiver: now the service is nobody's
    drop(now);
    let _ = timeout(limits.grace, phase.closed()).await;
}

struct Server {
    listener: TcpListener,
    tls: TlsAcceptor,
    slots: Arc<Semaphore>,
    limits: Limits,
    connections: JoinSet<()>,
}

impl Server {
    async fn accept_all<S: Serves>(&mut self, service: S, now: &watch::Receiver<Phase>) {
        loop {
            let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await else {
                return;
            };
            let stream = accept(&self.listener).await;
            while self.connections.try_join_next().is_some() {}
            let connection = Connection {
                tls: self.tls.clone(),
                limits: self.limits.clone(),
                now: now.clone(),
            };
            let session = Session::new(service.clone(), now.clone(), slot);
            self.connections.spawn(connection.run(stream, session));
        }
    }
}

/// The next connection. A process that may open no more files waits for some to be closed.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Answers are small and somebody waits for each. A peer that is gone is noticed even where nothing is sent, as
/// in a watch over HTTP/1.1.
fn prepare(stream: &TcpStream, ping: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, ping)?;
    sockopt::set_tcp_keepintvl(stream, ping)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

struct Connection {
    tls: TlsAcceptor,
    limits: Limits,
    now: watch::Receiver<Phase>,
}

impl Connection {
    async fn run<S: Serves>(self, stream: TcpStream, session: Session<S>) {
        if prepare(&stream, self.limits.ping).is_err() {
            return;
        }
        let handshake = timeout(self.limits.patience, self.tls.accept(stream));
        let shaken = tokio::select! {
            shaken = handshake => shaken,
            () = reached(self.now.clone(), Phase::Ending) => return,
        };
        if let Ok(Ok(stream)) = shaken {
            self.answer(stream, session).await;
        }
    }

    async fn answer<S: Serves>(self, stream: TlsStream<TcpStream>, session: Session<S>) {
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let used = session.used();
        let builder = builder(is_http2, &self.limits);
        let service = TowerToHyperService::new(session);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let mut patience = pin!(sleep(self.limits.patience));
        let mut ending = pin!(reached(self.now.clone(), Phase::Ending));
        let (mut has_waited, mut is_ending) = (false, false);
        loop {
            tokio::select! {
                _ = &mut connection => return,
                () = &mut patience, if !has_waited => has_waited = true,
                () = &mut ending, if !is_ending => {
                    is_ending = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
            if !used.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

fn builder(is_http2: bool, limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(limits.ping)
        .keep_alive_timeout(limits.ping);
    if is_http2 {
        builder.http2_only()
    } else {
        builder.http1_only()
    }
}

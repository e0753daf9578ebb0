//! Connections: HTTP/1.1, and HTTP/2 for clients that begin with its preface.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::body::Body;
use super::handover::Handover;
use super::options::Options;
use super::upgrade::{Inherit, state};
use super::{Daemon, legacy, log, route, rpc, sandboxd, sys};

/// Longer than proxies in front keep a connection, so that it is never the daemon who closes one that is about to be used.
const IDLE: Duration = Duration::from_secs(640);

/// After an error of `accept` such as too many open files; at once it would only come again.
const PAUSE: Duration = Duration::from_millis(50);

/// Not after each of many short connections.
const TIDY_AFTER: Duration = Duration::from_secs(5);

/// How long one who has connected may take to ask something when the daemon is about to be replaced.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// How a client of HTTP/2 begins, and no request of HTTP/1.1 that could be answered.
const HTTP2: [u8; 3] = *b"PRI";

/// Nobody sends a part of so few bytes; one who does is asked for the rest a second long.
const LOOKS: u32 = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What a client may send ahead on HTTP/2; the protocol's own 64 KiB would slow uploads down.
const WINDOW: u32 = 1 << 20;

/// What is spoken on a port. Daemons that take over know them by number.
#[derive(Clone, Copy)]
enum Api {
    Envd = 0,
    Legacy = 1,
    Sandboxd = 2,
}

impl Api {
    async fn answer(
        self,
        daemon: Arc<Daemon>,
        request: http::Request<Incoming>,
    ) -> http::Response<Body> {
        let handover = Arc::clone(&daemon.handover);
        // clients of the others cannot come back to what another daemon has taken over
        let _finished_first = (!self.is_envd()).then(|| handover.finishing());
        let grpc = rpc::grpc_type(&request);
        let response = match self {
            Self::Envd => route::answer(daemon, request).await,
            Self::Legacy => legacy::answer(daemon, request).await,
            Self::Sandboxd => sandboxd::answer(daemon, request).await,
        };
        match grpc {
            Some(content_type) if response.status() != StatusCode::OK => {
                rpc::refuse_in_grpc(content_type, response)
            }
            _ => response,
        }
    }

    fn is_envd(self) -> bool {
        matches!(self, Self::Envd)
    }
}

pub(super) struct Listener {
    api: Api,
    socket: TcpListener,
}

/// E2B's first.
pub(super) async fn listen_all(options: &Options) -> io::Result<Vec<Arc<Listener>>> {
    let legacy = options.legacy_port.map(|port| (Api::Legacy, port));
    let sandboxd = options
        .sandboxd_ports
        .iter()
        .map(|port| (Api::Sandboxd, *port));
    let mut listeners = Vec::new();
    for (api, port) in [(Api::Envd, options.port)]
        .into_iter()
        .chain(legacy)
        .chain(sandboxd)
    {
        let socket = listen(options.host, port).await?;
        listeners.push(Arc::new(Listener { api, socket }));
    }
    Ok(listeners)
}

pub(super) fn hand_over(
    listeners: &[Arc<Listener>],
    inherit: Inherit,
) -> io::Result<Vec<state::Listener>> {
    let left = listeners.iter().map(|listener| {
        let fd = inherit(listener.socket.as_fd())?;
        let api = listener.api as u32;
        Ok(state::Listener { api, fd })
    });
    left.collect()
}

/// One of an API that is not known here is closed.
pub(super) fn take_over(left: Vec<state::Listener>) -> io::Result<Vec<Arc<Listener>>> {
    let mut listeners = Vec::new();
    for state::Listener { api, fd } in left {
        let socket = std::net::TcpListener::from(sys::inherited(fd)?);
        let known = [Api::Envd, Api::Legacy, Api::Sandboxd];
        if let Some(api) = known.into_iter().find(|known| *known as u32 == api) {
            let socket = TcpListener::from_std(socket)?;
            listeners.push(Arc::new(Listener { api, socket }));
        }
    }
    Ok(listeners)
}

async fn listen(host: IpAddr, port: u16) -> io::Result<TcpListener> {
    let address = SocketAddr::new(host, port);
    let refused =
        |e: io::Error| io::Error::new(e.kind(), format!("cannot listen on {address}: {e}"));
    match TcpListener::bind(address).await {
        // a machine without IPv6
        Err(_) if address.ip().is_unspecified() && address.is_ipv6() => {
            let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
            TcpListener::bind(any).await.map_err(refused)
        }
        bound => bound.map_err(refused),
    }
}

/// Whoever started the daemon reads from the first line where it is, and that it serves.
pub(super) fn announce(listeners: &[Arc<Listener>]) -> io::Result<()> {
    let mut out = io::stdout();
    for listener in listeners {
        let address = listener.socket.local_addr()?;
        let what = match listener.api {
            Api::Envd => "listening",
            Api::Legacy => "legacy",
            Api::Sandboxd => "sandboxd",
        };
        // nobody may be reading, which is no reason to stop
        let _ = writeln!(out, "{what} on {address}").and_then(|()| out.flush());
    }
    Ok(())
}

pub(super) async fn accept_all(daemon: &Arc<Daemon>) -> io::Result<()> {
    let closed = Arc::new(Notify::new());
    for listener in &daemon.listeners {
        let listener = Arc::clone(listener);
        tokio::spawn(accept(listener, Arc::clone(daemon), Arc::clone(&closed)));
    }
    tidy_up(closed).await
}

async fn accept(listener: Arc<Listener>, daemon: Arc<Daemon>, closed: Arc<Notify>) {
    let api = listener.api;
    loop {
        daemon.handover.serving().await;
        let accepted = tokio::select! {
            accepted = listener.socket.accept() => accepted,
            () = daemon.handover.draining() => continue,
        };
        match accepted {
            Ok((connection, _)) => {
                let (daemon, closed) = (Arc::clone(&daemon), Arc::clone(&closed));
                // here and not in the task, before which the daemon may be replaced
                let connected = daemon.handover.connected();
                tokio::spawn(async move {
                    let _connected = connected;
                    serve(connection, api, daemon).await;
                    closed.notify_one();
                });
            }
            Err(error) => {
                log(format_args!("cannot accept a connection: {error}"));
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// A sandbox is idle most of its life, and shall not hold what its busiest moment needed.
async fn tidy_up(closed: Arc<Notify>) -> io::Result<()> {
    loop {
        closed.notified().await;
        tokio::time::sleep(TIDY_AFTER).await;
        sys::give_back_memory();
    }
}

async fn serve(connection: TcpStream, api: Api, daemon: Arc<Daemon>) {
    // events are small and must not wait for each other
    let _ = connection.set_nodelay(true);
    // a client whose machine is gone says nothing, and would be waited for for ever
    let _ = set_socket_keepalive(&connection, true);
    let _ = set_tcp_keepidle(&connection, IDLE);
    let asked = Notify::new();
    let service = service_fn(|request: http::Request<Incoming>| {
        asked.notify_one();
        let daemon = Arc::clone(&daemon);
        // boxed, what answering needs is gone when the answer has begun, and not only when a stream of hours has ended
        Box::pin(async move { Ok::<_, Infallible>(api.answer(daemon, request).await) })
    });
    let handover = &daemon.handover;
    let begun = tokio::select! {
        begun = tokio::time::timeout(IDLE, begins_http2(&connection)) => begun,
        () = handover.closing() => tokio::time::timeout(FIRST_REQUEST, begins_http2(&connection)).await,
    };
    let Ok(is_http2) = begun else {
        return;
    };
    let io = TokioIo::new(connection);
    // a client that breaks the protocol or leaves ends its own connection only
    if is_http2 {
        let mut server = http2::Builder::new(TokioExecutor::new());
        server
            .timer(TokioTimer::new())
            .keep_alive_interval(IDLE)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(4 * WINDOW);
        let connection = Box::pin(server.serve_connection(io, service));
        attend(connection, &asked, handover).await;
    } else {
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(IDLE);
        let connection = Box::pin(server.serve_connection(io, service));
        attend(connection, &asked, handover).await;
    }
}

/// Whether a client begins as those of HTTP/2 do. What it sent stays unread: hyper doubles its buffer for one who has begun to read
/// already, and that is kept as long as the connection.
async fn begins_http2(connection: &TcpStream) -> bool {
    let mut begin = [0; HTTP2.len()];
    for _ in 0..LOOKS {
        let length = connection.peek(&mut begin).await.unwrap_or_default();
        let is_part = (1..HTTP2.len()).contains(&length) && HTTP2.starts_with(&begin[..length]);
        if !is_part {
            return begin[..length] == HTTP2;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    false
}

/// Serves a connection to its end. If the daemon is about to be replaced, to the end of the request that is being answered.
async fn attend<C>(mut connection: Pin<Box<C>>, asked: &Notify, handover: &Handover)
where
    C: GracefulConnection,
{
    tokio::select! {
        _ = &mut connection => return,
        () = handover.closing() => {}
    }
    // one that was just accepted is about to ask something, and would be closed in its face
    tokio::select! {
        _ = &mut connection => return,
        _ = tokio::time::timeout(FIRST_REQUEST, asked.notified()) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

//! Connections: HTTP/1.1, and HTTP/2 for clients that begin with its preface.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::options::Options;
use super::{Daemon, route, sys};

/// Longer than proxies in front keep a connection, so that it is never the daemon who closes one that is about to be used.
const IDLE: Duration = Duration::from_secs(640);

/// After an error of `accept` such as too many open files; at once it would only come again.
const PAUSE: Duration = Duration::from_millis(50);

/// Not after each of many short connections.
const TIDY_AFTER: Duration = Duration::from_secs(5);

/// How long one who has connected may take to ask something when the daemon is about to be replaced.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// What a client may send ahead on HTTP/2; the protocol's own 64 KiB would slow uploads down.
const WINDOW: u32 = 1 << 20;

pub(super) async fn listen(options: &Options) -> io::Result<TcpListener> {
    let address = SocketAddr::new(options.host, options.port);
    let refused =
        |e: io::Error| io::Error::new(e.kind(), format!("cannot listen on {address}: {e}"));
    match TcpListener::bind(address).await {
        // a machine without IPv6
        Err(_) if address.ip().is_unspecified() && address.is_ipv6() => {
            let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), options.port);
            TcpListener::bind(any).await.map_err(refused)
        }
        bound => bound.map_err(refused),
    }
}

/// Whoever started the daemon reads from this line where it is, and that it serves.
pub(super) fn announce(listener: &TcpListener) -> io::Result<()> {
    let address = listener.local_addr()?;
    let mut out = io::stdout();
    // nobody may be reading, which is no reason to stop
    let _ = writeln!(out, "listening on {address}").and_then(|()| out.flush());
    Ok(())
}

pub(super) async fn accept(daemon: Arc<Daemon>) -> io::Result<()> {
    let closed = Arc::new(Notify::new());
    tokio::spawn(tidy_up(Arc::clone(&closed)));
    loop {
        daemon.handover.serving().await;
        let accepted = tokio::select! {
            accepted = daemon.listener.accept() => accepted,
            () = daemon.handover.draining() => continue,
        };
        match accepted {
            Ok((connection, _)) => {
                let (daemon, closed) = (Arc::clone(&daemon), Arc::clone(&closed));
                tokio::spawn(async move {
                    serve(connection, daemon).await;
                    closed.notify_one();
                });
            }
            Err(error) => {
                eprintln!("sandbar-runtime: cannot accept a connection: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// A sandbox is idle most of its life, and shall not hold what its busiest moment needed.
async fn tidy_up(closed: Arc<Notify>) {
    loop {
        closed.notified().await;
        tokio::time::sleep(TIDY_AFTER).await;
        sys::give_back_memory();
    }
}

async fn serve(connection: TcpStream, daemon: Arc<Daemon>) {
    let _connected = daemon.handover.connected();
    // events are small and must not wait for each other
    let _ = connection.set_nodelay(true);
    let first = Notify::new();
    let service = service_fn(|request: http::Request<Incoming>| {
        first.notify_one();
        let daemon = Arc::clone(&daemon);
        async move { Ok::<_, Infallible>(route::answer(daemon, request).await) }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE);
    server
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW);
    let mut connection = pin!(server.serve_connection(TokioIo::new(connection), service));
    tokio::select! {
        // a client that breaks the protocol or leaves ends its own connection only
        _ = &mut connection => return,
        () = daemon.handover.closing() => {}
    }
    // one that was just accepted is about to ask something, and would be closed in its face
    tokio::select! {
        _ = &mut connection => return,
        _ = tokio::time::timeout(FIRST_REQUEST, first.notified()) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

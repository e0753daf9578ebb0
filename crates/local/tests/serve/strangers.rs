//! Clients that mean ill, or are broken.

use std::time::Duration;

use local::serve::Limits;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{Server, connect};

const PATIENCE: Duration = Duration::from_secs(1);

fn impatient() -> Limits {
    Limits {
        connections: 4,
        patience: PATIENCE,
        ..Limits::default()
    }
}

async fn is_closed(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut rest = Vec::new();
    let end = stream.read_to_end(&mut rest);
    timeout(Duration::from_secs(60), end).await.is_ok()
}

#[tokio::test]
async fn garbage_on_the_port_is_hung_up_on() {
    let server = Server::start().await;
    for garbage in [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".as_slice(),
        b"\x16\x03\x01\xff\xff",
        &[0; 70_000],
    ] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        // it may hang up before it has read everything
        let _ = stream.write_all(garbage).await;
        let _ = stream.shutdown().await;
        assert!(is_closed(&mut stream).await);
        assert!(server.is_healthy().await);
    }
}

#[tokio::test]
async fn connections_that_say_nothing_hold_up_others_for_a_moment_at_most() {
    let server = Server::with(impatient()).await;
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(TcpStream::connect(server.address()).await.unwrap());
    }
    assert!(server.is_healthy().await);
    for mut stream in silent {
        assert!(is_closed(&mut stream).await);
    }
}

#[tokio::test]
async fn after_the_handshake_a_request_must_come() {
    let server = Server::with(impatient()).await;
    let authority = server.path("pki/ca.crt");
    for (protocol, beginning) in [
        (b"h2".as_slice(), b"".as_slice()),
        (b"h2", b"PRI * HTTP/2.0\r\n"),
        (b"http/1.1", b""),
        (b"http/1.1", b"GET /healthz HTTP/1.1\r\nHost: loc"),
    ] {
        let mut stream = connect(server.address(), &authority, "localhost", &[protocol])
            .await
            .unwrap();
        stream.write_all(beginning).await.unwrap();
        assert!(is_closed(&mut stream).await, "{beginning:?}");
    }
    assert!(server.is_healthy().await);
}

#[tokio::test]
async fn a_connection_with_a_watch_is_left_open() {
    use http_body_util::BodyExt as _;

    let server = Server::with(impatient()).await;
    let mut session = server.http2().await;
    let watch = session
        .get(crate::support::WATCH, &server.token("viewer"))
        .await;
    let mut events = watch.into_body();
    assert!(events.frame().await.unwrap().is_ok());
    assert!(timeout(PATIENCE * 3, events.frame()).await.is_err());
}

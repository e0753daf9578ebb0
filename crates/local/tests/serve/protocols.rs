//! What clients speak.

use futures::future::join_all;
use http::Method;
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Server, UPGRADE, WATCH, bearer, connect_with, whole};

#[tokio::test]
async fn http1_and_http2_get_the_same_answers() {
    let server = Server::start().await;
    let token = server.token("admin");
    for mut session in [server.http1().await, server.http2().await] {
        for _ in 0..3 {
            let (code, _, body) = whole(session.get("/api/v1/pods", &token).await).await;
            assert_eq!(code, 200);
            assert!(body.contains("\"verb\":\"list\""), "{body}");
        }
    }
}

#[tokio::test]
async fn the_newest_protocol_that_both_sides_know_is_spoken() {
    let server = Server::start().await;
    let authority = server.path("pki/ca.crt");
    let (http2, http1) = (b"h2".as_slice(), b"http/1.1".as_slice());
    for (offered, versions, chosen) in [
        (vec![http1, http2], &[&TLS13], Some(http2)),
        (vec![http1], &[&TLS13], Some(http1)),
        (vec![http2], &[&TLS12], Some(http2)),
        (vec![], &[&TLS13], None),
    ] {
        let stream = connect_with(
            server.address(),
            &authority,
            "localhost",
            &offered,
            versions,
        );
        let stream = stream.await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), chosen);
    }
}

#[tokio::test]
async fn hundreds_of_watches_share_a_connection_with_requests() {
    let server = Server::start().await;
    let token = server.token("viewer");
    let authorization = bearer(&token);
    let headers = [("authorization", authorization.as_str())];
    let mut session = server.http2().await;
    let watches = join_all((0..500).map(|_| session.begin(Method::GET, WATCH, &headers))).await;
    let mut open = Vec::new();
    for watch in watches {
        let mut body = watch.unwrap().into_body();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "{\"type\":\"ADDED\"}\n");
        open.push(body);
    }
    let (code, _, _) = whole(session.get("/api/v1/pods", &token).await).await;
    assert_eq!(code, 200);
    drop(open);
}

#[tokio::test]
async fn a_connection_can_become_a_stream() {
    let server = Server::start().await;
    let authorization = bearer(&server.token("admin"));
    let headers = [
        ("authorization", authorization.as_str()),
        ("connection", "upgrade"),
        ("upgrade", "echo"),
    ];
    let answer = server
        .http1()
        .await
        .send(Method::GET, UPGRADE, &headers)
        .await;
    assert_eq!(answer.status(), 101);
    let mut stream = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    stream.write_all(b"hello").await.unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"hello");
}

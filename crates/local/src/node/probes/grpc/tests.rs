use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

use super::{check, health, question};

/// What a server says that answers like this, and what it was asked.
async fn ask(
    service: &str,
    message: Option<&'static [u8]>,
    trailers: &'static [(&'static str, &'static str)],
) -> (Result<(), String>, Bytes) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let serve = service_fn(|request: http::Request<hyper::body::Incoming>| {
            let sender = sender.clone();
            async move {
                assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
                let body = request.into_body().collect().await.unwrap().to_bytes();
                sender.send(body).unwrap();
                let mut last = HeaderMap::new();
                for (name, value) in trailers {
                    last.insert(*name, HeaderValue::from_static(value));
                }
                let message = message.map(|bytes| Frame::data(Bytes::from_static(bytes)));
                let frames = message.into_iter().chain([Frame::trailers(last)]);
                let frames = frames.map(Ok::<_, Infallible>);
                let body = StreamBody::new(futures::stream::iter(frames));
                Ok::<_, Infallible>(Response::new(body))
            }
        });
        let connection = http2::Builder::new(TokioExecutor::new());
        let _ = connection
            .serve_connection(TokioIo::new(stream), serve)
            .await;
    });
    let stream = TcpStream::connect(address).await.unwrap();
    let answer = check(stream, &address.to_string(), service).await;
    server.abort();
    (answer, asked.recv().await.unwrap())
}

#[tokio::test]
async fn a_service_that_is_served_is_well() {
    let (answer, asked) = ask("", Some(&[0, 0, 0, 0, 2, 8, 1]), &[("grpc-status", "0")]).await;
    assert_eq!((answer, &asked[..]), (Ok(()), &[0, 0, 0, 0, 0][..]));
    let (answer, asked) = ask("ab", Some(&[0, 0, 0, 0, 2, 8, 1]), &[("grpc-status", "0")]).await;
    assert_eq!(answer, Ok(()));
    assert_eq!(&asked[..], [0, 0, 0, 0, 4, 10, 2, b'a', b'b']);
}

#[tokio::test]
async fn any_other_answer_says_what_is_wrong() {
    let (answer, _) = ask("", Some(&[0, 0, 0, 0, 2, 8, 2]), &[("grpc-status", "0")]).await;
    let words = "service unhealthy (responded with \"NOT_SERVING\")";
    assert_eq!(answer, Err(words.to_owned()));
    let unknown = &[("grpc-status", "12"), ("grpc-message", "no%20such%20call")];
    let (answer, _) = ask("", None, unknown).await;
    let words = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): no such call";
    assert_eq!(answer, Err(words.to_owned()));
    let (answer, _) = ask("x", None, &[("grpc-status", "5"), ("grpc-message", "x")]).await;
    let words = "error: health rpc probe failed: rpc error: code = 5 desc = x";
    assert_eq!(answer, Err(words.to_owned()));
}

#[test]
fn the_length_of_a_long_name_takes_two_bytes() {
    let frame = question(&"x".repeat(300));
    assert_eq!(frame[..8], [0, 0, 0, 1, 47, 10, 0b1010_1100, 2]);
}

#[test]
fn the_state_is_found_among_fields_nobody_knows() {
    let table: [(&[u8], Option<u64>); 7] = [
        (&[0, 0, 0, 0, 2, 8, 1], Some(1)),
        (&[0, 0, 0, 0, 0], Some(0)),
        (&[0, 0, 0, 0, 7, 0x12, 1, 9, 0x18, 5, 8, 3], Some(3)),
        (&[1, 0, 0, 0, 2, 8, 1], None),
        (&[0, 0, 0, 0, 9, 8, 1], None),
        (&[0, 0, 0, 0, 3, 0x12, 9, 9], None),
        (&[], None),
    ];
    for (bytes, expected) in table {
        let frame = BytesMut::from(bytes).freeze();
        assert_eq!(health(frame), expected, "{bytes:?}");
    }
}

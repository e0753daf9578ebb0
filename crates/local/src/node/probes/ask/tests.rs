use std::net::{Ipv4Addr, TcpListener as BlockingListener};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{ask_http, connect};
use crate::node::probes::Way;
use crate::node::probes::course::Answer;
use crate::node::probes::http::Get;

const WAY: Way = Way::Address(Ipv4Addr::LOCALHOST);
const PATIENCE: Duration = Duration::from_secs(10);

fn bad(why: impl Into<String>) -> Answer {
    Answer::Bad(why.into())
}

/// A port where nobody listens.
fn closed_port() -> u16 {
    let listener = BlockingListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

async fn ask_port(port: u16) -> Answer {
    let socket = TCPSocketAction {
        host: None,
        port: IntOrString::Int(port.into()),
    };
    connect(&socket, &Container::default(), &WAY, PATIENCE).await
}

#[tokio::test]
async fn a_port_where_somebody_listens_is_well() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    assert_eq!(ask_port(port).await, Answer::Good);
    let port = closed_port();
    let refused = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
    assert_eq!(ask_port(port).await, bad(refused));
}

/// Asks a server that answers every request with these bytes, or not at all.
async fn ask_server(answer: Option<&'static str>, patience: Duration) -> (u16, Answer) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            assert_ne!(stream.read(&mut request).await.unwrap(), 0);
            match answer {
                Some(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
                None => std::future::pending().await,
            }
        }
    });
    let action = serde_json::json!({"path": "/", "port": port, "scheme": "HTTP"});
    let action = serde_json::from_value(action).unwrap();
    let get = Get::of(&action, &Container::default(), &WAY, "kube-probe").unwrap();
    let answer = ask_http(get, &WAY, patience).await;
    server.abort();
    (port, answer)
}

#[tokio::test]
async fn an_answer_below_400_is_well() {
    let status = |code: u16| bad(format!("HTTP probe failed with statuscode: {code}"));
    let table = [
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            Answer::Good,
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", Answer::Good),
        (
            "HTTP/1.1 399 Odd\r\ncontent-length: 0\r\n\r\n",
            Answer::Good,
        ),
        ("HTTP/1.0 200 OK\r\n\r\nto the end", Answer::Good),
        ("HTTP/1.1 400 Bad\r\ncontent-length: 0\r\n\r\n", status(400)),
        ("HTTP/1.1 500 Bad\r\ncontent-length: 0\r\n\r\n", status(500)),
    ];
    for (answer, expected) in table {
        assert_eq!(ask_server(Some(answer), PATIENCE).await.1, expected);
    }
}

#[tokio::test]
async fn whoever_does_not_answer_is_not_well() {
    let (port, answer) = ask_server(None, Duration::from_millis(50)).await;
    assert_eq!(
        answer,
        bad(format!(
            "Get \"http://127.0.0.1:{port}/\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        ))
    );
    let (port, answer) = ask_server(Some(""), PATIENCE).await;
    let ended = format!("Get \"http://127.0.0.1:{port}/\": EOF");
    assert_eq!(answer, bad(ended));
}

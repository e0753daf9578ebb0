use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::{Get, Place};
use crate::node::probes::Way;

const WAY: Way = Way::Address(Ipv4Addr::LOCALHOST);
const PATIENCE: Duration = Duration::from_secs(10);

fn get(action: Value) -> Get {
    let action = serde_json::from_value(action).unwrap();
    Get::of(&action, &Container::default(), &WAY, "kube-probe").unwrap()
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, text: &str) -> String {
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") {
        let mut piece = [0; 1024];
        let length = stream.read(&mut piece).await.unwrap();
        request.push_str(std::str::from_utf8(&piece[..length]).unwrap());
    }
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    request
}

/// A server that gives these answers, one after the other: its port, and the requests it got.
async fn server(answers: Vec<String>) -> (u16, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for text in answers {
            let (stream, _) = listener.accept().await.unwrap();
            sender.send(answer(stream, &text).await).unwrap();
        }
    });
    (port, requests)
}

fn ok() -> String {
    "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned()
}

fn redirection(location: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n")
}

#[tokio::test]
async fn a_request_says_what_the_probe_says_and_who_asks() {
    let (port, mut requests) = server(vec![ok(), ok()]).await;
    let plain = get(json!({"path": "health?deep=1 2#here", "port": port}));
    assert_eq!(plain.send(&WAY, PATIENCE).await, Ok(200));
    let request = requests.recv().await.unwrap();
    assert!(request.starts_with("GET /health?deep=1%202 HTTP/1.1\r\n"));
    let host = format!("host: 127.0.0.1:{port}");
    for header in [
        host.as_str(),
        "user-agent: kube-probe/1.36",
        "accept: */*",
        "connection: close",
    ] {
        assert!(request.contains(&format!("\r\n{header}\r\n")), "{request}");
    }
    let told = get(json!({"path": "/", "port": port, "httpHeaders": [
        {"name": "Host", "value": "example.com"},
        {"name": "User-Agent", "value": "me"},
        {"name": "Accept", "value": ""},
        {"name": "X-Two", "value": "1"},
        {"name": "X-Two", "value": "2"},
    ]}));
    assert_eq!(told.send(&WAY, PATIENCE).await, Ok(200));
    let request = requests.recv().await.unwrap();
    for header in [
        "host: example.com",
        "user-agent: me",
        "x-two: 1",
        "x-two: 2",
    ] {
        assert!(request.contains(&format!("\r\n{header}\r\n")), "{request}");
    }
    assert!(!request.contains("accept"), "{request}");
    assert_eq!(request.matches("host:").count(), 1);
}

#[tokio::test]
async fn redirections_are_followed_on_the_same_host_only() {
    let (port, mut requests) = server(vec![redirection("/there?a=b"), ok()]).await;
    let asked = get(json!({"path": "/here", "port": port}));
    assert_eq!(asked.send(&WAY, PATIENCE).await, Ok(200));
    requests.recv().await.unwrap();
    let request = requests.recv().await.unwrap();
    assert!(request.starts_with("GET /there?a=b "), "{request}");
    let (port, _requests) = server(vec![redirection("http://169.254.169.254/")]).await;
    let asked = get(json!({"path": "/", "port": port}));
    assert_eq!(asked.send(&WAY, PATIENCE).await, Ok(302));
    let (port, _requests) = server(vec![redirection("/"); 10]).await;
    let asked = get(json!({"path": "/", "port": port}));
    assert_eq!(
        asked.send(&WAY, PATIENCE).await,
        Err(format!(
            "Get \"http://127.0.0.1:{port}/\": stopped after 10 redirects"
        ))
    );
}

#[tokio::test]
async fn any_certificate_will_do() {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["elsewhere.example".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await;
        answer(stream.unwrap(), &ok()).await
    });
    let asked = get(json!({"path": "/", "port": port, "scheme": "HTTPS"}));
    assert_eq!(asked.send(&WAY, PATIENCE).await, Ok(200));
    assert!(server.await.unwrap().starts_with("GET / "));
}

#[test]
fn urls_are_written_as_kubelets_write_them() {
    let table = [
        (json!({"path": "/", "port": 80}), "http://127.0.0.1:80/"),
        (json!({"port": 80}), "http://127.0.0.1:80/"),
        (
            json!({"path": "/a", "port": 443, "scheme": "HTTPS", "host": "example.com"}),
            "https://example.com:443/a",
        ),
        (
            json!({"path": "/", "port": 80, "host": "::1"}),
            "http://[::1]:80/",
        ),
    ];
    for (action, url) in table {
        assert_eq!(get(action).url(), url);
    }
}

#[test]
fn a_redirection_may_be_relative() {
    let place = |path: &str, port| Place {
        is_encrypted: false,
        host: "10.0.0.1".to_owned(),
        port,
        path: path.to_owned(),
    };
    let table = [
        ("/c", Some(place("/c", 80))),
        ("c?d", Some(place("/a/c?d", 80))),
        ("http://10.0.0.1:81/", Some(place("/", 81))),
        ("ftp://10.0.0.1/", None),
    ];
    for (location, expected) in table {
        let redirected = place("/a/b", 80).redirected(location);
        assert_eq!(redirected, expected, "{location}");
    }
}

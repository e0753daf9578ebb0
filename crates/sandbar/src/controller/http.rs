//! Two plain HTTP servers: one for probes and one for metrics.

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use anyhow::{Context, Result};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use super::go::Bind;

/// What is answered to a path.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    pub(super) text: String,
}

impl Answer {
    pub(super) fn plain(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            text: text.into(),
        }
    }
}

type Answers = Arc<dyn Fn(&str) -> Option<Answer> + Send + Sync>;

/// Serves until the process ends. The answer is where.
pub(super) async fn serve(
    flag: &str,
    bind: &Bind,
    answers: impl Fn(&str) -> Option<Answer> + Send + Sync + 'static,
) -> Result<Option<SocketAddr>> {
    let Bind::At(host, port) = bind else {
        return Ok(None);
    };
    let listener = listen(host, *port).await.with_context(|| {
        format!("cannot listen on {host}:{port}: choose another address with {flag}, or 0 for none")
    })?;
    let address = listener.local_addr()?;
    let answers: Answers = Arc::new(answers);
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let answers = Arc::clone(&answers);
                    tokio::spawn(converse(TokioIo::new(stream), answers));
                }
                // out of files, most likely; others will be closed
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
            }
        }
    });
    Ok(Some(address))
}

async fn listen(host: &str, port: u16) -> io::Result<TcpListener> {
    if !host.is_empty() {
        return TcpListener::bind((host, port)).await;
    }
    // takes IPv4 too, where there is IPv6 at all
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        other => other,
    }
}

async fn converse(stream: TokioIo<tokio::net::TcpStream>, answers: Answers) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&request, &answers);
        async move { Ok::<_, Infallible>(answer) }
    });
    // who goes away in the middle is nobody's trouble
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(stream, service)
        .await;
}

fn answer(request: &Request<Incoming>, answers: &Answers) -> Response<Full<Bytes>> {
    let answer = match *request.method() {
        Method::GET | Method::HEAD => answers(request.uri().path())
            .unwrap_or_else(|| Answer::plain(StatusCode::NOT_FOUND, "not found\n")),
        _ => Answer::plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered\n"),
    };
    let mut response = Response::new(Full::from(answer.text));
    *response.status_mut() = answer.status;
    let content_type = http::HeaderValue::from_static(answer.content_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}

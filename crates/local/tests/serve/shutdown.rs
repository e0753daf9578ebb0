//! How a server stops.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use http_body_util::BodyExt as _;
use local::serve::Limits;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::support::{SLOW, STUCK, Server, WATCH, answer, bearer, whole};

/// Requests may take longer than any test.
fn patient() -> Limits {
    Limits {
        grace: Duration::from_secs(300),
        ..Limits::default()
    }
}

async fn stop_before_its_grace(server: Server) {
    let stop = timeout(Duration::from_secs(60), server.running.stop());
    assert!(stop.await.is_ok());
}

/// A server, and how many requests have reached it.
async fn counting(limits: Limits) -> (Server, watch::Receiver<usize>) {
    let (arrived, arrivals) = watch::channel(0);
    let service = tower::service_fn(move |request| {
        arrived.send_modify(|count| *count += 1);
        answer(request)
    });
    (Server::before(service, limits).await, arrivals)
}

#[tokio::test]
async fn watches_end_in_good_order_and_nobody_waits_for_them() {
    let server = Server::with(patient()).await;
    let token = server.token("viewer");
    let mut watches = Vec::new();
    let mut sessions = [server.http1().await, server.http2().await];
    for session in &mut sessions {
        let mut events = session.get(WATCH, &token).await.into_body();
        assert!(events.frame().await.unwrap().is_ok());
        watches.push(events);
    }
    stop_before_its_grace(server).await;
    for events in watches {
        let rest = events.collect().await.unwrap().to_bytes();
        assert!(rest.is_empty(), "{rest:?}");
    }
}

#[tokio::test]
async fn a_request_under_way_is_answered() {
    let (server, mut arrivals) = counting(Limits::default()).await;
    let authorization = bearer(&server.token("admin"));
    let headers = [("authorization", authorization.as_str())];
    let mut sessions = [server.http1().await, server.http2().await];
    let answers = sessions
        .each_mut()
        .map(|session| tokio::spawn(session.begin(Method::GET, SLOW, &headers)));
    arrivals.wait_for(|count| *count == 2).await.unwrap();
    server.running.stop().await;
    for answer in answers {
        let (code, _, body) = whole(answer.await.unwrap().unwrap()).await;
        assert_eq!(code, 200);
        assert!(body.contains("\"user\":\"admin\""));
    }
}

#[tokio::test]
async fn a_request_without_end_is_dropped_when_the_grace_is_over() {
    let grace = Duration::from_millis(300);
    let limits = Limits {
        grace,
        ..Limits::default()
    };
    let (server, mut arrivals) = counting(limits).await;
    let address = server.address();
    let authorization = bearer(&server.token("admin"));
    let headers = [("authorization", authorization.as_str())];
    let mut sessions = [server.http1().await, server.http2().await];
    let answers = sessions
        .each_mut()
        .map(|session| tokio::spawn(session.begin(Method::GET, STUCK, &headers)));
    arrivals.wait_for(|count| *count == 2).await.unwrap();
    let begun = Instant::now();
    server.running.stop().await;
    assert!(begun.elapsed() >= grace);
    for answer in answers {
        assert!(answer.await.unwrap().is_err());
    }
    assert!(TcpListener::bind(address).await.is_ok(), "the port is free");
}

#[tokio::test]
async fn idle_and_half_open_connections_do_not_delay_it() {
    let server = Server::with(patient()).await;
    let address = server.address();
    let _half_open = TcpStream::connect(address).await.unwrap();
    let mut idle = [server.http1().await, server.http2().await];
    for session in &mut idle {
        let answer = session.send(Method::GET, "/healthz", &[]).await;
        assert_eq!(whole(answer).await.2, "ok");
    }
    stop_before_its_grace(server).await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn afterwards_nobody_holds_the_service() {
    let held = Arc::new(());
    let service = {
        let held = Arc::clone(&held);
        tower::service_fn(move |request| {
            let held = Arc::clone(&held);
            async move {
                let answer = answer(request).await;
                drop(held);
                answer
            }
        })
    };
    let limits = Limits {
        grace: Duration::from_millis(100),
        ..Limits::default()
    };
    let server = Server::before(service, limits).await;
    let token = bearer(&server.token("admin"));
    let headers = [("authorization", token.as_str())];
    let mut sessions = [server.http1().await, server.http2().await];
    for session in &mut sessions {
        tokio::spawn(session.begin(Method::GET, STUCK, &headers));
    }
    while Arc::strong_count(&held) <= 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.running.stop().await;
    assert_eq!(Arc::strong_count(&held), 1);
}

//! Bodies of requests, through the whole server: whatever comes, there is an answer, and it is not that of a crash.

use std::cell::OnceCell;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use local::server::Server;
use local::{Cluster, Options};
use tokio::runtime::Runtime;

const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
const REQUESTS: [(Method, &str, &str); 8] = [
    (Method::POST, "", "application/json"),
    (Method::POST, "", "application/yaml"),
    (Method::PUT, "/a", "application/json"),
    (Method::PATCH, "/a", "application/merge-patch+json"),
    (Method::PATCH, "/a", "application/json-patch+json"),
    (
        Method::PATCH,
        "/a",
        "application/strategic-merge-patch+json",
    ),
    (Method::PATCH, "/a", "application/apply-patch+yaml"),
    (Method::DELETE, "/a", "application/json"),
];

thread_local! {
    static STAGE: OnceCell<(Runtime, Server)> = const { OnceCell::new() };
}

/// The first byte chooses the request; nothing is stored.
pub(crate) fn drive(input: &[u8]) {
    let Some((choice, body)) = input.split_first() else {
        return;
    };
    STAGE.with(|stage| {
        let (runtime, server) = stage.get_or_init(open);
        let (method, name, media) = &REQUESTS[usize::from(*choice) % REQUESTS.len()];
        let uri = format!("{COLLECTION}{name}?dryRun=All&fieldManager=m&force=true");
        let answer = runtime.block_on(server.handle(request(method, &uri, media, body)));
        assert!(answer.status().as_u16() >= 200);
    });
}

fn open() -> (Runtime, Server) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let server = runtime.block_on(async {
        let cluster = Cluster::open(Options::ephemeral())
            .await
            .expect("a cluster");
        let server = cluster.service();
        let body = br#"{"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}}"#;
        let made = server
            .handle(request(&Method::POST, COLLECTION, "application/json", body))
            .await;
        assert_eq!(made.status(), 201);
        cluster.close().await;
        server
    });
    (runtime, server)
}

fn request(method: &Method, uri: &str, media: &str, body: &[u8]) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(uri)
        .header("Content-Type", media)
        .header("Accept", "application/json")
        .body(Full::new(Bytes::copy_from_slice(body)))
        .expect("a request")
}

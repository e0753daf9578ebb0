//! What becomes of a write when a former leader has made the same a moment before.

use api::sigs::v1beta1::{SandboxTemplate, SandboxWarmPool};
use futures::FutureExt as _;
use http::{Method, Request};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::{Client, client::Body};
use local::fault::Faults;
use serde_json::json;

use crate::{
    scenarios::pools::{reason, status, until_full},
    stage::{Stage, Theatre, pool, template},
};

/// A wire on which a rival has always created what is to be created at this path.
fn outrun(server: Client, path: &'static str) -> Client {
    let namespace = server.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = server.clone();
        async move {
            let is_outrun =
                request.method() == Method::POST && request.uri().path().ends_with(path);
            let (head, body) = request.into_parts();
            let bytes = body.collect_bytes().await?.to_vec();
            let request = || Request::from_parts(head.clone(), Body::from(bytes.clone()));
            if is_outrun {
                server.send(request()).await?;
            }
            server.send(request()).await
        }
    });
    Client::new(service, namespace)
}

async fn a_pool_whose_revision_is_there_already(stage: &Stage) {
    stage
        .create::<SandboxTemplate>(template("one", "app:1", json!({})))
        .await;
    stage.create::<SandboxWarmPool>(pool(1, json!({}))).await;
    until_full(stage, 1).await;
    stage.settle().await;
    let stored: Vec<ControllerRevision> = stage.list().await;
    assert_eq!(stored.len(), 1);
    assert_eq!(
        reason(&status(stage).await, "HistoryKept"),
        Default::default()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_that_a_rival_writes_first_is_part_of_the_history() {
    let theatre = Theatre::open().await;
    let stage = Stage::new(&theatre, "outrun", Faults::none()).await;
    let stage = stage.with_wire(|server| outrun(server, "/controllerrevisions"));
    stage
        .play(|stage| a_pool_whose_revision_is_there_already(stage).boxed_local())
        .await;
}

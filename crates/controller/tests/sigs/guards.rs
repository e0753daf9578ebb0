//! What writes say of the objects they were meant for, as it goes over the wire.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use api::sigs::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool};
use futures::FutureExt as _;
use http::{Method, Request, Response};
use kube::{Client, ResourceExt as _, client::Body};
use local::fault::Faults;
use serde_json::{Value, json};

use crate::{
    scenarios::{
        pools::{members, scale, until_full},
        rollouts::{image, set_image},
    },
    stage::{Stage, Theatre, pool, sandbox, template},
};

const FENCE: &str = "sandbar.dev/update";

#[derive(Debug)]
struct Write {
    method: Method,
    path: String,
    body: Value,
}

impl Write {
    /// What it does that must not be done to an object that somebody has changed meanwhile.
    fn risk(&self) -> Option<&'static str> {
        let metadata = &self.body["metadata"];
        let is_status_of =
            |kind: &str| self.path.ends_with("/status") && self.path.contains(&format!("/{kind}/"));
        match self.method {
            Method::DELETE => Some("deletes"),
            Method::PATCH if metadata.get("ownerReferences").is_some() => Some("binds"),
            Method::PATCH if metadata["annotations"].get(FENCE).is_some() => Some("fences"),
            Method::PATCH if is_status_of("sandboxclaims") => Some("answers"),
            Method::PATCH if is_status_of("sandboxes") => Some("tells"),
            _ => None,
        }
    }

    fn says(&self, field: &str) -> bool {
        let seen = match self.method {
            Method::DELETE => &self.body["preconditions"],
            _ => &self.body["metadata"],
        };
        seen[field].is_string()
    }
}

/// A wire that remembers what went over it.
#[derive(Clone, Default)]
struct Wire(Arc<Mutex<Vec<Write>>>);

impl Wire {
    fn to(&self, server: Client) -> Client {
        let namespace = server.default_namespace().to_owned();
        let wire = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (wire, server) = (wire.clone(), server.clone());
            async move { wire.pass(&server, request).await }
        });
        Client::new(service, namespace)
    }

    async fn pass(
        &self,
        server: &Client,
        request: Request<Body>,
    ) -> Result<Response<Body>, kube::Error> {
        let (head, body) = request.into_parts();
        let bytes = body.collect_bytes().await?;
        self.0.lock().unwrap().push(Write {
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
        });
        let request = Request::from_parts(head, Body::from(bytes.to_vec()));
        server.send(request).await
    }
}

async fn a_pool_that_is_claimed_from_changed_and_made_smaller(stage: &Stage) {
    stage
        .create::<SandboxTemplate>(template("one", "app:1", json!({})))
        .await;
    let rolling = json!({"maxUnavailable": 1, "maxSurge": 0});
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
    stage
        .create::<SandboxWarmPool>(pool(2, json!({"updateStrategy": strategy})))
        .await;
    until_full(stage, 2).await;
    let claim = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim",
        "metadata": {"name": "mine"}, "spec": {"warmPoolRef": {"name": "pool"}},
    });
    stage.create::<SandboxClaim>(claim).await;
    let given = async || {
        let claim = stage.api::<SandboxClaim>().get("mine").await.unwrap();
        claim.status.and_then(|status| status.sandbox)
    };
    stage
        .until("the claim is served", given, |given| given.is_some())
        .await;
    set_image(stage, "app:2").await;
    let stock = async || {
        let mut stock = members(stage).await;
        stock.retain(|one| one.owner_references()[0].kind == "SandboxWarmPool");
        stock
    };
    let are_done = |stock: &Vec<Sandbox>| {
        let is_done =
            |one: &Sandbox| image(one) == "app:2" && !one.annotations().contains_key(FENCE);
        stock.len() == 2 && stock.iter().all(is_done)
    };
    stage.until_slowly("all are changed", stock, are_done).await;
    scale(stage, 1).await;
    let is_smaller = |stock: &Vec<Sandbox>| stock.len() == 1;
    stage.until("one is gone", stock, is_smaller).await;
}

async fn a_sandbox_that_is_suspended(stage: &Stage) {
    stage.create::<Sandbox>(sandbox(json!({}))).await;
    stage.until_ready().await;
    let suspended = json!({"spec": {"operatingMode": "Suspended"}});
    stage.patch::<Sandbox>("box", suspended).await;
    stage
        .until_ready_is("False", "SandboxSuspended", "Sandbox is suspended")
        .await;
}

/// Of two that race one wins, which only the server can see to, and only if it is told what each of them has seen.
#[tokio::test(flavor = "multi_thread")]
async fn writes_that_delete_bind_or_answer_say_what_they_have_seen() {
    let theatre = Theatre::open().await;
    let wire = Wire::default();
    let on_wire = async |name| {
        let stage = Stage::new(&theatre, name, Faults::none()).await;
        stage.with_wire(|server| wire.to(server))
    };
    let pool = on_wire("pool").await;
    pool.play(|stage| a_pool_that_is_claimed_from_changed_and_made_smaller(stage).boxed_local())
        .await;
    let alone = on_wire("alone").await;
    alone
        .play(|stage| a_sandbox_that_is_suspended(stage).boxed_local())
        .await;

    let writes = wire.0.lock().unwrap();
    for write in writes.iter() {
        let is_patch = write.method == Method::PATCH;
        let risk = write.risk();
        assert!(
            write.says("uid") || !(is_patch || risk.is_some()),
            "{write:#?}"
        );
        assert!(
            write.says("resourceVersion") || risk.is_none(),
            "{write:#?}"
        );
    }
    let risks: BTreeSet<_> = writes.iter().filter_map(Write::risk).collect();
    let all = ["answers", "binds", "deletes", "fences", "tells"];
    assert_eq!(risks, BTreeSet::from(all));
    let deleted = |kind: &str| {
        let mut deletes = writes.iter().filter(|it| it.method == Method::DELETE);
        deletes.any(|write| write.path.contains(kind))
    };
    assert!(deleted("/sandboxes/") && deleted("/pods/"));
}

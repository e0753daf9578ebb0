//! Rollouts in a namespace whose quota is used up. The embedded API knows no quotas: a wire stands in for one.

use std::sync::Arc;

use api::sigs::v1beta1::{Sandbox, SandboxWarmPool, SandboxWarmPoolStatus};
use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta},
    client::Body,
};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{
    broken::is_told_once,
    pools::{message, reason, status, until_full},
    rollouts::{fill, rolling, set_image, until_rolled},
};
use crate::stage::Stage;

/// What the quota is called, and the ConfigMap that says how many there may be of a resource.
const QUOTA: &str = "quota";

/// A wire on which is refused what the quota of the namespace leaves no room for.
pub(super) fn limited(server: Client) -> Client {
    let namespace = server.default_namespace().to_owned();
    // nobody takes the room that another has just found
    let turn = Arc::new(Mutex::new(()));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (server, turn) = (server.clone(), Arc::clone(&turn));
        async move {
            if request.method() != Method::POST {
                return server.send(request).await;
            }
            let _turn = turn.lock().await;
            let (head, body) = request.into_parts();
            let bytes = body.collect_bytes().await?;
            let object: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            match refusal(&server, head.uri.path(), &object).await {
                Some(refused) => {
                    let answer = Response::builder().status(StatusCode::FORBIDDEN);
                    let answer = answer.header("content-type", "application/json");
                    let body = Body::from(refused.to_string().into_bytes());
                    Ok(answer.body(body).unwrap())
                }
                None => {
                    let request = Request::from_parts(head, Body::from(bytes));
                    server.send(request).await
                }
            }
        }
    });
    Client::new(service, namespace)
}

/// The answer of a server whose quota is used up.
async fn refusal(server: &Client, path: &str, object: &Value) -> Option<Value> {
    let (rest, resource) = path.rsplit_once('/')?;
    let (_, namespace) = rest.rsplit_once('/')?;
    let limits: Api<ConfigMap> = Api::namespaced(server.clone(), namespace);
    let limits = limits.get_opt(QUOTA).await.unwrap()?.data?;
    let limit: usize = limits.get(resource)?.parse().unwrap();
    let whole = ListParams::default();
    let used = match resource {
        "pods" => {
            let pods: Api<Pod> = Api::namespaced(server.clone(), namespace);
            pods.list(&whole).await.unwrap().items.len()
        }
        _ => {
            let sandboxes: Api<Sandbox> = Api::namespaced(server.clone(), namespace);
            sandboxes.list(&whole).await.unwrap().items.len()
        }
    };
    let message = format!(
        "{resource} {} is forbidden: exceeded quota: {QUOTA}, requested: {resource}=1, \
         used: {resource}={used}, limited: {resource}={limit}",
        object["metadata"]["name"]
    );
    let refused = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "reason": "Forbidden", "code": 403, "message": message,
    });
    (used >= limit).then_some(refused)
}

async fn limit(stage: &Stage, resource: &str, count: usize) {
    let limits = ConfigMap {
        metadata: ObjectMeta {
            name: Some(QUOTA.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some([(resource.to_owned(), count.to_string())].into()),
        ..ConfigMap::default()
    };
    stage.create::<ConfigMap>(json!(limits)).await;
}

async fn until_said(stage: &Stage, kind: &str, words: &str) -> SandboxWarmPoolStatus {
    let is_said = |status: &SandboxWarmPoolStatus| {
        let message = message(status, kind);
        reason(status, kind) == ("True".to_owned(), "QuotaExceeded".to_owned())
            && message.contains(words)
            && message.contains("exceeded quota: quota")
    };
    let what = format!("{kind} says {words}");
    stage
        .until(&what, async || status(stage).await, is_said)
        .await
}

/// Rolls a pool of two under a quota of two. A floor keeps the rollout back until it has said what it lacks.
async fn roll_without_surge(stage: &Stage, resource: &str) {
    limit(stage, resource, 2).await;
    fill(stage, 2, rolling(json!({"floor": 2}))).await;
    set_image(stage, "app:2").await;
    let words = "room for 0 of 1 surge members";
    let said = until_said(stage, "Progressing", words).await;
    let goes_on = "the rollout goes on with maxUnavailable 1";
    assert!(message(&said, "Progressing").contains(goes_on), "{said:#?}");
    assert_eq!(reason(&said, "Stalled").0, "False", "{said:#?}");
    let free = json!({"spec": {"updateStrategy": {"rollingUpdate": {"floor": null}}}});
    stage.patch::<SandboxWarmPool>("pool", free).await;
    until_rolled(stage, 2, "app:2", 1).await;
}

pub(crate) async fn a_rollout_goes_on_without_surge_whose_pods_are_refused(stage: &Stage) {
    roll_without_surge(stage, "pods").await;
}

pub(crate) async fn a_rollout_goes_on_without_surge_that_is_refused(stage: &Stage) {
    roll_without_surge(stage, "sandboxes").await;
}

pub(crate) async fn surge_is_used_when_the_quota_leaves_room(stage: &Stage) {
    limit(stage, "pods", 2).await;
    fill(stage, 2, rolling(json!({"maxUnavailable": 0}))).await;
    set_image(stage, "app:2").await;
    until_said(stage, "Stalled", "maxUnavailable is 0: raise it").await;
    until_full_but_for_surge(stage).await;
    is_told_once(stage, "QuotaExceeded", "exceeded quota: quota").await;
    let more = json!({"data": {"pods": "3"}});
    stage.patch::<ConfigMap>(QUOTA, more).await;
    until_rolled(stage, 2, "app:2", 2).await;
    until_full(stage, 2).await;
}

/// Nothing was taken out, and one waits.
async fn until_full_but_for_surge(stage: &Stage) {
    let look = async || {
        let status = status(stage).await;
        (status.replicas, status.ready_replicas)
    };
    let is_so = |counts: &(Option<i32>, Option<i32>)| {
        // what an old leader had on the wire waits beside what the new one has made, until there is room for both
        let is_outrun = stage.was_held() && *counts == (Some(4), Some(2));
        is_outrun || *counts == (Some(3), Some(2))
    };
    stage
        .until("two are ready and one waits", look, is_so)
        .await;
}

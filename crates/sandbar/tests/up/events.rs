//! What is told of a pod whose life takes its usual course.

use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use serde_json::json;

use crate::instance::{Instance, eventually, sh};

/// The reasons of what has been told of a pod though nothing was wrong, each with its count, as they are listed.
async fn told(up: &Instance, pod: &str) -> Vec<(String, i32)> {
    let of = format!("involvedObject.name={pod},type=Normal");
    let told = up.api::<Event>();
    let told = told.list(&ListParams::default().fields(&of)).await.unwrap();
    let told = told.items.into_iter();
    told.map(|event| (event.reason.unwrap(), event.count.unwrap()))
        .collect()
}

async fn is_told(up: &Instance, pod: &str, expected: &[(&str, i32)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(reason, count)| ((*reason).to_owned(), *count))
        .collect();
    eventually(&format!("{expected:?} is told of {pod}"), async || {
        told(up, pod).await == expected
    })
    .await;
}

#[tokio::test]
async fn the_course_of_a_pods_life_is_told_from_its_node_to_its_end() {
    let up = Instance::start().await;
    up.run("calm", "exec sleep 1000").await;
    up.ready("calm").await;
    let life = [
        ("Scheduled", 1),
        ("Pulled", 1),
        ("Created", 1),
        ("Started", 1),
    ];
    is_told(&up, "calm", &life).await;
    up.delete("calm").await;
    is_told(&up, "calm", &[&life[..], &[("Killing", 1)]].concat()).await;

    let one = sh(
        "main",
        "test -e /data/here || { touch /data/here; exit 1; }",
    );
    let mut spec = json!({"restartPolicy": "OnFailure", "containers": [one]});
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    up.pod("again", spec).await;
    up.phase("again", "Succeeded").await;
    let twice = [
        ("Scheduled", 1),
        ("Pulled", 2),
        ("Created", 2),
        ("Started", 2),
    ];
    is_told(&up, "again", &twice).await;

    let one = json!({"name": "main", "image": "127.0.0.1:1/none:1"});
    up.pod("remote", json!({"containers": [one]})).await;
    // it is tried again and again
    eventually("its pull is told", async || {
        let told = told(&up, "remote").await;
        let reasons: Vec<_> = told.iter().map(|(reason, _)| reason.as_str()).collect();
        reasons == ["Scheduled", "Pulling"]
    })
    .await;
}

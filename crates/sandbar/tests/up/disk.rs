//! A disk that a sandbox has filled: the API says so, everybody else goes on, and with space everything works again.

use std::fs;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod};
use kube::{
    Api, Error,
    api::{ListParams, PostParams},
};
use rustix::fs::statvfs;
use serde_json::{Value, json};

use crate::instance::{Instance, container, eventually, is_ready, sh};

fn config_map(name: &str, size: usize) -> ConfigMap {
    let data = json!({"fill": "x".repeat(size)});
    serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap()
}

async fn names(maps: &Api<ConfigMap>) -> Vec<String> {
    let listed = maps.list(&ListParams::default()).await.unwrap();
    let names = listed.into_iter().filter_map(|map| map.metadata.name);
    names.collect()
}

/// Writes until nothing fits any more; how many were kept, and how the last was refused.
async fn write_until_refused(maps: &Api<ConfigMap>) -> (usize, Error) {
    for number in 0..200 {
        let map = config_map(&format!("map-{number}"), 100_000);
        if let Err(error) = maps.create(&PostParams::default(), &map).await {
            return (number, error);
        }
    }
    panic!("the disk is endless");
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_space_and_all_else_goes_on() {
    let up = Instance::on_a_small_disk(64).await;
    let maps: Api<ConfigMap> = up.api();
    let before = config_map("before", 1_000);
    maps.create(&PostParams::default(), &before).await.unwrap();
    up.run(
        "bystander",
        "i=0; while :; do i=$((i + 1)); sleep 0.1; done",
    )
    .await;
    up.ready("bystander").await;
    let script = "until test -e /dev/shm/go; do sleep 0.1; done
        cat /dev/zero > /tmp/fill; touch /dev/shm/full; exec sleep 1000";
    up.run("hog", script).await;
    up.ready("hog").await;
    up.exec("hog", &["touch", "/dev/shm/go"]);
    eventually("the disk is full", async || {
        up.exec("hog", &["test", "-e", "/dev/shm/full"]).1 == 0
    })
    .await;
    let (kept, error) = write_until_refused(&maps).await;
    let Error::Api(refused) = &error else {
        panic!("{error:?}")
    };
    let reason = "disk is full. Nothing of this request was stored. Free space";
    assert!(refused.message.contains(reason), "{refused:?}");
    let expected: Vec<String> = (0..kept).map(|number| format!("map-{number}")).collect();
    let mut found = names(&maps).await;
    let is_there = found.iter().any(|name| name == "before");
    assert!(is_there, "{found:?}");
    found.retain(|name| name.starts_with("map-"));
    found.sort_by_key(|name| name[4..].parse::<usize>().unwrap());
    assert_eq!(found, expected);

    let (out, code) = up.exec("bystander", &["echo", "fine"]);
    assert_eq!((out.as_str(), code), ("fine\n", 0));
    let bystander = up.pods().get("bystander").await.unwrap();
    assert!(is_ready(&bystander));
    assert_eq!(container(&bystander, "main").restart_count, 0);

    let (out, code) = up.exec("hog", &["rm", "/tmp/fill"]);
    assert_eq!(code, 0, "{out}");
    maps.create(&PostParams::default(), &config_map("after", 100_000))
        .await
        .unwrap();
    up.run("later", "echo begun; exec sleep 1000").await;
    up.ready("later").await;
    up.says("later", "begun").await;
    for name in ["hog", "later", "bystander"] {
        up.delete(name).await;
    }
}

/// The node's condition DiskPressure, once it is so.
async fn disk_pressure(up: &Instance, status: &str) -> String {
    let nodes: Api<Node> = Api::all(up.client.clone());
    let mut message = String::new();
    eventually(&format!("DiskPressure is {status}"), async || {
        // it says nothing of itself before it has begun
        let said = nodes.get("sandbar").await.unwrap().status;
        let mut all = said.and_then(|said| said.conditions).into_iter().flatten();
        let Some(found) = all.find(|one| one.type_ == "DiskPressure") else {
            return false;
        };
        message = found.message.unwrap_or_default();
        found.status == status
    })
    .await;
    message
}

async fn taints(up: &Instance) -> Value {
    let nodes: Api<Node> = Api::all(up.client.clone());
    let node = nodes.get("sandbar").await.unwrap();
    serde_json::to_value(node.spec.unwrap().taints).unwrap()
}

#[tokio::test]
async fn on_a_disk_that_is_nearly_full_nothing_new_begins_until_there_is_space() {
    const KEY: &str = "node.kubernetes.io/disk-pressure";
    let up = Instance::on_a_small_disk(64).await;
    disk_pressure(&up, "False").await;
    up.run("bystander", "exec sleep 1000").await;
    up.ready("bystander").await;
    let filler = up.data().parent().unwrap().join("filler");
    let found = statvfs(up.data().as_path()).unwrap();
    let free = found.f_bavail * found.f_frsize;
    let left = 5 << 20;
    fs::write(&filler, vec![1; usize::try_from(free - left).unwrap()]).unwrap();

    let message = disk_pressure(&up, "True").await;
    assert!(message.contains("MiB of 64 MiB are free"), "{message}");
    up.event("NodeHasDiskPressure").await;
    eventually("it is a taint", async || {
        taints(&up).await == json!([{"key": KEY, "effect": "NoSchedule"}])
    })
    .await;
    up.run("late", "exec sleep 1000").await;
    let waits = |pod: &Pod| {
        let conditions = pod.status.as_ref().unwrap().conditions.iter().flatten();
        let mut conditions = conditions.filter(|one| one.type_ == "PodScheduled");
        conditions.any(|one| {
            one.reason.as_deref() == Some("Unschedulable")
                && one.message.as_ref().unwrap().contains(KEY)
        })
    };
    up.until("late", "waited", waits).await;
    let tolerations = json!([{"key": KEY, "operator": "Exists"}]);
    let tolerant = [sh("main", "exec sleep 1000")];
    up.pod(
        "tolerant",
        json!({"tolerations": tolerations, "containers": tolerant}),
    )
    .await;
    up.ready("tolerant").await;
    let (out, code) = up.exec("bystander", &["echo", "fine"]);
    assert_eq!((out.as_str(), code), ("fine\n", 0));

    fs::remove_file(&filler).unwrap();
    disk_pressure(&up, "False").await;
    up.event("NodeHasNoDiskPressure").await;
    up.ready("late").await;
    eventually("no taint is left", async || {
        matches!(taints(&up).await, Value::Null) || taints(&up).await == json!([])
    })
    .await;
    let bystander = up.ready("bystander").await;
    assert_eq!(container(&bystander, "main").restart_count, 0);
    let events: Api<Event> = up.api();
    let told = events.list(&ListParams::default()).await.unwrap();
    let told = told.items.into_iter().filter_map(|event| {
        let object = event.involved_object;
        let is_node = object.kind.as_deref() == Some("Node");
        is_node.then_some((object.name?, event.type_?, event.reason?))
    });
    let told: Vec<_> = told.collect();
    let said =
        |kind: &str, reason: &str| ("sandbar".to_owned(), kind.to_owned(), reason.to_owned());
    let expected = [
        said("Warning", "NodeHasDiskPressure"),
        said("Normal", "NodeHasNoDiskPressure"),
    ];
    assert_eq!(told, expected, "each once");
}

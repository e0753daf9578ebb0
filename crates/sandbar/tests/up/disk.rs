//! A disk that a sandbox has filled: the API says so, everybody else goes on, and with space everything works again.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Error,
    api::{ListParams, PostParams},
};
use serde_json::json;

use crate::instance::{Instance, container, eventually, is_ready};

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

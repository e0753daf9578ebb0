//! Changes to pods that run.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::instance::{Instance, container, eventually, ip, sh};

#[tokio::test]
async fn another_image_restarts_the_container_in_the_same_place() {
    let up = Instance::start().await;
    up.import("local.test/app:1", "one");
    up.import("local.test/app:2", "two");
    let other = "trap 'echo asked to end' TERM; echo begun; while :; do sleep 0.05; done";
    let one =
        json!({"name": "main", "image": "local.test/app:1", "imagePullPolicy": "IfNotPresent"});
    let spec =
        json!({"terminationGracePeriodSeconds": 60, "containers": [one, sh("other", other)]});
    up.pod("app", spec).await;
    let before = up.ready("app").await;
    up.patch(
        "app",
        None,
        json!({"spec": {"containers": [{"name": "main", "image": "local.test/app:2"}]}}),
    )
    .await;
    let changed = |pod: &Pod| {
        let main = container(pod, "main");
        main.restart_count == 1 && main.ready && main.image == "local.test/app:2"
    };
    let after = up.until("app", "ran the other image", changed).await;
    assert_eq!(ip(&before), ip(&after));
    assert_ne!(
        container(&before, "main").image_id,
        container(&after, "main").image_id
    );
    assert_eq!(container(&after, "other").restart_count, 0);
    let last = container(&after, "main").last_state.unwrap();
    assert_eq!(last.terminated.unwrap().exit_code, 0, "it was asked to end");
    assert_eq!(
        after.status.as_ref().unwrap().observed_generation,
        after.metadata.generation
    );
    let options = |container: &str, previous| kube::api::LogParams {
        container: Some(container.to_owned()),
        previous,
        ..Default::default()
    };
    eventually("both runs have logs", async || {
        let now = up.pods().logs("app", &options("main", false)).await;
        let before = up.pods().logs("app", &options("main", true)).await;
        (before.unwrap().as_str(), now.unwrap().as_str()) == ("one\n", "two\n")
    })
    .await;
    let other = up.pods().logs("app", &options("other", false)).await;
    assert_eq!(other.unwrap(), "begun\n", "the other one was left alone");
}

#[tokio::test]
async fn a_resize_to_more_than_the_machine_has_is_refused_and_said_to_be() {
    let up = Instance::start().await;
    let mut one = sh("main", "exec sleep 1000");
    one["resources"] = json!({"requests": {"cpu": "100m"}});
    up.pod("sized", json!({"containers": [one]})).await;
    up.ready("sized").await;
    let more = json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1000"}}}]}});
    up.patch("sized", Some("resize"), more).await;
    let is_refused = |pod: &Pod| {
        let status = pod.status.as_ref().unwrap();
        let mut conditions = status.conditions.iter().flatten();
        conditions.any(|one| {
            let message = one.message.as_deref().unwrap_or_default();
            one.type_ == "PodResizePending"
                && one.reason.as_deref() == Some("Infeasible")
                && message.starts_with(
                    "Node didn't have enough capacity: cpu, requested: 1000000, capacity: ",
                )
        })
    };
    let pod = up.until("sized", "was refused", is_refused).await;
    let main = container(&pod, "main");
    assert_eq!(main.allocated_resources.unwrap()["cpu"].0, "100m");
    assert_eq!(main.restart_count, 0);
    up.event("ResizeInfeasible").await;
}

#[tokio::test]
async fn limits_change_without_a_restart() {
    let up = Instance::start().await;
    let mut one = sh("main", "exec sleep 1000");
    one["resources"] = json!({"limits": {"memory": "64Mi", "cpu": "500m"}});
    up.pod("sized", json!({"containers": [one]})).await;
    let pod = up.ready("sized").await;
    let uid = pod.metadata.uid.clone().unwrap();
    let written = |files: [&str; 2]| {
        let all = up.cgroups().into_iter();
        let all = all.map(|top| top.join(format!("pod-{uid}/main")));
        let mut files = all.flat_map(|directory| files.map(|file| directory.join(file)));
        let text = files.find_map(|file| std::fs::read_to_string(file).ok());
        text.unwrap().trim().to_owned()
    };
    // memory, and what of each tenth of a second
    let limits = || {
        let quota = written(["cpu.cfs_quota_us", "cpu.max"]);
        let quota = quota.split(' ').next().unwrap().to_owned();
        (written(["memory.limit_in_bytes", "memory.max"]), quota)
    };
    let limited = |mebibytes: u32, quota: &str| ((mebibytes << 20).to_string(), quota.to_owned());
    assert_eq!(limits(), limited(64, "50000"));
    let more = json!({"spec": {"containers": [{"name": "main", "resources":
        {"limits": {"memory": "96Mi", "cpu": "1"}, "requests": {"memory": "96Mi", "cpu": "1"}}}]}});
    up.patch("sized", Some("resize"), more).await;
    let resized = |pod: &Pod| {
        let limits = container(pod, "main").resources.unwrap().limits.unwrap();
        let mut conditions = pod
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        let is_busy = conditions.any(|one| one.type_.starts_with("PodResize"));
        limits["memory"].0 == "96Mi" && limits["cpu"].0 == "1" && !is_busy
    };
    let pod = up.until("sized", "was resized", resized).await;
    assert_eq!(limits(), limited(96, "100000"));
    assert_eq!(container(&pod, "main").restart_count, 0);
    let observed = pod.status.unwrap().observed_generation;
    assert_eq!((observed, pod.metadata.generation), (Some(2), Some(2)));
}

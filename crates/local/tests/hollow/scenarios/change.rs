//! Changes of a pod that runs.

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use local::hollow::{Failure, Options, Target};
use serde_json::{Value, json};

use crate::stage::{
    Stage, condition, container, holds, ip, phase, pod, reason, resources, seconds, sized_pod,
    waits_for,
};

pub(crate) async fn a_new_image_restarts_the_container_in_place(client: Client) {
    let options = Options {
        restart_delay: seconds(2),
        ..Options::default()
    };
    let stage = Stage::new(client, options).await;
    stage.create(pod("p")).await;
    let before = stage.until_ready("p").await;
    let image = |image: &str| json!({"spec": {"containers": [{"name": "main", "image": image}]}});
    stage.patch("p", image("app:2")).await;
    let stopped = stage
        .until("p", "unready", |pod| !holds(pod, "Ready"))
        .await;
    assert_eq!(phase(&stopped), "Running");
    assert_eq!(container(&stopped).image, "app:1");

    stage.pass(seconds(2)).await;
    let restarted = stage.get("p").await;
    let (old, new) = (container(&before), container(&restarted));
    assert_eq!(
        (new.image.as_str(), new.restart_count, new.ready),
        ("app:2", 1, true)
    );
    assert_ne!(old.image_id, new.image_id);
    assert_ne!(old.container_id, new.container_id);
    let end = new
        .last_state
        .as_ref()
        .unwrap()
        .terminated
        .as_ref()
        .unwrap();
    assert_eq!(end.container_id, old.container_id);
    assert_eq!(ip(&before), ip(&restarted));
    assert!(holds(&restarted, "Ready"));
    let generation = restarted.metadata.generation;
    assert_eq!(
        restarted.status.as_ref().unwrap().observed_generation,
        generation
    );
    assert!(generation > before.metadata.generation);

    stage
        .hollow()
        .fail(Target::Image("bad:*".into()), Failure::Pull);
    stage.patch("p", image("bad:1")).await;
    stage
        .until("p", "stopped", |pod| !holds(pod, "Ready"))
        .await;
    stage.pass(seconds(2)).await;
    let failed = stage.get("p").await;
    assert_eq!(
        (phase(&failed), waits_for(&failed)),
        ("Running", "ErrImagePull")
    );
    stage.patch("p", image("app:3")).await;
    let healed = stage.until_ready("p").await;
    let main = container(&healed);
    assert_eq!((main.image.as_str(), main.restart_count), ("app:3", 2));
    stage.end().await;
}

fn resized(cpu: &str, memory: &str) -> Value {
    json!({"spec": {"containers": [{"name": "main", "resources": resources(cpu, memory)}]}})
}

fn limit(pod: &Pod, name: &str) -> String {
    let limits = container(pod).resources.as_ref().unwrap().limits.as_ref();
    limits.unwrap()[name].0.clone()
}

pub(crate) async fn a_resize_is_followed(client: Client) {
    let options = Options {
        resize_delay: seconds(2),
        ..Options::default()
    };
    let stage = Stage::new(client, options).await;
    stage.create(sized_pod("p")).await;
    let before = stage.until_ready("p").await;
    assert_eq!(limit(&before, "cpu"), "1");
    stage.patch_part("resize", "p", resized("2", "1Gi")).await;
    let going = |pod: &Pod| holds(pod, "PodResizeInProgress");
    let resizing = stage.until("p", "resizing", going).await;
    assert_eq!(limit(&resizing, "cpu"), "1");
    let allocated = container(&resizing).allocated_resources.as_ref().unwrap();
    assert_eq!(allocated["cpu"].0, "2");

    stage.pass(seconds(2)).await;
    let done = stage.get("p").await;
    assert_eq!(limit(&done, "cpu"), "2");
    assert!(condition(&done, "PodResizeInProgress").is_none() && holds(&done, "Ready"));
    assert_eq!(container(&done).restart_count, 0);
    assert_eq!(
        done.status.as_ref().unwrap().observed_generation,
        done.metadata.generation
    );

    stage.patch_part("resize", "p", resized("2", "2Gi")).await;
    stage.until("p", "resizing", going).await;
    stage.pass(seconds(2)).await;
    let restarted = stage.get("p").await;
    assert_eq!(limit(&restarted, "memory"), "2Gi");
    assert_eq!(container(&restarted).restart_count, 1);
    assert!(holds(&restarted, "Ready"));
    stage.end().await;
}

pub(crate) async fn a_resize_can_be_refused(client: Client) {
    let stage = Stage::new(client, Options::default()).await;
    stage.create(sized_pod("p")).await;
    stage.until_ready("p").await;
    let everyone = || Target::All;
    let deferred = stage.hollow().fail(everyone(), Failure::ResizeDeferred);
    stage.patch_part("resize", "p", resized("2", "1Gi")).await;
    let pending = stage
        .until("p", "deferred", |pod| {
            reason(pod, "PodResizePending") == "Deferred"
        })
        .await;
    assert_eq!(limit(&pending, "cpu"), "1");
    stage.hollow().fail(everyone(), Failure::ResizeInfeasible);
    stage
        .until("p", "infeasible", |pod| {
            reason(pod, "PodResizePending") == "Infeasible"
        })
        .await;
    stage.hollow().heal(deferred);
    stage.patch_part("resize", "p", resized("1", "1Gi")).await;
    let back = stage
        .until("p", "as it was", |pod| {
            condition(pod, "PodResizePending").is_none()
        })
        .await;
    assert_eq!(limit(&back, "cpu"), "1");
    stage.end().await;
}

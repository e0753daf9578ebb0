//! In which order the containers of a pod end, and with how much time.

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::instance::{Instance, container, exit_code, ready_by_file, sh};

const VOLUME: &str = "kept";

/// Ends when it is asked to, and writes to a volume that it was. It is ready when it can be asked.
fn witness(name: &str) -> Value {
    let script = format!(
        "trap 'echo end of {name} >> /kept/order; exit 0' TERM; touch /tmp/ready; while :; do sleep 0.05; done"
    );
    let mut one = ready_by_file(sh(name, &script));
    one["volumeMounts"] = json!([{"name": VOLUME, "mountPath": "/kept"}]);
    one
}

fn with_hook(mut one: Value, script: &str) -> Value {
    one["lifecycle"] = json!({"preStop": {"exec": {"command": ["sh", "-c", script]}}});
    one
}

fn sidecar(mut one: Value) -> Value {
    one["restartPolicy"] = json!("Always");
    one
}

/// Runs such a pod, deletes it once it is ready, and tells what was written.
async fn order_of_ends(grace: u32, inits: &[Value], apps: &[Value]) -> String {
    let up = Instance::start().await;
    up.disk(VOLUME).await;
    let volumes = json!([{"name": VOLUME, "persistentVolumeClaim": {"claimName": VOLUME}}]);
    let spec = json!({
        "terminationGracePeriodSeconds": grace, "volumes": volumes,
        "initContainers": inits, "containers": apps,
    });
    up.pod("crew", spec).await;
    up.ready("crew").await;
    up.delete("crew").await;
    let mut reader = sh("main", "cat /kept/order");
    reader["volumeMounts"] = json!([{"name": VOLUME, "mountPath": "/kept"}]);
    let spec = json!({"restartPolicy": "Never", "volumes": volumes, "containers": [reader]});
    up.pod("reader", spec).await;
    up.phase("reader", "Succeeded").await;
    up.logs("reader").await
}

#[tokio::test]
async fn sidecars_end_after_the_others_the_last_first_each_with_its_hook() {
    let hook = |name: &str| format!("echo hook of {name} >> /kept/order");
    let one = sidecar(with_hook(witness("one"), &hook("one")));
    let two = sidecar(witness("two"));
    let waits = "until grep -q 'hook of one' /kept/order; do sleep 0.05; done";
    let app = with_hook(witness("app"), waits);
    let order = order_of_ends(60, &[one, two], &[app]).await;
    assert_eq!(order, "hook of one\nend of app\nend of two\nend of one\n");
}

#[tokio::test]
async fn a_pod_that_is_being_deleted_tells_of_its_containers_until_it_is_gone() {
    let up = Instance::start().await;
    let loops = "touch /tmp/ready; while :; do sleep 0.05; done";
    let quick = ready_by_file(sh("quick", &format!("trap 'exit 3' TERM; {loops}")));
    let slow = ready_by_file(sh("slow", &format!("trap '' TERM; {loops}")));
    let spec = json!({"terminationGracePeriodSeconds": 600, "containers": [quick, slow]});
    up.pod("crew", spec).await;
    up.ready("crew").await;
    let kept = json!({"metadata": {"finalizers": ["test.sandbar.dev/kept"]}});
    up.patch("crew", None, kept).await;
    let delete = DeleteParams::default();
    up.pods().delete("crew", &delete).await.unwrap();
    let has_ended = |pod: &Pod| exit_code(pod, "quick") == Some(3);
    let pod = up.until("crew", "told of the end", has_ended).await;
    assert!(container(&pod, "slow").state.unwrap().running.is_some());
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Running"));
    let sooner = DeleteParams::default().grace_period(1);
    up.pods().delete("crew", &sooner).await.unwrap();
    let pod = up.phase("crew", "Failed").await;
    assert_eq!(exit_code(&pod, "slow"), Some(137));
    up.patch("crew", None, json!({"metadata": {"finalizers": null}}))
        .await;
    up.gone("crew").await;
}

#[tokio::test]
async fn who_has_no_hook_does_not_wait_for_the_hooks_of_others() {
    let waits = "until grep -q 'end of quick' /kept/order; do sleep 0.05; done";
    let slow = with_hook(witness("slow"), waits);
    let order = order_of_ends(60, &[], &[slow, witness("quick")]).await;
    assert_eq!(order, "end of quick\nend of slow\n");
}

#[tokio::test]
async fn who_is_left_no_time_by_its_hook_is_asked_to_end_all_the_same() {
    let endless = with_hook(witness("main"), "sleep 1000");
    assert_eq!(order_of_ends(1, &[], &[endless]).await, "end of main\n");
}

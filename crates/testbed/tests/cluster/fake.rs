//! Nodes that only pretend.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use testbed::{OwnOptions, Testbed};

use crate::support::{container, eventually, ip, is_ready, pod, run};

#[tokio::test]
async fn pods_on_fake_nodes_become_ready_and_answer_changes_in_place() {
    let options = OwnOptions {
        controller_manager: true,
        fake_nodes: 3,
        ..OwnOptions::default()
    };
    let bed = Testbed::own(options).await.unwrap();
    let nodes = Api::<Node>::all(bed.client())
        .list(&ListParams::default())
        .await
        .unwrap();
    assert_eq!(nodes.items.len(), 3);

    let namespace = bed.namespace("fake").await.unwrap();
    let pods = namespace.api::<Pod>();
    let requests = json!({"requests": {"cpu": "1"}});
    let before = run(
        &pods,
        &pod("one", "", json!({"container.resources": requests})),
    )
    .await;
    let other = run(&pods, &pod("two", "", json!({}))).await;
    assert_ne!(ip(&before), ip(&other));
    assert_eq!(before.status.as_ref().unwrap().observed_generation, Some(1));
    assert!(!container(&before).container_id.as_ref().unwrap().is_empty());

    let patch = Patch::Strategic(json!({
        "spec": {"containers": [{"name": "main", "image": "busybox:v2"}]}
    }));
    pods.patch("one", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let after = eventually("the image change is answered", async || {
        let pod = pods.get("one").await.ok()?;
        (pod.status.as_ref()?.observed_generation == Some(2)).then_some(pod)
    })
    .await;
    assert_eq!(ip(&after), ip(&before));
    assert_eq!(container(&after).image, "busybox:v2");
    assert_eq!(container(&after).restart_count, 1);
    assert_ne!(
        container(&after).container_id,
        container(&before).container_id
    );
    assert!(is_ready(&after));

    let resize = Patch::Strategic(json!({
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}
    }));
    pods.patch_subresource("resize", "one", &PatchParams::default(), &resize)
        .await
        .unwrap();
    let resized = eventually("the resize is answered", async || {
        let pod = pods.get("one").await.ok()?;
        (pod.status.as_ref()?.observed_generation == Some(3)).then_some(pod)
    })
    .await;
    assert_eq!(
        container(&resized).restart_count,
        1,
        "a resize restarts nothing"
    );
    let allocated = container(&resized).allocated_resources.as_ref().unwrap();
    assert_eq!(allocated["cpu"].0, "2");

    pods.delete("one", &DeleteParams::default()).await.unwrap();
    eventually("the pod is gone", async || {
        pods.get_opt("one").await.ok()?.is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_start_delay_keeps_pods_pending_and_an_annotation_overrides_it() {
    let options = OwnOptions {
        fake_nodes: 1,
        // longer than any test: a pod that becomes ready did not wait for it
        pod_start_delay: Duration::from_secs(3600),
        ..OwnOptions::default()
    };
    let bed = Testbed::own(options).await.unwrap();
    let namespace = bed.namespace("delay").await.unwrap();
    let pods = namespace.api::<Pod>();
    let slow = pod("slow", "", json!({}));
    pods.create(&PostParams::default(), &slow).await.unwrap();
    let mut quick = pod("quick", "", json!({}));
    quick.metadata.annotations = Some(
        [(
            "testbed.sandbar.dev/start-delay".to_owned(),
            "10ms".to_owned(),
        )]
        .into(),
    );
    run(&pods, &quick).await;
    let slow = loop {
        let slow = pods.get("slow").await.unwrap();
        if slow.spec.as_ref().unwrap().node_name.is_some() {
            break slow;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(!is_ready(&slow));
}

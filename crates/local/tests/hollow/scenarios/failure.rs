//! Everything that can go wrong with a pod, on purpose or not.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use local::{
    clock::Clock,
    fault::{Fault, Faults, every_point},
    hollow::{Hollow, Options},
};
use serde_json::json;

use crate::stage::{
    Stage, annotated, condition, container, holds, ip, phase, pod, reason, seconds, waits_for,
};

pub(crate) async fn an_image_that_cannot_be_pulled_keeps_a_pod_pending(client: Client) {
    let stage = Stage::new(client, Options::default()).await;
    stage.create(annotated("p", &[("fail", "pull")])).await;
    let is = |reason: &'static str| move |pod: &Pod| waits_for(pod) == reason;
    let failed = stage.until("p", "failing", is("ErrImagePull")).await;
    assert_eq!(phase(&failed), "Pending");
    assert!(holds(&failed, "PodScheduled") && !holds(&failed, "Ready"));
    stage.pass(seconds(10)).await;
    assert_eq!(waits_for(&stage.get("p").await), "ImagePullBackOff");
    stage.unannotate("p", "fail").await;
    let healed = stage.until_ready("p").await;
    assert_eq!(container(&healed).restart_count, 0);
    stage.end().await;
}

pub(crate) async fn a_crashing_container_restarts_ever_more_slowly(client: Client) {
    let stage = Stage::new(client, Options::default()).await;
    stage.create(annotated("p", &[("fail", "crash")])).await;
    let is_crashing = |pod: &Pod| waits_for(pod) == "CrashLoopBackOff";
    let crashing = stage.until("p", "crashing", is_crashing).await;
    assert_eq!(phase(&crashing), "Running");
    assert_eq!(container(&crashing).restart_count, 1);
    // 10 s, 20 s and 40 s after one another
    for (time, restarts) in [(9, 1), (1, 2), (19, 2), (1, 3), (39, 3), (1, 4)] {
        stage.pass(seconds(time)).await;
        assert_eq!(container(&stage.get("p").await).restart_count, restarts);
    }
    // 80 s, 160 s, 300 s, and 300 s again
    stage.pass(seconds(840)).await;
    assert_eq!(container(&stage.get("p").await).restart_count, 8);
    stage.unannotate("p", "fail").await;
    let healed = stage.until_ready("p").await;
    assert_eq!(container(&healed).restart_count, 9);
    stage.end().await;
}

pub(crate) async fn a_pod_that_fits_nowhere_is_not_bound(client: Client) {
    let stage = Stage::new(client, Options::default()).await;
    let is_refused = |pod: &Pod| reason(pod, "PodScheduled") == "Unschedulable";
    stage
        .create(annotated("p", &[("fail", "unschedulable")]))
        .await;
    let refused = stage.until("p", "refused", is_refused).await;
    assert_eq!(
        (
            phase(&refused),
            refused.spec.as_ref().unwrap().node_name.as_ref()
        ),
        ("Pending", None)
    );
    stage.unannotate("p", "fail").await;
    let bound = stage.until_ready("p").await;
    assert_eq!(
        bound.spec.unwrap().node_name.as_ref(),
        stage.options.nodes.first()
    );

    let mut picky = pod("picky");
    picky["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    stage.create(picky).await;
    let refused = stage.until("picky", "refused", is_refused).await;
    let message = condition(&refused, "PodScheduled").unwrap().message.clone();
    let start = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.";
    assert!(message.unwrap().starts_with(start));
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": {"disk": "ssd"}}}));
    let name = &stage.options.nodes[0];
    nodes
        .patch(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
    stage.until_ready("picky").await;

    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    stage.create(gated).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(stage.get("gated").await.spec.unwrap().node_name, None);
    let free = json!({"spec": {"schedulingGates": null}});
    stage.patch("gated", free).await;
    stage.until_ready("gated").await;
    stage.end().await;
}

pub(crate) async fn a_cordoned_node_takes_no_pods(client: Client) {
    let stage = Stage::new(client, Options::default()).await;
    stage.create(pod("first")).await;
    stage.until_ready("first").await;
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let name = &stage.options.nodes[0];
    nodes.cordon(name).await.unwrap();
    // the node learns of it in its own time, and until then takes who comes
    let is_refused = |pod: &Pod| reason(pod, "PodScheduled") == "Unschedulable";
    let mut number = 0;
    let refused = loop {
        number += 1;
        let late = format!("late-{number}");
        stage.create(pod(&late)).await;
        let is_settled =
            |pod: &Pod| is_refused(pod) || pod.spec.as_ref().unwrap().node_name.is_some();
        let settled = stage.until(&late, "refused or taken", is_settled).await;
        if is_refused(&settled) {
            break late;
        }
    };
    stage.create(pod("second")).await;
    stage.until("second", "refused", is_refused).await;
    nodes.uncordon(name).await.unwrap();
    stage.until_ready(&refused).await;
    stage.until_ready("second").await;
    stage.end().await;
}

pub(crate) async fn a_pod_can_run_and_never_be_ready(client: Client) {
    let stage = Stage::new(client, Options::default()).await;
    stage
        .create(annotated("p", &[("fail", "never-ready")]))
        .await;
    stage
        .until("p", "running", |pod| phase(pod) == "Running")
        .await;
    stage.pass(seconds(3600)).await;
    let pod = stage.get("p").await;
    assert_eq!(
        (phase(&pod), reason(&pod, "Ready")),
        ("Running", "ContainersNotReady")
    );
    stage.unannotate("p", "fail").await;
    stage.until_ready("p").await;
    stage.end().await;
}

pub(crate) async fn containers_that_exit_end_their_pod(client: Client) {
    let stage = Stage::new(client, Options::default()).await;
    for (name, policy, code, end) in [
        ("done", "Never", "0", "Succeeded"),
        ("broken", "Never", "3", "Failed"),
        ("once", "OnFailure", "0", "Succeeded"),
        ("again", "OnFailure", "3", "Running"),
    ] {
        let mut object = annotated(name, &[("exit-after", "30s"), ("exit-code", code)]);
        object["spec"]["restartPolicy"] = json!(policy);
        stage.create(object).await;
        stage.until_ready(name).await;
        stage.pass(seconds(29)).await;
        assert_eq!(phase(&stage.get(name).await), "Running");
        stage.pass(seconds(1)).await;
        let pod = stage.get(name).await;
        assert_eq!(phase(&pod), end, "{name}");
        assert_eq!(container(&pod).restart_count, i32::from(end == "Running"));
    }
    stage.end().await;
}

/// Whatever request fails, and however: the pod becomes ready, changes its image, and goes. Where
/// the fault is the node's death, another takes its place.
pub(crate) async fn no_single_fault_keeps_a_pod_from_its_life(client: Client) {
    let report = every_point(&Fault::SUDDEN, async |faults: Faults| {
        let clock = Clock::system();
        let mut stage = Stage::with_clock(client.clone(), Options::default(), clock).await;
        stage.restart_with(faults.client(client.clone())).await;
        let successor = async {
            faults.stopped().await;
            let (clock, options) = (stage.clock.clone(), stage.options.clone());
            let _successor = Hollow::start(client.clone(), clock, options);
            std::future::pending().await
        };
        tokio::select! {
            () = whole_life(&stage) => {}
            () = successor => {}
        }
        stage.end().await;
    })
    .await;
    assert!(report.runs > 50, "{report:?}");
}

async fn whole_life(stage: &Stage) {
    stage.create(pod("p")).await;
    let before = stage.until_ready("p").await;
    let image = json!({"spec": {"containers": [{"name": "main", "image": "app:2"}]}});
    stage.patch("p", image).await;
    let is_restarted = |pod: &Pod| holds(pod, "Ready") && container(pod).image == "app:2";
    let restarted = stage.until("p", "restarted", is_restarted).await;
    assert_eq!(container(&restarted).restart_count, 1);
    assert_eq!(ip(&restarted), ip(&before));
    let pods = stage.pods();
    pods.delete("p", &DeleteParams::default()).await.unwrap();
    stage.until_gone("p").await;
}

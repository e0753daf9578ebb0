//! A pod from its creation to its end.

use std::{collections::BTreeSet, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use local::hollow::{Failure, Options, Target};
use serde_json::json;

use crate::stage::{
    Stage, annotated, condition, container, holds, ip, phase, pod, reason, seconds, sized_pod,
    waits_for,
};

pub(crate) async fn a_node_is_there_and_comes_back(client: Client) {
    let stage = Stage::new(client.clone(), Options::default()).await;
    stage.create(pod("p")).await;
    stage.until_ready("p").await;
    let nodes: Api<Node> = Api::all(client);
    let name = &stage.options.nodes[0];
    let is_ready = async || {
        let status = nodes
            .get_opt(name)
            .await
            .unwrap()
            .and_then(|node| node.status);
        let mut conditions = status.into_iter().flat_map(|s| s.conditions).flatten();
        conditions.any(|c| c.type_ == "Ready" && c.status == "True")
    };
    assert!(is_ready().await);
    let node = nodes.get(name).await.unwrap();
    let status = node.status.unwrap();
    assert!(status.allocatable.unwrap().contains_key("cpu"));
    assert_eq!(status.node_info.unwrap().operating_system, "linux");

    nodes.delete(name, &DeleteParams::default()).await.unwrap();
    for _ in 0..500 {
        if is_ready().await {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(is_ready().await);
    stage.end().await;
}

pub(crate) async fn a_pod_is_ready_after_its_delay_and_not_before(client: Client) {
    let options = Options {
        start_delay: seconds(3),
        ..Options::default()
    };
    let stage = Stage::new(client, options).await;
    stage.create(pod("p")).await;
    stage
        .create(annotated("slow", &[("start-delay", "5s")]))
        .await;
    let starting = stage.until_starting("p").await;
    stage.until_starting("slow").await;
    assert_eq!(phase(&starting), "Pending");
    assert_eq!(waits_for(&starting), "ContainerCreating");
    assert!(holds(&starting, "PodScheduled"));
    assert_eq!(ip(&starting), None);

    stage.until_due(seconds(3)).await;
    stage.pass(Duration::from_millis(2999)).await;
    assert_eq!(phase(&stage.get("p").await), "Pending");
    stage.pass(Duration::from_millis(1)).await;
    let ready = stage.get("p").await;
    assert_eq!(phase(&ready), "Running");
    for kind in [
        "PodReadyToStartContainers",
        "Initialized",
        "ContainersReady",
        "Ready",
    ] {
        let condition = condition(&ready, kind).unwrap();
        assert_eq!(condition.status, "True", "{kind}");
        assert_eq!(condition.observed_generation, ready.metadata.generation);
    }
    let at = condition(&ready, "Ready")
        .unwrap()
        .last_transition_time
        .as_ref();
    assert_eq!(at.unwrap().0, stage.clock.now());
    let main = container(&ready);
    assert!(main.ready && main.started == Some(true) && main.container_id.is_some());
    assert_eq!((main.image.as_str(), main.restart_count), ("app:1", 0));
    assert_eq!(
        ready.status.as_ref().unwrap().qos_class.as_deref(),
        Some("BestEffort")
    );

    assert_eq!(phase(&stage.get("slow").await), "Pending");
    stage.until_due(seconds(2)).await;
    stage.pass(seconds(2)).await;
    let slow = stage.get("slow").await;
    assert_eq!(phase(&slow), "Running");
    assert_ne!(ip(&slow), ip(&ready));
    stage.end().await;
}

pub(crate) async fn init_containers_go_first_and_sidecars_stay(client: Client) {
    let stage = Stage::new(client, Options::default()).await;
    let cannot = stage
        .hollow()
        .fail(Target::Image("init:*".into()), Failure::Pull);
    let mut object = pod("p");
    object["spec"]["initContainers"] = json!([
        {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"},
        {"name": "init", "image": "init:1"},
    ]);
    stage.create(object).await;
    let pending = stage
        .until("p", "uninitialized", |pod| {
            !reason(pod, "Initialized").is_empty()
        })
        .await;
    assert_eq!(phase(&pending), "Pending");
    let message = condition(&pending, "Initialized")
        .unwrap()
        .message
        .as_deref();
    assert_eq!(message, Some("containers with incomplete status: [init]"));
    assert_eq!(waits_for(&pending), "PodInitializing");

    stage.hollow().heal(cannot);
    let ready = stage.until_ready("p").await;
    assert!(holds(&ready, "Initialized"));
    let inits = ready.status.unwrap().init_container_statuses.unwrap();
    let states: Vec<_> = inits
        .iter()
        .map(|init| {
            let state = init.state.as_ref().unwrap();
            let code = state.terminated.as_ref().map(|end| end.exit_code);
            (init.ready, state.running.is_some(), code)
        })
        .collect();
    assert_eq!(states, [(true, true, None), (true, false, Some(0))]);
    stage.end().await;
}

pub(crate) async fn a_readiness_gate_keeps_a_pod_from_being_ready(client: Client) {
    let stage = Stage::new(client, Options::default()).await;
    let mut object = pod("p");
    object["spec"]["readinessGates"] = json!([{"conditionType": "example.com/open"}]);
    stage.create(object).await;
    let running = stage
        .until("p", "running", |pod| phase(pod) == "Running")
        .await;
    assert!(holds(&running, "ContainersReady") && !holds(&running, "Ready"));
    assert_eq!(reason(&running, "Ready"), "ReadinessGatesNotReady");

    for (status, ready) in [("True", true), ("False", false), ("True", true)] {
        let gate = json!({"type": "example.com/open", "status": status});
        let patch = json!({"status": {"conditions": [gate]}});
        stage.patch_part("status", "p", patch).await;
        let is = |pod: &Pod| holds(pod, "Ready") == ready;
        let pod = stage.until("p", "as its gate says", is).await;
        assert_eq!(holds(&pod, "example.com/open"), ready);
    }
    stage.end().await;
}

pub(crate) async fn a_deleted_pod_takes_its_time_and_is_gone(client: Client) {
    let options = Options {
        stop_delay: seconds(5),
        ..Options::default()
    };
    let stage = Stage::new(client, options).await;
    for (name, grace, time) in [("patient", 30, 5), ("hurried", 2, 2)] {
        let mut object = pod(name);
        object["spec"]["terminationGracePeriodSeconds"] = json!(grace);
        stage.create(object).await;
        stage.until_ready(name).await;
        stage
            .pods()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        stage.until_due(seconds(time)).await;
    }
    let exists = async |name| stage.pods().get_opt(name).await.unwrap().is_some();
    stage.pass(Duration::from_millis(1999)).await;
    assert!(exists("patient").await && exists("hurried").await);
    stage.pass(Duration::from_millis(1)).await;
    assert!(exists("patient").await && !exists("hurried").await);
    stage.pass(Duration::from_millis(2999)).await;
    assert!(exists("patient").await);
    stage.pass(Duration::from_millis(1)).await;
    assert!(!exists("patient").await);
    stage.end().await;
}

pub(crate) async fn a_finalizer_keeps_an_ended_pod(client: Client) {
    let stage = Stage::new(client, Options::default()).await;
    let mut object = pod("p");
    object["metadata"]["finalizers"] = json!(["example.com/wait"]);
    stage.create(object).await;
    stage.until_ready("p").await;
    stage
        .pods()
        .delete("p", &DeleteParams::default())
        .await
        .unwrap();
    let ended = stage
        .until("p", "ended", |pod| {
            pod.metadata.deletion_grace_period_seconds == Some(0)
        })
        .await;
    assert_eq!(
        (phase(&ended), reason(&ended, "Ready")),
        ("Succeeded", "PodCompleted")
    );
    let free = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/wait"]}});
    stage.patch("p", free).await;
    stage.until_gone("p").await;
    stage.end().await;
}

pub(crate) async fn a_new_node_goes_on_where_the_old_one_stopped(client: Client) {
    let options = Options {
        start_delay: seconds(10),
        stop_delay: seconds(10),
        ..Options::default()
    };
    let mut stage = Stage::new(client, options).await;
    stage
        .create(annotated("old", &[("start-delay", "0s")]))
        .await;
    let old = stage.until_ready("old").await;
    stage.create(pod("starting")).await;
    stage.until_starting("starting").await;
    stage.pass(seconds(4)).await;
    stage.restart().await;
    stage
        .create(annotated("new", &[("start-delay", "0s")]))
        .await;
    let new = stage.until_ready("new").await;
    assert_eq!(phase(&stage.get("starting").await), "Pending");
    stage.pass(seconds(6)).await;
    let started = stage.get("starting").await;
    assert_eq!(phase(&started), "Running");
    let unchanged = stage.get("old").await;
    assert_eq!(unchanged.resource_version(), old.resource_version());
    let addresses = BTreeSet::from([ip(&old), ip(&new), ip(&started)]);
    assert_eq!(addresses.len(), 3);

    stage
        .pods()
        .delete("old", &DeleteParams::default())
        .await
        .unwrap();
    stage.restart().await;
    stage.until_due(seconds(10)).await;
    stage.pass(seconds(10)).await;
    stage.until_gone("old").await;
    stage.end().await;
}

pub(crate) async fn nothing_is_written_when_nothing_changes(client: Client) {
    let mut stage = Stage::new(client.clone(), Options::default()).await;
    let mut object = sized_pod("p");
    object["spec"]["initContainers"] = json!([{"name": "init", "image": "init:1"}]);
    stage.create(object).await;
    let pod = stage.until_ready("p").await;
    let nodes: Api<Node> = Api::all(client);
    let node = nodes.get(&stage.options.nodes[0]).await.unwrap();
    stage.restart().await;
    stage.create(annotated("later", &[])).await;
    stage.until_ready("later").await;
    stage.pass(seconds(86_400)).await;
    let same = stage.get("p").await;
    assert_eq!(same.resource_version(), pod.resource_version());
    let same = nodes.get(&stage.options.nodes[0]).await.unwrap();
    assert_eq!(same.resource_version(), node.resource_version());
    stage.end().await;
}

pub(crate) async fn two_hundred_pods_are_spread_and_become_ready(client: Client) {
    let options = Options {
        start_delay: seconds(2),
        ..Options::default().with_nodes(4)
    };
    let stage = Stage::new(client, options).await;
    let names: Vec<String> = (0..200).map(|index| format!("p{index}")).collect();
    futures::stream::iter(&names)
        .for_each_concurrent(8, async |name| {
            stage.create(pod(name)).await;
        })
        .await;
    for name in &names {
        stage.until_starting(name).await;
    }
    stage.pass(seconds(2)).await;
    let pods = stage
        .pods()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items;
    let ready = pods.iter().filter(|pod| holds(pod, "Ready")).count();
    let addresses: BTreeSet<_> = pods.iter().filter_map(ip).collect();
    assert_eq!((ready, addresses.len()), (200, 200));
    for node in &stage.options.nodes {
        let on_it = pods
            .iter()
            .filter(|pod| pod.spec.as_ref().unwrap().node_name.as_ref() == Some(node));
        assert!((40..=60).contains(&on_it.count()));
    }
    stage.end().await;
}

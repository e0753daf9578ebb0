//! Which node takes a pod, and what is written about nodes.

use std::{collections::BTreeMap, net::Ipv4Addr};

use api::patch::merge;
use k8s_openapi::{
    api::core::v1::{Node, PodSpec},
    jiff::Timestamp,
};
use serde_json::{Value, json};

use super::{
    node::{self, Machine, NodeAct, Spot},
    plan::{Plan, difference, schedule},
};

fn node(name: &str, labels: &Value, unschedulable: bool) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": unschedulable},
        "status": {"allocatable": {"pods": "2"}},
    }))
    .unwrap()
}

#[test]
fn a_pod_goes_to_the_node_with_the_fewest_pods_that_takes_it() {
    let ssd = json!({"disk": "ssd"});
    let nodes = [
        node("a", &ssd, false),
        node("b", &json!({}), false),
        node("c", &ssd, true),
    ];
    let choose = |spec: &Value, loads: [usize; 3]| {
        let spec: PodSpec = serde_json::from_value(spec.clone()).unwrap();
        let spots: Vec<Spot<'_>> = std::iter::zip(&nodes, loads)
            .map(|(node, load)| Spot {
                name: node.metadata.name.as_deref().unwrap(),
                node: Some(node),
                load,
                has_disk_pressure: false,
            })
            .collect();
        node::choose(&spec, &spots, None).map(str::to_owned)
    };
    let any = json!({"containers": []});
    let picky = json!({"containers": [], "nodeSelector": {"disk": "ssd"}});
    assert_eq!(choose(&any, [1, 0, 0]).unwrap(), "b");
    assert_eq!(choose(&any, [1, 1, 0]).unwrap(), "a");
    assert_eq!(choose(&picky, [1, 0, 0]).unwrap(), "a");
    let why = choose(&picky, [2, 0, 0]).unwrap_err();
    let start = "0/3 nodes are available: 1 Too many pods, 1 node(s) didn't match Pod's node \
                 affinity/selector, 1 node(s) were unschedulable.";
    assert!(why.starts_with(start), "{why}");
}

#[test]
fn a_pod_waits_for_the_first_node_without_a_word() {
    let spots = [Spot {
        name: "a",
        node: None,
        load: 0,
        has_disk_pressure: false,
    }];
    let pod = serde_json::from_value(json!({"spec": {"containers": []}})).unwrap();
    let plan = schedule(&pod, &spots, None, Timestamp::UNIX_EPOCH);
    assert_eq!(plan, Plan::default());
}

#[test]
fn a_node_needs_three_writes_and_then_none() {
    let now = "2026-01-31T12:00:00.7Z".parse().unwrap();
    let machine = Machine {
        name: "a".to_owned(),
        address: Ipv4Addr::new(10, 255, 0, 1),
        capacity: BTreeMap::new(),
        labels: BTreeMap::new(),
        runtime: "none://1.0".to_owned(),
        kernel: "none".to_owned(),
        system: "none".to_owned(),
    };
    let mut node: Option<Node> = None;
    let mut kinds = Vec::new();
    for _ in 0..5 {
        let Some(act) = node::keep(&machine, node.as_ref(), None, now) else {
            break;
        };
        let mut object = serde_json::to_value(&node).unwrap();
        match &act {
            NodeAct::Create(created) => {
                object = serde_json::to_value(created).unwrap();
                let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
                object["spec"] = json!({"taints": [taint]});
                kinds.push("create");
            }
            NodeAct::Status(patch) => {
                object = merge::apply(object, patch).unwrap();
                kinds.push("status");
            }
            NodeAct::Patch(patch) => {
                object = merge::apply(object, patch).unwrap();
                kinds.push("untaint");
            }
        }
        node = serde_json::from_value(object).unwrap();
    }
    assert_eq!(kinds, ["create", "status", "untaint"]);
}

#[test]
fn a_difference_is_the_patch_that_makes_one_of_the_other() {
    let old = json!({"a": 1, "b": {"c": 1, "d": [1]}, "e": 1});
    let new = json!({"a": 1, "b": {"c": 2, "d": [1, 2]}, "f": {"g": 1}});
    let patch = difference(&old, &new).unwrap();
    let expected = json!({"b": {"c": 2, "d": [1, 2]}, "e": null, "f": {"g": 1}});
    assert_eq!(patch, expected);
    assert_eq!(merge::apply(old, &patch).unwrap(), new);
    assert_eq!(difference(&new, &new), None);
}

//! Which changes of a pod its sandbox need not look at.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::{can_wait, view::Sandbox},
    pod,
};
use crate::store::{By, Change, Store};

fn store(change: &Value) -> Store<Sandbox> {
    let owner = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool",
        "name": "pool", "uid": "pool", "controller": true,
    });
    let mut object = json!({
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {
            "name": "box", "namespace": "n", "uid": "sandbox", "resourceVersion": "5",
            "ownerReferences": [owner],
        },
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "app:1"}]}}},
    });
    json_patch::merge(&mut object, change);
    let store = Store::default();
    store.learn(serde_json::from_value(object).unwrap(), "somebody");
    store
}

#[test]
fn a_pod_on_its_way_is_not_looked_at_before_there_is_something_to_tell() {
    let unready = |more: Value| {
        let mut change = json!({"status": {"phase": "Pending", "podIPs": [], "conditions": []}});
        json_patch::merge(&mut change, &more);
        Arc::new(pod(&change))
    };
    let created = unready(json!({"spec": {"nodeName": null}}));
    let scheduled = unready(json!({"metadata": {"resourceVersion": "8"}}));
    let running = unready(json!({"status": {"phase": "Running"}}));
    let ready = Arc::new(pod(&json!({})));
    let failed = unready(json!({"status": {"phase": "Failed"}}));
    let going = unready(json!({"metadata": {"deletionTimestamp": super::NOON}}));
    let relabelled =
        unready(json!({"metadata": {"labels": {"agents.x-k8s.io/sandbox-name-hash": "x"}}}));

    let member = store(&json!({}));
    let told = store(&json!({"status": {"selector": "x"}}));
    let plain = store(&json!({"metadata": {"ownerReferences": null}}));
    let leaving = store(&json!({"metadata": {"deletionTimestamp": super::NOON}}));
    let cases = [
        (&member, Some(&created), Some(&scheduled), true),
        (&member, Some(&scheduled), Some(&running), true),
        (&told, Some(&created), Some(&scheduled), false),
        (&plain, Some(&created), Some(&scheduled), false),
        (&member, Some(&running), Some(&ready), false),
        (&member, Some(&ready), Some(&running), false),
        (&member, Some(&running), Some(&failed), false),
        (&member, Some(&running), Some(&going), false),
        (&member, Some(&running), Some(&relabelled), false),
        (&member, None, Some(&created), false),
        (&member, Some(&created), None, false),
        (&leaving, Some(&ready), Some(&going), true),
        (&leaving, Some(&going), None, true),
        (&Store::default(), Some(&going), None, true),
    ];
    for (index, (store, before, after, expected)) in cases.into_iter().enumerate() {
        let by = By::Watch;
        let change = Change { before, after, by };
        assert_eq!(can_wait(store, &change), expected, "case {index}");
    }
}

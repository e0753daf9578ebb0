//! Pools that are rolled while claims come, seen through a watch: what is in stock at every instant.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use api::sigs::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::fleet::{Fleet, image, is_claimable, is_of, is_ready, template};

/// Follows the sandboxes of a namespace.
struct Watcher {
    states: Arc<Mutex<States>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct States {
    sandboxes: BTreeMap<String, Sandbox>,
    /// Members that claims have taken and whose refill is not Ready yet.
    taken: usize,
    /// The fewest that were claimable or taken at a time.
    least: Option<usize>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl States {
    fn take_in(&mut self, event: WatchEvent<Sandbox>) {
        match event {
            WatchEvent::Added(sandbox) | WatchEvent::Modified(sandbox) => {
                let uid = sandbox.uid().unwrap();
                let is_claimed = is_of("SandboxClaim", &sandbox);
                let is_refill = !sandbox
                    .annotations()
                    .contains_key("sandbar.dev/for-rollout");
                let is_ready_refill = is_refill && !is_claimed && is_ready(&sandbox);
                let before = self.sandboxes.insert(uid, sandbox);
                let was_ready = before.as_ref().is_some_and(is_ready);
                let was_member = before.is_some_and(|before| is_of("SandboxWarmPool", &before));
                if is_claimed && was_member {
                    self.taken += 1;
                }
                if is_ready_refill && !was_ready {
                    self.taken = self.taken.saturating_sub(1);
                }
            }
            WatchEvent::Deleted(sandbox) => drop(self.sandboxes.remove(&sandbox.uid().unwrap())),
            WatchEvent::Bookmark(_) => return,
            WatchEvent::Error(status) => panic!("the watch ends: {status:?}"),
        }
        let claimable = self.sandboxes.values().filter(|one| is_claimable(one));
        let there = claimable.count() + self.taken;
        self.least = Some(self.least.map_or(there, |least| least.min(there)));
    }
}

impl Watcher {
    async fn of(fleet: &Fleet) -> Self {
        let api: Api<Sandbox> = fleet.api();
        let list = api.list(&ListParams::default()).await.unwrap();
        let version = list.metadata.resource_version.unwrap();
        let states = Arc::new(Mutex::new(States::default()));
        for sandbox in list.items {
            let uid = sandbox.uid().unwrap();
            states.lock().unwrap().sandboxes.insert(uid, sandbox);
        }
        let seen = Arc::clone(&states);
        let task = tokio::spawn(async move {
            let events = api.watch(&WatchParams::default(), &version).await.unwrap();
            let mut events = Box::pin(events);
            while let Some(Ok(event)) = futures::StreamExt::next(&mut events).await {
                seen.lock().unwrap().take_in(event);
            }
        });
        Self { states, task }
    }

    /// The fewest until now, provided that nothing escaped it.
    fn least(&self) -> usize {
        assert!(!self.task.is_finished(), "the watch has ended");
        self.states.lock().unwrap().least.unwrap()
    }
}

async fn rolling(name: &str, replicas: u32, fields: Value) -> Fleet {
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": fields});
    Fleet::filled(name, replicas, strategy).await
}

#[tokio::test]
async fn steady_claims_find_stock_at_every_instant_of_a_rolling_update() {
    let fields = json!({"maxUnavailable": 1, "maxSurge": 1, "inPlace": "Never"});
    let fleet = rolling("steady", 4, fields).await;
    let watcher = Watcher::of(&fleet).await;
    fleet.set_image("one", "busybox:v2").await;
    let mut given = Vec::new();
    for number in 0..5 {
        fleet.until_two_are_claimable().await;
        let sandbox = fleet.claim(&format!("claim-{number}"), json!({})).await;
        given.push(sandbox.uid());
        tokio::time::sleep(Duration::from_millis(1500)).await;
    }
    fleet.until_stocked(4, "busybox:v2").await;
    assert!(watcher.least() >= 3, "{} were in stock", watcher.least());
    for sandbox in fleet.list::<Sandbox>().await {
        assert_eq!(sandbox.labels()["agents.x-k8s.io/launch-type"], "warm");
    }
    let claims: Vec<SandboxClaim> = fleet.list().await;
    assert_eq!((claims.len(), given.len()), (5, 5));
    given.sort();
    given.dedup();
    assert_eq!(given.len(), 5);
}

async fn switch_to_two(fleet: &Fleet, image: &str) {
    fleet
        .create::<SandboxTemplate>(template("two", image))
        .await;
    let switched = json!({"spec": {"sandboxTemplateRef": {"name": "two"}}});
    fleet.patch::<SandboxWarmPool>("pool", switched).await;
}

async fn until_all_are_of_two(fleet: &Fleet, wanted: &str) {
    let probe = async || {
        let members = fleet.members().await;
        let is_so = |one: &Sandbox| {
            let reference = &one.annotations()["agents.x-k8s.io/sandbox-template-ref"];
            reference == "two" && is_ready(one) && image(one) == wanted
        };
        (members.len() == 2 && members.iter().all(is_so)).then_some(())
    };
    fleet
        .until("all members are of the other template", probe)
        .await;
}

#[tokio::test]
async fn another_template_is_rolled_out_and_an_equal_one_comes_in_place() {
    let fleet = rolling("switch", 2, json!({"maxUnavailable": 1, "maxSurge": 0})).await;
    let pods = async || -> Vec<Option<String>> {
        let pods: Vec<Pod> = fleet.list().await;
        pods.iter().map(kube::ResourceExt::uid).collect()
    };
    let before = pods().await;
    switch_to_two(&fleet, "busybox:v1").await;
    until_all_are_of_two(&fleet, "busybox:v1").await;
    assert_eq!(pods().await, before);
    let watcher = Watcher::of(&fleet).await;
    let env = json!([{"name": "MODE", "value": "new"}]);
    let mut other = template("three", "busybox:v2");
    other["spec"]["podTemplate"]["spec"]["containers"][0]["env"] = env;
    fleet.create::<SandboxTemplate>(other).await;
    let switched = json!({"spec": {"sandboxTemplateRef": {"name": "three"}}});
    fleet.patch::<SandboxWarmPool>("pool", switched).await;
    let members = fleet.until_stocked(2, "busybox:v2").await;
    for member in members {
        let reference = &member.annotations()["agents.x-k8s.io/sandbox-template-ref"];
        assert_eq!(reference, "three");
    }
    assert!(watcher.least() >= 1, "nothing was in stock");
    let are_others = async || {
        let after = pods().await;
        let is_other = |pod: &Option<String>| !before.contains(pod);
        (after.len() == 2 && after.iter().all(is_other)).then_some(())
    };
    fleet.until("two other pods are left", are_others).await;
}

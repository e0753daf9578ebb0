//! Decisions, as tables.

mod acts;
mod parts;
mod status;
mod update;
mod waits;

use std::{collections::BTreeMap, sync::Arc};

use api::sigs::shared::Blueprint;
use engine::in_place::Platform;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    decide::{Act, Look, Part, Step, World, decide},
    update::Whole,
    view::{Pod, Sandbox, Service, Volume},
};
use crate::testing::view;

/// The hash of `box`.
const HASH: &str = "70c67e32";
const NOON: &str = "2026-01-31T12:00:00Z";

fn sandbox(change: &Value) -> Sandbox {
    let base = json!({
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {
            "name": "box", "namespace": "n", "uid": "sandbox", "resourceVersion": "5", "generation": 3,
        },
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "app:1"}]}}},
    });
    view(base, change)
}

fn metadata(name: &str) -> Value {
    let owner = json!({
        "apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "name": "box", "uid": "sandbox",
        "controller": true,
    });
    json!({
        "name": name, "namespace": "n", "uid": format!("uid-of-{name}"), "resourceVersion": "7",
        "labels": {"agents.x-k8s.io/sandbox-name-hash": HASH},
        "ownerReferences": [owner],
    })
}

/// A pod of the sandbox that is ready.
fn pod(change: &Value) -> Pod {
    let conditions = json!([
        {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"},
    ]);
    let base = json!({
        "metadata": metadata("box"),
        "spec": {"nodeName": "node", "containers": []},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "conditions": conditions},
    });
    view(base, change)
}

fn service(change: &Value) -> Service {
    let selector = json!({"agents.x-k8s.io/sandbox-name-hash": HASH});
    let spec = json!({"clusterIP": "None", "selector": selector});
    view(json!({"metadata": metadata("box"), "spec": spec}), change)
}

fn volume(change: &Value) -> Volume {
    view(json!({"metadata": metadata("data-box")}), change)
}

/// What a pass may know, to be changed by each test.
struct Known {
    sandbox: Sandbox,
    blueprint: Blueprint,
    pods: Vec<Arc<Pod>>,
    annotated: Look<Pod>,
    namesake: Look<Pod>,
    whole: Look<Whole>,
    refusal: Option<String>,
    updates: usize,
    service: Look<Service>,
    volumes: Vec<Look<Volume>>,
    trouble: BTreeMap<Part, String>,
    trace: Option<String>,
}

fn known(change: Value) -> Known {
    let sandbox = sandbox(&change);
    let blueprint = sandbox.blueprint().unwrap();
    let templates = blueprint.volume_claim_templates.iter().flatten();
    Known {
        volumes: templates.map(|_| Look::Unknown).collect(),
        sandbox,
        blueprint,
        pods: Vec::new(),
        annotated: Look::Unknown,
        namesake: Look::Unknown,
        whole: Look::Unknown,
        refusal: None,
        updates: 0,
        service: Look::Unknown,
        trouble: BTreeMap::new(),
        trace: None,
    }
}

impl Known {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn with_pod(self, change: &Value) -> Self {
        self.with(|known| known.pods.push(Arc::new(pod(change))))
    }

    fn decide(&self) -> Step {
        decide(&World {
            sandbox: &self.sandbox,
            blueprint: &self.blueprint,
            pods: self.pods.clone(),
            annotated: self.annotated.clone(),
            namesake: self.namesake.clone(),
            whole: self.whole.clone(),
            refusal: self.refusal.clone(),
            updates: self.updates,
            platform: Platform::of(36, true),
            service: self.service.clone(),
            volumes: self.volumes.clone(),
            trouble: self.trouble.clone(),
            trace: self.trace.clone(),
            domain: "cluster.local",
            now: NOON.parse::<Timestamp>().unwrap(),
        })
    }

    /// The step in a few words.
    fn step(&self) -> String {
        match self.decide() {
            Step::Rest(next) => format!("rest {next:?}"),
            Step::Act(Act::ReadPod(name)) => format!("read pod {name}"),
            Step::Act(Act::ReadService) => "read service".to_owned(),
            Step::Act(Act::ReadWhole(name)) => format!("read all of pod {name}"),
            Step::Act(Act::Update(meta, endpoint, body)) => {
                format!("update @{} {endpoint:?} {body}", meta.version)
            }
            Step::Act(Act::Gate(meta, status)) => {
                let gate = &status["status"]["conditions"][0];
                format!("gate @{} {}", meta.version, gate["status"])
            }
            Step::Act(Act::Create(part, body)) => {
                format!("create {part:?} {}", body["metadata"]["name"])
            }
            Step::Act(Act::Patch(part, _, guard, body)) => {
                format!("patch {part:?} {guard:?} {body}")
            }
            Step::Act(Act::Delete(part, meta)) => {
                format!("delete {part:?} {}@{}", meta.uid, meta.version)
            }
            Step::Act(Act::Status(_)) => "status".to_owned(),
            Step::Act(Act::Announce(_, news)) => format!("status and tell {}", news.reason),
        }
    }
}

fn looked<T>(object: T) -> Look<T> {
    Look::Found(Arc::new(object))
}

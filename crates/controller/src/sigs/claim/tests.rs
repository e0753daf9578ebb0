//! Decisions, as tables.

mod acts;
mod books;
mod metadata;
mod provision;

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    decide::{Act, Step, World, decide},
    find::Sandboxes,
    ledger::Memory,
    run::Options,
    view::Claim,
};
use crate::{
    queue::Next,
    sigs::{
        pool::view::Pool,
        sandbox::{decide::Look, view::Sandbox},
        template::view::Template,
    },
    testing::view,
};

const NOON: &str = "2026-01-31T12:00:00Z";
const EXTENSIONS: &str = "extensions.agents.x-k8s.io/v1beta1";

fn noon() -> Timestamp {
    NOON.parse().unwrap()
}

fn claim(change: &Value) -> Claim {
    let base = json!({
        "apiVersion": EXTENSIONS,
        "kind": "SandboxClaim",
        "metadata": {
            "name": "mine", "namespace": "n", "uid": "claim", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": NOON,
        },
        "spec": {"warmPoolRef": {"name": "pool"}},
    });
    view(base, change)
}

fn template(spec: &Value) -> Template {
    let base = json!({
        "apiVersion": EXTENSIONS,
        "kind": "SandboxTemplate",
        "metadata": {"name": "test-template", "namespace": "n", "uid": "template", "resourceVersion": "3"},
        "spec": {"podTemplate": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {"containers": [{"name": "main", "image": "app:1"}, {"name": "side", "image": "app:1"}]},
        }},
    });
    view(base, &json!({"spec": spec}))
}

fn pool() -> Pool {
    pool_with(&json!({}))
}

fn pool_with(spec: &Value) -> Pool {
    let base = json!({
        "apiVersion": EXTENSIONS,
        "kind": "SandboxWarmPool",
        "metadata": {"name": "pool", "namespace": "n", "uid": "pool", "resourceVersion": "4"},
        "spec": {"sandboxTemplateRef": {"name": "test-template"}},
    });
    view(base, &json!({"spec": spec}))
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!([{
        "apiVersion": EXTENSIONS, "kind": kind, "name": name, "uid": uid, "controller": true,
        "blockOwnerDeletion": true,
    }])
}

/// A member of the pool that is Ready.
fn member(change: &Value) -> Sandbox {
    let labels = json!({
        "agents.x-k8s.io/warm-pool-sandbox": engine::revision::name_hash("pool"),
        "agents.x-k8s.io/sandbox-template-ref-hash": "69155462",
        "agents.x-k8s.io/sandbox-template-hash": "one",
    });
    let base = json!({
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {
            "name": "pool-1", "namespace": "n", "uid": "sandbox", "resourceVersion": "5",
            "creationTimestamp": NOON, "labels": labels,
            "ownerReferences": owner("SandboxWarmPool", "pool", "pool"),
        },
        "spec": {"podTemplate": {
            "metadata": {
                "labels": {"app": "agent", "agents.x-k8s.io/warm-pool-sandbox": "hash"},
                "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
            },
            "spec": {"containers": [{"name": "main", "image": "app:1"}]},
        }},
        "status": {"podIPs": ["10.0.0.1"], "conditions": [condition("Ready", "True", "DependenciesReady")]},
    });
    view(base, change)
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": "as it is",
        "lastTransitionTime": "2026-01-31T11:00:00Z", "observedGeneration": 1,
    })
}

/// What the claim has once it is bound, in step with its template.
fn bound(change: &Value) -> Sandbox {
    let labels = json!({
        "agents.x-k8s.io/claim-uid": "claim",
        "agents.x-k8s.io/launch-type": "warm",
        "agents.x-k8s.io/sandbox-template-ref-hash": "69155462",
        "agents.x-k8s.io/warm-pool-sandbox": null,
        "agents.x-k8s.io/sandbox-template-hash": null,
    });
    let pod = json!({
        "labels": {
            "app": "agent",
            "agents.x-k8s.io/claim-uid": "claim",
            "agents.x-k8s.io/sandbox-template-ref-hash": "69155462",
            "agents.x-k8s.io/warm-pool-sandbox": null,
        },
        "annotations": null,
    });
    let mut all = json!({
        "metadata": {"labels": labels, "ownerReferences": owner("SandboxClaim", "mine", "claim")},
        "spec": {"podTemplate": {"metadata": pod}},
    });
    // the nulls of either are to reach the member
    for part in ["metadata", "spec", "status"] {
        if let Some(part_change) = change.get(part) {
            let target = all[part].as_object_mut();
            match target {
                None => all[part] = part_change.clone(),
                Some(_) => merge_keeping_nulls(&mut all[part], part_change),
            }
        }
    }
    member(&all)
}

fn merge_keeping_nulls(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge_keeping_nulls(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// One pass over a claim of a pool that exists.
struct Scene {
    claim: Claim,
    sandboxes: Sandboxes,
    pool: Look<Pool>,
    template: Look<Template>,
    is_template_fresh: bool,
    is_behind: bool,
    offer: Option<Result<super::decide::Offer, engine::claim::Refusal>>,
    memory: Memory,
    trouble: Option<String>,
    options: Options,
    now: Timestamp,
}

impl Scene {
    fn new(change: &Value) -> Self {
        Self {
            claim: claim(change),
            sandboxes: Sandboxes::default(),
            pool: Look::Found(Arc::new(pool())),
            template: Look::Found(Arc::new(template(&json!({})))),
            is_template_fresh: true,
            is_behind: false,
            offer: None,
            memory: Memory {
                observed: Some(noon()),
                ..Memory::default()
            },
            trouble: None,
            options: Options::default(),
            now: noon(),
        }
    }

    fn with(change: &Value, owned: impl IntoIterator<Item = Sandbox>) -> Self {
        let mut scene = Self::new(change);
        scene.sandboxes.owned = owned.into_iter().map(Arc::new).collect();
        scene
    }

    fn decide(&self) -> Step {
        decide(&World {
            claim: &self.claim,
            sandboxes: self.sandboxes.clone(),
            pool: self.pool.clone(),
            template: self.template.clone(),
            is_template_fresh: self.is_template_fresh,
            is_behind: self.is_behind,
            policy: None,
            offer: self.offer.clone(),
            memory: self.memory.clone(),
            trouble: self.trouble.clone(),
            options: &self.options,
            now: self.now,
        })
    }

    fn act(&self) -> Act {
        match self.decide() {
            Step::Act(act) => act,
            Step::Rest(next) => panic!("rests: {next:?}"),
        }
    }

    fn rest(&self) -> Next {
        match self.decide() {
            Step::Rest(next) => next,
            Step::Act(act) => panic!("acts: {act:?}"),
        }
    }

    /// The reason and the message of Ready that are written.
    fn ready(&self) -> (String, String) {
        let patch = match self.act() {
            Act::Status(patch) | Act::Announce(patch, _) => patch,
            act => panic!("not a status: {act:?}"),
        };
        let conditions = patch["conditions"].as_array().unwrap();
        let ready = conditions
            .iter()
            .find(|one| one["type"] == "Ready")
            .unwrap();
        let text = |field: &str| ready[field].as_str().unwrap().to_owned();
        (text("reason"), text("message"))
    }
}

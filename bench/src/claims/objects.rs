//! The objects that are written, and what is read of those that are watched.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

pub(crate) const SANDBOXES: &str = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes";
pub(crate) const CLAIMS: &str =
    "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxclaims";
pub(crate) const TEMPLATES: &str =
    "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxtemplates";
pub(crate) const POOLS: &str =
    "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxwarmpools";
const EXTENSIONS: &str = "extensions.agents.x-k8s.io/v1beta1";
/// A member that has it is being updated in place and is in nobody's stock.
const FENCE: &str = "sandbar.dev/update";
const START_DELAY: &str = "testbed.sandbar.dev/start-delay";
const REVISION: &str = "REVISION";

/// What a template says: a new number makes members be replaced, a new image can be taken on in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) number: usize,
    pub(crate) image: usize,
}

impl Content {
    pub(crate) const FIRST: Self = Self {
        number: 1,
        image: 1,
    };

    /// As [`Sandbox::revision`] tells it.
    pub(crate) fn revision(self) -> String {
        format!("{} {}", self.image(), self.number)
    }

    pub(crate) fn image(self) -> String {
        format!("registry.example.com/agent:v{}", self.image)
    }

    fn spec(self, start: Duration) -> Value {
        json!({
            "podTemplate": {
                "metadata": {
                    "labels": {"app": "agent"},
                    "annotations": {START_DELAY: format!("{}ms", start.as_millis())},
                },
                "spec": {
                    // who is the first process of a container hears no SIGTERM
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "agent",
                        "image": self.image(),
                        "command": ["sleep", "1000000"],
                        "env": [
                            {"name": REVISION, "value": self.number.to_string()},
                            {"name": "HOME", "value": "/home/agent"},
                        ],
                        "ports": [{"name": "http", "containerPort": 8080}],
                        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
                    }],
                },
            },
        })
    }
}

pub(crate) fn template(name: &str, content: Content, start: Duration) -> Value {
    json!({
        "apiVersion": EXTENSIONS,
        "kind": "SandboxTemplate",
        "metadata": {"name": name},
        "spec": content.spec(start),
    })
}

/// `strategy` is the type of the pool's update strategy.
pub(crate) fn pool(name: &str, replicas: usize, strategy: &str) -> Value {
    json!({
        "apiVersion": EXTENSIONS,
        "kind": "SandboxWarmPool",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "sandboxTemplateRef": {"name": name},
            "updateStrategy": {"type": strategy},
        },
    })
}

pub(crate) fn claim(name: &str, pool: &str) -> Value {
    json!({
        "apiVersion": EXTENSIONS,
        "kind": "SandboxClaim",
        "metadata": {"name": name},
        "spec": {"warmPoolRef": {"name": pool}},
    })
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Meta {
    pub(crate) name: String,
    deletion_timestamp: Option<String>,
    annotations: std::collections::BTreeMap<String, String>,
    owner_references: Vec<Owner>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Owner {
    kind: String,
    name: String,
    controller: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
}

fn is_ready(conditions: &[Condition]) -> bool {
    let ready = conditions.iter().find(|one| one.r#type == "Ready");
    ready.is_some_and(|ready| ready.status == "True")
}

/// What matters of a Sandbox.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Sandbox {
    metadata: Meta,
    spec: SandboxSpec,
    status: SandboxStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SandboxSpec {
    pod_template: PodTemplate,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodTemplate {
    spec: PodSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodSpec {
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    image: String,
    env: Vec<Variable>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Variable {
    name: String,
    value: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SandboxStatus {
    conditions: Vec<Condition>,
    #[serde(rename = "podIPs")]
    pod_ips: Vec<String>,
}

impl Sandbox {
    pub(crate) fn name(&self) -> &str {
        &self.metadata.name
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn is_fenced(&self) -> bool {
        self.metadata.annotations.contains_key(FENCE)
    }

    /// Whether it is in that pool's hands, or, without a name, in any pool's.
    pub(crate) fn is_member_of(&self, pool: &str) -> bool {
        let owner = self.metadata.owner_references.iter();
        let mut owners = owner.filter(|owner| owner.controller);
        !self.is_deleting()
            && owners.any(|owner| {
                owner.kind == "SandboxWarmPool" && (pool.is_empty() || owner.name == pool)
            })
    }

    /// Whether a claim could have it, as long as it is in a pool.
    pub(crate) fn is_claimable(&self) -> bool {
        is_ready(&self.status.conditions)
            && !self.status.pod_ips.is_empty()
            && !self.is_deleting()
            && !self.is_fenced()
    }

    /// Which content of the template it was made from.
    pub(crate) fn revision(&self) -> String {
        let Some(container) = self.spec.pod_template.spec.containers.first() else {
            return String::new();
        };
        let number = container.env.iter().find(|one| one.name == REVISION);
        let number = number.map_or("", |number| number.value.as_str());
        format!("{} {number}", container.image)
    }
}

/// What matters of a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Claim {
    pub(crate) metadata: Meta,
    status: ClaimStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimStatus {
    conditions: Vec<Condition>,
    sandbox: Given,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Given {
    name: String,
}

impl Claim {
    /// The Sandbox that it has, if that is ready.
    pub(crate) fn answer(&self) -> Option<&str> {
        let name = self.status.sandbox.name.as_str();
        (is_ready(&self.status.conditions) && !name.is_empty()).then_some(name)
    }
}

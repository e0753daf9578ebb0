//! What the controller keeps of the objects it watches.

use std::sync::Arc;

use api::{
    open::{Open, known},
    sigs::{
        shared::{Blueprint, SandboxLifetime, SandboxShutdownPolicy},
        v1beta1::{self, OperatingMode, SandboxStatus},
    },
};
use engine::member::Failure;
use k8s_openapi::{api::core::v1, apimachinery::pkg::apis::meta::v1::Time};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_with::skip_serializing_none;

use super::{
    compact::Status,
    gate::{self, ReadinessGate},
    update::Update,
};
use crate::{
    brief::Brief,
    meta::Meta,
    sigs::names,
    store::{Texts, View},
};

#[derive(Clone, Debug)]
pub struct Sandbox {
    pub meta: Meta,
    /// The blueprint as JSON: members of a pool have one in common, and it is read only where it is needed.
    pub blueprint: Arc<str>,
    pub is_suspended: bool,
    pub lifetime: SandboxLifetime,
    pub status: Status,
}

impl View for Sandbox {
    type Object = Brief<v1beta1::Sandbox, Spec, SandboxStatus>;

    fn of(object: Self::Object, texts: &mut Texts) -> Self {
        let mut meta = Meta::from(object.metadata);
        // others can be as large as the object itself, and no controller reads them
        meta.annotations = meta.annotations.without(|key| !names::is_ours(key));
        meta.share(texts);
        let spec = object.spec;
        Self {
            meta,
            blueprint: texts.share(spec.blueprint()),
            is_suspended: known(&spec.operating_mode) == Some(OperatingMode::Suspended),
            lifetime: SandboxLifetime {
                shutdown_time: spec.shutdown_time,
                shutdown_policy: spec.shutdown_policy,
            },
            status: Status::new(object.status.unwrap_or_default(), texts),
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// A `SandboxSpec` of which the blueprint has not been read yet.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    pod_template: Box<RawValue>,
    volume_claim_templates: Option<Box<RawValue>>,
    service: Option<bool>,
    shutdown_time: Option<Time>,
    shutdown_policy: Option<Open<SandboxShutdownPolicy>>,
    operating_mode: Option<Open<OperatingMode>>,
}

impl Spec {
    fn blueprint(&self) -> String {
        #[skip_serializing_none]
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields<'a> {
            pod_template: &'a RawValue,
            volume_claim_templates: Option<&'a RawValue>,
            service: Option<bool>,
        }
        let fields = Fields {
            pod_template: &self.pod_template,
            volume_claim_templates: self.volume_claim_templates.as_deref(),
            service: self.service,
        };
        // JSON goes as it came
        serde_json::to_string(&fields).unwrap_or_default()
    }
}

impl Sandbox {
    pub fn blueprint(&self) -> Result<Blueprint, serde_json::Error> {
        serde_json::from_str(&self.blueprint)
    }

    pub fn name(&self) -> &str {
        &self.meta.key.name
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub meta: Meta,
    pub node_name: Option<Arc<str>>,
    pub phase: Arc<str>,
    pub ips: Box<[Box<str>]>,
    pub is_ready: bool,
    pub scheduled: Option<Scheduled>,
    /// What its containers say.
    pub trouble: Option<Failure>,
    pub update: Option<Box<Update>>,
    /// Whether its gate is open, if it has one.
    pub gate: Option<bool>,
}

/// Why a container does not run.
fn trouble(status: &v1::ContainerStatus) -> Option<Failure> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    match waiting.reason.as_deref()? {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull"
        | "ImageInspectError" => Some(Failure::ImagePull),
        "CrashLoopBackOff"
        | "RunContainerError"
        | "CreateContainerError"
        | "CreateContainerConfigError" => Some(Failure::CrashLoop),
        _ => None,
    }
}

/// The pod's own condition `PodScheduled`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scheduled {
    pub status: Arc<str>,
    pub reason: Arc<str>,
    pub message: Arc<str>,
}

impl Pod {
    /// Whether everything but the version is equal.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let mut other = other.clone();
        other.meta.version = self.meta.version;
        *self == other
    }

    /// Whether it is as it was, but for how far it has come on its way to being ready.
    pub fn is_only_coming(&self, before: &Self) -> bool {
        let is_coming = |pod: &Self| matches!(&*pod.phase, "" | "Pending" | "Running");
        let meta = Meta {
            version: before.meta.version,
            ..self.meta.clone()
        };
        !self.is_ready
            && !before.is_ready
            && is_coming(self)
            && is_coming(before)
            && meta == before.meta
            && self.update == before.update
    }

    /// No node has room for it.
    pub fn is_unschedulable(&self) -> bool {
        let is_so = |it: &Scheduled| &*it.status == "False" && &*it.reason == "Unschedulable";
        !self.meta.is_deleting && self.scheduled.as_ref().is_some_and(is_so)
    }

    /// Why it does not become Ready, where it says so.
    pub fn failure(&self) -> Option<Failure> {
        let has_no_room = self.is_unschedulable().then_some(Failure::Unschedulable);
        self.trouble.or(has_no_room)
    }
}

/// What is read of a pod's spec.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
    readiness_gates: Vec<ReadinessGate>,
}

impl View for Pod {
    type Object = Brief<v1::Pod, Box<RawValue>, v1::PodStatus>;

    fn of(object: Self::Object, texts: &mut Texts) -> Self {
        let update = Update::of(&object);
        let spec: PodSpec = serde_json::from_str(object.spec.get()).unwrap_or_default();
        let mut meta = Meta::from(object.metadata);
        if update.is_some() {
            meta.annotations = meta.annotations.without(|key| key == names::POD_UPDATE);
        }
        meta.share(texts);
        let status = object.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let find = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
        let scheduled = find("PodScheduled").map(|condition| Scheduled {
            status: texts.share(condition.status.as_str()),
            reason: texts.share(condition.reason.as_deref().unwrap_or_default()),
            message: texts.share(condition.message.as_deref().unwrap_or_default()),
        });
        let ips = status.pod_ips.into_iter().flatten();
        let containers = status.init_container_statuses.iter().flatten();
        let containers = containers.chain(status.container_statuses.iter().flatten());
        Self {
            trouble: containers.filter_map(trouble).next(),
            meta,
            update,
            gate: gate::state(&spec.readiness_gates, &conditions),
            node_name: spec
                .node_name
                .filter(|name| !name.is_empty())
                .map(|name| texts.share(name)),
            phase: texts.share(status.phase.unwrap_or_default()),
            ips: ips.map(|ip| ip.ip.into()).collect(),
            is_ready: find("Ready").is_some_and(|condition| condition.status == "True"),
            scheduled,
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub meta: Meta,
    pub selector: crate::meta::Pairs,
    pub cluster_ip: Box<str>,
    pub ports: Vec<Port>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub name: String,
    pub protocol: String,
    pub port: i64,
    /// A number or a name.
    pub target: serde_json::Value,
}

impl View for Service {
    type Object = v1::Service;

    fn of(object: v1::Service, _: &mut Texts) -> Self {
        let spec = object.spec.unwrap_or_default();
        let ports = spec.ports.into_iter().flatten().map(|port| Port {
            name: port.name.unwrap_or_default(),
            protocol: port.protocol.unwrap_or_default(),
            port: port.port.into(),
            target: serde_json::to_value(port.target_port).unwrap_or_default(),
        });
        Self {
            meta: object.metadata.into(),
            selector: (&spec.selector.unwrap_or_default()).into(),
            cluster_ip: spec.cluster_ip.unwrap_or_default().into(),
            ports: ports.collect(),
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// A volume claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume(pub Meta);

impl View for Volume {
    type Object = v1::PersistentVolumeClaim;

    fn of(object: v1::PersistentVolumeClaim, _: &mut Texts) -> Self {
        let mut meta = Meta::from(object.metadata);
        meta.annotations = crate::meta::Pairs::default();
        Self(meta)
    }

    fn meta(&self) -> &Meta {
        &self.0
    }
}

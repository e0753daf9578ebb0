//! What is kept of templates and of their network policies.

use api::sigs::{
    shared::Blueprint,
    v1beta1::{SandboxTemplate, SandboxTemplateSpec},
};
use engine::revision::{Form, Wanted, name_hash, reference::pod_template_hash};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::Value;

use crate::{
    meta::Meta,
    sigs::blueprint,
    store::{Texts, View},
};

#[derive(Clone, Debug)]
pub struct Template {
    pub meta: Meta,
    pub spec: SandboxTemplateSpec,
    /// The hash of its name, by which everything made from it is known.
    pub name_hash: Box<str>,
    /// What sandboxes are made from: the template's own with the secure defaults.
    pub blueprint: Blueprint,
    pub wanted: Wanted,
    /// What the reference records of the pod template alone.
    pub pod_template_hash: Option<Box<str>>,
}

impl View for Template {
    type Object = SandboxTemplate;

    fn of(object: SandboxTemplate, _: &mut Texts) -> Self {
        let meta = Meta::from(object.metadata);
        let blueprint = blueprint::secured(&object.spec);
        // what came as JSON goes as JSON
        let json = |blueprint: &Blueprint| serde_json::to_value(blueprint).unwrap_or_default();
        let (written, effective) = (json(&object.spec.blueprint), json(&blueprint));
        Self {
            name_hash: name_hash(&meta.key.name).into(),
            wanted: Wanted::completed(Form::Blueprint, &written, &effective),
            pod_template_hash: pod_template_hash(&written["podTemplate"]).map(Into::into),
            meta,
            spec: object.spec,
            blueprint,
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Clone, Debug)]
pub struct Policy {
    pub meta: Meta,
    pub spec: Value,
}

impl View for Policy {
    type Object = NetworkPolicy;

    fn of(object: NetworkPolicy, _: &mut Texts) -> Self {
        Self {
            meta: object.metadata.into(),
            spec: serde_json::to_value(object.spec).unwrap_or_default(),
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

//! The kinds that the embedded cluster has from the start: one table of what the API says about them, and for those
//! that are particular, their rules. Everything here is pure; the server calls it at fixed places.

mod access;
mod check;
mod deployment;
mod event;
mod internal;
mod namespace;
mod network_policy;
mod node;
mod pod;
mod secret;
mod selectors;
mod service;
mod small;
mod storage;
mod table;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod unified;

use access::{as_map, take_from};
use api::structural::FieldError;
use serde_json::Value;

use crate::status::Failure;
pub(crate) use pod::TOKEN_PATH;
pub use table::BUILT_IN;

/// A built-in kind in one version.
#[derive(Debug)]
pub struct BuiltIn {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub namespaced: bool,
    pub subresources: &'static [BuiltInSubresource],
    pub rules: Rules,
}

/// What a built-in kind has below its objects, as discovery shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltInSubresource {
    pub name: &'static str,
    /// With its group and version where they differ from the resource's own: `policy/v1`, `Eviction`.
    pub kind: &'static str,
    pub group_version: Option<(&'static str, &'static str)>,
    pub verbs: &'static [&'static str],
}

/// Which part of an object a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Main,
    Status,
    /// Pods only: the resources of containers.
    Resize,
    /// Pods only.
    EphemeralContainers,
    /// Namespaces only: `spec.finalizers`.
    Finalize,
}

impl Part {
    /// The name in a path; empty for the object itself.
    pub fn name(self) -> &'static str {
        match self {
            Part::Main => "",
            Part::Status => "status",
            Part::Resize => "resize",
            Part::EphemeralContainers => "ephemeralcontainers",
            Part::Finalize => "finalize",
        }
    }
}

/// What names an object of the kind may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    Subdomain,
    /// Of RFC 1123: namespaces.
    Label,
    /// Of RFC 1035, which begins with a letter: services.
    LetterLabel,
}

/// Other objects, as far as rules ask for them.
pub trait Others {
    /// `resource` is the plural with its group, as the store knows it; `namespace` is empty for objects of the
    /// cluster.
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value>;
    /// In one namespace, or in all.
    fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Value>;
}

/// A field that selectors may name, with what it holds in an object.
pub type Field = (&'static str, fn(&Value) -> String);

/// What is particular to a kind, in the order the server calls it. Objects are decoded (no unknown fields, no nulls,
/// right types) and have `apiVersion`, `kind` and `metadata`. A create calls `default`, `prepare_create`, `admit`,
/// `validate`; an update `default`, `prepare_update`, `validate_update`.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub name: NameRule,
    /// Whether `metadata.generation` counts changes of what is not metadata or status.
    pub generation: bool,
    /// Fills in what was left out; also called on the result of patches.
    pub default: fn(&mut Value),
    /// Resets what a client may not say at creation (a status), fills in what follows from the object alone.
    pub prepare_create: fn(&mut Value),
    /// What the API server's admission plug-ins do at creation, which may depend on other objects.
    pub admit: fn(&mut Value, &dyn Others) -> Result<(), Failure>,
    pub validate: fn(&Value) -> Vec<FieldError>,
    /// Puts back what a write of this part may not change.
    pub prepare_update: fn(new: &mut Value, old: &Value, part: Part),
    pub validate_update: fn(new: &Value, old: &Value, part: Part) -> Vec<FieldError>,
    /// What the client should know though it is no error; `old` is absent at creation.
    pub warnings: fn(new: &Value, old: Option<&Value>) -> Vec<String>,
    /// The fields beside `metadata.name` and `metadata.namespace` that field selectors may name.
    pub fields: &'static [Field],
}

impl Rules {
    /// A kind with nothing of its own: no defaults, everything allowed, a status (if it has one) that only its
    /// subresource writes.
    pub const PLAIN: Rules = Rules {
        name: NameRule::Subdomain,
        generation: false,
        default: |_| {},
        prepare_create: |_| {},
        admit: |_, _| Ok(()),
        validate: |_| Vec::new(),
        prepare_update: |new, old, part| match part {
            Part::Status => keep_all_but_status(new, old),
            _ => keep_status(new, old),
        },
        validate_update: |_, _, _| Vec::new(),
        warnings: |_, _| Vec::new(),
        fields: &[],
    };
}

/// Puts the status back: a write of the object itself does not change it.
pub fn keep_status(new: &mut Value, old: &Value) {
    take_from(as_map(new), old, "status");
}

/// Puts all back but the status and metadata, most of which built-in kinds let a write of the status change.
pub fn keep_all_but_status(new: &mut Value, old: &Value) {
    let kept = |key: &str| !matches!(key, "apiVersion" | "kind" | "metadata" | "status");
    let new = as_map(new);
    new.retain(|key, _| !kept(key));
    for (key, value) in old.as_object().into_iter().flatten() {
        if kept(key) {
            new.insert(key.clone(), value.clone());
        }
    }
}

//! Objects on their way through the rules of their kind, as the server sends them.

use serde_json::{Value, json};

use super::{BUILT_IN, BuiltIn, Others, Part};

/// Other objects: by resource.
pub(super) struct World(Vec<(&'static str, Value)>);

impl World {
    /// A namespace `ns` with its account.
    pub(super) fn new() -> Self {
        Self(Vec::new()).with("serviceaccounts", "default", json!({}))
    }

    pub(super) fn with(mut self, resource: &'static str, name: &str, mut object: Value) -> Self {
        object["metadata"]["name"] = name.into();
        object["metadata"]["namespace"] = "ns".into();
        self.0.push((resource, object));
        self
    }

    /// What becomes of a new object: it, or what is wrong with it.
    pub(super) fn create(&self, kind: &str, object: Value) -> Result<Value, Vec<String>> {
        let kind = built_in(kind);
        let mut object = named(kind, object);
        let metadata = &mut object["metadata"];
        metadata["uid"] = "u-1".into();
        metadata["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
        let rules = &kind.rules;
        (rules.default)(&mut object);
        (rules.prepare_create)(&mut object);
        let admitted = (rules.admit)(&mut object, self);
        admitted.map_err(|failure| vec![failure.message().to_owned()])?;
        said((rules.validate)(&object)).map(|()| object)
    }
}

impl Others for World {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let mut listed = self.list(resource, Some(namespace)).into_iter();
        listed.find(|object| object["metadata"]["name"] == name)
    }

    fn list(&self, resource: &str, _: Option<&str>) -> Vec<Value> {
        let of = |(other, _): &&(&str, Value)| *other == resource;
        self.0.iter().filter(of).map(|(_, it)| it.clone()).collect()
    }
}

/// What becomes of a new object where there is nothing special.
pub(super) fn create(kind: &str, object: Value) -> Result<Value, Vec<String>> {
    World::new().create(kind, object)
}

/// What is wrong with a new object.
pub(super) fn faults(kind: &str, object: Value) -> Vec<String> {
    create(kind, object).unwrap_err()
}

/// What becomes of an object when a part of it is written.
pub(super) fn update(
    kind: &str,
    part: Part,
    old: &Value,
    change: impl FnOnce(&mut Value),
) -> Result<Value, Vec<String>> {
    let rules = &built_in(kind).rules;
    let mut new = old.clone();
    change(&mut new);
    (rules.default)(&mut new);
    (rules.prepare_update)(&mut new, old, part);
    said((rules.validate_update)(&new, old, part)).map(|()| new)
}

/// The value of a field as selectors see it.
pub(super) fn field(kind: &str, object: &Value, name: &str) -> Option<String> {
    let mut fields = built_in(kind).rules.fields.iter();
    fields
        .find(|(field, _)| *field == name)
        .map(|(_, of)| of(object))
}

/// `group/Kind` where kinds share a name.
fn built_in(name: &str) -> &'static BuiltIn {
    let (group, name) = name.split_once('/').unwrap_or(("", name));
    let fits = |kind: &&BuiltIn| kind.kind == name && (group.is_empty() || kind.group == group);
    BUILT_IN.iter().find(fits).unwrap()
}

fn named(kind: &BuiltIn, mut object: Value) -> Value {
    object["kind"] = kind.kind.into();
    if object["metadata"]["name"].is_null() {
        object["metadata"]["name"] = "x".into();
    }
    if kind.namespaced && object["metadata"]["namespace"].is_null() {
        object["metadata"]["namespace"] = "ns".into();
    }
    object
}

fn said(errors: Vec<api::structural::FieldError>) -> Result<(), Vec<String>> {
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.sort();
    match texts.is_empty() {
        true => Ok(()),
        false => Err(texts),
    }
}

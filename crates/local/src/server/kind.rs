//! What a resource does with its objects, whether it is built in or defined by a CRD.

use std::borrow::Cow;

use api::patch::apply::{FieldSet, Kind, Managed};
use api::patch::types::TypeRef;
use api::sigs::conversion::{self, Version};
use api::structural::{FieldError, Kept, Verdict, undecodable_message};
use serde_json::{Map, Value};

use super::encode;
use super::events;
use super::registry::Registry;
use super::resource::{Conversion, Custom, Origin, Resource};
use crate::kinds::{NameRule, Others, Part, Rules};
use crate::status::Failure;
use crate::store::Entry;

impl Resource {
    fn rules(&self) -> &Rules {
        match &self.origin {
            Origin::BuiltIn(kind) => &kind.rules,
            Origin::Custom(_) => &Rules::PLAIN,
        }
    }

    pub fn name_rule(&self) -> NameRule {
        self.rules().name
    }

    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// Reads an object as the kind: defaults filled in, unknown fields dropped and returned.
    pub fn admit(&self, object: &mut Value) -> Result<Vec<String>, Failure> {
        self.admit_change(object, None)
    }

    /// The same; parts that are the same in an object that was admitted need no second look.
    pub fn admit_change(
        &self,
        object: &mut Value,
        admitted: Option<&Value>,
    ) -> Result<Vec<String>, Failure> {
        // an empty list would be dropped, but here it asks for something
        let forgets_owners = object["metadata"]["managedFields"] == Value::Array(Vec::new());
        let unknown = self.decode(object, admitted)?;
        if forgets_owners {
            object["metadata"]["managedFields"] = Value::Array(Vec::new());
        }
        Ok(unknown)
    }

    fn decode(&self, object: &mut Value, admitted: Option<&Value>) -> Result<Vec<String>, Failure> {
        let undecodable = |problem: &str| {
            let message = undecodable_message(&self.kind, &self.version, problem);
            Failure::bad_request(message)
        };
        match &self.origin {
            Origin::BuiltIn(kind) => {
                let unknown = api::decode::decode(object, &self.api_version, &self.kind)
                    .map_err(|problem| undecodable(&problem))?;
                (kind.rules.default)(object);
                Ok(unknown)
            }
            Origin::Custom(custom) => {
                let mut unknown = api::decode::decode_metadata(&mut object["metadata"])
                    .map_err(|problem| undecodable(&problem))?;
                let more = custom.schema.admit_change(object, admitted);
                unknown.extend(more.map_err(|error| undecodable(&error.to_string()))?);
                Ok(unknown)
            }
        }
    }

    /// Takes out of an object of today what a merge patch leaves alone and nobody has to look at. Owners that wrote in
    /// another version are asked about the object in that version, which can only be made of the whole.
    pub(super) fn set_aside(
        &self,
        object: &mut Value,
        owners: &Managed,
        patch: &Value,
    ) -> Option<Kept> {
        let custom = self.custom()?;
        let names_owners = patch["metadata"].get("managedFields").is_some();
        let fits = !names_owners && owners.are_of(&self.api_version);
        fits.then(|| custom.schema.set_aside(object, patch))
    }

    pub fn prepare_create(&self, object: &mut Value) {
        match &self.origin {
            Origin::BuiltIn(kind) => {
                if kind.rules.generation {
                    object["metadata"]["generation"] = 1.into();
                }
                (kind.rules.prepare_create)(object);
            }
            Origin::Custom(custom) => {
                object["metadata"]["generation"] = 1.into();
                if custom.status
                    && let Some(object) = object.as_object_mut()
                {
                    object.remove("status");
                }
            }
        }
    }

    pub fn admit_create(&self, object: &mut Value, others: &dyn Others) -> Result<(), Failure> {
        (self.rules().admit)(object, others)
    }

    pub fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        match &self.origin {
            Origin::BuiltIn(kind) => (kind.rules.validate)(object),
            Origin::Custom(custom) => custom.schema.validate(object),
        }
    }

    /// Puts back what a write of `part` may not change, and counts the generation.
    pub fn prepare_update(&self, new: &mut Value, old: &Value, part: Part) {
        match &self.origin {
            Origin::BuiltIn(kind) => (kind.rules.prepare_update)(new, old, part),
            Origin::Custom(custom) => match part {
                Part::Status => keep_all_but_status(new, old),
                _ if custom.status => restore(new, old, "status"),
                _ => {}
            },
        }
        let annotations = |object: &Value| object["metadata"].get("annotations").cloned();
        let annotated = self.kind == "Deployment"
            && self.custom().is_none()
            && annotations(new) != annotations(old);
        if self.counts_generation()
            && part != Part::Status
            && (annotated || differs(new, old, self.has_status()))
        {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
            new["metadata"]["generation"] = generation.saturating_add(1).into();
        }
    }

    fn counts_generation(&self) -> bool {
        match &self.origin {
            Origin::BuiltIn(kind) => kind.rules.generation,
            Origin::Custom(_) => true,
        }
    }

    pub fn validate_update(&self, new: &Value, old: &Value, part: Part) -> Verdict {
        match &self.origin {
            Origin::BuiltIn(kind) => Verdict {
                errors: (kind.rules.validate_update)(new, old, part),
                warnings: Vec::new(),
            },
            Origin::Custom(custom) if part == Part::Status => {
                custom.schema.validate_status(new, old)
            }
            Origin::Custom(custom) => custom.schema.validate_update(new, old),
        }
    }

    pub fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        (self.rules().warnings)(new, old)
    }

    /// The refusal of an object that breaks rules. Events have one kind in two groups.
    pub fn invalid(&self, name: &str, errors: &[FieldError]) -> Failure {
        let group = match self.group.as_str() {
            events::GROUP => "",
            group => group,
        };
        Failure::invalid(group, &self.kind, name, errors)
    }

    /// The refusal of a verb that the kind does not have.
    pub fn refuses(&self, verb: &str) -> Failure {
        Failure::not_supported(self.qualified(), verb)
    }

    /// The type for strategic merges; custom kinds have none.
    pub fn strategic_type(&self) -> Option<TypeRef<'static>> {
        match &self.origin {
            Origin::BuiltIn(_) => TypeRef::of_kind(&self.api_version, &self.kind),
            Origin::Custom(_) => None,
        }
    }

    /// The object in the version that is stored. What that version's schema adds or drops is added or dropped now,
    /// so that it can be shown as it is stored.
    pub fn to_stored(&self, object: Value, registry: &Registry) -> Result<Value, Failure> {
        let Some(custom) = self.custom() else {
            return Ok(events::to_stored(self, object));
        };
        if self.api_version == custom.stored_api_version {
            return Ok(object);
        }
        let mut object = self.convert(object, &custom.stored_api_version)?;
        let stored = custom.stored_api_version.split_once('/');
        let stored =
            stored.and_then(|(group, version)| registry.find(group, version, &self.plural));
        if let Some(stored) = stored.and_then(|resource| resource.custom()) {
            // the object was valid in the version it came in; what cannot be read stays as it is
            let _ = stored.schema.admit(&mut object);
        }
        Ok(object)
    }

    /// The object in this version, as it is to be shown, with its owners.
    pub(super) fn read_whole(&self, entry: &Entry) -> Result<Value, Failure> {
        let mut object = self.read(entry)?;
        encode::owners(&entry.value).put(&mut object);
        Ok(object)
    }

    /// The object in this version, without its owners.
    pub fn read(&self, entry: &Entry) -> Result<Value, Failure> {
        let object = serde_json::from_slice(entry.value.rest()).map_err(|error| {
            Failure::internal(format!("{} is stored as no JSON: {error}", entry.key))
        })?;
        match self.custom() {
            Some(custom) => {
                let mut object = self.convert(object, &self.api_version)?;
                if entry.revision <= custom.since || self.api_version != custom.stored_api_version {
                    // written under another schema; what that left behind cannot be worse than unread
                    let _ = custom.schema.admit(&mut object);
                }
                Ok(object)
            }
            None => Ok(events::from_stored(self, object)),
        }
    }

    /// What marks values as written by clients in this version, under its schema of today. Other versions than the stored
    /// one mark nothing.
    pub(super) fn mark(&self) -> u64 {
        match self.custom() {
            _ if !self.is_stored_version() => 0,
            Some(custom) => custom.id,
            None => Custom::NO_ID,
        }
    }

    /// Whether the object was written, since the process started, in this version and under its schema of today.
    pub(super) fn is_of_today(&self, entry: &Entry) -> bool {
        let mark = entry.value.mark();
        mark != 0 && mark == self.mark()
    }

    /// Whether stored bytes are what this version shows, but for their head.
    pub fn shows_as_stored(&self, entry: &Entry) -> bool {
        match self.custom() {
            // the bytes are asked as well: a watch may outlive the version it was begun in
            Some(custom) => {
                self.is_stored_version()
                    && entry.revision > custom.since
                    && entry
                        .value
                        .rest()
                        .starts_with(self.stored_head().as_bytes())
            }
            None => {
                self.is_stored_version()
                    && entry
                        .value
                        .rest()
                        .starts_with(self.stored_head().as_bytes())
            }
        }
    }

    /// Adds the nulls that the real server shows in built-in kinds.
    pub fn show_nulls(&self, object: &mut Value) {
        if self.custom().is_none() {
            api::decode::write_nulls(object, &self.api_version, &self.kind);
        }
    }

    /// The object as decoding leaves it, so that it can be compared with one that was decoded.
    pub fn without_nulls<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        if self.custom().is_some() || !has_nulls(object) {
            return Cow::Borrowed(object);
        }
        let mut object = object.clone();
        drop_nulls(&mut object);
        Cow::Owned(object)
    }

    /// Whether objects of this version are stored as they are.
    pub fn is_stored_version(&self) -> bool {
        match self.custom() {
            Some(custom) => self.api_version == custom.stored_api_version,
            None => self.group != events::GROUP,
        }
    }

    pub fn head(&self) -> String {
        encode::head(&self.api_version, &self.kind)
    }

    pub fn stored_head(&self) -> String {
        let version = self
            .custom()
            .map_or(&self.api_version, |custom| &custom.stored_api_version);
        encode::head(version, &self.kind)
    }

    pub fn convert(&self, mut object: Value, api_version: &str) -> Result<Value, Failure> {
        if object["apiVersion"] == api_version {
            return Ok(object);
        }
        let own = self.custom().map(|custom| custom.conversion) == Some(Conversion::Own);
        if !own {
            object["apiVersion"] = api_version.into();
            return Ok(object);
        }
        let to = match api_version.ends_with("/v1alpha1") {
            true => Version::V1alpha1,
            false => Version::V1beta1,
        };
        conversion::convert(object, to).map_err(|error| Failure::internal(error.to_string()))
    }

    /// Whether selectors may name more than name and namespace.
    pub fn has_own_fields(&self) -> bool {
        match &self.origin {
            Origin::BuiltIn(kind) => !kind.rules.fields.is_empty(),
            Origin::Custom(_) => true,
        }
    }

    /// Whether a field selector may name the field.
    pub fn has_field(&self, path: &str) -> bool {
        matches!(path, "metadata.name")
            || (path == "metadata.namespace" && (self.namespaced || self.custom().is_none()))
            || match &self.origin {
                Origin::BuiltIn(kind) => kind.rules.fields.iter().any(|(name, _)| *name == path),
                Origin::Custom(custom) => custom
                    .selectable
                    .iter()
                    .any(|(name, _)| name.trim_start_matches('.') == path),
            }
    }

    /// The value of a field as selectors see it.
    pub fn field(&self, object: &Value, path: &str) -> String {
        let text = |value: Option<&Value>| match value {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => String::new(),
            Some(other) => other.to_string(),
        };
        match &self.origin {
            Origin::BuiltIn(kind) => {
                let found = kind.rules.fields.iter().find(|(name, _)| *name == path);
                found.map_or_else(String::new, |(_, of)| of(object))
            }
            Origin::Custom(custom) => {
                let mut found = custom.selectable.iter();
                let found = found.find(|(name, _)| name.trim_start_matches('.') == path);
                text(found.and_then(|(_, path)| path.first(object)))
            }
        }
    }
}

fn has_nulls(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().any(has_nulls),
        Value::Array(items) => items.iter().any(has_nulls),
        _ => false,
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Takes a field from the old object.
pub(super) fn restore(new: &mut Value, old: &Value, key: &str) {
    let Some(new) = new.as_object_mut() else {
        return;
    };
    match old.get(key) {
        Some(value) => _ = new.insert(key.to_owned(), value.clone()),
        None => _ = new.remove(key),
    }
}

/// The old object with the status of the new one.
fn keep_all_but_status(new: &mut Value, old: &Value) {
    let status = new.get_mut("status").map(Value::take);
    *new = old.clone();
    if let Some(new) = new.as_object_mut() {
        match status {
            Some(status) => _ = new.insert("status".to_owned(), status),
            None => _ = new.remove("status"),
        }
    }
}

/// Whether anything but metadata (and status) differs.
fn differs(new: &Value, old: &Value, ignore_status: bool) -> bool {
    let empty = Map::new();
    let (new, old) = (
        new.as_object().unwrap_or(&empty),
        old.as_object().unwrap_or(&empty),
    );
    let counts =
        |key: &&String| key.as_str() != "metadata" && !(ignore_status && key.as_str() == "status");
    let keys = new.keys().chain(old.keys()).filter(counts);
    let mut keys = keys.into_iter();
    keys.any(|key| new.get(key) != old.get(key))
}

/// A resource as the ownership of fields sees it: with its other versions.
pub(super) struct Owned<'a> {
    pub(super) resource: &'a Resource,
    pub(super) registry: &'a Registry,
    pub(super) reset: FieldSet,
}

impl<'a> Owned<'a> {
    pub(super) fn new(resource: &'a Resource, registry: &'a Registry, part: Part) -> Self {
        let fields: &[&[&str]] = match (part, &resource.origin) {
            (Part::Main, _) if resource.has_status() => &[&["status"]],
            (Part::Main, _) => &[],
            (Part::Status, Origin::Custom(_)) => &[&["spec"], &["metadata"]],
            (_, Origin::BuiltIn(kind)) if kind.kind == "Pod" && part == Part::Status => &[
                &["spec"],
                &["metadata", "deletionTimestamp"],
                &["metadata", "ownerReferences"],
            ],
            (Part::Status, Origin::BuiltIn(kind)) if kind.kind == "Deployment" => {
                &[&["spec"], &["metadata", "labels"]]
            }
            (Part::Status, _) => &[&["spec"]],
            (Part::Resize | Part::EphemeralContainers, _) => &[&["status"]],
            (Part::Finalize, _) => &[&["status"]],
        };
        Self {
            resource,
            registry,
            reset: FieldSet::of_fields(fields),
        }
    }
}

impl Kind for Owned<'_> {
    fn type_in(&self, api_version: &str) -> Option<TypeRef<'_>> {
        let resource = self.resource;
        match &resource.origin {
            Origin::BuiltIn(_) if api_version == resource.api_version => {
                TypeRef::of_kind(api_version, &resource.kind)
            }
            Origin::BuiltIn(_) => None,
            Origin::Custom(custom) if api_version == resource.api_version => {
                Some(custom.types.root())
            }
            Origin::Custom(_) => {
                let (group, version) = api_version.split_once('/')?;
                let other = self.registry.find(group, version, &resource.plural)?;
                Some(other.custom()?.types.root())
            }
        }
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let converted = self.resource.convert(object.clone(), api_version);
        converted.map_err(|failure| failure.message().to_owned())
    }

    fn reset_fields(&self, _: &str) -> &FieldSet {
        &self.reset
    }

    fn empty(&self, api_version: &str, kind: &str) -> Value {
        let mut empty = match &self.resource.origin {
            Origin::BuiltIn(_) => self
                .type_in(api_version)
                .map_or_else(|| Value::Object(Map::new()), TypeRef::empty),
            Origin::Custom(_) => Value::Object(Map::new()),
        };
        empty["apiVersion"] = api_version.into();
        empty["kind"] = kind.into();
        empty
    }
}

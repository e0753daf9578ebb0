//! Changes of objects that exist: replaces and patches of an object or a part of it.

use std::sync::Arc;

use api::patch::apply;
use serde_json::Value;

use super::Server;
use super::answer::Answer;
use super::encode::{Encoded, at_version};
use super::kind::Owned;
use super::metadata;
use super::options::{WriteOptions, no_number};
use super::resource::Resource;
use super::route::Target;
use super::write::{Caller, refused};
use crate::kinds::Part;
use crate::status::Failure;
use crate::store::{Change, Entry, Precondition, WriteError};

/// The largest object that is stored: etcd's limit of one request, which is what users know.
const LARGEST: usize = 1_572_864;

/// What becomes of an object.
pub(super) struct Edited {
    pub(super) object: Value,
    /// The owners of fields in it are already right (by an apply).
    pub(super) owned: bool,
    /// It is written as it is: the server itself made it, and the rules for clients do not apply.
    pub(super) as_is: bool,
}

impl Server {
    /// Changes the object that `target` names. `edit` makes the new object from the present one, both in the
    /// version of the request; if somebody else writes meanwhile it is asked again, unless the new object insists on
    /// a version.
    pub(super) async fn change(
        &self,
        target: &Target,
        part: Part,
        caller: &Caller<'_>,
        options: &WriteOptions,
        mut edit: impl FnMut(&Value) -> Result<Edited, Failure>,
    ) -> Result<Answer, Failure> {
        let resource = &target.resource;
        let name = target.name.as_deref().unwrap_or_default();
        loop {
            let entry = self.find(target)?;
            let shown = resource.read(&entry)?;
            let old = resource.without_nulls(&shown);
            let edited = edit(&old)?;
            has_version(target, &edited.object, &entry)?;
            let mut new = self.settled(target, part, caller, &old, edited)?;
            let ends = resource.deleted_by_update(&new, &old);
            resource.show_nulls(&mut new);
            if options.dry_run {
                self.encoded(resource, &new)?;
                return Ok(Answer::ok(new));
            }
            if !ends && new == shown {
                return Ok(Answer::stored(entry));
            }
            let written = match ends {
                true => self.remove(&entry).await.map(|_| None),
                false => self.replace(target, &entry, &new).await?.map(Some),
            };
            match written {
                Ok(Some(entry)) => {
                    self.after_write(resource).await;
                    return Ok(Answer::stored(entry));
                }
                Ok(None) => {
                    self.after_write(resource).await;
                    return Ok(Answer::ok(new));
                }
                // tried on what is there now: who named a version is refused then, and for everybody else to lose
                // again, somebody must win again
                Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(refused(error, target, name)),
            }
        }
    }

    /// The new object as it will be stored, and what the client should be warned of.
    fn settled(
        &self,
        target: &Target,
        part: Part,
        caller: &Caller<'_>,
        old: &Value,
        edited: Edited,
    ) -> Result<Value, Failure> {
        let resource = &target.resource;
        let Edited {
            object: mut new,
            owned,
            as_is,
        } = edited;
        if as_is {
            return Ok(new);
        }
        let now = self.now();
        metadata::carry_over(&mut new, old);
        if let Some(warning) = metadata::keep_owners_once(&mut new, caller.patches) {
            caller.warn(&warning);
        }
        if !owned {
            let registry = self.registry();
            let kind = Owned::new(resource, &registry, part);
            new = apply::track(&kind, Some(old), new, caller.writer(resource, part, &now));
        }
        resource.prepare_update(&mut new, old, part);
        let mut errors = metadata::validate_update(&new, old, resource);
        let verdict = resource.validate_update(&new, old, part);
        errors.extend(verdict.errors);
        if !errors.is_empty() {
            let name = target.name.as_deref().unwrap_or_default();
            return Err(resource.invalid(name, &errors));
        }
        let warnings = resource.warnings(&new, Some(old));
        warnings.iter().for_each(|warning| caller.warn(warning));
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        apply::keep_times_of_unchanged(old, &mut new);
        for warning in &verdict.warnings {
            caller.warn(&warning.to_string());
        }
        Ok(new)
    }

    pub(super) async fn replace(
        &self,
        target: &Target,
        entry: &Entry,
        new: &Value,
    ) -> Result<Result<Arc<Entry>, WriteError>, Failure> {
        let encoded = self.encoded(&target.resource, new)?;
        Ok(self.put_encoded(entry, encoded).await)
    }

    /// An object as the store keeps it, if it can be kept.
    pub(super) fn encoded(&self, resource: &Resource, object: &Value) -> Result<Encoded, Failure> {
        let encoded = match resource.is_stored_version() {
            true => Encoded::new(object),
            false => Encoded::new(&resource.to_stored(object.clone(), &self.registry())?),
        };
        match encoded.len() > LARGEST {
            true => Err(Failure::unexpected("etcdserver: request is too large")),
            false => Ok(encoded),
        }
    }

    /// Writes over what has not changed since.
    pub(super) async fn put_encoded(
        &self,
        entry: &Entry,
        encoded: Encoded,
    ) -> Result<Arc<Entry>, WriteError> {
        let only = Precondition::Revision(entry.revision);
        let build = move |revision| encoded.at(revision);
        self.store
            .write(Change::put(entry.key.clone(), only, build))
            .await
    }

    /// Takes an object out of the store; watches are shown its last state.
    pub(super) async fn remove(&self, entry: &Arc<Entry>) -> Result<Arc<Entry>, WriteError> {
        let only = Precondition::Revision(entry.revision);
        let last = Arc::clone(entry);
        let build = move |revision| at_version(&last.value, revision);
        self.store
            .write(Change::delete(entry.key.clone(), only, build))
            .await
    }
}

/// Whether the new object is meant for this version, if it says which one it is meant for.
fn has_version(target: &Target, new: &Value, entry: &Entry) -> Result<(), Failure> {
    let version = new["metadata"]["resourceVersion"].as_str();
    let Some(version) = version.filter(|version| !version.is_empty()) else {
        return Ok(());
    };
    let number: u64 = version
        .parse()
        .map_err(|_| Failure::unexpected(no_number("ParseUint", version)))?;
    match number == 0 || number == entry.revision {
        true => Ok(()),
        false => Err(Failure::modified(
            target.resource.qualified(),
            entry.key.name(),
        )),
    }
}

impl Resource {
    /// Whether the update takes away the last thing that kept a deleted object.
    fn deleted_by_update(&self, new: &Value, old: &Value) -> bool {
        let none = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
        let was = &old["metadata"];
        let grace = was["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        let namespace = self.group.is_empty() && self.kind == "Namespace";
        !was["deletionTimestamp"].is_null()
            && grace == 0
            && none(&new["metadata"]["finalizers"])
            && (!namespace || none(&new["spec"]["finalizers"]))
    }
}

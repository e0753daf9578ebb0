//! Changes of objects that exist: replaces and patches of an object or a part of it.

use std::sync::Arc;

use api::patch::apply::{self, Managed};
use api::structural::Kept;
use serde_json::Value;

use super::Server;
use super::answer::Answer;
use super::encode::{self, Encoded, at_version};
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

/// An object of the store in the version of the request.
pub(super) struct Old<'a> {
    /// Without owners.
    pub(super) object: &'a Value,
    pub(super) owners: &'a Managed,
    pub(super) is_of_today: bool,
}

impl Old<'_> {
    pub(super) fn whole(&self) -> Value {
        let mut whole = self.object.clone();
        self.owners.put(&mut whole);
        whole
    }

    pub(super) fn live(&self) -> apply::Live<'_> {
        apply::Live {
            object: self.object,
            owners: self.owners,
            fits: self.is_of_today && !self.owners.is_empty(),
        }
    }
}

/// What becomes of an object.
pub(super) struct Edited {
    pub(super) object: Value,
    pub(super) by: By,
}

pub(super) enum By {
    /// What a client wants; if it has owners, that is the client's word about them.
    Client,
    /// By an apply, which knows who owns what.
    Apply(Managed),
    /// The server itself: the rules for clients do not apply, and the owners stay.
    Server,
}

/// What is in the store.
struct Present {
    entry: Arc<Entry>,
    /// As it is shown, without owners.
    object: Value,
    owners: Managed,
}

/// What an edit has made.
struct Made {
    object: Value,
    owners: Managed,
    mark: u64,
    /// It is the end of the object.
    ends: bool,
    unchanged: bool,
}

impl Present {
    fn set_aside(&mut self, resource: &Resource, patch: &Value) -> Option<Kept> {
        match resource.is_of_today(&self.entry) {
            true => resource.set_aside(&mut self.object, &self.owners, patch),
            false => None,
        }
    }

    /// What is made of the object without the parts that were set aside, and then with them. What is refused is looked at
    /// as a whole, for the words of the refusal.
    fn made_beside(
        &mut self,
        aside: Kept,
        make: &mut impl FnMut(&Self) -> Result<Made, Failure>,
    ) -> Result<Made, Failure> {
        let Ok(mut made) = make(self) else {
            aside.put_back(&mut self.object);
            return make(self);
        };
        let of_whole = cfg!(debug_assertions).then(|| {
            aside.clone().put_back(&mut self.object);
            make(self)
        });
        aside.put_back(&mut made.object);
        let is_same = |whole: Result<Made, Failure>| whole.is_ok_and(|whole| whole.is_same(&made));
        debug_assert!(of_whole.is_none_or(is_same), "{}", made.object);
        Ok(made)
    }
}

impl Made {
    fn is_same(&self, other: &Self) -> bool {
        let rest = |made: &Self| (made.mark, made.ends, made.unchanged);
        self.object == other.object
            && self.owners.is_same_but_times(&other.owners)
            && rest(self) == rest(other)
    }
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
        edit: impl FnMut(&Old<'_>) -> Result<Edited, Failure>,
    ) -> Result<Answer, Failure> {
        self.change_by(target, part, caller, options, None, edit)
            .await
    }

    /// The same for an edit that is a merge patch: it is shown no more than what the patch may touch.
    pub(super) async fn change_by(
        &self,
        target: &Target,
        part: Part,
        caller: &Caller<'_>,
        options: &WriteOptions,
        patch: Option<&Value>,
        mut edit: impl FnMut(&Old<'_>) -> Result<Edited, Failure>,
    ) -> Result<Answer, Failure> {
        let resource = &target.resource;
        let name = target.name.as_deref().unwrap_or_default();
        loop {
            let entry = self.find(target)?;
            let mut present = Present {
                object: self.present(resource, &entry)?,
                owners: encode::owners(&entry.value),
                entry,
            };
            let mut make = |present: &Present| self.made(target, part, caller, present, &mut edit);
            let made = match patch.and_then(|patch| present.set_aside(resource, patch)) {
                Some(aside) => present.made_beside(aside, &mut make)?,
                None => make(&present)?,
            };
            let Present { entry, owners, .. } = present;
            let Made {
                object: mut new,
                owners: now_owned,
                mark,
                ends,
                unchanged,
            } = made;
            if options.dry_run {
                self.encoded(resource, &new, &now_owned)?;
                let owners = if unchanged { &owners } else { &now_owned };
                owners.put(&mut new);
                return Ok(Answer::ok(new));
            }
            if !ends && unchanged {
                return Ok(Answer::stored(entry));
            }
            let written = match ends {
                true => self.remove(&entry).await.map(|_| None),
                false => {
                    let encoded = self.encoded(resource, &new, &now_owned)?.marked(mark);
                    let is_exact = encoded.is_exact;
                    let written = self.put_encoded(&entry, encoded).await;
                    written.map(|entry| Some((entry, is_exact)))
                }
            };
            match written {
                Ok(Some((entry, is_exact))) => {
                    self.remember(resource, &entry, new, is_exact);
                    self.after_write(resource).await;
                    return Ok(Answer::stored(entry));
                }
                Ok(None) => {
                    self.after_write(resource).await;
                    now_owned.put(&mut new);
                    return Ok(Answer::ok(new));
                }
                // tried on what is there now: who named a version is refused then, and for everybody else to lose
                // again, somebody must win again
                Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(refused(error, target, name)),
            }
        }
    }

    /// What an edit makes of the stored object.
    fn made(
        &self,
        target: &Target,
        part: Part,
        caller: &Caller<'_>,
        present: &Present,
        edit: &mut impl FnMut(&Old<'_>) -> Result<Edited, Failure>,
    ) -> Result<Made, Failure> {
        let resource = &target.resource;
        let (entry, owners) = (&present.entry, &present.owners);
        let bare = resource.without_nulls(&present.object);
        let old = Old {
            object: &bare,
            owners,
            is_of_today: resource.is_of_today(entry),
        };
        let edited = edit(&old)?;
        let mark = match edited.by {
            By::Client | By::Apply(_) => resource.mark(),
            By::Server => 0,
        };
        has_version(target, &edited.object, entry)?;
        let (mut object, now_owned) = self.settled(target, part, caller, &old, edited)?;
        let ends = resource.deleted_by_update(&object, old.object);
        resource.show_nulls(&mut object);
        let unchanged = now_owned.is_same_but_times(owners) && object == present.object;
        Ok(Made {
            object,
            owners: now_owned,
            mark,
            ends,
            unchanged,
        })
    }

    /// Keeps what was just written for whoever writes it next.
    pub(super) fn remember(
        &self,
        resource: &Resource,
        entry: &Entry,
        object: Value,
        is_exact: bool,
    ) {
        if is_exact && resource.is_stored_version() {
            let size = entry.value.rest().len();
            self.recent.put(entry.revision, object, size);
        }
    }

    /// The object that is about to be written over, without its owners.
    fn present(&self, resource: &Resource, entry: &Entry) -> Result<Value, Failure> {
        let recent = match resource.is_of_today(entry) {
            true => self.recent.take(entry.revision),
            false => None,
        };
        let Some(recent) = recent else {
            return resource.read(entry);
        };
        debug_assert_eq!(Some(&recent), resource.read(entry).ok().as_ref());
        Ok(recent)
    }

    /// The new object as it will be stored, with its owners, and what the client should be warned of.
    fn settled(
        &self,
        target: &Target,
        part: Part,
        caller: &Caller<'_>,
        before: &Old<'_>,
        edited: Edited,
    ) -> Result<(Value, Managed), Failure> {
        let resource = &target.resource;
        let Edited {
            object: mut new,
            by,
        } = edited;
        let old = before.object;
        let owners = match by {
            By::Server => return Ok((new, before.owners.clone())),
            By::Apply(owners) => Some(owners),
            By::Client => None,
        };
        let now = self.now();
        metadata::carry_over(&mut new, old);
        if let Some(warning) = metadata::keep_owners_once(&mut new, caller.patches) {
            caller.warn(&warning);
        }
        let owners = match owners {
            Some(owners) => owners,
            None => {
                let registry = self.registry();
                let kind = Owned::new(resource, &registry, part);
                let writer = caller.writer(resource, part, &now);
                apply::track(&kind, Some(before.live()), &mut new, writer)
            }
        };
        resource.prepare_update(&mut new, old, part);
        metadata::show_long_names(&mut new, &owners);
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
        for warning in &verdict.warnings {
            caller.warn(&warning.to_string());
        }
        Ok((new, owners))
    }

    /// An object as the store keeps it, if it can be kept.
    pub(super) fn encoded(
        &self,
        resource: &Resource,
        object: &Value,
        owners: &Managed,
    ) -> Result<Encoded, Failure> {
        let encoded = match resource.is_stored_version() {
            true => Encoded::new(object, owners),
            false => {
                let stored = resource.to_stored(object.clone(), &self.registry())?;
                Encoded::new(&stored, owners)
            }
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

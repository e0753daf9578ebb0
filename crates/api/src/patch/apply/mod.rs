//! Server-side apply and the field ownership behind it.
//!
//! The API server calls [`apply`] for apply patches and [`track`] for every other write, with the
//! object as it will be stored (patched and defaulted). What the storage resets afterwards (a status
//! written through the main resource) is told by [`Kind::reset_fields`] and undone by the caller.

mod conflict;
mod fields;
mod last_applied;
mod managed;
mod merging;
mod owners;
mod path;
mod set;
mod typed;

use serde_json::{Map, Value};

pub use conflict::Conflicts;
pub use fields::Fields;
pub use managed::{Entry, Managed};
pub use path::{BadPathElement, Item, PathElement};
pub use set::{FieldSet, Path};
pub use typed::Comparison;

use crate::patch::{PatchError, types::TypeRef};
use managed::{MANAGED_FIELDS, ManagerId, Owned};
use owners::Owners;

/// The longest name of a manager; a user agent is cut to it.
const MANAGER_MAX_LENGTH: usize = 128;

/// Entries of updates that an object may have before the oldest are put together.
const MAX_UPDATERS: usize = 10;

/// What the ownership of fields depends on in a kind and a (sub)resource of it.
pub trait Kind {
    /// The type of the objects in a version; `None` when the version is not served any more.
    fn type_in(&self, api_version: &str) -> Option<TypeRef<'_>>;

    /// The object in another version.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String>;

    /// Fields that writes through this resource do not change, and so do not own.
    fn reset_fields(&self, api_version: &str) -> &FieldSet;

    /// An object of the kind in which nothing is set.
    fn empty(&self, api_version: &str, kind: &str) -> Value;
}

/// A kind with one version.
pub struct OneVersion<'s> {
    api_version: &'s str,
    schema: TypeRef<'s>,
    reset_fields: FieldSet,
    own: bool,
}

impl<'s> OneVersion<'s> {
    /// One of Kubernetes' own kinds.
    pub fn core(api_version: &'s str, kind: &str) -> Option<Self> {
        Some(Self {
            api_version,
            schema: TypeRef::of_kind(api_version, kind)?,
            reset_fields: FieldSet::default(),
            own: true,
        })
    }

    /// A custom kind.
    pub fn custom(api_version: &'s str, schema: TypeRef<'s>) -> Self {
        Self {
            api_version,
            schema,
            reset_fields: FieldSet::default(),
            own: false,
        }
    }

    #[must_use]
    pub fn resetting(mut self, fields: FieldSet) -> Self {
        self.reset_fields = fields;
        self
    }
}

impl Kind for OneVersion<'_> {
    fn type_in(&self, api_version: &str) -> Option<TypeRef<'_>> {
        (api_version == self.api_version).then_some(self.schema)
    }

    fn convert(&self, object: &Value, _: &str) -> Result<Value, String> {
        Ok(object.clone())
    }

    fn reset_fields(&self, _: &str) -> &FieldSet {
        &self.reset_fields
    }

    fn empty(&self, api_version: &str, kind: &str) -> Value {
        let mut empty = match self.own {
            true => self.schema.empty(),
            false => Value::Object(Map::new()),
        };
        empty["apiVersion"] = api_version.into();
        empty["kind"] = kind.into();
        empty
    }
}

/// Who writes, through what, and when.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// From the request's `fieldManager`, or from its user agent: see [`manager_from_user_agent`].
    pub manager: &'a str,
    pub api_version: &'a str,
    pub kind: &'a str,
    /// Empty for the main resource.
    pub subresource: &'a str,
    /// RFC 3339 in seconds, UTC: `2026-01-31T12:00:00Z`.
    pub now: &'a str,
}

/// The name of a manager that did not give one.
pub fn manager_from_user_agent(user_agent: &str) -> String {
    let name = user_agent.split('/').next().unwrap_or_default();
    let mut out = String::new();
    for character in name.chars().filter(|character| !character.is_control()) {
        if out.len() + character.len_utf8() > MANAGER_MAX_LENGTH {
            break;
        }
        out.push(character);
    }
    out
}

/// What is stored.
#[derive(Clone, Copy, Debug)]
pub struct Live<'a> {
    /// Without `managedFields`.
    pub object: &'a Value,
    pub owners: &'a Managed,
    /// It was written under the schema of today: it fits, and its owners are as this schema has them.
    pub fits: bool,
}

/// The owners after a write that is not an apply. `live` is what was stored before, `None` for a creation; `new` is what
/// will be stored. It is left without `managedFields`, which are only the sender's word about the owners.
pub fn track(
    kind: &impl Kind,
    live: Option<Live<'_>>,
    new: &mut Value,
    writer: Writer<'_>,
) -> Managed {
    let owners = Owners { kind, writer };
    let (managed, of_today) = claimed(live, take_managed_fields(new), writer.subresource);
    // nothing was known of the owners before, so nothing can be said about them now
    if managed.is_empty() && live.is_some() {
        return managed;
    }
    let managed = match of_today {
        true => managed,
        false => owners.reconciled(managed),
    };
    let empty = kind.empty(writer.api_version, writer.kind);
    let (object, fits) = live.map_or((&empty, false), |live| (live.object, live.fits));
    let tracked = owners.update(object, fits, new, managed, writer.manager);
    // an object that does not fit its schema is stored without owners
    tracked.map(cap_updaters).unwrap_or_default()
}

fn take_managed_fields(object: &mut Value) -> Value {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let taken = metadata.and_then(|metadata| metadata.remove(MANAGED_FIELDS));
    taken.unwrap_or_default()
}

/// The owners that a write starts from: those in the object it sends, if there are any. And whether they are as the
/// schema of today has them.
fn claimed(live: Option<Live<'_>>, sent: Value, subresource: &str) -> (Managed, bool) {
    let of_live = || match live {
        Some(live) => (live.owners.clone(), live.fits),
        None => (Managed::default(), true),
    };
    if !subresource.is_empty() {
        return of_live();
    }
    if asks_for_reset(&sent) {
        return (Managed::default(), true);
    }
    match Managed::of(&sent) {
        Ok(managed) if !managed.is_empty() => (managed, false),
        _ => of_live(),
    }
}

/// `[]` and `[{}]` mean: forget the owners.
fn asks_for_reset(managed_fields: &Value) -> bool {
    match managed_fields.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Puts the oldest updates together, version by version, until there are few enough.
fn cap_updaters(mut managed: Managed) -> Managed {
    let mut updaters: Vec<(String, ManagerId)> = managed
        .entries
        .iter()
        .filter(|(id, _)| !id.applies())
        .map(|(id, owned)| (owned.time.clone().unwrap_or_default(), id.clone()))
        .collect();
    let mut count = updaters.len();
    updaters.sort();
    let mut firsts: Vec<(String, ManagerId)> = Vec::new();
    for (time, id) in updaters {
        if count <= MAX_UPDATERS {
            break;
        }
        let Some(owned) = managed.entries.get(&id).cloned() else {
            continue;
        };
        let version = owned.api_version.clone();
        let Some((_, first)) = firsts.iter().find(|(seen, _)| *seen == version) else {
            firsts.push((version, id));
            continue;
        };
        let bucket = ManagerId::updater("ancient-changes", &version, "");
        if !managed.entries.contains_key(&bucket)
            && let Some(first) = managed.entries.remove(first)
        {
            managed.entries.insert(bucket.clone(), first);
        }
        managed.entries.remove(&id);
        count -= 1;
        if let Some(bucket) = managed.entries.get_mut(&bucket) {
            bucket.fields.add(&owned.fields.set());
            bucket.time = Some(time).filter(|time| !time.is_empty());
        }
    }
    managed
}

/// The object after an apply, and its owners: what the configuration sets, without what the manager applied before
/// and nobody wants any more. `live` is `None` when there is no object yet.
pub fn apply(
    kind: &impl Kind,
    live: Option<Live<'_>>,
    applied: &Value,
    writer: Writer<'_>,
    force: bool,
) -> Result<(Value, Managed), PatchError> {
    check_applied(applied, writer)?;
    let empty = kind.empty(writer.api_version, writer.kind);
    let nobody = Managed::default();
    let nothing = Live {
        object: &empty,
        owners: &nobody,
        fits: false,
    };
    let live = live.unwrap_or(nothing);
    let owners = Owners { kind, writer };
    let managed = match live.owners.is_empty() {
        // what was there before anybody applied gets an owner, so that the first apply can conflict
        true => owners
            .update(
                &empty,
                false,
                live.object,
                nobody.clone(),
                "before-first-apply",
            )
            .map_err(|error| {
                PatchError::Internal(format!(
                    "failed to create manager for existing fields: {error}"
                ))
            })?,
        false if live.fits => live.owners.clone(),
        false => owners.reconciled(live.owners.clone()),
    };
    let live = live.object;
    let attempt = |force| owners.apply(live, applied, managed.clone(), force);
    let (mut out, managed) = match attempt(force) {
        Err(PatchError::Conflict(conflicts)) if writer.manager == last_applied::MANAGER => {
            let allowed = last_applied::matching_fields(kind, live, writer.api_version);
            match allowed {
                None => return Err(PatchError::Conflict(conflicts)),
                Some(allowed) if conflicts.fields().difference(&allowed).is_empty() => {
                    attempt(true)?
                }
                Some(allowed) => {
                    return Err(PatchError::Conflict(conflicts.without(&allowed)));
                }
            }
        }
        other => other?,
    };
    if writer.manager == last_applied::MANAGER {
        last_applied::sync(&mut out, applied);
    }
    Ok((out, managed))
}

fn check_applied(applied: &Value, writer: Writer<'_>) -> Result<(), PatchError> {
    let version = applied["apiVersion"].as_str().unwrap_or_default();
    let kind = applied["kind"].as_str().unwrap_or_default();
    if version != writer.api_version || kind != writer.kind {
        return Err(PatchError::BadRequest(format!(
            "invalid object type: {}",
            group_version_kind(version, kind)
        )));
    }
    if applied["metadata"]["managedFields"].is_array() {
        return Err(PatchError::BadRequest(
            "metadata.managedFields must be nil".to_owned(),
        ));
    }
    Ok(())
}

/// `apps/v1, Kind=Deployment`; of the core group `/v1, Kind=Pod`.
fn group_version_kind(api_version: &str, kind: &str) -> String {
    match api_version.contains('/') {
        true => format!("{api_version}, Kind={kind}"),
        false => format!("/{api_version}, Kind={kind}"),
    }
}

impl Owned {
    fn new(fields: FieldSet, api_version: &str, time: Option<String>) -> Self {
        Self {
            fields: Fields::Set(fields),
            api_version: api_version.to_owned(),
            time,
        }
    }
}

//! Server-side apply and the field ownership behind it.
//!
//! The API server calls [`apply`] for apply patches and [`track`] for every other write, with the
//! object as it will be stored (patched and defaulted). What the storage resets afterwards (a status
//! written through the main resource) is told by [`Kind::reset_fields`] and undone by the caller.

mod conflict;
mod last_applied;
mod managed;
mod merging;
mod owners;
mod path;
mod set;
mod typed;

use serde_json::{Map, Value};

pub use conflict::Conflicts;
pub use path::{BadPathElement, Item, PathElement};
pub use set::{FieldSet, Path};
pub use typed::Comparison;

use crate::patch::{PatchError, types::TypeRef};
use managed::{Managed, ManagerId, Owned, without_managed_fields};
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

/// The object after a write that is not an apply, with `managedFields` brought up to date. `live` is
/// what was stored before, `None` for a creation; `new` is what will be stored.
pub fn track(kind: &impl Kind, live: Option<&Value>, new: Value, writer: Writer<'_>) -> Value {
    let empty = kind.empty(writer.api_version, writer.kind);
    let before = live.unwrap_or(&empty);
    let claimed = claimed(before, &new, writer.subresource);
    let mut out = new;
    if let Some(Value::Object(metadata)) = out.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    let managed = match claimed {
        // nothing was known of the owners before, so nothing can be said about them now
        managed if managed.entries.is_empty() && live.is_some() => managed,
        managed => {
            let owners = Owners { kind, writer };
            let before = without_managed_fields(before);
            let tracked = owners.update(&before, &out, managed, writer.manager);
            // an object that does not fit its schema is stored without owners
            tracked.map(cap_updaters).unwrap_or_default()
        }
    };
    managed.write(&mut out);
    out
}

/// The owners that a write starts from: those in the object it sends, if there are any.
fn claimed(live: &Value, new: &Value, subresource: &str) -> Managed {
    let of_live = || Managed::of(live).unwrap_or_default();
    if !subresource.is_empty() {
        return of_live();
    }
    if asks_for_reset(&new["metadata"]["managedFields"]) {
        return Managed::default();
    }
    match Managed::of(new) {
        Ok(managed) if !managed.entries.is_empty() => managed,
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
            bucket.fields = std::mem::take(&mut bucket.fields).union(&owned.fields);
            bucket.time = Some(time).filter(|time| !time.is_empty());
        }
    }
    managed
}

/// The object after an apply: what the configuration sets, without what the manager applied before
/// and nobody wants any more. `live` is `None` when there is no object yet.
pub fn apply(
    kind: &impl Kind,
    live: Option<&Value>,
    applied: &Value,
    writer: Writer<'_>,
    force: bool,
) -> Result<Value, PatchError> {
    check_applied(applied, writer)?;
    let empty = kind.empty(writer.api_version, writer.kind);
    let live = live.unwrap_or(&empty);
    let managed = Managed::of(live).map_err(|error| {
        PatchError::Internal(format!("failed to decode managed fields: {error}"))
    })?;
    let live = without_managed_fields(live);
    let owners = Owners { kind, writer };
    let managed = match managed.entries.is_empty() {
        // what was there before anybody applied gets an owner, so that the first apply can conflict
        true => owners
            .update(&empty, &live, managed, "before-first-apply")
            .map_err(|error| {
                PatchError::Internal(format!(
                    "failed to create manager for existing fields: {error}"
                ))
            })?,
        false => managed,
    };
    let attempt = |force| owners.apply(&live, applied, managed.clone(), force);
    let (mut out, managed) = match attempt(force) {
        Err(PatchError::Conflict(conflicts)) if writer.manager == last_applied::MANAGER => {
            let allowed = last_applied::matching_fields(kind, &live, writer.api_version);
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
    managed.write(&mut out);
    Ok(out)
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

/// Takes back the times of entries when nothing else has changed, so that a write without effect
/// stores nothing. To be called with the object as it would be stored.
pub fn keep_times_of_unchanged(live: &Value, new: &mut Value) {
    let had_owners = live["metadata"]["managedFields"].is_array();
    let unchanged = same_but(live, new, "metadata", |live, new| {
        same_but(live, new, "managedFields", same_but_times)
    });
    if had_owners && unchanged {
        *new = live.clone();
    }
}

fn same_but_times(live: &Value, new: &Value) -> bool {
    let (Value::Array(live), Value::Array(new)) = (live, new) else {
        return live == new;
    };
    let same = |(live, new)| same_but(live, new, "time", |_, _| true);
    live.len() == new.len() && live.iter().zip(new).all(same)
}

/// Whether two maps are equal when the values of one field are compared by `same_field`; an absent one is null.
fn same_but(
    one: &Value,
    other: &Value,
    field: &str,
    same_field: impl Fn(&Value, &Value) -> bool,
) -> bool {
    let (Value::Object(one), Value::Object(other)) = (one, other) else {
        return one == other;
    };
    let rest = |map: &Map<String, Value>| map.len() - usize::from(map.contains_key(field));
    let same = |(name, value): (&String, &Value)| name == field || other.get(name) == Some(value);
    let (this, that) = (one.get(field), other.get(field));
    rest(one) == rest(other)
        && one.iter().all(same)
        && same_field(this.unwrap_or(&Value::Null), that.unwrap_or(&Value::Null))
}

impl Owned {
    fn new(fields: FieldSet, api_version: &str, time: Option<String>) -> Self {
        Self {
            fields,
            api_version: api_version.to_owned(),
            time,
        }
    }
}

//! How a write moves the ownership of fields.

use std::{borrow::Cow, collections::BTreeMap, sync::LazyLock};

use serde_json::Value;

use super::{
    Comparison, Conflicts, FieldSet, Fields, Kind, Managed, ManagerId, Owned, Writer,
    group_version_kind,
    merging::merge,
    path::same,
    typed::{compare, field_set, problems_text, remove, validate},
};
use crate::patch::{PatchError, types::TypeRef};

/// What belongs to the server or is the same in every write, and so is owned by nobody.
static NEVER_OWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

pub(super) struct Owners<'a, K> {
    pub(super) kind: &'a K,
    pub(super) writer: Writer<'a>,
}

type Failure = String;

/// Who writes, and how.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By<'a> {
    Update(&'a ManagerId),
    Apply(&'a ManagerId),
}

impl<K: Kind> Owners<'_, K> {
    /// The owners after `live` has become `new` by an update of the given manager.
    pub(super) fn update(
        &self,
        live: &Value,
        live_fits: bool,
        new: &Value,
        managed: Managed,
        manager: &str,
    ) -> Result<Managed, Failure> {
        let version = self.writer.api_version;
        let schema = self.schema(version)?;
        let known_to_fit = live_fits.then_some(live);
        let fits = |object: &Value, name: &str| {
            let problems = validate(schema, object, true, known_to_fit);
            match problems.is_empty() {
                true => Ok(()),
                false => Err(format!(
                    "failed to convert {name} object ({}) to smd typed: {}",
                    full_name(object),
                    problems_text(&problems)
                )),
            }
        };
        fits(new, "new")?;
        if !live_fits {
            fits(live, "live")?;
        }
        let id = ManagerId::updater(manager, version, self.writer.subresource);
        let (mut managed, changes) = self
            .settle(live, new, managed, By::Update(&id), true)
            .map_err(|error| error.to_string())?;
        let taken = changes.changed().difference(&NEVER_OWNED);
        if !taken.is_empty() {
            let owned = managed.entries.entry(id);
            let owned = owned.or_insert_with(|| Owned::new(FieldSet::default(), version, None));
            owned.fields.add(&taken);
            owned.time = Some(self.writer.now.to_owned());
        }
        Ok(managed)
    }

    /// The object and its owners after an apply.
    pub(super) fn apply(
        &self,
        live: &Value,
        applied: &Value,
        mut managed: Managed,
        force: bool,
    ) -> Result<(Value, Managed), PatchError> {
        let version = self.writer.api_version;
        let schema = self.schema(version).map_err(PatchError::Internal)?;
        for (object, name, duplicates) in [(applied, "patch", false), (live, "live", true)] {
            let problems = validate(schema, object, duplicates, None);
            if !problems.is_empty() {
                return Err(PatchError::Internal(format!(
                    "failed to create typed {name} object ({}): {}",
                    full_name(object),
                    problems_text(&problems)
                )));
            }
        }
        let merged = merge(schema, live, applied);
        let id = ManagerId::applier(self.writer.manager, self.writer.subresource);
        let last = managed.entries.remove(&id);
        let wanted = field_set(schema, applied).difference_below(self.kind.reset_fields(version));
        let time = last.as_ref().and_then(|last| last.time.clone());
        managed
            .entries
            .insert(id.clone(), Owned::new(wanted, version, time));
        let pruned = match &last {
            Some(last) if !last.fields.is_empty() => self
                .prune(merged, &managed, last)
                .map_err(PatchError::Internal)?,
            _ => merged,
        };
        let (mut managed, _) = self.settle(live, &pruned, managed, By::Apply(&id), force)?;
        let changed = !same(live, &pruned);
        if let Some(mut owned) = managed.entries.remove(&id) {
            owned.fields.remove(&NEVER_OWNED);
            if changed {
                owned.time = Some(self.writer.now.to_owned());
            }
            if !owned.fields.is_empty() {
                managed.entries.insert(id, owned);
            }
        }
        Ok((pruned, managed))
    }

    fn schema(&self, version: &str) -> Result<TypeRef<'_>, Failure> {
        self.kind
            .type_in(version)
            .ok_or_else(|| format!("no type for version {version}"))
    }

    /// The object in another version, with its type; `None` when the version is gone.
    fn in_version<'o>(
        &self,
        object: &'o Value,
        version: &str,
    ) -> Result<Option<(Cow<'o, Value>, TypeRef<'_>)>, Failure> {
        let Some(schema) = self.kind.type_in(version) else {
            return Ok(None);
        };
        let object = match object["apiVersion"] == version {
            true => Cow::Borrowed(object),
            false => Cow::Owned(self.kind.convert(object, version)?),
        };
        Ok(Some((object, schema)))
    }

    /// Entries as today's schema sees them.
    pub(super) fn reconciled(&self, mut managed: Managed) -> Managed {
        managed
            .entries
            .retain(|_, owned| self.kind.type_in(&owned.api_version).is_some());
        for owned in managed.entries.values_mut() {
            if let Some(schema) = self.kind.type_in(&owned.api_version) {
                let set = std::mem::take(&mut owned.fields).into_set();
                owned.fields = Fields::Set(set.reconciled(schema));
            }
        }
        managed
    }

    /// Takes what has changed from all managers but the writer, and what is gone also from who updates, or refuses to.
    fn settle(
        &self,
        live: &Value,
        new: &Value,
        mut managed: Managed,
        by: By<'_>,
        force: bool,
    ) -> Result<(Managed, Comparison), PatchError> {
        let version = self.writer.api_version;
        // what has changed and what was removed, in each version
        let mut versions = BTreeMap::new();
        let own = self.compare_in(live, new, version);
        let own = own.map_err(PatchError::Internal)?.unwrap_or_default();
        versions.insert(version.to_owned(), (own.changed(), own.removed.clone()));
        let mut conflicts = BTreeMap::new();
        for (id, owned) in &managed.entries {
            if by == By::Apply(id) {
                continue;
            }
            if !versions.contains_key(&owned.api_version) {
                let other = self.compare_in(live, new, &owned.api_version);
                let other = other.map_err(PatchError::Internal)?.unwrap_or_default();
                versions.insert(owned.api_version.clone(), (other.changed(), other.removed));
            }
            let (changed, _) = &versions[&owned.api_version];
            let taken = match by == By::Update(id) {
                // the others it would be given back at once
                true => owned
                    .fields
                    .intersection(&changed.intersection(&NEVER_OWNED)),
                false => owned.fields.intersection(changed),
            };
            if !taken.is_empty() {
                conflicts.insert(id.clone(), taken);
            }
        }
        if !force && !conflicts.is_empty() {
            return Err(PatchError::Conflict(Conflicts::new(conflicts)));
        }
        for (id, owned) in &mut managed.entries {
            if by == By::Apply(id) {
                continue;
            }
            if let Some(taken) = conflicts.get(id) {
                owned.fields.remove(taken);
            }
            let (_, removed) = &versions[&owned.api_version];
            owned.fields.remove(removed);
        }
        managed.drop_empty();
        Ok((managed, own))
    }

    fn compare_in(
        &self,
        live: &Value,
        new: &Value,
        version: &str,
    ) -> Result<Option<Comparison>, Failure> {
        let live = self.in_version(live, version)?;
        let new = self.in_version(new, version)?;
        let (Some((live, schema)), Some((new, _))) = (live, new) else {
            return Ok(None);
        };
        let ignored = self.kind.reset_fields(version);
        Ok(Some(compare(schema, &live, &new).without(ignored)))
    }

    /// Takes out of the merged object what the manager applied last time and does not apply now,
    /// unless somebody else owns it or it holds something that is owned.
    fn prune(&self, merged: Value, managed: &Managed, last: &Owned) -> Result<Value, Failure> {
        let Some((merged_then, schema)) = self.in_version(&merged, &last.api_version)? else {
            return Ok(merged);
        };
        let named = |set: &FieldSet| set.with_named_fields(Some(schema));
        let gone = named(&last.fields.set());
        let mut pruned = remove(schema, &merged_then, &gone);
        pruned = self.add_back_owned(&merged_then, pruned, &last.api_version, managed)?;
        let Some((pruned, _)) = self.in_version(&pruned, &last.api_version)? else {
            return Ok(merged);
        };
        let left = named(&field_set(schema, &pruned));
        let all = named(&field_set(schema, &merged_then));
        let gone = all.difference(&left).intersection(&gone);
        let pruned = remove(schema, &merged_then, &gone);
        match self.in_version(&pruned, self.writer.api_version)? {
            Some((pruned, _)) => Ok(pruned.into_owned()),
            None => Ok(pruned),
        }
    }

    /// Puts back what anybody owns, version by version; the version of the last apply comes first.
    fn add_back_owned(
        &self,
        merged: &Value,
        mut pruned: Value,
        first: &str,
        managed: &Managed,
    ) -> Result<Value, Failure> {
        let mut by_version: BTreeMap<&str, FieldSet> = BTreeMap::new();
        for owned in managed.entries.values() {
            let all = by_version.entry(&owned.api_version).or_default();
            *all = std::mem::take(all).union(&owned.fields.set());
        }
        let first = by_version.remove_entry(first);
        for (version, owned) in first.into_iter().chain(by_version) {
            let Some((merged, schema)) = self.in_version(merged, version)? else {
                continue;
            };
            let Some((then, _)) = self.in_version(&pruned, version)? else {
                continue;
            };
            let named = |set: &FieldSet| set.with_named_fields(Some(schema));
            let kept = named(&field_set(schema, &then)).union(&named(&owned));
            let gone = named(&field_set(schema, &merged)).difference(&kept);
            pruned = remove(schema, &merged, &gone);
        }
        Ok(pruned)
    }
}

/// `namespace/name; apps/v1, Kind=Deployment`.
fn full_name(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!(
        "{}/{}; {}",
        text(&object["metadata"]["namespace"]),
        text(&object["metadata"]["name"]),
        group_version_kind(&text(&object["apiVersion"]), &text(&object["kind"]))
    )
}

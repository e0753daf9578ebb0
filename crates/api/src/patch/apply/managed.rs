//! `metadata.managedFields`: who owns which fields.

use std::{cmp::Ordering, collections::BTreeMap};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::fields::Fields;
use crate::patch::go;

pub(super) const MANAGED_FIELDS: &str = "managedFields";
const FIELDS_TYPE: &str = "FieldsV1";

/// What tells the entries of managedFields apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ManagerId {
    pub(super) manager: String,
    /// None for what was applied: an applier's entry moves to the version it applies next.
    pub(super) update_version: Option<String>,
    pub(super) subresource: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Owned {
    pub(super) fields: Fields,
    pub(super) api_version: String,
    /// Absent on an entry whose request changed nothing.
    pub(super) time: Option<String>,
}

/// Who owns which fields of an object: `metadata.managedFields`. In the order in which the server sorts the managers of
/// a conflict.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Managed {
    pub(super) entries: BTreeMap<ManagerId, Owned>,
}

impl ManagerId {
    pub(super) fn applier(manager: &str, subresource: &str) -> Self {
        Self {
            manager: named(manager),
            update_version: None,
            subresource: subresource.to_owned(),
        }
    }

    pub(super) fn updater(manager: &str, api_version: &str, subresource: &str) -> Self {
        Self {
            manager: named(manager),
            update_version: Some(api_version.to_owned()),
            subresource: subresource.to_owned(),
        }
    }

    pub(super) fn applies(&self) -> bool {
        self.update_version.is_none()
    }

    fn operation(&self) -> &'static str {
        match self.update_version {
            None => "Apply",
            Some(_) => "Update",
        }
    }

    /// The server's own key of the entry, which it sorts by.
    fn sort_key(&self) -> String {
        let text = |text: &str| Value::from(text).to_string();
        let version = self.update_version.iter();
        let version = version.map(|version| format!(",\"apiVersion\":{}", text(version)));
        let subresource = match self.subresource.as_str() {
            "" => String::new(),
            name => format!(",\"subresource\":{}", text(name)),
        };
        format!(
            "{{\"manager\":{},\"operation\":\"{}\"{}{subresource}}}",
            text(&self.manager),
            self.operation(),
            version.collect::<String>()
        )
    }
}

fn named(manager: &str) -> String {
    match manager {
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}

impl Ord for ManagerId {
    fn cmp(&self, other: &Self) -> Ordering {
        if self == other {
            return Ordering::Equal;
        }
        self.sort_key().cmp(&other.sort_key())
    }
}

impl PartialOrd for ManagerId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// As it stands in the words about a conflict: `"kubectl" using apps/v1`.
impl std::fmt::Display for ManagerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&go::quote(&self.manager))?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {}", go::quote(&self.subresource))?;
        }
        match &self.update_version {
            Some(version) => write!(f, " using {version}"),
            None => Ok(()),
        }
    }
}

/// One entry of `managedFields` without its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry {
    pub api_version: String,
    pub operation: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub manager: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    fields_type: String,
}

impl Managed {
    /// Takes `metadata.managedFields` out of an object.
    pub fn take(object: &mut Value) -> Result<Self, String> {
        let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
            return Ok(Self::default());
        };
        match metadata.remove(MANAGED_FIELDS) {
            Some(entries) => Self::of(&entries),
            None => Ok(Self::default()),
        }
    }

    /// Reads `managedFields`.
    pub(super) fn of(entries: &Value) -> Result<Self, String> {
        let mut managed = Self::default();
        for (index, entry) in entries.as_array().into_iter().flatten().enumerate() {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let head = Entry {
                api_version: text("apiVersion"),
                operation: text("operation"),
                manager: text("manager"),
                subresource: text("subresource"),
                time: entry["time"].as_str().map(str::to_owned),
                fields_type: text("fieldsType"),
            };
            let fields = || {
                let fields = Fields::decode(&entry["fieldsV1"]);
                fields.map_err(|error| format!("error decoding set: {error}"))
            };
            managed.add(index, head, fields)?;
        }
        Ok(managed)
    }

    /// What [`Managed::each`] gave.
    pub fn stored(entries: impl IntoIterator<Item = (Entry, Fields)>) -> Result<Self, String> {
        let mut managed = Self::default();
        for (index, (head, fields)) in entries.into_iter().enumerate() {
            managed.add(index, head, || Ok(fields))?;
        }
        Ok(managed)
    }

    fn add(
        &mut self,
        index: usize,
        head: Entry,
        fields: impl FnOnce() -> Result<Fields, String>,
    ) -> Result<(), String> {
        let update_version = match head.operation.as_str() {
            "Apply" => None,
            "Update" => Some(head.api_version.clone()),
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        if head.api_version.is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match head.fields_type.as_str() {
            FIELDS_TYPE => {}
            "" => {
                return Err(format!(
                    "missing fieldsType in managed fields entry {index}"
                ));
            }
            other => {
                return Err(format!(
                    "invalid fieldsType {} in managed fields entry {index}",
                    go::quote(other)
                ));
            }
        }
        let id = ManagerId {
            manager: head.manager,
            update_version,
            subresource: head.subresource,
        };
        let owned = Owned {
            fields: fields()?,
            api_version: head.api_version,
            time: head.time,
        };
        self.entries.insert(id, owned);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries as the server lists them: appliers first, then by time.
    pub fn each(&self) -> impl Iterator<Item = (Entry, &Fields)> {
        let head = |id: &ManagerId, owned: &Owned| Entry {
            api_version: owned.api_version.clone(),
            operation: id.operation().to_owned(),
            manager: id.manager.clone(),
            subresource: id.subresource.clone(),
            time: owned.time.clone().filter(|time| !time.is_empty()),
            fields_type: FIELDS_TYPE.to_owned(),
        };
        let entries = self.entries.iter();
        let mut entries: Vec<(Entry, &Fields)> = entries
            .map(|(id, owned)| (head(id, owned), &owned.fields))
            .collect();
        let place = |entry: &Entry| {
            (
                entry.operation.clone(),
                entry.time.clone().unwrap_or_default(),
                entry.manager.clone(),
                entry.api_version.clone(),
                entry.subresource.clone(),
            )
        };
        entries.sort_by_cached_key(|(entry, _)| place(entry));
        entries.into_iter()
    }

    /// Writes the entries into an object, in place of those it has.
    pub fn put(&self, object: &mut Value) {
        let Value::Object(object) = object else {
            return;
        };
        let metadata = object
            .entry("metadata")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(metadata) = metadata {
            metadata.remove(MANAGED_FIELDS);
            if !self.entries.is_empty() {
                let entries = self.each().map(|(entry, fields)| {
                    let mut entry = json!(entry);
                    entry["fieldsV1"] = fields.to_json();
                    entry
                });
                metadata.insert(MANAGED_FIELDS.to_owned(), entries.collect());
            }
        }
    }

    /// The managers and the subresources they wrote through.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        let names = self.entries.keys();
        names.map(|id| (id.manager.as_str(), id.subresource.as_str()))
    }

    /// Whether the same fields have the same owners, whenever these wrote last.
    pub fn is_same_but_times(&self, other: &Self) -> bool {
        let same = |((one_id, one), (other_id, other)): ((_, &Owned), (_, &Owned))| {
            one_id == other_id && one.api_version == other.api_version && one.fields == other.fields
        };
        self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(same)
    }

    /// Whether all wrote in this version.
    pub fn are_of(&self, api_version: &str) -> bool {
        let mut owned = self.entries.values();
        owned.all(|owned| owned.api_version == api_version)
    }

    pub(super) fn drop_empty(&mut self) {
        self.entries.retain(|_, owned| !owned.fields.is_empty());
    }
}

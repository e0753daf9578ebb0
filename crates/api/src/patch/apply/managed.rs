//! `metadata.managedFields`: who owns which fields.

use std::{cmp::Ordering, collections::BTreeMap};

use serde_json::{Map, Value, json};

use super::set::FieldSet;
use crate::patch::go;

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
    pub(super) fields: FieldSet,
    pub(super) api_version: String,
    /// Absent on an entry whose request changed nothing.
    pub(super) time: Option<String>,
}

/// The entries, in the order in which the server sorts the managers of a conflict.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Managed {
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

impl Managed {
    /// Reads `metadata.managedFields` of an object.
    pub(super) fn of(object: &Value) -> Result<Self, String> {
        let mut managed = Self::default();
        let entries = object["metadata"]["managedFields"].as_array();
        for (index, entry) in entries.into_iter().flatten().enumerate() {
            let text = |key: &str| entry[key].as_str().unwrap_or_default();
            let api_version = text("apiVersion");
            let update_version = match text("operation") {
                "Apply" => None,
                "Update" => Some(api_version.to_owned()),
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            if api_version.is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
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
            let fields = FieldSet::decode(&entry["fieldsV1"])
                .map_err(|error| format!("error decoding set: {error}"))?;
            let id = ManagerId {
                manager: text("manager").to_owned(),
                update_version,
                subresource: text("subresource").to_owned(),
            };
            let owned = Owned {
                fields,
                api_version: api_version.to_owned(),
                time: entry["time"].as_str().map(str::to_owned),
            };
            managed.entries.insert(id, owned);
        }
        Ok(managed)
    }

    /// The entries as the server lists them: appliers first, then by time.
    fn encode(&self) -> Vec<Value> {
        let mut entries: Vec<(&ManagerId, &Owned)> = self.entries.iter().collect();
        entries.sort_by_key(|(id, owned)| {
            (
                id.operation(),
                owned.time.clone().unwrap_or_default(),
                id.manager.clone(),
                owned.api_version.clone(),
                id.subresource.clone(),
            )
        });
        let encode = |(id, owned): (&ManagerId, &Owned)| {
            let mut entry = json!({
                "operation": id.operation(),
                "apiVersion": owned.api_version,
                "fieldsType": "FieldsV1",
                "fieldsV1": owned.fields.encode(),
            });
            let optional = [
                ("manager", Some(&id.manager)),
                ("subresource", Some(&id.subresource)),
                ("time", owned.time.as_ref()),
            ];
            for (key, value) in optional {
                if let Some(value) = value.filter(|value| !value.is_empty()) {
                    entry[key] = value.as_str().into();
                }
            }
            entry
        };
        entries.into_iter().map(encode).collect()
    }

    /// Writes the entries into an object, in place of those it has.
    pub(super) fn write(&self, object: &mut Value) {
        let Value::Object(fields) = object else {
            return;
        };
        let metadata = fields
            .entry("metadata")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(metadata) = metadata {
            metadata.remove("managedFields");
            if !self.entries.is_empty() {
                metadata.insert("managedFields".to_owned(), self.encode().into());
            }
        }
    }

    pub(super) fn drop_empty(&mut self) {
        self.entries.retain(|_, owned| !owned.fields.is_empty());
    }
}

/// The object without `metadata.managedFields`.
pub(super) fn without_managed_fields(object: &Value) -> Value {
    let Value::Object(fields) = object else {
        return object.clone();
    };
    let of_metadata = |metadata: &Map<String, Value>| {
        let kept = metadata.iter().filter(|(name, _)| *name != "managedFields");
        kept.map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    let kept = fields.iter().map(|(name, value)| {
        let value = match value {
            Value::Object(metadata) if name == "metadata" => of_metadata(metadata),
            other => other.clone(),
        };
        (name.clone(), value)
    });
    kept.collect()
}

//! Which objects a list or a watch selects.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::resource::Resource;
use crate::selector::{Fields, Labels};
use crate::status::Failure;
use crate::store::Entry;

pub(super) struct Selection {
    labels: Labels,
    fields: Fields,
    /// Some field is not a part of the key, so that the object itself must be read.
    deep: bool,
}

/// As much of an object as label selectors need.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: Option<Metadata<'a>>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    labels: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
}

impl Selection {
    pub(super) fn new(
        resource: &Resource,
        labels: Labels,
        fields: Fields,
    ) -> Result<Self, Failure> {
        if let Some(unknown) = fields.iter().find(|field| !resource.has_field(&field.path)) {
            return Err(unsupported(resource, &unknown.path));
        }
        let deep = fields
            .iter()
            .any(|field| !matches!(field.path.as_str(), "metadata.name" | "metadata.namespace"));
        Ok(Self {
            labels,
            fields,
            deep,
        })
    }

    pub(super) fn is_all(&self) -> bool {
        self.labels.is_everything() && self.fields.iter().next().is_none()
    }

    /// The only name that is selected, if the selector says one.
    pub(super) fn name(&self) -> Option<&str> {
        let mut fields = self.fields.iter();
        let field = fields.find(|field| field.equal && field.path == "metadata.name")?;
        Some(&field.value)
    }

    pub(super) fn selects(&self, resource: &Resource, entry: &Entry) -> bool {
        let by_key = |path: &str| match path {
            "metadata.name" => Some(entry.key.name()),
            "metadata.namespace" => Some(entry.key.namespace()),
            _ => None,
        };
        if self.is_all() {
            return true;
        }
        if self.deep {
            let Ok(object) = resource.read(entry) else {
                return false;
            };
            let holds = |field: &crate::selector::Field| {
                let value = by_key(&field.path)
                    .map_or_else(|| resource.field(&object, &field.path), str::to_owned);
                (value == field.value) == field.equal
            };
            return self.fields.iter().all(holds) && self.labels.matches(&labels_of(&object));
        }
        if !self.fields.matches(by_key) {
            return false;
        }
        if self.labels.is_everything() {
            return true;
        }
        let head: Option<Head> = serde_json::from_slice(entry.value.rest()).ok();
        let labels = head.and_then(|head| head.metadata?.labels);
        self.labels.matches(&labels.unwrap_or_default())
    }
}

pub(super) fn labels_of(object: &Value) -> BTreeMap<&str, &str> {
    let labels = object["metadata"]["labels"].as_object();
    let labels = labels.into_iter().flatten();
    labels
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
        .collect()
}

fn unsupported(resource: &Resource, path: &str) -> Failure {
    // kinds with selectable fields of their own say it differently from those without
    let message = match resource.has_own_fields() {
        true => format!("field label not supported: {path}"),
        false => format!(
            "{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ),
    };
    Failure::bad_request(message)
}

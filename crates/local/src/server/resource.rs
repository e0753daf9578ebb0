//! What the API serves: one version of one resource, built in or defined by a CRD.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::patch::types;
use api::structural;

use crate::kinds::BuiltIn;
use crate::status::Qualified;
use crate::table::json_path::JsonPath;

/// A resource in one version.
#[derive(Debug)]
pub struct Resource {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    /// `v1`, `apps/v1`.
    pub api_version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub subresources: Vec<Subresource>,
    /// What the store calls it: the plural with its group. The two groups of events share one.
    pub stored_as: Arc<str>,
    pub origin: Origin,
}

/// What stands below an object, as discovery shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    pub name: String,
    pub kind: String,
    /// Where it differs from the resource's own.
    pub group_version: Option<(String, String)>,
    pub verbs: &'static [&'static str],
}

#[derive(Clone, Debug)]
pub enum Origin {
    BuiltIn(&'static BuiltIn),
    Custom(Arc<Custom>),
}

/// One version of a CRD.
#[derive(Debug)]
pub struct Custom {
    /// The name of the CRD: `sandboxes.agents.x-k8s.io`.
    pub crd: String,
    pub schema: structural::Schema,
    /// The same schema as merges see it.
    pub types: types::Schema,
    /// As the CRD has it, for OpenAPI; as text, since it is seldom needed and many times larger when parsed.
    pub open_api: Box<str>,
    /// `apiVersion` of what is stored.
    pub stored_api_version: String,
    /// `apiVersion`s of all versions that the CRD has.
    pub api_versions: Vec<String>,
    pub status: bool,
    pub scale: Option<structural::Scale>,
    pub columns: Vec<Column>,
    /// JSON paths that field selectors may name, as written (`.spec.color`).
    pub selectable: Vec<(String, JsonPath)>,
    /// Sent with every answer about a deprecated version.
    pub warning: Option<String>,
    pub conversion: Conversion,
    /// Objects written up to this revision may not fit the schema: it came later.
    pub since: u64,
    /// Of this schema, whatever was or will be served under the same name.
    pub id: u64,
}

impl Custom {
    /// What stands for the schemas of built-in kinds, which never change.
    pub const NO_ID: u64 = 1;

    pub fn new_id() -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(Custom::NO_ID);
        LAST.fetch_add(1, Ordering::Relaxed) + 1
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// All versions have the same fields; only `apiVersion` changes.
    None,
    /// Our own kinds: `api::sigs::conversion`.
    Own,
}

/// A column of `additionalPrinterColumns`.
#[derive(Debug)]
pub struct Column {
    pub name: String,
    /// `integer`, `number`, `string`, `boolean`, `date`.
    pub column_type: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    pub path: JsonPath,
}

/// What every resource can, but namespaces.
pub const VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

impl Resource {
    pub fn qualified(&self) -> Qualified<'_> {
        Qualified {
            group: &self.group,
            plural: &self.plural,
        }
    }

    pub fn verbs(&self) -> impl Iterator<Item = &'static str> {
        // a namespace takes its time to go, so the API does not delete several at once
        let whole = self.group.is_empty() && self.kind == "Namespace";
        VERBS
            .iter()
            .copied()
            .filter(move |verb| !(whole && *verb == "deletecollection"))
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    pub fn custom(&self) -> Option<&Custom> {
        match &self.origin {
            Origin::BuiltIn(_) => None,
            Origin::Custom(custom) => Some(custom),
        }
    }
}

impl From<&'static BuiltIn> for Resource {
    fn from(built_in: &'static BuiltIn) -> Self {
        let BuiltIn { group, version, .. } = *built_in;
        let api_version = match group {
            "" => version.to_owned(),
            _ => format!("{group}/{version}"),
        };
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let subresources = built_in.subresources.iter().map(|sub| Subresource {
            name: sub.name.to_owned(),
            kind: match sub.kind {
                "" => built_in.kind.to_owned(),
                kind => kind.to_owned(),
            },
            group_version: sub
                .group_version
                .map(|(group, version)| (group.to_owned(), version.to_owned())),
            verbs: sub.verbs,
        });
        let stored_as = match (group, built_in.plural) {
            ("" | "events.k8s.io", plural) => plural.to_owned(),
            (group, plural) => format!("{plural}.{group}"),
        };
        Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version,
            kind: built_in.kind.to_owned(),
            list_kind: format!("{}List", built_in.kind),
            plural: built_in.plural.to_owned(),
            singular: built_in.kind.to_lowercase(),
            short_names: owned(built_in.short_names),
            categories: owned(built_in.categories),
            namespaced: built_in.namespaced,
            subresources: subresources.collect(),
            stored_as: stored_as.into(),
            origin: Origin::BuiltIn(built_in),
        }
    }
}

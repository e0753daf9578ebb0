//! Kubernetes' own types out of the distilled table, in the form of OpenAPI documents.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use api::core;
use serde_json::{Map, Value, json};

use super::{Dialect, Types, Writer, custom, is_custom};
use crate::server::discovery;
use crate::server::registry::Registry;
use crate::server::resource::Resource;

/// Marks a field whose default is the empty object.
const ALWAYS_THERE: &str = "x-always-there";
pub(super) const KINDS: &str = "x-kubernetes-group-version-kind";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
/// Types that belong to every group.
const OF_ALL_GROUPS: &[&str] = &[
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent",
];

pub(super) const API_VERSION: &str = "The group and version of the API that the object is of.";
pub(super) const KIND: &str = "The kind of the object.";
pub(super) const METADATA: &str = "Name, labels and what else every object has.";

/// By type and field, the values that a field can have. A running server says them, Kubernetes' committed documents,
/// from which the table is, do not.
static VALUES: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("values.json"))
        .expect("values.json is a committed table of values")
});

/// Defaults that the table leaves out because CRDs never had them.
const MORE_DEFAULTS: &[(&str, &str, &str)] = &[
    (
        "io.k8s.api.core.v1.AzureDiskVolumeSource",
        "cachingMode",
        "ReadWrite",
    ),
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", "kind", "Shared"),
];

/// Required fields that have no default, unlike all others: Kubernetes' code has pointers there.
const NO_DEFAULTS: &[(&str, &str)] = &[
    ("io.k8s.api.core.v1.ContainerRestartRule", "action"),
    (
        "io.k8s.api.core.v1.ContainerRestartRuleOnExitCodes",
        "operator",
    ),
    ("io.k8s.api.core.v1.ImageVolumeStatus", "imageRef"),
    ("io.k8s.api.core.v1.PodCertificateProjection", "keyType"),
    ("io.k8s.api.core.v1.PodCertificateProjection", "signerName"),
];

/// The one type whose fields, but `default`, are not described, so that references stand alone.
const UNDESCRIBED: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// The name of the type of a resource's objects or, with the kind of its list, of that.
pub(super) fn type_name(resource: &Resource, kind: &str) -> String {
    if resource.custom().is_none() {
        return core::type_name(&resource.api_version, kind);
    }
    let mut group: Vec<&str> = resource.group.split('.').collect();
    group.reverse();
    format!("{}.{}.{kind}", group.join("."), resource.version)
}

impl Types<'_> {
    pub(super) fn want<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        self.wanted.extend(names.map(str::to_owned));
    }

    /// Writes all definitions, with those that others refer to.
    pub(super) fn write(mut self, registry: &Registry, dialect: Dialect, out: &mut Writer) {
        for resource in &self.resources {
            let name = type_name(resource, &resource.kind);
            match resource.custom() {
                Some(custom) => {
                    out.member(&name, &custom::definition(resource, custom, dialect));
                    self.wanted.insert(core::OBJECT_META.to_owned());
                }
                None => {
                    self.wanted.insert(name);
                }
            }
            let list = type_name(resource, &resource.list_kind);
            out.member(&list, &list_of(resource, dialect));
            self.wanted.insert(LIST_META.to_owned());
        }
        for name in with_references(self.wanted) {
            if let Some(schema) = in_table(&name) {
                let mut definition = definition(&name, schema, dialect);
                if OF_ALL_GROUPS.contains(&name.as_str()) {
                    definition[KINDS] = in_all_groups(registry, &name);
                }
                out.member(&name, &definition);
            }
        }
    }
}

fn in_table(name: &str) -> Option<&'static Map<String, Value>> {
    let name = match name {
        core::OBJECT_META => core::WHOLE_OBJECT_META,
        name => name,
    };
    core::table().get(name)
}

/// The names and all they refer to, over any number of steps, as far as the table has them.
fn with_references(names: BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut ahead: Vec<String> = names.into_iter().collect();
    while let Some(name) = ahead.pop() {
        let Some(schema) = in_table(&name) else {
            continue;
        };
        if found.insert(name) {
            add_references(schema, &mut ahead);
        }
    }
    found
}

fn add_references(schema: &Map<String, Value>, names: &mut Vec<String>) {
    for (key, value) in schema {
        match (key.as_str(), value) {
            ("$ref", Value::String(name)) => names.push(name.clone()),
            ("properties", Value::Object(properties)) => {
                for property in properties.values().filter_map(Value::as_object) {
                    add_references(property, names);
                }
            }
            ("items" | "additionalProperties", Value::Object(schema)) => {
                add_references(schema, names);
            }
            _ => {}
        }
    }
}

/// Without the groups of CRDs: a new one must not change all documents.
fn in_all_groups(registry: &Registry, name: &str) -> Value {
    let kind = name.rsplit('.').next();
    discovery::group_versions(registry)
        .into_iter()
        .filter(|(group, _)| !is_custom(registry, group))
        .flat_map(|(group, versions)| {
            let kinds = versions
                .into_iter()
                .map(move |version| json!({"group": group, "version": version, "kind": kind}));
            kinds.collect::<Vec<_>>()
        })
        .collect()
}

/// A reference where it stands alone: below a list or a map.
fn bare(dialect: Dialect, name: &str) -> Value {
    json!({"$ref": dialect.reference(name)})
}

/// A reference as a property. OpenAPI 3 allows nothing beside `$ref`, not even a description.
pub(super) fn property_reference(dialect: Dialect, name: &str) -> Value {
    match dialect {
        Dialect::V3 => json!({"allOf": [bare(dialect, name)]}),
        Dialect::V2 => bare(dialect, name),
    }
}

/// A reference to a type that is never null in Kubernetes' own code, so that nothing means the empty object.
fn default_reference(dialect: Dialect, name: &str) -> Value {
    let mut schema = property_reference(dialect, name);
    if dialect == Dialect::V3 {
        schema["default"] = json!({});
    }
    schema
}

fn list_of(resource: &Resource, dialect: Dialect) -> Value {
    let kind_type = type_name(resource, &resource.kind);
    let (items, metadata) = match resource.custom() {
        Some(_) => (
            bare(dialect, &kind_type),
            property_reference(dialect, LIST_META),
        ),
        None => (
            default_reference(dialect, &kind_type),
            default_reference(dialect, LIST_META),
        ),
    };
    let mut list = json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": API_VERSION},
            "kind": {"type": "string", "description": KIND},
            "metadata": metadata,
            "items": {"type": "array", "items": items},
        },
        KINDS: [{
            "group": resource.group,
            "version": resource.version,
            "kind": resource.list_kind,
        }],
    });
    if let Some(custom) = resource.custom() {
        custom::put_selectable(&mut list, custom);
    }
    list
}

/// A type of the table as a definition.
fn definition(name: &str, schema: &Map<String, Value>, dialect: Dialect) -> Value {
    let mut out = converted(schema, dialect);
    if dialect == Dialect::V2 && out.remove("oneOf").is_some() {
        out.insert("type".to_owned(), json!("string"));
    }
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |field: &str| required.is_some_and(|all| all.iter().any(|one| one == field));
    if let Some(Value::Object(properties)) = schema.get("properties") {
        let properties: Map<String, Value> = properties
            .iter()
            .filter_map(|(field, schema)| Some((field, schema.as_object()?)))
            .map(|(field, schema)| {
                let zero = is_required(field) && !NO_DEFAULTS.contains(&(name, field));
                let mut property = match name {
                    UNDESCRIBED if field != "default" => undescribed(schema, dialect),
                    _ => property(schema, zero, dialect),
                };
                put_default(&mut property, name, field, dialect);
                put_values(&mut property, name, field);
                (field.clone(), property)
            })
            .collect();
        out.insert("properties".to_owned(), Value::Object(properties));
    }
    Value::Object(out)
}

fn put_default(property: &mut Value, owner: &str, field: &str, dialect: Dialect) {
    let more = MORE_DEFAULTS
        .iter()
        .find(|(of, name, _)| *of == owner && *name == field);
    if let (Dialect::V3, Some((.., default))) = (dialect, more) {
        property["default"] = json!(default);
    }
}

/// Where a field is a list or a map, its values are those of the elements.
fn put_values(property: &mut Value, owner: &str, field: &str) {
    let Some(values) = VALUES.get(owner).and_then(|fields| fields.get(field)) else {
        return;
    };
    let holder = ["items", "additionalProperties"]
        .into_iter()
        .find(|key| property.get(*key).is_some());
    let scalar = match holder {
        Some(key) => &mut property[key],
        None => property,
    };
    scalar["enum"] = values.clone();
}

/// A schema without its properties, which only definitions have.
fn converted(schema: &Map<String, Value>, dialect: Dialect) -> Map<String, Value> {
    let mut out = Map::new();
    for (key, value) in schema {
        let value = match (key.as_str(), value) {
            ("properties" | "$ref" | ALWAYS_THERE, _) => continue,
            ("default", _) if dialect == Dialect::V2 => continue,
            ("items" | "additionalProperties", Value::Object(schema)) => element(schema, dialect),
            (_, value) => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    out
}

fn property(schema: &Map<String, Value>, zero: bool, dialect: Dialect) -> Value {
    let mut out = converted(schema, dialect);
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        let reference = match schema.contains_key(ALWAYS_THERE) {
            true => default_reference(dialect, name),
            false => property_reference(dialect, name),
        };
        out.extend(reference.as_object().cloned().into_iter().flatten());
    } else if zero {
        put_zero(&mut out, dialect);
    }
    Value::Object(out)
}

fn undescribed(schema: &Map<String, Value>, dialect: Dialect) -> Value {
    match schema.get("$ref").and_then(Value::as_str) {
        Some(name) => bare(dialect, name),
        None => property(schema, false, dialect),
    }
}

fn element(schema: &Map<String, Value>, dialect: Dialect) -> Value {
    let mut out = converted(schema, dialect);
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        return match is_struct(name) {
            true => default_reference(dialect, name),
            false => bare(dialect, name),
        };
    }
    put_zero(&mut out, dialect);
    Value::Object(out)
}

fn is_struct(name: &str) -> bool {
    in_table(name).is_some_and(|schema| schema.contains_key("properties"))
}

/// Kubernetes' documents say Go's zero value as the default of every scalar that cannot be left out.
fn put_zero(schema: &mut Map<String, Value>, dialect: Dialect) {
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    let zero = match (text("type"), text("format")) {
        (Some("string"), None) => json!(""),
        (Some("integer" | "number"), _) => json!(0),
        (Some("boolean"), _) => json!(false),
        _ => return,
    };
    if dialect == Dialect::V3 && !schema.contains_key("default") {
        schema.insert("default".to_owned(), zero);
    }
}

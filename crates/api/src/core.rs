//! Kubernetes' own types where they stand inside ours.
//!
//! Their schemas come from the table `core_schema.json`, distilled from the OpenAPI documents of the
//! Kubernetes release that the testbed runs. Their values stay raw JSON: a typed round trip drops
//! every field that the client library does not know, and a pod template is not ours to edit.

use std::{borrow::Cow, collections::BTreeMap, marker::PhantomData, sync::LazyLock};

use k8s_openapi::{
    api::{
        core::v1::{PersistentVolumeClaimSpec, PodSpec},
        networking::v1::{NetworkPolicyEgressRule, NetworkPolicyIngressRule},
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

/// A type of Kubernetes' own that the table knows.
pub trait CoreType: DeserializeOwned {
    /// The name the OpenAPI documents give it.
    const NAME: &'static str;
}

macro_rules! core_types {
    ($($type:ty => $name:literal,)*) => {
        $(impl CoreType for $type { const NAME: &'static str = $name; })*
    };
}

core_types! {
    LabelSelector => "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    NetworkPolicyEgressRule => "io.k8s.api.networking.v1.NetworkPolicyEgressRule",
    NetworkPolicyIngressRule => "io.k8s.api.networking.v1.NetworkPolicyIngressRule",
    PersistentVolumeClaimSpec => "io.k8s.api.core.v1.PersistentVolumeClaimSpec",
    PodSpec => "io.k8s.api.core.v1.PodSpec",
}

/// JSON that means a `T` and is kept as it came.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub struct Raw<T> {
    json: Value,
    #[serde(skip)]
    means: PhantomData<fn() -> T>,
}

impl<T> Raw<T> {
    pub fn json(&self) -> &Value {
        &self.json
    }
}

impl<T: DeserializeOwned> Raw<T> {
    /// The value as the client library understands it; fields it does not know are absent.
    pub fn typed(&self) -> Result<T, serde_json::Error> {
        T::deserialize(&self.json)
    }
}

impl<T> From<Value> for Raw<T> {
    fn from(json: Value) -> Self {
        Self {
            json,
            means: PhantomData,
        }
    }
}

// Derived impls would ask the same of `T`, which is only a name here.
impl<T> Clone for Raw<T> {
    fn clone(&self) -> Self {
        self.json.clone().into()
    }
}

impl<T> PartialEq for Raw<T> {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl<T> std::fmt::Debug for Raw<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.json.fmt(f)
    }
}

impl<T: CoreType> JsonSchema for Raw<T> {
    fn schema_name() -> Cow<'static, str> {
        T::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema = Schema::default();
        *schema.ensure_object() = structural(T::NAME);
        schema
    }
}

static TABLE: LazyLock<BTreeMap<String, Map<String, Value>>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("core_schema.json"))
        .expect("core_schema.json is a committed table of schemas")
});

/// All types of the table, by the names that the OpenAPI documents give them. A `$ref` is such a name; ObjectMeta as it
/// stands in a kind is [`WHOLE_OBJECT_META`].
pub fn table() -> &'static BTreeMap<String, Map<String, Value>> {
    &TABLE
}

/// The name in the table of one of Kubernetes' own kinds.
pub fn type_name(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    // `coordination.k8s.io` is the package `coordination`
    let package = group.split('.').next().unwrap_or(group);
    match package {
        "apiextensions" => {
            format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{kind}")
        }
        _ => format!("io.k8s.api.{package}.{version}.{kind}"),
    }
}

pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
/// ObjectMeta as it stands in a kind; the other one is cut down to what a pod template in a CRD needs.
pub const WHOLE_OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta#whole";
pub(crate) const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";

/// The structural schema of a type of the table, references inlined.
fn structural(name: &str) -> Map<String, Value> {
    match name {
        QUANTITY => object(quantity()),
        INT_OR_STRING => object(int_or_string()),
        _ => {
            let schema = TABLE
                .get(name)
                .unwrap_or_else(|| panic!("core_schema.json has no {name}: distil it anew"));
            inline(schema)
        }
    }
}

fn inline(schema: &Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::String(reference)) = schema.get("$ref") {
        return structural(reference);
    }
    let mut out = Map::new();
    for (key, value) in schema {
        let value = match (key.as_str(), value) {
            // what strategic merge needs of the table; not part of a CRD's schema language
            ("x-kubernetes-patch-strategy" | "x-kubernetes-patch-merge-key", _) => continue,
            ("properties", Value::Object(properties)) => properties
                .iter()
                .map(|(name, property)| (name.clone(), nested(property)))
                .collect(),
            ("items" | "additionalProperties", nested_schema) => nested(nested_schema),
            (_, other) => other.clone(),
        };
        out.insert(key.clone(), value);
    }
    out
}

fn nested(schema: &Value) -> Value {
    match schema {
        Value::Object(schema) => Value::Object(inline(schema)),
        other => other.clone(),
    }
}

fn object(schema: Value) -> Map<String, Value> {
    match schema {
        Value::Object(schema) => schema,
        other => unreachable!("a schema literal that is no object: {other}"),
    }
}

/// An integer or a string, told apart by the reader.
pub(crate) fn int_or_string() -> Value {
    json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": true,
    })
}

/// A resource quantity such as `100m` or `1.5Gi`.
pub(crate) fn quantity() -> Value {
    const NUMBER: &str = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))";
    let mut schema = int_or_string();
    schema["pattern"] = json!(format!(
        r"^(\+|-)?{NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{NUMBER}))?$"
    ));
    schema
}

//! What a merge must know of an object's type: which lists are keyed, which maps are one value,
//! which fields exist.
//!
//! A [`Schema`] is built once, from the table of Kubernetes' own types, from a CRD's structural
//! schema, or from nothing (an object without a schema); merges walk it with [`TypeRef`]s.

mod build;

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::{Map, Value};

use crate::shared::Shared;

/// The type of the objects of one kind.
#[derive(Debug)]
pub struct Schema {
    root: Shared<Type>,
}

/// Kubernetes' own types. They refer to each other by index, so that they may be recursive.
#[derive(Debug, Default)]
struct Core {
    types: Vec<Type>,
    names: BTreeMap<String, CoreId>,
}

type CoreId = usize;

/// A type of a schema; cheap to copy.
#[derive(Clone, Copy)]
pub struct TypeRef<'s> {
    def: &'s Type,
    /// The field that refers to the type decides whether the map is one value.
    atomic: Option<bool>,
}

/// The forms a value of a type may take. A type that says nothing allows all three.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Type {
    /// The last part of its name in the OpenAPI documents, which is its name in Go.
    pub(crate) name: String,
    pub(crate) scalar: Option<Scalar>,
    pub(crate) list: Option<ListType>,
    pub(crate) map: Option<MapType>,
    /// The types of its parts.
    targets: Vec<Target>,
}

/// Where a type stands that another refers to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Target {
    Core(CoreId),
    Unnamed(Shared<Type>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scalar {
    Number,
    Text,
    Boolean,
    Any,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListType {
    pub(crate) element: Link,
    pub(crate) relation: Relation,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Relation {
    /// One value: whoever writes it owns it whole.
    Atomic,
    /// Every scalar stands for itself.
    Set,
    /// Elements are told apart by the values of these fields.
    Keyed(Vec<String>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct MapType {
    pub(crate) fields: BTreeMap<String, Field>,
    /// The type of fields that are not named; without it there are none.
    pub(crate) element: Option<Link>,
    pub(crate) atomic: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Field {
    pub(crate) link: Link,
    /// What the field is taken to be where it is a list key and missing.
    pub(crate) default: Option<Value>,
    pub(crate) patch: PatchMeta,
    /// The server writes the field even when it is empty.
    pub(crate) always_there: bool,
    pub(crate) required: bool,
}

/// A reference to one of the targets of the type that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    target: usize,
    atomic: Option<bool>,
}

/// What a strategic merge does with a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PatchMeta {
    pub(crate) merge: bool,
    pub(crate) replace: bool,
    pub(crate) merge_key: Option<String>,
}

/// The form that a value takes in its type.
#[derive(Clone, Copy)]
pub(crate) enum Form<'s> {
    Map(&'s MapType),
    Scalar(Scalar),
    List(&'s ListType),
    /// The schema says nothing usable of this type.
    Nothing,
}

impl Form<'_> {
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

static CORE: LazyLock<Core> = LazyLock::new(|| build::core(crate::core::table()));

impl Schema {
    /// The schema of a CRD's version, from its `openAPIV3Schema`.
    pub fn of_crd(open_api_v3_schema: &Value) -> Self {
        let root = build::crd(open_api_v3_schema, &CORE);
        Self { root }
    }

    /// The type of the objects themselves.
    pub fn root(&self) -> TypeRef<'_> {
        TypeRef::to(&self.root)
    }
}

impl<'s> TypeRef<'s> {
    fn to(def: &'s Type) -> Self {
        Self { def, atomic: None }
    }

    /// One of Kubernetes' own types, by the name that the OpenAPI documents give it.
    pub fn core(name: &str) -> Option<TypeRef<'static>> {
        let id = CORE.names.get(name)?;
        Some(TypeRef::to(&CORE.types[*id]))
    }

    /// The type of one of Kubernetes' own kinds.
    pub fn of_kind(api_version: &str, kind: &str) -> Option<TypeRef<'static>> {
        TypeRef::core(&crate::core::type_name(api_version, kind))
    }

    /// The type of an object without a schema: maps merge, lists are one value.
    pub fn deduced() -> TypeRef<'static> {
        TypeRef::to(&CORE.types[build::DEDUCED])
    }

    pub(crate) fn def(self) -> &'s Type {
        self.def
    }

    pub(crate) fn follow(self, link: Link) -> TypeRef<'s> {
        let def = match &self.def.targets[link.target] {
            Target::Core(id) => &CORE.types[*id],
            Target::Unnamed(def) => def,
        };
        TypeRef {
            def,
            atomic: link.atomic,
        }
    }

    /// The form of a value; of null, or of a value that does not fit, the first that the type allows.
    pub(crate) fn form(self, value: Option<&Value>) -> Form<'s> {
        let def = self.def();
        match value {
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                if let Some(scalar) = def.scalar {
                    return Form::Scalar(scalar);
                }
            }
            Some(Value::Array(_)) => {
                if let Some(list) = &def.list {
                    return Form::List(list);
                }
            }
            Some(Value::Object(_)) | Some(Value::Null) | None => {}
        }
        match (&def.map, def.scalar, &def.list) {
            (Some(map), _, _) => Form::Map(map),
            (None, Some(scalar), _) => Form::Scalar(scalar),
            (None, None, Some(list)) => Form::List(list),
            (None, None, None) => Form::Nothing,
        }
    }

    pub(crate) fn is_atomic(self, map: &MapType) -> bool {
        self.atomic.unwrap_or(map.atomic)
    }

    /// The type of a field; `None` where the schema does not allow one of this name.
    pub(crate) fn field(self, map: &'s MapType, name: &str) -> Option<TypeRef<'s>> {
        let named = map.fields.get(name).map(|field| field.link);
        named.or(map.element).map(|link| self.follow(link))
    }

    /// An object of the type in which nothing has been set: what the server compares a new object
    /// with to see which fields its creator has set.
    pub fn empty(self) -> Value {
        let mut out = Map::new();
        let fields = self.def().map.iter().flat_map(|map| &map.fields);
        for (name, field) in fields {
            let target = self.follow(field.link);
            let def = target.def();
            if field.always_there && def.map.is_some() {
                out.insert(name.clone(), target.empty());
            } else if field.always_there || field.required {
                out.insert(name.clone(), field.default.clone().unwrap_or(Value::Null));
            }
        }
        Value::Object(out)
    }
}

impl std::fmt::Debug for TypeRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TypeRef({})", self.def().name)
    }
}

impl TypeRef<'_> {
    /// Whether a map of the type has values of any form, each for itself.
    pub(crate) fn is_deduced(self) -> bool {
        let Some(map) = &self.def().map else {
            return false;
        };
        let any = |link| self.follow(link).def().scalar == Some(Scalar::Any);
        !self.is_atomic(map) && map.element.is_some_and(any)
    }
}

impl ListType {
    pub(crate) fn is_atomic(&self) -> bool {
        self.relation == Relation::Atomic
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::TypeRef;

    const KINDS: &[(&str, &str)] = &[
        ("v1", "ConfigMap"),
        ("v1", "Event"),
        ("v1", "Namespace"),
        ("v1", "Node"),
        ("v1", "PersistentVolume"),
        ("v1", "PersistentVolumeClaim"),
        ("v1", "Pod"),
        ("v1", "Secret"),
        ("v1", "Service"),
        ("v1", "ServiceAccount"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("apps/v1", "ControllerRevision"),
        ("apps/v1", "Deployment"),
        ("coordination.k8s.io/v1", "Lease"),
        ("events.k8s.io/v1", "Event"),
        ("networking.k8s.io/v1", "NetworkPolicy"),
        ("storage.k8s.io/v1", "StorageClass"),
    ];

    #[test]
    fn every_served_kind_has_a_type_with_whole_metadata() {
        for (api_version, kind) in KINDS {
            let schema = TypeRef::of_kind(api_version, kind)
                .unwrap_or_else(|| panic!("no type for {api_version} {kind}"));
            let map = schema.def().map.as_ref().unwrap();
            let metadata = schema.field(map, "metadata").unwrap().def();
            assert!(
                metadata.map.as_ref().unwrap().fields.contains_key("uid"),
                "{kind}"
            );
        }
    }

    #[test]
    fn an_empty_object_has_what_the_server_always_writes() {
        let deployment = TypeRef::of_kind("apps/v1", "Deployment").unwrap().empty();
        assert_eq!(deployment["spec"]["selector"], json!(null));
        assert_eq!(
            deployment["spec"]["template"]["spec"],
            json!({"containers": null})
        );
        assert_eq!(deployment["spec"].get("replicas"), None);
    }
}

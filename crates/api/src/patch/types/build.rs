//! Building schemas from OpenAPI.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    Field, Link, ListType, MapType, PatchMeta, ROOT, Relation, Scalar, Schema, Type, TypeId,
};
use crate::core::{OBJECT_META, QUANTITY, WHOLE_OBJECT_META};

type Table = BTreeMap<String, Map<String, Value>>;

const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// A value of any form that is one value.
const OPAQUE: TypeId = 0;
/// A value of any form whose maps merge.
const DEDUCED: TypeId = 1;

pub(super) fn deduced() -> Schema {
    let mut builder = Builder::new(&NO_TABLE);
    builder.names.insert(ROOT.to_owned(), DEDUCED);
    builder.finish()
}

static NO_TABLE: Table = BTreeMap::new();

pub(super) fn core(table: &Table) -> Schema {
    let mut builder = Builder::new(table);
    for name in table.keys() {
        builder.named(name);
    }
    builder.finish()
}

pub(super) fn crd(schema: &Value, table: &Table) -> Schema {
    let mut builder = Builder::new(table);
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    embed_object(&mut schema);
    let root = builder.inline(&schema, &mut Context::default());
    builder.names.insert(ROOT.to_owned(), root);
    builder.finish()
}

/// What every object has, whether or not its schema says so.
fn embed_object(schema: &mut Map<String, Value>) {
    let properties = schema
        .entry("properties")
        .or_insert_with(|| Value::Object(Map::new()));
    let text = serde_json::json!({"type": "string"});
    properties["apiVersion"] = text.clone();
    properties["kind"] = text;
    properties["metadata"] = serde_json::json!({"$ref": OBJECT_META});
}

/// What the surroundings of a schema decide about it.
#[derive(Clone, Default)]
struct Context {
    /// Unknown fields are kept here and in everything below.
    keeps_unknown: bool,
    /// Whether the schema is one of Kubernetes' own, whose required fields are never absent.
    own: bool,
    name: String,
}

struct Builder<'t> {
    table: &'t Table,
    types: Vec<Type>,
    names: BTreeMap<String, TypeId>,
}

impl<'t> Builder<'t> {
    fn new(table: &'t Table) -> Self {
        let mut builder = Self {
            table,
            types: Vec::new(),
            names: BTreeMap::new(),
        };
        builder.types.push(any_of(OPAQUE, true));
        builder.types.push(any_of(DEDUCED, false));
        builder
    }

    fn finish(self) -> Schema {
        Schema {
            types: self.types,
            names: self.names,
        }
    }

    /// The type of that name in the table. Its place is taken first: it may refer to itself.
    fn named(&mut self, name: &str) -> TypeId {
        let name = match name {
            OBJECT_META => WHOLE_OBJECT_META,
            other => other,
        };
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let id = self.types.len();
        self.types.push(Type::default());
        self.names.insert(name.to_owned(), id);
        let mut context = Context {
            own: true,
            name: go_name(name),
            ..Context::default()
        };
        let schema = self.table.get(name);
        self.types[id] = match (name, schema) {
            (QUANTITY, _) => Type {
                scalar: Some(Scalar::Any),
                ..Type::default()
            },
            (RAW_EXTENSION, _) | (_, None) => self.types[OPAQUE].clone(),
            (_, Some(schema)) => self.parse(schema, &mut context),
        };
        self.types[id].name = context.name;
        id
    }

    fn link(&mut self, schema: &Value, context: &Context) -> Link {
        let Value::Object(schema) = schema else {
            return Link {
                id: DEDUCED,
                atomic: None,
            };
        };
        match schema.get("$ref").and_then(Value::as_str) {
            Some(name) => Link {
                id: self.named(name),
                atomic: map_type(schema),
            },
            None => Link {
                id: self.inline(schema, &mut context.clone()),
                atomic: None,
            },
        }
    }

    fn inline(&mut self, schema: &Map<String, Value>, context: &mut Context) -> TypeId {
        let parsed = self.parse(schema, context);
        self.types.push(parsed);
        self.types.len() - 1
    }

    fn parse(&mut self, schema: &Map<String, Value>, context: &mut Context) -> Type {
        context.keeps_unknown |= flag(schema, "x-kubernetes-preserve-unknown-fields");
        if flag(schema, "x-kubernetes-embedded-resource") {
            let mut schema = schema.clone();
            schema.remove("x-kubernetes-embedded-resource");
            embed_object(&mut schema);
            return self.parse(&schema, context);
        }
        let mut out = Type::default();
        match schema.get("type").and_then(Value::as_str) {
            Some("object") => out.map = Some(self.map(schema, context)),
            Some("array") => out.list = Some(self.list(schema, context)),
            Some("integer" | "number") => out.scalar = Some(Scalar::Number),
            Some("boolean") => out.scalar = Some(Scalar::Boolean),
            Some("string") => {
                let plain = matches!(format(schema), None | Some("" | "byte"));
                // only Kubernetes' own documents say by the format that a string is more than one
                out.scalar = Some(if plain { Scalar::Text } else { Scalar::Any });
            }
            _ => {
                out.scalar = Some(Scalar::Any);
                out.list = Some(self.list(schema, context));
                out.map = Some(self.map(schema, context));
            }
        }
        out
    }

    fn map(&mut self, schema: &Map<String, Value>, context: &Context) -> MapType {
        let mut fields = BTreeMap::new();
        let required: Vec<&str> = strings(schema.get("required")).collect();
        if let Some(Value::Object(properties)) = schema.get("properties") {
            for (name, property) in properties {
                let required = context.own && required.contains(&name.as_str());
                let field = self.field(property, required, context);
                fields.insert(name.clone(), field);
            }
        }
        let element = match schema.get("additionalProperties") {
            None => (context.keeps_unknown || fields.is_empty()).then_some(&Value::Null),
            Some(Value::Bool(false)) => None,
            Some(other) => Some(other),
        };
        MapType {
            element: element.map(|schema| self.link(schema, context)),
            fields,
            atomic: map_type(schema).unwrap_or(false),
        }
    }

    fn field(&mut self, property: &Value, required: bool, context: &Context) -> Field {
        let link = self.link(property, context);
        let default = property.get("default").cloned();
        let zero = || match self.types[link.id].scalar? {
            Scalar::Number => Some(0.into()),
            Scalar::Text => Some("".into()),
            Scalar::Boolean => Some(false.into()),
            Scalar::Any => None,
        };
        Field {
            default: default.or_else(|| required.then(zero).flatten()),
            link,
            patch: patch_meta(property),
            always_there: property["x-always-there"] == true,
            required,
        }
    }

    fn list(&mut self, schema: &Map<String, Value>, context: &Context) -> ListType {
        let element = match schema.get("items") {
            Some(items) => self.link(items, context),
            None => Link {
                id: OPAQUE,
                atomic: None,
            },
        };
        ListType {
            element,
            relation: relation(schema),
        }
    }
}

fn any_of(element: TypeId, atomic: bool) -> Type {
    let link = |id| Link { id, atomic: None };
    Type {
        name: String::new(),
        scalar: Some(Scalar::Any),
        list: Some(ListType {
            element: link(OPAQUE),
            relation: Relation::Atomic,
        }),
        map: Some(MapType {
            element: Some(link(element)),
            atomic,
            ..MapType::default()
        }),
    }
}

fn relation(schema: &Map<String, Value>) -> Relation {
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    match text("x-kubernetes-list-type") {
        Some("set") => return Relation::Set,
        Some("map") => {
            let keys = strings(schema.get("x-kubernetes-list-map-keys"));
            return Relation::Keyed(keys.map(str::to_owned).collect());
        }
        Some(_) => return Relation::Atomic,
        None => {}
    }
    // lists that are older than list types say only how a strategic merge treats them
    match text("x-kubernetes-patch-strategy") {
        Some("merge" | "merge,retainKeys") => match text("x-kubernetes-patch-merge-key") {
            Some(key) => Relation::Keyed(vec![key.to_owned()]),
            None => Relation::Set,
        },
        _ => Relation::Atomic,
    }
}

fn patch_meta(property: &Value) -> PatchMeta {
    let strategies = property["x-kubernetes-patch-strategy"].as_str();
    let has = |wanted| strategies.is_some_and(|all| all.split(',').any(|one| one == wanted));
    PatchMeta {
        merge: has("merge"),
        replace: has("replace"),
        merge_key: property["x-kubernetes-patch-merge-key"]
            .as_str()
            .map(str::to_owned),
    }
}

fn map_type(schema: &Map<String, Value>) -> Option<bool> {
    let map_type = schema.get("x-kubernetes-map-type")?;
    Some(map_type == "atomic")
}

fn format(schema: &Map<String, Value>) -> Option<&str> {
    schema.get("format").and_then(Value::as_str)
}

fn flag(schema: &Map<String, Value>, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str)
}

/// The name of the type in Go, which some error messages hold.
fn go_name(name: &str) -> String {
    let name = name.split('#').next().unwrap_or(name);
    name.rsplit('.').next().unwrap_or(name).to_owned()
}

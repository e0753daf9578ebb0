//! Building schemas from OpenAPI.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    Core, CoreId, Field, Link, ListType, MapType, PatchMeta, Relation, Scalar, Target, Type,
};
use crate::{
    core::{OBJECT_META, QUANTITY, WHOLE_OBJECT_META},
    shared::{Pool, Shared},
};

type Table = BTreeMap<String, Map<String, Value>>;

const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// A value of any form that is one value.
const OPAQUE: CoreId = 0;
/// A value of any form whose maps merge.
pub(super) const DEDUCED: CoreId = 1;

/// The types without a name: most kinds have a pod spec, and most fields one of a few types.
static UNNAMED: Pool<Type> = Pool::new();

pub(super) fn core(table: &Table) -> Core {
    let mut builder = Builder {
        names: Names::Found(table),
        core: Core {
            types: vec![any_of(OPAQUE, true), any_of(DEDUCED, false)],
            names: BTreeMap::new(),
        },
    };
    for name in table.keys() {
        builder.named(name);
    }
    builder.core.types.shrink_to_fit();
    builder.core
}

pub(super) fn crd(schema: &Value, core: &Core) -> Shared<Type> {
    let mut builder = Builder {
        names: Names::Known(core),
        core: Core::default(),
    };
    let none = Map::new();
    let schema = schema.as_object().unwrap_or(&none);
    UNNAMED.share(builder.parse(schema, Context::default(), true))
}

/// The fields that every object has, whatever its schema says of them.
fn object_fields() -> [(&'static str, Value); 3] {
    [
        ("apiVersion", json!({"type": "string"})),
        ("kind", json!({"type": "string"})),
        ("metadata", json!({"$ref": OBJECT_META})),
    ]
}

/// What the surroundings of a schema decide about it.
#[derive(Clone, Copy, Default)]
struct Context {
    /// Unknown fields are kept here and in everything below.
    keeps_unknown: bool,
    /// Whether the schema is one of Kubernetes' own, whose required fields are never absent.
    own: bool,
}

/// What the names in schemas stand for.
#[derive(Clone, Copy)]
enum Names<'t> {
    /// Schemas, which become types as they are met.
    Found(&'t Table),
    /// Types that are there.
    Known(&'t Core),
}

struct Builder<'t> {
    names: Names<'t>,
    /// The named types made so far.
    core: Core,
}

impl Builder<'_> {
    fn named(&mut self, name: &str) -> CoreId {
        let name = match name {
            OBJECT_META => WHOLE_OBJECT_META,
            other => other,
        };
        match self.names {
            Names::Found(table) => self.found(name, table),
            Names::Known(core) => core.names.get(name).copied().unwrap_or(OPAQUE),
        }
    }

    /// The type of that name in the table. Its place is taken first: it may refer to itself.
    fn found(&mut self, name: &str, table: &Table) -> CoreId {
        if let Some(id) = self.core.names.get(name) {
            return *id;
        }
        let id = self.core.types.len();
        self.core.types.push(Type::default());
        self.core.names.insert(name.to_owned(), id);
        let context = Context {
            own: true,
            keeps_unknown: false,
        };
        let mut found = match (name, table.get(name)) {
            (QUANTITY, _) => Type {
                scalar: Some(Scalar::Any),
                ..Type::default()
            },
            (RAW_EXTENSION, _) | (_, None) => any_of(OPAQUE, true),
            (_, Some(schema)) => self.parse(schema, context, false),
        };
        found.name = go_name(name);
        self.core.types[id] = found;
        id
    }

    fn link(&mut self, schema: &Value, context: Context, targets: &mut Vec<Target>) -> Link {
        let Value::Object(schema) = schema else {
            return link_to(Target::Core(DEDUCED), targets);
        };
        if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
            return Link {
                atomic: map_type(schema),
                ..link_to(Target::Core(self.named(name)), targets)
            };
        }
        let object = flag(schema, "x-kubernetes-embedded-resource");
        let target = UNNAMED.share(self.parse(schema, context, object));
        link_to(Target::Unnamed(target), targets)
    }

    /// The type of a schema, with the fields of every object if it is one.
    fn parse(&mut self, schema: &Map<String, Value>, mut context: Context, object: bool) -> Type {
        context.keeps_unknown |= flag(schema, "x-kubernetes-preserve-unknown-fields");
        let mut out = Type::default();
        let targets = &mut out.targets;
        match schema.get("type").and_then(Value::as_str) {
            Some("object") => out.map = Some(self.map(schema, context, object, targets)),
            Some("array") => out.list = Some(self.list(schema, context, targets)),
            Some("integer" | "number") => out.scalar = Some(Scalar::Number),
            Some("boolean") => out.scalar = Some(Scalar::Boolean),
            Some("string") => {
                let plain = matches!(format(schema), None | Some("" | "byte"));
                // only Kubernetes' own documents say by the format that a string is more than one
                out.scalar = Some(if plain { Scalar::Text } else { Scalar::Any });
            }
            _ => {
                out.scalar = Some(Scalar::Any);
                out.list = Some(self.list(schema, context, targets));
                out.map = Some(self.map(schema, context, object, targets));
            }
        }
        out.targets.shrink_to_fit();
        out
    }

    fn map(
        &mut self,
        schema: &Map<String, Value>,
        context: Context,
        object: bool,
        targets: &mut Vec<Target>,
    ) -> MapType {
        let mut fields = BTreeMap::new();
        let required: Vec<&str> = strings(schema.get("required")).collect();
        if let Some(Value::Object(properties)) = schema.get("properties") {
            for (name, property) in properties {
                let required = context.own && required.contains(&name.as_str());
                let field = self.field(property, required, context, targets);
                fields.insert(name.clone(), field);
            }
        }
        if object {
            for (name, property) in object_fields() {
                let field = self.field(&property, false, context, targets);
                fields.insert(name.to_owned(), field);
            }
        }
        let element = match schema.get("additionalProperties") {
            None => (context.keeps_unknown || fields.is_empty()).then_some(&Value::Null),
            Some(Value::Bool(false)) => None,
            Some(other) => Some(other),
        };
        MapType {
            element: element.map(|schema| self.link(schema, context, targets)),
            fields,
            atomic: map_type(schema).unwrap_or(false),
        }
    }

    fn field(
        &mut self,
        property: &Value,
        required: bool,
        context: Context,
        targets: &mut Vec<Target>,
    ) -> Field {
        let link = self.link(property, context, targets);
        let default = property.get("default").cloned();
        let zero = || match self.scalar(&targets[link.target])? {
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

    fn scalar(&self, target: &Target) -> Option<Scalar> {
        let core = match self.names {
            Names::Found(_) => &self.core,
            Names::Known(core) => core,
        };
        match target {
            Target::Core(id) => core.types[*id].scalar,
            Target::Unnamed(def) => def.scalar,
        }
    }

    fn list(
        &mut self,
        schema: &Map<String, Value>,
        context: Context,
        targets: &mut Vec<Target>,
    ) -> ListType {
        let element = match schema.get("items") {
            Some(items) => self.link(items, context, targets),
            None => link_to(Target::Core(OPAQUE), targets),
        };
        ListType {
            element,
            relation: relation(schema),
        }
    }
}

fn link_to(target: Target, targets: &mut Vec<Target>) -> Link {
    targets.push(target);
    Link {
        target: targets.len() - 1,
        atomic: None,
    }
}

fn any_of(element: CoreId, atomic: bool) -> Type {
    let mut targets = Vec::new();
    Type {
        name: String::new(),
        scalar: Some(Scalar::Any),
        list: Some(ListType {
            element: link_to(Target::Core(OPAQUE), &mut targets),
            relation: Relation::Atomic,
        }),
        map: Some(MapType {
            element: Some(link_to(Target::Core(element), &mut targets)),
            atomic,
            ..MapType::default()
        }),
        targets,
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

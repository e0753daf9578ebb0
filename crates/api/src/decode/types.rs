//! The Go types behind Kubernetes' kinds, compiled from the table `go_types.json`.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::{Value, json};

/// All types, which refer to each other by index.
pub(super) struct Types {
    types: Vec<GoType>,
    names: BTreeMap<String, TypeId>,
}

pub(super) type TypeId = usize;

pub(super) struct GoType {
    /// As Go prints it: `int32`, `v1.Container`, `[]v1.Container`.
    pub(super) name: String,
    pub(super) form: Form,
}

/// What a type's JSON looks like.
pub(super) enum Form {
    Text,
    Bool,
    Int {
        least: i64,
        most: i64,
    },
    Float,
    /// Text that is base64.
    Bytes,
    /// Any JSON, kept as it is.
    Any,
    /// To the second.
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    List(TypeId),
    Map(TypeId),
    Struct(Struct),
    /// A schema, or what else may stand in its place.
    SchemaOr(TypeId, Instead),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Instead {
    Bool,
    Schemas,
    Texts,
}

#[derive(Default)]
pub(super) struct Struct {
    pub(super) name: String,
    pub(super) fields: BTreeMap<String, Field>,
    /// Fields that are written with their zero value when nobody has set them.
    pub(super) zeros: Vec<(String, TypeId)>,
    /// Fields that are written as null when nobody has set them.
    pub(super) nulls: Vec<String>,
}

pub(super) struct Field {
    pub(super) of: TypeId,
    pub(super) pointer: bool,
    pub(super) omit_empty: bool,
    omit_zero: bool,
    /// The embedded type that the field comes from.
    pub(super) embedded: Option<String>,
}

static TYPES: LazyLock<Types> = LazyLock::new(|| {
    let table = serde_json::from_str(include_str!("../go_types.json"))
        .expect("go_types.json is a committed table of types");
    Types::compile(&table)
});

impl Types {
    pub(super) fn all() -> &'static Self {
        &TYPES
    }

    pub(super) fn get(&self, id: TypeId) -> &GoType {
        &self.types[id]
    }

    pub(super) fn named(&self, name: &str) -> Option<TypeId> {
        self.names.get(name).copied()
    }

    /// The value of a type that nobody has set; null for those that have no other.
    pub(super) fn zero(&self, id: TypeId) -> Value {
        match &self.types[id].form {
            Form::Text | Form::Bytes => "".into(),
            Form::Bool => false.into(),
            Form::Int { .. } | Form::Float | Form::IntOrString => 0.into(),
            Form::Quantity => "0".into(),
            Form::Struct(structure) => {
                let zeros = structure.zeros.iter();
                zeros
                    .map(|(name, of)| (name.clone(), self.zero(*of)))
                    .collect()
            }
            Form::Any
            | Form::Time
            | Form::MicroTime
            | Form::List(_)
            | Form::Map(_)
            | Form::SchemaOr(..) => Value::Null,
        }
    }

    fn compile(table: &BTreeMap<String, Value>) -> Self {
        let mut compiler = Compiler {
            table,
            types: Types {
                types: Vec::new(),
                names: BTreeMap::new(),
            },
        };
        for name in table.keys() {
            compiler.type_id(name);
        }
        let mut types = compiler.types;
        types.find_unset();
        types
    }

    /// Which fields are written though nobody has set them depends on types that are compiled later.
    fn find_unset(&mut self) {
        for id in 0..self.types.len() {
            let Form::Struct(structure) = &self.types[id].form else {
                continue;
            };
            let (mut zeros, mut nulls) = (Vec::new(), Vec::new());
            for (name, field) in &structure.fields {
                match self.unset(field) {
                    Some(Value::Null) => nulls.push(name.clone()),
                    Some(_) => zeros.push((name.clone(), field.of)),
                    None => {}
                }
            }
            if let Form::Struct(structure) = &mut self.types[id].form {
                (structure.zeros, structure.nulls) = (zeros, nulls);
            }
        }
    }

    /// What is written for a field that nobody has set, as far as it is null or not.
    fn unset(&self, field: &Field) -> Option<Value> {
        if field.omit_zero || field.pointer && field.omit_empty {
            return None;
        }
        if field.pointer {
            return Some(Value::Null);
        }
        match self.types[field.of].form {
            // Go's structs are never empty
            Form::Struct(_) | Form::Quantity | Form::IntOrString => Some(json!({})),
            Form::Time | Form::MicroTime | Form::Any => Some(Value::Null),
            _ if field.omit_empty => None,
            Form::List(_) | Form::Map(_) | Form::Bytes | Form::SchemaOr(..) => Some(Value::Null),
            Form::Text | Form::Bool | Form::Int { .. } | Form::Float => Some(json!({})),
        }
    }
}

struct Compiler<'t> {
    table: &'t BTreeMap<String, Value>,
    types: Types,
}

const SCHEMA: &str = "apiextensions/v1.JSONSchemaProps";

impl Compiler<'_> {
    /// The type of that name. Its place is taken first: it may refer to itself.
    fn type_id(&mut self, name: &str) -> TypeId {
        if let Some(id) = self.types.names.get(name) {
            return *id;
        }
        let id = self.types.types.len();
        self.types.names.insert(name.to_owned(), id);
        self.types.types.push(GoType {
            name: printed(name),
            form: Form::Any,
        });
        self.types.types[id].form = self.form(name);
        id
    }

    fn form(&mut self, name: &str) -> Form {
        let int = |least: i64, most: i64| Form::Int { least, most };
        match name {
            "string" => Form::Text,
            "bool" => Form::Bool,
            "int32" => int(i32::MIN.into(), i32::MAX.into()),
            "int64" | "int" => int(i64::MIN, i64::MAX),
            "float64" => Form::Float,
            "[]byte" => Form::Bytes,
            "meta/v1.Time" => Form::Time,
            "meta/v1.MicroTime" => Form::MicroTime,
            "resource.Quantity" => Form::Quantity,
            "intstr.IntOrString" => Form::IntOrString,
            "apiextensions/v1.JSONSchemaPropsOrBool" => self.schema_or(Instead::Bool),
            "apiextensions/v1.JSONSchemaPropsOrArray" => self.schema_or(Instead::Schemas),
            "apiextensions/v1.JSONSchemaPropsOrStringArray" => self.schema_or(Instead::Texts),
            _ => self.composed(name),
        }
    }

    fn schema_or(&mut self, instead: Instead) -> Form {
        Form::SchemaOr(self.type_id(SCHEMA), instead)
    }

    fn composed(&mut self, name: &str) -> Form {
        if let Some(element) = name.strip_prefix("[]") {
            return Form::List(self.type_id(element.trim_start_matches('*')));
        }
        if let Some((_, value)) = name.strip_prefix("map[").and_then(|t| t.split_once(']')) {
            return Form::Map(self.type_id(value.trim_start_matches('*')));
        }
        match self.table.get(name) {
            Some(Value::String(other)) => self.form(other),
            Some(Value::Object(fields)) => {
                let mut structure = Struct {
                    name: name.rsplit('.').next().unwrap_or(name).to_owned(),
                    ..Struct::default()
                };
                for (name, written) in fields {
                    let field = self.field(written.as_str().unwrap_or_default());
                    structure.fields.insert(name.clone(), field);
                }
                Form::Struct(structure)
            }
            _ => Form::Any,
        }
    }

    /// A field as the table has it: `*core/v1.PodOS,omitempty@Embedded`.
    fn field(&mut self, written: &str) -> Field {
        let (written, embedded) = match written.split_once('@') {
            Some((written, embedded)) => (written, Some(embedded.to_owned())),
            None => (written, None),
        };
        let mut parts = written.split(',');
        let go_type = parts.next().unwrap_or_default();
        let flags: Vec<&str> = parts.collect();
        Field {
            of: self.type_id(go_type.trim_start_matches('*')),
            pointer: go_type.starts_with('*'),
            omit_empty: flags.contains(&"omitempty"),
            omit_zero: flags.contains(&"omitzero"),
            embedded,
        }
    }
}

/// A type as Go prints it, which leaves out where a package lies.
fn printed(name: &str) -> String {
    if name == "[]byte" {
        return "[]uint8".to_owned();
    }
    if let Some(element) = name.strip_prefix("[]") {
        return format!("[]{}", printed(element));
    }
    if let Some((key, value)) = name.strip_prefix("map[").and_then(|t| t.split_once(']')) {
        return format!("map[{}]{}", printed(key), printed(value));
    }
    name.rsplit('/').next().unwrap_or(name).to_owned()
}

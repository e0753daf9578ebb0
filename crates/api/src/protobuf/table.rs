//! The messages of Kubernetes' kinds, compiled from the table `messages.json`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

use serde_json::Value;

/// All messages, which refer to each other by index.
pub(super) struct Table {
    messages: Vec<Message>,
    names: HashMap<String, MessageId>,
}

pub(super) type MessageId = usize;

pub(super) struct Message {
    /// Without its package.
    pub(super) name: String,
    /// By number.
    fields: Vec<(u32, Field)>,
    pub(super) json: Json,
}

pub(super) struct Field {
    /// In JSON; none if the fields of the message stand in its place.
    pub(super) name: Option<String>,
    pub(super) go_name: String,
    pub(super) shape: Shape,
}

#[derive(Clone, Copy)]
pub(super) enum Shape {
    One(Kind),
    Many(Kind),
    /// By text.
    Map(Kind),
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Bool,
    Int32,
    Int64,
    Double,
    Text,
    Bytes,
    /// Bytes that are JSON.
    Json,
    Message(MessageId),
}

/// What a message is in JSON.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Json {
    Object,
    /// JSON that the message keeps in this field.
    Embedded(&'static str),
    /// What is in `items`.
    List,
    Quantity,
    IntOrString,
    Time {
        micros: bool,
    },
    /// A schema, or what this field says in its place.
    SchemaOr(&'static str),
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let table = serde_json::from_str(include_str!("messages.json"))
        .expect("messages.json is a committed table of messages");
    Table::compile(&table)
});

impl Table {
    pub(super) fn all() -> &'static Self {
        &TABLE
    }

    pub(super) fn get(&self, id: MessageId) -> &Message {
        &self.messages[id]
    }

    pub(super) fn named(&self, name: &str) -> Option<&Message> {
        self.names.get(name).map(|id| &self.messages[*id])
    }

    fn compile(table: &BTreeMap<String, Value>) -> Self {
        let ids = table.keys().cloned().enumerate();
        let names = ids.map(|(id, name)| (name, id)).collect();
        let messages = table
            .iter()
            .map(|(name, written)| Message::compile(name, written, &names))
            .collect();
        Self { messages, names }
    }
}

impl Message {
    fn compile(name: &str, written: &Value, names: &HashMap<String, MessageId>) -> Self {
        let json = Json::of(name, written);
        let mut fields: Vec<(u32, Field)> = match written {
            // a message around a list, for protobuf has no lists of lists
            Value::String(list) => {
                vec![(1, Field::compile(&format!("items:{list}"), json, names))]
            }
            other => other
                .as_object()
                .into_iter()
                .flatten()
                .filter_map(|(number, field)| {
                    let field = Field::compile(field.as_str()?, json, names);
                    Some((number.parse().ok()?, field))
                })
                .collect(),
        };
        fields.sort_by_key(|(number, _)| *number);
        Self {
            name: short(name).to_owned(),
            fields,
            json,
        }
    }

    pub(super) fn field(&self, number: u32) -> Option<&Field> {
        let found = self.fields.binary_search_by_key(&number, |(own, _)| *own);
        found.ok().map(|index| &self.fields[index].1)
    }
}

impl Json {
    fn of(name: &str, written: &Value) -> Self {
        match name {
            _ if written.is_string() => Self::List,
            "apiextensions/v1.JSON" | "runtime.RawExtension" => Self::Embedded("raw"),
            "meta/v1.FieldsV1" => Self::Embedded("Raw"),
            "resource.Quantity" => Self::Quantity,
            "intstr.IntOrString" => Self::IntOrString,
            "meta/v1.Time" => Self::Time { micros: false },
            "meta/v1.MicroTime" => Self::Time { micros: true },
            "apiextensions/v1.JSONSchemaPropsOrArray" => Self::SchemaOr("jSONSchemas"),
            "apiextensions/v1.JSONSchemaPropsOrBool" => Self::SchemaOr("allows"),
            "apiextensions/v1.JSONSchemaPropsOrStringArray" => Self::SchemaOr("property"),
            _ => Self::Object,
        }
    }
}

impl Field {
    /// A field as the table has it: `jsonName/GoName:[]core/v1.Container`.
    fn compile(written: &str, of: Json, names: &HashMap<String, MessageId>) -> Self {
        let (name, wire_type) = written.split_once(':').unwrap_or(("", written));
        let (name, go_name) = match name.split_once('/') {
            Some((name, go_name)) => (name, go_name.to_owned()),
            None if name.is_empty() => (name, short(wire_type).to_owned()),
            None => (name, capitalized(name)),
        };
        let kind = |kind: &str| match kind {
            "bool" => Kind::Bool,
            "int32" => Kind::Int32,
            "int64" => Kind::Int64,
            "double" => Kind::Double,
            "bytes" if matches!(of, Json::Embedded(_)) => Kind::Json,
            "bytes" => Kind::Bytes,
            message => names
                .get(message)
                .map_or(Kind::Text, |id| Kind::Message(*id)),
        };
        let shape = if let Some(element) = wire_type.strip_prefix("[]") {
            Shape::Many(kind(element))
        } else if let Some(value) = wire_type.strip_prefix("map[string]") {
            Shape::Map(kind(value))
        } else {
            Shape::One(kind(wire_type))
        };
        Self {
            name: (!name.is_empty()).then(|| name.to_owned()),
            go_name,
            shape,
        }
    }
}

fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

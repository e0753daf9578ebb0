//! The document of version 2 as protobuf, in which kubectl reads it.

use serde_json::{Map, Value};

/// How a field is encoded.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Flag,
    Whole,
    Number,
    /// A value of any form, as YAML, which JSON is.
    Free,
    Message(&'static Message),
    /// A message around one field.
    Around(u32, &'static Shape),
    /// The items of an array, each as a field of its own.
    Each(&'static Shape),
    SchemaOrFlag,
    Parameter,
}

/// A type of the document by its name in JSON, number and form of each field.
pub(super) struct Message {
    fields: &'static [(&'static str, u32, Shape)],
    /// Where members go that are entries of a map, and what they are.
    entries: Option<(u32, Shape)>,
    /// Where `x-` members go.
    extensions: u32,
}

const fn fields(fields: &'static [(&'static str, u32, Shape)], extensions: u32) -> Message {
    Message {
        fields,
        entries: None,
        extensions,
    }
}

const fn map(number: u32, shape: Shape) -> Message {
    Message {
        fields: &[],
        entries: Some((number, shape)),
        extensions: 0,
    }
}

const TEXTS: Shape = Shape::Each(&Shape::Text);

pub(super) static DOCUMENT: Message = fields(
    &[
        ("swagger", 1, Shape::Text),
        ("info", 2, Shape::Message(&INFO)),
        ("paths", 8, Shape::Message(&PATHS)),
        ("definitions", 9, Shape::Message(&SCHEMAS)),
        ("security", 12, Shape::Each(&Shape::Message(&REQUIREMENT))),
        ("securityDefinitions", 13, Shape::Message(&SECURITY)),
    ],
    16,
);
static INFO: Message = fields(&[("title", 1, Shape::Text), ("version", 2, Shape::Text)], 7);
static REQUIREMENT: Message = map(1, Shape::Around(1, &TEXTS));
static SECURITY: Message = map(1, Shape::Around(2, &Shape::Message(&API_KEY)));
static API_KEY: Message = fields(
    &[
        ("type", 1, Shape::Text),
        ("name", 2, Shape::Text),
        ("in", 3, Shape::Text),
    ],
    5,
);
static PATHS: Message = map(2, Shape::Message(&PATH));
static PATH: Message = fields(
    &[
        ("get", 2, Shape::Message(&OPERATION)),
        ("put", 3, Shape::Message(&OPERATION)),
        ("post", 4, Shape::Message(&OPERATION)),
        ("delete", 5, Shape::Message(&OPERATION)),
        ("options", 6, Shape::Message(&OPERATION)),
        ("head", 7, Shape::Message(&OPERATION)),
        ("patch", 8, Shape::Message(&OPERATION)),
        ("parameters", 9, Shape::Each(&Shape::Parameter)),
    ],
    10,
);
static OPERATION: Message = fields(
    &[
        ("tags", 1, TEXTS),
        ("description", 3, Shape::Text),
        ("operationId", 5, Shape::Text),
        ("produces", 6, TEXTS),
        ("consumes", 7, TEXTS),
        ("parameters", 8, Shape::Each(&Shape::Parameter)),
        ("responses", 9, Shape::Message(&RESPONSES)),
        ("schemes", 10, TEXTS),
    ],
    13,
);
static RESPONSES: Message = map(1, Shape::Around(1, &Shape::Message(&RESPONSE)));
static RESPONSE: Message = fields(
    &[
        ("description", 1, Shape::Text),
        ("schema", 2, Shape::Around(1, &Shape::Message(&SCHEMA))),
    ],
    5,
);
static IN_BODY: Message = fields(
    &[
        ("description", 1, Shape::Text),
        ("name", 2, Shape::Text),
        ("in", 3, Shape::Text),
        ("required", 4, Shape::Flag),
        ("schema", 5, Shape::Message(&SCHEMA)),
    ],
    6,
);
static IN_QUERY: Message = fields(
    &[
        ("required", 1, Shape::Flag),
        ("in", 2, Shape::Text),
        ("description", 3, Shape::Text),
        ("name", 4, Shape::Text),
        ("type", 6, Shape::Text),
        ("uniqueItems", 20, Shape::Flag),
    ],
    23,
);
static IN_PATH: Message = fields(
    &[
        ("required", 1, Shape::Flag),
        ("in", 2, Shape::Text),
        ("description", 3, Shape::Text),
        ("name", 4, Shape::Text),
        ("type", 5, Shape::Text),
        ("uniqueItems", 19, Shape::Flag),
    ],
    22,
);
static SCHEMAS: Message = map(1, Shape::Message(&SCHEMA));
static SCHEMA: Message = fields(
    &[
        ("$ref", 1, Shape::Text),
        ("format", 2, Shape::Text),
        ("title", 3, Shape::Text),
        ("description", 4, Shape::Text),
        ("default", 5, Shape::Free),
        ("multipleOf", 6, Shape::Number),
        ("maximum", 7, Shape::Number),
        ("exclusiveMaximum", 8, Shape::Flag),
        ("minimum", 9, Shape::Number),
        ("exclusiveMinimum", 10, Shape::Flag),
        ("maxLength", 11, Shape::Whole),
        ("minLength", 12, Shape::Whole),
        ("pattern", 13, Shape::Text),
        ("maxItems", 14, Shape::Whole),
        ("minItems", 15, Shape::Whole),
        ("uniqueItems", 16, Shape::Flag),
        ("maxProperties", 17, Shape::Whole),
        ("minProperties", 18, Shape::Whole),
        ("required", 19, TEXTS),
        ("enum", 20, Shape::Each(&Shape::Free)),
        ("additionalProperties", 21, Shape::SchemaOrFlag),
        ("type", 22, Shape::Around(1, &Shape::Text)),
        ("items", 23, Shape::Around(1, &Shape::Message(&SCHEMA))),
        ("allOf", 24, Shape::Each(&Shape::Message(&SCHEMA))),
        ("properties", 25, Shape::Message(&SCHEMAS)),
        ("example", 30, Shape::Free),
    ],
    31,
);

impl Message {
    /// Adds a member. What the format has no field for is left out.
    pub(super) fn put(&self, out: &mut Vec<u8>, name: &str, value: &Value) {
        if let Some((number, shape)) = &self.entries {
            entry(out, *number, name, shape, value);
        } else if let Some((_, number, shape)) = self.field(name) {
            shape.put(out, *number, value);
        } else if name.starts_with("x-") {
            entry(out, self.extensions, name, &Shape::Free, value);
        }
    }

    /// The number and type of a member that is a message.
    pub(super) fn inner(&self, name: &str) -> Option<(u32, &'static Message)> {
        match self.field(name)? {
            (_, number, Shape::Message(message)) => Some((*number, message)),
            _ => None,
        }
    }

    fn field(&self, name: &str) -> Option<&(&'static str, u32, Shape)> {
        self.fields.iter().find(|(field, ..)| *field == name)
    }

    fn put_all(&self, out: &mut Vec<u8>, members: &Map<String, Value>) {
        for (name, value) in members {
            self.put(out, name, value);
        }
    }
}

impl Shape {
    fn put(&self, out: &mut Vec<u8>, number: u32, value: &Value) {
        match (self, value) {
            (Shape::Text, Value::String(text)) => bytes(out, number, text.as_bytes()),
            (Shape::Flag, Value::Bool(flag)) => whole(out, number, u64::from(*flag)),
            (Shape::Whole, Value::Number(value)) => {
                whole(out, number, value.as_u64().unwrap_or_default());
            }
            (Shape::Number, Value::Number(value)) => {
                varint(out, u64::from(number << 3 | 1));
                out.extend(value.as_f64().unwrap_or_default().to_le_bytes());
            }
            (Shape::Free, value) => nested(out, number, |out| {
                bytes(out, 2, value.to_string().as_bytes());
            }),
            (Shape::Message(message), Value::Object(members)) => {
                nested(out, number, |out| message.put_all(out, members));
            }
            (Shape::Around(inner, shape), value) => {
                nested(out, number, |out| shape.put(out, *inner, value));
            }
            (Shape::Each(shape), Value::Array(items)) => {
                for item in items {
                    shape.put(out, number, item);
                }
            }
            (Shape::SchemaOrFlag, Value::Bool(_)) => {
                nested(out, number, |out| Shape::Flag.put(out, 2, value));
            }
            (Shape::SchemaOrFlag, value) => nested(out, number, |out| {
                Shape::Message(&SCHEMA).put(out, 1, value);
            }),
            (Shape::Parameter, Value::Object(members)) => {
                let place = members.get("in").and_then(Value::as_str);
                nested(out, number, |out| parameter(out, place, value));
            }
            _ => {}
        }
    }
}

fn parameter(out: &mut Vec<u8>, place: Option<&str>, value: &Value) {
    const BODY: Shape = Shape::Around(1, &Shape::Message(&IN_BODY));
    const QUERY: Shape = Shape::Around(2, &Shape::Around(3, &Shape::Message(&IN_QUERY)));
    const PATH: Shape = Shape::Around(2, &Shape::Around(4, &Shape::Message(&IN_PATH)));
    let shape = match place {
        Some("body") => BODY,
        Some("path") => PATH,
        _ => QUERY,
    };
    shape.put(out, 1, value);
}

fn entry(out: &mut Vec<u8>, number: u32, name: &str, shape: &Shape, value: &Value) {
    nested(out, number, |out| {
        bytes(out, 1, name.as_bytes());
        shape.put(out, 2, value);
    });
}

fn nested(out: &mut Vec<u8>, number: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    fill(&mut inner);
    bytes(out, number, &inner);
}

fn whole(out: &mut Vec<u8>, number: u32, value: u64) {
    varint(out, u64::from(number << 3));
    varint(out, value);
}

pub(super) fn bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    varint(out, u64::from(number << 3 | 2));
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

//! Messages as JSON.

use chrono::{DateTime, TimeDelta};
use serde_json::{Map, Value};

use super::ProtobufError;
use super::table::{Field, Json, Kind, Message, Shape, Table};
use super::wire::{FIXED_64, LENGTH_DELIMITED, Reader, Tag, VARINT};
use crate::decode::scalars::to_base64;

/// How deep messages may lie in each other.
const DEEPEST: usize = 100;

type Fields = Map<String, Value>;

/// Adds the fields of a message to those of an object.
pub(super) fn read(
    message: &Message,
    content: &[u8],
    fields: &mut Fields,
) -> Result<(), ProtobufError> {
    read_message(message, content, fields, 0)
}

fn read_message(
    message: &Message,
    content: &[u8],
    fields: &mut Fields,
    depth: usize,
) -> Result<(), ProtobufError> {
    if depth > DEEPEST {
        return Err(ProtobufError::TooDeep);
    }
    let mut reader = Reader::new(content);
    while let Some(tag) = reader.tag(&message.name)? {
        match message.field(tag.number) {
            Some(field) => read_field(field, tag, &mut reader, fields, depth)?,
            None => reader.skip(tag.wire_type)?,
        }
    }
    Ok(())
}

fn read_field(
    field: &Field,
    tag: Tag,
    reader: &mut Reader<'_>,
    fields: &mut Fields,
    depth: usize,
) -> Result<(), ProtobufError> {
    match field.shape {
        Shape::One(kind) => {
            tag.expect(kind.wire_type(), &field.go_name)?;
            read_one(field, kind, reader, fields, depth)
        }
        Shape::Many(kind) => {
            let mut packed = None;
            if kind.wire_type() != LENGTH_DELIMITED && tag.wire_type == LENGTH_DELIMITED {
                packed = Some(Reader::new(reader.bytes()?));
            } else {
                tag.expect(kind.wire_type(), &field.go_name)?;
            }
            let Value::Array(items) = entry(field, fields, Value::Array(Vec::new())) else {
                return Ok(());
            };
            match &mut packed {
                None => items.push(value(kind, reader, depth)?),
                Some(packed) => {
                    while !packed.is_at_end() {
                        items.push(value(kind, packed, depth)?);
                    }
                }
            }
            Ok(())
        }
        Shape::Map(kind) => {
            tag.expect(LENGTH_DELIMITED, &field.go_name)?;
            let (key, value) = map_entry(kind, reader.bytes()?, depth)?;
            if let Value::Object(entries) = entry(field, fields, Value::Object(Map::new())) {
                entries.insert(key, value);
            }
            Ok(())
        }
    }
}

/// The value of a field that may have been there before.
fn entry<'f>(field: &Field, fields: &'f mut Fields, otherwise: Value) -> &'f mut Value {
    let name = field.name.clone().unwrap_or_default();
    fields.entry(name).or_insert(otherwise)
}

/// A message that is there twice is one message with the fields of both.
fn read_one(
    field: &Field,
    kind: Kind,
    reader: &mut Reader<'_>,
    fields: &mut Fields,
    depth: usize,
) -> Result<(), ProtobufError> {
    if let Kind::Message(id) = kind {
        let message = Table::all().get(id);
        if field.name.is_none() {
            return read_message(message, reader.bytes()?, fields, depth + 1);
        }
        if message.json == Json::Object {
            let content = reader.bytes()?;
            return match entry(field, fields, Value::Object(Map::new())) {
                Value::Object(inner) => read_message(message, content, inner, depth + 1),
                _ => Ok(()),
            };
        }
    }
    let value = value(kind, reader, depth)?;
    fields.insert(field.name.clone().unwrap_or_default(), value);
    Ok(())
}

/// Keys and values of maps are what their numbers say, whatever their wire types.
fn map_entry(kind: Kind, content: &[u8], depth: usize) -> Result<(String, Value), ProtobufError> {
    let mut reader = Reader::new(content);
    let (mut key, mut found) = (String::new(), None);
    while let Some(tag) = reader.tag("entry")? {
        match tag.number {
            1 => key = text(reader.bytes()?),
            2 => found = Some(value(kind, &mut reader, depth)?),
            _ => reader.skip(tag.wire_type)?,
        }
    }
    let value = match found {
        Some(value) => value,
        None => kind.zero()?,
    };
    Ok((key, value))
}

fn value(kind: Kind, reader: &mut Reader<'_>, depth: usize) -> Result<Value, ProtobufError> {
    Ok(match kind {
        Kind::Bool => (reader.varint()? != 0).into(),
        Kind::Int32 => reader.int32()?.into(),
        Kind::Int64 => reader.int64()?.into(),
        Kind::Double => reader.double()?.into(),
        Kind::Text => text(reader.bytes()?).into(),
        Kind::Bytes => to_base64(reader.bytes()?).into(),
        Kind::Json => embedded(reader.bytes()?)?,
        Kind::Message(id) => whole(Table::all().get(id), reader.bytes()?, depth + 1)?,
    })
}

impl Kind {
    fn wire_type(self) -> u8 {
        match self {
            Self::Bool | Self::Int32 | Self::Int64 => VARINT,
            Self::Double => FIXED_64,
            Self::Text | Self::Bytes | Self::Json | Self::Message(_) => LENGTH_DELIMITED,
        }
    }

    /// The value of an entry of a map that has none.
    fn zero(self) -> Result<Value, ProtobufError> {
        // in whatever way these are read, they mean nothing
        value(self, &mut Reader::new(&[0; 8]), 0)
    }
}

/// Bytes that are no text are replaced as Go does when it writes them.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn embedded(bytes: &[u8]) -> Result<Value, ProtobufError> {
    match bytes {
        [] => Ok(Value::Null),
        bytes => {
            serde_json::from_slice(bytes).map_err(|error| ProtobufError::Json(error.to_string()))
        }
    }
}

fn whole(message: &Message, content: &[u8], depth: usize) -> Result<Value, ProtobufError> {
    let mut fields = Map::new();
    read_message(message, content, &mut fields, depth)?;
    let mut take = |name: &str| fields.remove(name);
    Ok(match message.json {
        Json::Object => Value::Object(fields),
        Json::Embedded(field) => take(field).unwrap_or_default(),
        Json::List => take("items").unwrap_or_else(|| Value::Array(Vec::new())),
        Json::Quantity => take("string").unwrap_or_else(|| "0".into()),
        Json::IntOrString => match take("type").and_then(|kind| kind.as_i64()) {
            Some(1) => take("strVal").unwrap_or_else(|| "".into()),
            _ => take("intVal").unwrap_or_else(|| 0.into()),
        },
        Json::Time { micros } if !content.is_empty() => {
            let mut number = |name| take(name).and_then(|number| number.as_i64());
            let (seconds, nanos) = (number("seconds"), number("nanos"));
            time(seconds.unwrap_or(0), nanos.unwrap_or(0), micros)?
        }
        Json::Time { .. } => Value::Null,
        Json::SchemaOr(instead) => {
            let schema = take("schema");
            let filled = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
            match take(instead) {
                Some(list) if filled(&list) => list,
                otherwise => schema.or(otherwise).unwrap_or_default(),
            }
        }
    })
}

/// The time in the form of the API. The beginning of Go's calendar is no time.
fn time(seconds: i64, nanos: i64, micros: bool) -> Result<Value, ProtobufError> {
    const ZERO: i64 = -62_135_596_800;
    let (nanos, form) = match micros {
        true => (nanos / 1000 * 1000, "%Y-%m-%dT%H:%M:%S%.6fZ"),
        false => (0, "%Y-%m-%dT%H:%M:%SZ"),
    };
    if (seconds, nanos) == (ZERO, 0) {
        return Ok(Value::Null);
    }
    let time = DateTime::from_timestamp(seconds, 0)
        .and_then(|time| time.checked_add_signed(TimeDelta::nanoseconds(nanos)))
        .filter(|time| (0..=9999).contains(&chrono::Datelike::year(time)))
        .ok_or(ProtobufError::Time)?;
    Ok(time.format(form).to_string().into())
}

//! Reading the protobuf that clients written in Go send for Kubernetes' own kinds, as the JSON it means.
//!
//! Zero values are written by Go wherever a field is no pointer, so the JSON has them too; [`crate::decode`] takes them
//! out again. What cannot be read is refused in the words of the Go package that reads these messages.

mod message;
mod table;
mod wire;

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::decode::type_name;
use message::read;
use table::Table;
use wire::{LENGTH_DELIMITED, Reader};

/// What every body begins with.
const PREFIX: &[u8] = b"k8s\0";

/// Why a body cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    #[error("empty data")]
    NoData,
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    NoPrefix,
    #[error("empty body")]
    NoBody,
    #[error("unexpected EOF")]
    UnexpectedEnd,
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    #[error("proto: unexpected end of group")]
    UnexpectedEndOfGroup,
    #[error("proto: {0}: wiretype end group for non-group")]
    EndOfNoGroup(String),
    #[error("proto: {message}: illegal tag {number} (wire type {tag})")]
    IllegalTag {
        message: String,
        number: i32,
        tag: u64,
    },
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u8),
    #[error("proto: wrong wireType = {wire_type} for field {field}")]
    WrongWireType { wire_type: u8, field: String },
    #[error("messages are nested too deeply")]
    TooDeep,
    #[error("a time is out of range")]
    Time,
    #[error("{0}")]
    Json(String),
    #[error("no message is known for the kind {kind:?} of version {api_version:?}")]
    UnknownKind { api_version: String, kind: String },
}

/// An object with what it says it is, not yet read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Empty if it does not say so.
    pub api_version: Cow<'a, str>,
    /// Empty if it does not say so.
    pub kind: Cow<'a, str>,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    pub fn open(body: &'a [u8]) -> Result<Self, ProtobufError> {
        if body.is_empty() {
            return Err(ProtobufError::NoData);
        }
        let content = body.strip_prefix(PREFIX).ok_or(ProtobufError::NoPrefix)?;
        if content.is_empty() {
            return Err(ProtobufError::NoBody);
        }
        let mut envelope = Self {
            api_version: Cow::Borrowed(""),
            kind: Cow::Borrowed(""),
            raw: &[],
        };
        let mut reader = Reader::new(content);
        while let Some(tag) = reader.tag("Unknown")? {
            match tag.number {
                1 => {
                    tag.expect(LENGTH_DELIMITED, "TypeMeta")?;
                    envelope.read_type(reader.bytes()?)?;
                }
                2 => {
                    tag.expect(LENGTH_DELIMITED, "Raw")?;
                    envelope.raw = reader.bytes()?;
                }
                // the encoding and the type of the content, which the server does not look at
                _ => reader.skip(tag.wire_type)?,
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, content: &'a [u8]) -> Result<(), ProtobufError> {
        let mut reader = Reader::new(content);
        while let Some(tag) = reader.tag("TypeMeta")? {
            let (text, name) = match tag.number {
                1 => (&mut self.api_version, "APIVersion"),
                2 => (&mut self.kind, "Kind"),
                _ => {
                    reader.skip(tag.wire_type)?;
                    continue;
                }
            };
            tag.expect(LENGTH_DELIMITED, name)?;
            *text = String::from_utf8_lossy(reader.bytes()?);
        }
        Ok(())
    }

    /// What it does not say about itself, it is.
    #[must_use]
    pub fn or(mut self, api_version: &'a str, kind: &'a str) -> Self {
        let version = match self.api_version.split_once('/') {
            None => &self.api_version,
            Some((_, version)) if version.contains('/') => "",
            Some((_, version)) => version,
        };
        if version.is_empty() {
            self.api_version = api_version.into();
        }
        if self.kind.is_empty() {
            self.kind = kind.into();
        }
        self
    }

    /// The object as JSON.
    pub fn object(&self) -> Result<Value, ProtobufError> {
        let table = Table::all();
        let named = table.named(&type_name(&self.api_version, &self.kind));
        let message = named.ok_or_else(|| ProtobufError::UnknownKind {
            api_version: self.api_version.clone().into_owned(),
            kind: self.kind.clone().into_owned(),
        })?;
        let mut object = Map::new();
        object.insert("apiVersion".to_owned(), (&*self.api_version).into());
        object.insert("kind".to_owned(), (&*self.kind).into());
        read(message, self.raw, &mut object)?;
        Ok(Value::Object(object))
    }
}

/// Reads an object that says what it is.
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    Envelope::open(body)?.object()
}

//! What an API server written in Go does to the JSON of one of Kubernetes' own kinds when it reads and writes it:
//! unknown fields go, what is empty goes or stays as the Go type says, values take their canonical form, and what does
//! not fit its type is refused in the words of Go's JSON package.

mod place;
pub(crate) mod scalars;
mod types;

use serde_json::{Map, Value};

use place::Place;
use types::{Form, Instead, Struct, TypeId, Types};

use quantity::Quantity;

use crate::{patch::go::json_type, structural::golang::Num};

/// Reads an object of one of Kubernetes' own kinds. Returns the paths of unknown fields, or why it cannot be read. The
/// result has no nulls; [`write_nulls`] adds those that the server shows. A kind that is not known is left alone.
pub fn decode(object: &mut Value, api_version: &str, kind: &str) -> Result<Vec<String>, String> {
    match Types::all().named(&type_name(api_version, kind)) {
        Some(id) => Decoder::default().read(id, object, &Place::ROOT),
        None => Ok(Vec::new()),
    }
}

/// Reads the metadata of a custom object. Returns the paths of unknown fields, or why it cannot be read.
pub fn decode_metadata(metadata: &mut Value) -> Result<Vec<String>, String> {
    let types = Types::all();
    let Some(id) = types.named("meta/v1.ObjectMeta") else {
        return Ok(Vec::new());
    };
    let mut unknown = Decoder::default().read(id, metadata, &Place::ROOT)?;
    for path in &mut unknown {
        path.insert_str(0, "metadata.");
    }
    Ok(unknown)
}

/// Adds the nulls that the server shows for what was never set.
pub fn write_nulls(object: &mut Value, api_version: &str, kind: &str) {
    let types = Types::all();
    if let Some(id) = types.named(&type_name(api_version, kind)) {
        add_nulls(types, id, object);
    }
}

/// What the tables of types call a kind.
pub(crate) fn type_name(api_version: &str, kind: &str) -> String {
    if kind == "DeleteOptions" {
        // every group has the same
        return "meta/v1.DeleteOptions".to_owned();
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    // `coordination.k8s.io` is the package `coordination`
    let package = group.split('.').next().unwrap_or(group);
    format!("{package}/{version}.{kind}")
}

/// Go's decoder goes on after a value of the wrong type, so that such an error yields to one that stops it.
#[derive(Default)]
struct Decoder {
    unknown: Vec<String>,
    first_mismatch: Option<String>,
}

impl Decoder {
    fn read(
        mut self,
        id: TypeId,
        value: &mut Value,
        at: &Place<'_>,
    ) -> Result<Vec<String>, String> {
        self.value(id, value, at)?;
        match self.first_mismatch {
            Some(problem) => Err(problem),
            None => Ok(self.unknown),
        }
    }

    /// Fails where Go stops reading.
    fn value(&mut self, id: TypeId, value: &mut Value, at: &Place<'_>) -> Result<(), String> {
        let types = Types::all();
        let go = types.get(id);
        match (&go.form, &mut *value) {
            (Form::Any, _)
            | (Form::Text, Value::String(_))
            | (Form::Bool, Value::Bool(_))
            | (Form::IntOrString, Value::String(_)) => {}
            (Form::Int { least, most }, Value::Number(number)) => {
                let fits = |int: i64| (*least..=*most).contains(&int);
                if !number.as_i64().is_some_and(fits) {
                    self.mismatch(at, &format!("number {number}"), &go.name);
                }
            }
            (Form::Float, Value::Number(number)) => {
                if let Some(whole) = scalars::whole(number) {
                    *value = whole.into();
                }
            }
            (Form::Bytes, Value::String(text)) => match scalars::base64(text) {
                Ok(None) => {}
                Ok(Some(canonical)) => *text = canonical,
                Err(offset) => {
                    let problem = format!("illegal base64 data at input byte {offset}");
                    self.first_mismatch.get_or_insert(problem);
                }
            },
            (Form::Bytes, Value::Array(items)) => {
                let text = self.byte_list(items, at);
                *value = text.into();
            }
            (Form::Time | Form::MicroTime, Value::String(text)) => {
                *text = scalars::time(text, matches!(go.form, Form::MicroTime))?;
            }
            (Form::Time | Form::MicroTime, other) => {
                return Err(at.mismatch(json_type(other), "string"));
            }
            (Form::IntOrString, other) => int_or_string(other, at)?,
            (Form::Quantity, other) => quantity(other)?,
            (Form::List(of), Value::Array(items)) => self.list(*of, items, at)?,
            (Form::Map(of), Value::Object(entries)) => self.map(*of, entries, at)?,
            (Form::Struct(structure), Value::Object(fields)) => {
                self.structure(structure, fields, at)?;
            }
            (Form::SchemaOr(schema, instead), other) => schema_or(*schema, *instead, other, at)?,
            (_, other) => self.mismatch(at, json_type(other), &go.name),
        }
        Ok(())
    }

    fn mismatch(&mut self, at: &Place<'_>, found: &str, wanted: &str) {
        if self.first_mismatch.is_none() {
            self.first_mismatch = Some(at.mismatch(found, wanted));
        }
    }

    /// Bytes may be written as numbers, too.
    fn byte_list(&mut self, items: &[Value], at: &Place<'_>) -> String {
        let mut bytes = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Value::Null => bytes.push(0),
                Value::Number(number) => match number.as_u64().map(u8::try_from) {
                    Some(Ok(byte)) => bytes.push(byte),
                    _ => self.mismatch(at, &format!("number {number}"), "uint8"),
                },
                other => self.mismatch(at, json_type(other), "uint8"),
            }
        }
        scalars::to_base64(&bytes)
    }

    fn list(&mut self, of: TypeId, items: &mut [Value], at: &Place<'_>) -> Result<(), String> {
        for (index, item) in items.iter_mut().enumerate() {
            match item {
                Value::Null => *item = Types::all().zero(of),
                _ => self.value(of, item, &at.index(index))?,
            }
        }
        Ok(())
    }

    fn map(
        &mut self,
        of: TypeId,
        entries: &mut Map<String, Value>,
        at: &Place<'_>,
    ) -> Result<(), String> {
        for (key, entry) in entries {
            match entry {
                Value::Null => *entry = Types::all().zero(of),
                _ => self.value(of, entry, &at.key(key))?,
            }
        }
        Ok(())
    }

    fn structure(
        &mut self,
        structure: &Struct,
        fields: &mut Map<String, Value>,
        at: &Place<'_>,
    ) -> Result<(), String> {
        let mut outcome = Ok(());
        fields.retain(|name, value| {
            let Some(field) = structure.fields.get(name) else {
                self.unknown.push(at.below(name));
                return false;
            };
            if outcome.is_err() || value.is_null() {
                return false;
            }
            outcome = self.value(field.of, value, &at.field(structure, field, name));
            let vanishes = field.omit_empty && !field.pointer && is_empty(value, field.of);
            !vanishes && !value.is_null()
        });
        outcome?;
        for (name, of) in &structure.zeros {
            if !fields.contains_key(name) {
                fields.insert(name.clone(), Types::all().zero(*of));
            }
        }
        Ok(())
    }
}

/// Whether Go takes the value of a field that is no pointer for none. Structs are never empty.
fn is_empty(value: &Value, of: TypeId) -> bool {
    match (&Types::all().get(of).form, value) {
        (Form::Struct(_) | Form::Quantity | Form::IntOrString | Form::Any, _) => false,
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::Bool(truth)) => !truth,
        (_, Value::Number(number)) => number.as_f64() == Some(0.0),
        (_, Value::Array(items)) => items.is_empty(),
        (_, Value::Object(entries)) => entries.is_empty(),
        (_, Value::Null) => true,
    }
}

/// A port or percentage that is no text is read as a number.
fn int_or_string(value: &Value, at: &Place<'_>) -> Result<(), String> {
    match value {
        Value::Number(number) => match number.as_i64().map(i32::try_from) {
            Some(Ok(_)) => Ok(()),
            _ => Err(at.mismatch(&format!("number {number}"), "int32")),
        },
        other => Err(at.mismatch(json_type(other), "int32")),
    }
}

fn quantity(value: &mut Value) -> Result<(), String> {
    let written = match &*value {
        Value::String(text) => text.clone(),
        Value::Number(number) => Num::of(number).to_string(),
        other => other.to_string(),
    };
    let parsed = Quantity::parse(written.trim()).map_err(|error| error.to_string())?;
    *value = parsed.to_string().into();
    Ok(())
}

/// Schemas below schemas are read by a decoder of their own, which does not look for unknown fields and whose errors
/// stop the one around it.
fn schema_or(
    schema: TypeId,
    instead: Instead,
    value: &mut Value,
    at: &Place<'_>,
) -> Result<(), String> {
    match (instead, &mut *value) {
        (_, Value::Object(_)) => Decoder::default().read(schema, value, at).map(drop),
        (Instead::Bool, Value::Bool(_)) => Ok(()),
        (Instead::Bool, _) => Err("boolean or JSON schema expected".to_owned()),
        (Instead::Schemas, Value::Array(items)) => items
            .iter_mut()
            .try_for_each(|item| Decoder::default().read(schema, item, at).map(drop)),
        (Instead::Texts, Value::Array(items)) => {
            match items.iter().find(|item| !item.is_string()) {
                Some(item) => Err(at.mismatch(json_type(item), "string")),
                None => Ok(()),
            }
        }
        (Instead::Schemas | Instead::Texts, _) => {
            *value = Value::Null;
            Ok(())
        }
    }
}

fn add_nulls(types: &Types, id: TypeId, value: &mut Value) {
    match (&types.get(id).form, value) {
        (Form::Struct(structure), Value::Object(fields)) => {
            for (name, value) in fields.iter_mut() {
                if let Some(field) = structure.fields.get(name) {
                    add_nulls(types, field.of, value);
                }
            }
            for name in &structure.nulls {
                if !fields.contains_key(name) {
                    fields.insert(name.clone(), Value::Null);
                }
            }
        }
        (Form::List(of), Value::Array(items)) => {
            items
                .iter_mut()
                .for_each(|item| add_nulls(types, *of, item));
        }
        (Form::Map(of), Value::Object(entries)) => {
            let values = entries.values_mut();
            values.for_each(|value| add_nulls(types, *of, value));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;

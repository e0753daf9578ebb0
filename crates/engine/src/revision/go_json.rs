//! Templates as Go writes them: what other controllers hash.
//!
//! Go reads a template into structs and writes those: fields in the order of the source, unknown ones lost, some structs
//! written even when empty, quantities in the server's spelling.

use std::collections::BTreeMap;

use serde_json::Value;

use super::types::{Kind, Omit, fields};
use quantity::Quantity;

/// The value could not have been read into the type either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Misfit;

type Written = Result<(), Misfit>;

/// Writes a value of the named type.
pub(super) fn encode(value: &Value, type_name: &'static str) -> Result<String, Misfit> {
    let mut out = String::new();
    structure(Some(value), type_name, &mut out)?;
    Ok(out)
}

/// Writes a value without a type: maps sorted, nothing left out.
pub(super) fn encode_untyped(value: &Value) -> String {
    let mut out = String::new();
    untyped(value, &mut out);
    out
}

fn structure(value: Option<&Value>, name: &str, out: &mut String) -> Written {
    let object = match value {
        None | Some(Value::Null) => None,
        Some(Value::Object(object)) => Some(object),
        Some(_) => return Err(Misfit),
    };
    out.push('{');
    let start = out.len();
    for field in fields(name) {
        let value = object.and_then(|object| object.get(field.name));
        let value = value.filter(|value| !value.is_null());
        if is_left_out(value, &field.kind, field.omit) {
            continue;
        }
        if out.len() > start {
            out.push(',');
        }
        text(field.name, out);
        out.push(':');
        written(value, &field.kind, out)?;
    }
    out.push('}');
    Ok(())
}

fn is_left_out(value: Option<&Value>, kind: &Kind, omit: Omit) -> bool {
    if omit == Omit::Never {
        return false;
    }
    match (kind, value) {
        // these are structs to Go, and a struct is never empty
        (Kind::Struct(_) | Kind::Quantity | Kind::IntOrText | Kind::Time, None) => {
            omit == Omit::WhenZero
        }
        (Kind::Struct(_) | Kind::Quantity | Kind::IntOrText | Kind::Time, Some(_)) => false,
        (_, None) => true,
        (Kind::Pointer(_), Some(_)) => false,
        (_, Some(Value::String(text))) => text.is_empty(),
        (_, Some(Value::Bool(value))) => !value,
        (_, Some(Value::Number(number))) => number.as_i64() == Some(0),
        (_, Some(Value::Array(items))) => items.is_empty(),
        (_, Some(Value::Object(entries))) => entries.is_empty(),
        (_, Some(Value::Null)) => true,
    }
}

fn written(value: Option<&Value>, kind: &Kind, out: &mut String) -> Written {
    match (kind, value) {
        (Kind::Struct(name), _) => return structure(value, name, out),
        (Kind::Pointer(_) | Kind::List(_) | Kind::Map(_) | Kind::Time | Kind::Raw, None) => {
            out.push_str("null");
        }
        (Kind::Pointer(inner), Some(_)) => return written(value, inner, out),
        (Kind::Text, None) => out.push_str("\"\""),
        (Kind::Text | Kind::Time, Some(Value::String(it))) => text(it, out),
        (Kind::Int | Kind::IntOrText, None) => out.push('0'),
        (Kind::Int | Kind::IntOrText, Some(Value::Number(number))) => {
            let number = number.as_i64().ok_or(Misfit)?;
            out.push_str(&number.to_string());
        }
        (Kind::IntOrText, Some(Value::String(it))) => text(it, out),
        (Kind::Bool, None) => out.push_str("false"),
        (Kind::Bool, Some(Value::Bool(it))) => out.push_str(if *it { "true" } else { "false" }),
        (Kind::Quantity, _) => return quantity(value, out),
        (Kind::List(inner), Some(Value::Array(items))) => return list(items, inner, out),
        (Kind::Map(inner), Some(Value::Object(entries))) => {
            let entries: BTreeMap<&str, &Value> = entries
                .iter()
                .map(|(key, value)| (key.as_str(), value))
                .collect();
            out.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                separate(index, out);
                text(key, out);
                out.push(':');
                written(Some(value).filter(|it| !it.is_null()), inner, out)?;
            }
            out.push('}');
        }
        (Kind::Raw, Some(value)) => untyped(value, out),
        _ => return Err(Misfit),
    }
    Ok(())
}

fn list(items: &[Value], inner: &Kind, out: &mut String) -> Written {
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        separate(index, out);
        written(Some(item).filter(|it| !it.is_null()), inner, out)?;
    }
    out.push(']');
    Ok(())
}

fn quantity(value: Option<&Value>, out: &mut String) -> Written {
    let amount = match value {
        None => "0".to_owned(),
        Some(Value::String(amount)) => amount.clone(),
        Some(Value::Number(amount)) => amount.to_string(),
        Some(_) => return Err(Misfit),
    };
    let amount = Quantity::parse(amount.trim()).map_err(|_| Misfit)?;
    text(&amount.to_string(), out);
    Ok(())
}

fn untyped(value: &Value, out: &mut String) {
    match value {
        Value::String(it) => text(it, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                separate(index, out);
                untyped(item, out);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            let entries: BTreeMap<&String, &Value> = entries.iter().collect();
            out.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                separate(index, out);
                text(key, out);
                out.push(':');
                untyped(value, out);
            }
            out.push('}');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
    }
}

fn separate(index: usize, out: &mut String) {
    if index > 0 {
        out.push(',');
    }
}

/// A string with what Go escapes in it, HTML included.
fn text(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

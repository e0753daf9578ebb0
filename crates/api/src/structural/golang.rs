//! Values as the API server prints them.

use std::fmt::Write;

use serde_json::{Number, Value};

/// A value in an error message.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(number) => Num::of(number).to_string(),
        other => json(other),
    }
}

/// A quoted string with Go's escapes.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            _ if printable(letter) => out.push(letter),
            _ => escape(letter, &mut out),
        }
    }
    out.push('"');
    out
}

fn printable(letter: char) -> bool {
    match letter {
        ' ' | '\'' => true,
        _ if letter.is_control() || letter.is_whitespace() => false,
        _ => letter.is_ascii() || letter.escape_debug().count() == 1,
    }
}

fn escape(letter: char, out: &mut String) {
    let code = u32::from(letter);
    // writing into a string cannot fail
    _ = match code {
        0..0x80 => write!(out, "\\x{code:02x}"),
        0x80..0x1_0000 => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}

/// JSON as Go writes it: letters that mean something in HTML are escaped.
pub(super) fn json(value: &Value) -> String {
    let mut out = String::new();
    for letter in value.to_string().chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            _ => out.push(letter),
        }
    }
    out
}

/// A number as the API server reads it: what does not fit 64 signed bits is a float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Num {
    Int(i64),
    Float(f64),
}

impl Num {
    pub(crate) fn of(number: &Number) -> Self {
        match number.as_i64() {
            Some(int) => Self::Int(int),
            None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "bounds are compared as floats")]
    pub(super) fn float(self) -> f64 {
        match self {
            Self::Int(int) => int as f64,
            Self::Float(float) => float,
        }
    }
}

impl std::fmt::Display for Num {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(int) => int.fmt(f),
            Self::Float(float) => f.write_str(&general(*float)),
        }
    }
}

/// The shortest form of a float, with an exponent below -4 and from seven digits before the point on.
fn general(float: f64) -> String {
    let scientific = format!("{float:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let power: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&power) {
        return float.to_string();
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.abs())
}

/// Whether a float is a whole number within what JSON keeps exactly.
pub(super) fn is_whole(float: f64) -> bool {
    const MOST: f64 = 9_007_199_254_740_991.0;
    const NEAR: f64 = 1e-9;
    if !float.is_finite() || float.abs() > MOST {
        return false;
    }
    let whole = float.trunc();
    if float == whole {
        return true;
    }
    // a quotient that misses a whole number by rounding counts as one, if rounding went up
    let unsigned = float.max(0.0).trunc();
    if unsigned == 0.0 {
        return false;
    }
    (float - unsigned).abs() / (float.abs() + unsigned) < NEAR
}

//! How Go prints what stands in the server's error messages, and how it writes JSON.

use serde_json::Value;

/// A value as `%v` prints it: `map[image:nginx name:web]`.
pub(crate) fn display(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(display).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            let fields: Vec<String> = names
                .into_iter()
                .map(|name| format!("{name}:{}", display(&fields[name])))
                .collect();
            format!("map[{}]", fields.join(" "))
        }
    }
}

/// The value where Go expects a text: whatever else it is says so.
pub(crate) fn display_as_text(value: &Value) -> String {
    match value {
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Bool(_) | Value::Number(_) => {
            format!("%!s({}={})", type_name(value), display(value))
        }
        Value::String(_) | Value::Array(_) | Value::Object(_) => display(value),
    }
}

/// The name of the type in which Go keeps the value.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        // what `%s` makes of a type that is not there
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() || number.is_u64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => LIST,
        Value::Object(_) => MAP,
    }
}

pub(crate) const LIST: &str = "[]interface {}";
pub(crate) const MAP: &str = "map[string]interface {}";

/// What Go's decoder says of a document of another form than it wants.
pub fn cannot_unmarshal(document: &Value, wanted: &str) -> String {
    let form = json_type(document);
    format!("json: cannot unmarshal {form} into Go value of type {wanted}")
}

/// What Go's decoder calls the type of a value.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A text in double quotes, as `%q` prints it.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::from('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            control if control.is_control() => {
                out.push_str(&format!("\\x{:02x}", u32::from(control)));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// JSON with the characters escaped that Go escapes for the sake of HTML.
pub(crate) fn escape_html(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{display, escape_html, quote};

    #[test]
    fn values_are_printed_as_go_prints_them() {
        let value = json!({"b": [1, 2.5, true, null], "a": {"c": "x y"}});
        assert_eq!(display(&value), "map[a:map[c:x y] b:[1 2.5 true <nil>]]");
        assert_eq!(quote("a\"b\\\n"), r#""a\"b\\\n""#);
        assert_eq!(
            escape_html(r#"{"a":"<b>&"}"#),
            r#"{"a":"\u003cb\u003e\u0026"}"#
        );
    }
}

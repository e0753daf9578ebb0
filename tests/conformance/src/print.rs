//! JSON as the transcripts show it: keys in order, and what fits on a line on one line.

use serde_json::Value;

/// Wide enough for a condition or an owner reference, narrow enough for a side-by-side look.
const WIDTH: usize = 110;

pub(crate) fn pretty(value: &Value) -> String {
    let mut out = String::new();
    write(value, 0, 0, &mut out);
    out
}

/// `before` is what the line already holds in front of the value.
fn write(value: &Value, indent: usize, before: usize, out: &mut String) {
    let flat = flat(value);
    let (open, close) = match value {
        Value::Object(fields) if !fields.is_empty() => ('{', '}'),
        Value::Array(items) if !items.is_empty() => ('[', ']'),
        _ => return out.push_str(&flat),
    };
    // the outermost braces always stand alone, so that a new field is a new line in a diff
    if indent > 0 && before + flat.len() <= WIDTH {
        return out.push_str(&flat);
    }
    out.push(open);
    let mut first = true;
    let mut line = |key: Option<&str>, child: &Value| {
        out.push_str(if first { "\n" } else { ",\n" });
        first = false;
        out.push_str(&"  ".repeat(indent + 1));
        let key = key.map(|k| format!("{}: ", Value::from(k)));
        let before = 2 * (indent + 1) + key.as_ref().map_or(0, String::len);
        out.push_str(&key.unwrap_or_default());
        write(child, indent + 1, before, out);
    };
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| key.as_str());
            fields.into_iter().for_each(|(k, v)| line(Some(k), v));
        }
        Value::Array(items) => items.iter().for_each(|item| line(None, item)),
        _ => {}
    }
    out.push('\n');
    out.push_str(&"  ".repeat(indent));
    out.push(close);
}

fn flat(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| key.as_str());
            let fields = fields
                .into_iter()
                .map(|(key, value)| format!("{}: {}", Value::from(key.as_str()), flat(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            format!(
                "[{}]",
                items.iter().map(flat).collect::<Vec<_>>().join(", ")
            )
        }
        other => other.to_string(),
    }
}

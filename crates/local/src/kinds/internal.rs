//! The difference between two values as the API server shows it: a unified diff of its internal form, which has other
//! names than the API, and also the fields that are not set.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::LazyLock;

use serde_json::Value;

use super::unified;

/// One type a line: its name, then its fields in order. A field is `Name:type`, or `Name=name:type` where the API's
/// name is not merely in lower case; `=^name` is a field that the API has in the spec itself; `Name?` is left out when
/// empty. A type is a name of the table or of a scalar, after `*` if it may be null, `[]` for a list, `{}` for a map.
static LAYOUT: LazyLock<HashMap<&'static str, Vec<Field>>> = LazyLock::new(|| {
    let mut types = HashMap::new();
    for line in include_str!("internal.txt").lines() {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        types.insert(name, words.filter_map(Field::parse).collect());
    }
    types
});

struct Field {
    shown: &'static str,
    name: String,
    of_spec: bool,
    optional: bool,
    kind: &'static str,
}

impl Field {
    fn parse(word: &'static str) -> Option<Self> {
        let (names, kind) = word.split_once(':')?;
        let (shown, name) = names.split_once('=').unwrap_or((names, ""));
        let (of_spec, name) = match name.strip_prefix('^') {
            Some(name) => (true, name),
            None => (false, name),
        };
        let bare = shown.strip_suffix('?');
        let shown = bare.unwrap_or(shown);
        let name = match name {
            "" => shown[..1].to_lowercase() + &shown[1..],
            name => name.to_owned(),
        };
        Some(Self {
            shown,
            name,
            of_spec,
            optional: bare.is_some(),
            kind,
        })
    }
}

/// The diff of two values of a type of the table.
pub(super) fn diff(kind: &str, old: &Value, new: &Value) -> String {
    unified::diff(&shown(kind, old, true), &shown(kind, new, true))
}

/// A value of a type of the table, as errors quote it.
pub(super) fn quoted(kind: &str, value: &Value) -> String {
    shown(kind, value, false)
}

fn shown(kind: &str, value: &Value, in_lines: bool) -> String {
    let mut out = String::new();
    Writer {
        spec: value,
        out: &mut out,
        depth: 0,
        in_lines,
    }
    .value(kind, Some(value));
    out
}

struct Writer<'a> {
    spec: &'a Value,
    out: &'a mut String,
    depth: usize,
    in_lines: bool,
}

impl Writer<'_> {
    fn value(&mut self, kind: &str, value: Option<&Value>) {
        let value = value.filter(|value| !value.is_null());
        if let Some(kind) = kind.strip_prefix('*') {
            return match value {
                Some(_) => self.value(kind, value),
                None => self.out.push_str("null"),
            };
        }
        if let Some(kind) = kind.strip_prefix("[]") {
            let items = value.and_then(Value::as_array).filter(|it| !it.is_empty());
            return match items {
                Some(items) => self.list('[', ']', items, |to, item| to.value(kind, Some(item))),
                None => self.out.push_str("null"),
            };
        }
        if let Some(kind) = kind.strip_prefix("{}") {
            let entries = value.and_then(Value::as_object).filter(|it| !it.is_empty());
            return match entries {
                Some(entries) => self.list('{', '}', entries, |to, (key, value)| {
                    to.name(key);
                    to.value(kind, Some(value));
                }),
                None => self.out.push_str("null"),
            };
        }
        match LAYOUT.get(kind) {
            Some(fields) => self.fields(fields, value),
            None => self.scalar(kind, value),
        }
    }

    fn fields(&mut self, fields: &[Field], value: Option<&Value>) {
        let spec = self.spec;
        let present = fields.iter().filter_map(|field| {
            let holder = if field.of_spec { Some(spec) } else { value };
            let inner = holder.and_then(|holder| holder.get(&field.name));
            (inner.is_some() || !field.optional).then_some((field, inner))
        });
        let present: Vec<_> = present.collect();
        self.list('{', '}', present, |to, (field, inner)| {
            to.name(field.shown);
            to.value(field.kind, inner);
        });
    }

    fn scalar(&mut self, kind: &str, value: Option<&Value>) {
        let written = match (value, kind) {
            (Some(value), _) => value.to_string(),
            (None, "text") => "\"\"".to_owned(),
            (None, "quantity") => "\"0\"".to_owned(),
            (None, "bool") => "false".to_owned(),
            (None, "time") => "null".to_owned(),
            (None, _) => "0".to_owned(),
        };
        self.escaped(&written);
    }

    fn name(&mut self, name: &str) {
        self.escaped(&Value::from(name).to_string());
        self.out.push_str(if self.in_lines { ": " } else { ":" });
    }

    /// As Go writes strings: letters that mean something in HTML are escaped.
    fn escaped(&mut self, text: &str) {
        for letter in text.chars() {
            match letter {
                // writing into a string cannot fail
                '<' | '>' | '&' => _ = write!(self.out, "\\u{:04x}", u32::from(letter)),
                _ => self.out.push(letter),
            }
        }
    }

    fn list<T>(
        &mut self,
        open: char,
        close: char,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.out.push(open);
        self.depth += 1;
        let mut any = false;
        for item in items {
            if any {
                self.out.push(',');
            }
            any = true;
            self.line();
            write(self, item);
        }
        self.depth -= 1;
        if any {
            self.line();
        }
        self.out.push(close);
    }

    fn line(&mut self) {
        if self.in_lines {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', self.depth));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{LAYOUT, diff, quoted};

    #[test]
    fn every_type_of_the_layout_is_known() {
        let scalars = ["text", "int", "bool", "quantity", "intstr", "time"];
        for fields in LAYOUT.values() {
            for field in fields {
                let kind = field.kind.trim_start_matches(['*', '[', ']', '{', '}']);
                assert!(
                    LAYOUT.contains_key(kind) || scalars.contains(&kind),
                    "{kind}"
                );
            }
        }
    }

    #[test]
    fn a_change_is_shown_in_the_form_of_the_server() {
        let spec = |cpu: &str| {
            json!({"containers": [{
                "name": "c", "image": "i",
                "resources": {
                    "requests": {"cpu": cpu, "memory": "10Mi"},
                    "limits": {"cpu": "200m", "memory": "20Mi"},
                },
            }]})
        };
        assert_eq!(
            diff("PodSpec", &spec("100m"), &spec("150m")),
            "@@ -17,7 +17,7 @@\n      \"memory\": \"20Mi\"\n     },\n     \"Requests\": {\n-     \"cpu\": \
             \"100m\",\n+     \"cpu\": \"150m\",\n      \"memory\": \"10Mi\"\n     },\n     \"Claims\": null\n"
        );
    }

    #[test]
    fn a_value_is_quoted_in_one_line() {
        let profile = json!({"type": "Localhost", "localhostProfile": "x"});
        let expected = r#"{"Type":"Localhost","LocalhostProfile":"x"}"#;
        assert_eq!(quoted("SeccompProfile", &profile), expected);
    }

    #[test]
    fn what_the_api_has_in_the_spec_is_shown_in_the_security_context() {
        let spec = |on: bool| json!({"hostNetwork": on, "securityContext": {}});
        let shown = diff("PodSpec", &spec(false), &spec(true));
        assert!(
            shown.contains("-  \"HostNetwork\": false,\n+  \"HostNetwork\": true,\n"),
            "{shown}"
        );
    }
}

//! Reading YAML, the subset that is JSON in another coat.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Spanned, options};

/// A value, and the keys that were written twice: `line 5: key "k" already set in map`. The last one holds.
#[derive(Debug, PartialEq)]
pub(super) struct Parsed {
    pub(super) value: Value,
    pub(super) duplicates: Vec<String>,
}

pub(super) fn parse(body: &[u8]) -> Result<Parsed, String> {
    let text = std::str::from_utf8(body).map_err(|error| no_text(body, &error))?;
    let text = without_last_newline(first_document(text));
    let text = &*text;
    let mut duplicates = Vec::new();
    if text.trim().is_empty() {
        let value = Value::Null;
        return Ok(Parsed { value, duplicates });
    }
    let options = options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        with_snippet: false,
    };
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |document| {
        Node(&mut duplicates).deserialize(document)
    });
    match read {
        Ok(value) => Ok(Parsed { value, duplicates }),
        Err(error) => Err(problem(&error, text)),
    }
}

fn no_text(body: &[u8], error: &std::str::Utf8Error) -> String {
    let first = body.get(error.valid_up_to()).copied().unwrap_or_default();
    let problem = match (error.error_len(), first) {
        (None, _) => "incomplete UTF-8 octet sequence",
        (Some(_), 0xC0..=0xF7) => "invalid trailing UTF-8 octet",
        (Some(_), _) => "invalid leading UTF-8 octet",
    };
    format!("yaml: {problem}")
}

/// A block scalar that ends with the text ends without a newline if the text does. The parser adds one, so such a
/// scalar is told to drop it.
fn without_last_newline(text: &str) -> Cow<'_, str> {
    if text.ends_with('\n') {
        return text.into();
    }
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let mut lines: Vec<&str> = text.split('\n').collect();
    let mut least = lines.last().map_or(0, |line| indent(line));
    for (at, line) in lines.iter().enumerate().rev().skip(1) {
        if line.trim().is_empty() || indent(line) >= least {
            continue;
        }
        if line.ends_with([':', '-', ' ']) || !line.ends_with(['|', '>']) {
            least = indent(line);
            continue;
        }
        let header = format!("{line}-");
        lines[at] = &header;
        return lines.join("\n").into();
    }
    text.into()
}

/// What stands before the second `---`.
fn first_document(text: &str) -> &str {
    let mut begun = false;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let separator = line.trim_end() == "---";
        if separator && begun {
            return &text[..at];
        }
        begun |= separator || !(line.trim().is_empty() || line.starts_with('#'));
        at += line.len();
    }
    text
}

/// A problem, and who has it: the parser's lines count from zero.
enum Problem {
    Parser(u64, String),
    Scanner(u64, String),
}

/// What the parser of the API server that everybody knows says about a text that is no YAML. The first line is not
/// named.
fn problem(error: &serde_saphyr::Error, text: &str) -> String {
    let error = error.without_snippet();
    let line = error.location().map_or(1, |location| location.line());
    let found = match error {
        serde_saphyr::Error::ExternalMessage { msg, .. } => msg.clone(),
        other => other.to_string(),
    };
    if found.contains("budget breached") || found.contains("alias expansion") {
        return "yaml: document contains excessive aliasing".to_owned();
    }
    if found.starts_with("alias references unknown anchor")
        && let Some(name) = error.location().and_then(|at| alias_at(text, &at))
    {
        return format!("yaml: unknown anchor '{name}' referenced");
    }
    match translated(&found, line, text) {
        Problem::Parser(0 | 1, problem) | Problem::Scanner(0 | 1, problem) => {
            format!("yaml: {problem}")
        }
        Problem::Parser(line, problem) => format!("yaml: line {}: {problem}", line - 1),
        Problem::Scanner(line, problem) => format!("yaml: line {line}: {problem}"),
    }
}

/// The name behind the star.
fn alias_at<'a>(text: &'a str, at: &serde_saphyr::Location) -> Option<&'a str> {
    let line = text
        .lines()
        .nth(usize::try_from(at.line()).ok()?.checked_sub(1)?)?;
    let column = usize::try_from(at.column()).ok()?.checked_sub(1)?;
    let (start, _) = line.char_indices().nth(column)?;
    let name = line[start..].strip_prefix('*')?;
    let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-');
    Some(&name[..name.find(ends).unwrap_or(name.len())])
}

fn translated(found: &str, line: u64, text: &str) -> Problem {
    let count = |lines: usize| u64::try_from(lines).unwrap_or(u64::MAX);
    if let Some(bracket) = found.strip_prefix("unclosed bracket '") {
        let missing = match (text.trim_end().chars().next_back(), bracket) {
            (Some('{' | '[' | ',' | ':'), _) => "node content",
            (_, "{'") => "',' or '}'",
            _ => "',' or ']'",
        };
        // seen on a line of its own behind the text
        let end = count(text.lines().count()) + 1;
        return Problem::Parser(end, format!("did not find expected {missing}"));
    }
    if found == "unclosed quote" {
        let end = count(text.matches('\n').count()) + 1;
        return Problem::Scanner(end, "found unexpected end of stream".to_owned());
    }
    if found.starts_with("unexpected character: ") || found.starts_with("tabs disallowed") {
        return Problem::Scanner(
            line,
            "found character that cannot start any token".to_owned(),
        );
    }
    // the context, which the other one leaves out
    let found = match found.split_once(", ") {
        Some((context, found)) if context.starts_with("while ") => found,
        _ => found,
    };
    match found.starts_with("did not find expected ") {
        true => Problem::Parser(line, found.to_owned()),
        false => Problem::Scanner(line, found.to_owned()),
    }
}

/// Reads a value and notes duplicates.
struct Node<'a>(&'a mut Vec<String>);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number that JSON does not have"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Node(self.0))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let mut said = BTreeSet::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            let value = entries.next_value_seed(Node(self.0))?;
            let line = key.referenced.line();
            let key = key.value;
            if map.contains_key(&key) && said.insert(key.clone()) {
                let quoted = Value::from(key.as_str());
                self.0
                    .push(format!("line {line}: key {quoted} already set in map"));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;

    use super::parse;

    #[test]
    fn yaml_is_read_as_the_json_it_means() {
        for (text, value) in [
            ("", json!(null)),
            ("text", json!("text")),
            ("- a\n- 1", json!(["a", 1])),
            (
                "a: |\n  two\n  lines\nb: {c: yes, d: ~, e: 1.5, f: -3}",
                json!({"a": "two\nlines\n", "b": {"c": true, "d": null, "e": 1.5, "f": -3}}),
            ),
            ("{\"a\": [1, \"2\"]}", json!({"a": [1, "2"]})),
            ("data: {1: x}", json!({"data": {"1": "x"}})),
            ("---\na: 1\n---\na: 2\n", json!({"a": 1})),
            (
                "# note\n---\na: &x {b: 1}\nc: *x",
                json!({"a": {"b": 1}, "c": {"b": 1}}),
            ),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap().value, value, "{text}");
        }
    }

    #[test]
    fn keys_that_are_written_twice_are_found_with_their_lines() {
        let parsed =
            parse(b"metadata:\n  name: a\ndata:\n  k: v\n  k: w\nb: {l: 1, l: 2}").unwrap();
        assert_eq!(
            parsed.duplicates,
            [
                "line 5: key \"k\" already set in map",
                "line 6: key \"l\" already set in map"
            ]
        );
        assert_eq!(parsed.value["data"]["k"], "w");
    }

    #[test]
    fn what_is_no_yaml_is_refused_in_known_words() {
        for (text, problem) in [
            (
                "metadata: {name: a\ndata: [",
                "yaml: line 1: did not find expected ',' or '}'",
            ),
            (
                "a: b: c",
                "yaml: mapping values are not allowed in this context",
            ),
            (
                "key: [a, b",
                "yaml: line 1: did not find expected ',' or ']'",
            ),
            (
                "metadata: {name: a}\ndata: {k: v\n",
                "yaml: line 2: did not find expected ',' or '}'",
            ),
            ("a: b\n- c", "yaml: line 1: did not find expected key"),
            (
                "metadata:\n  name: a\n data: x",
                "yaml: line 2: did not find expected key",
            ),
            (
                "a: [\nb: {",
                "yaml: line 2: did not find expected node content",
            ),
            ("a: \"x", "yaml: found unexpected end of stream"),
            ("{\"a", "yaml: found unexpected end of stream"),
            ("a: @x", "yaml: found character that cannot start any token"),
            ("a: %x", "yaml: found character that cannot start any token"),
            ("{{\n", "yaml: line 1: did not find expected node content"),
            ("{", "yaml: line 1: did not find expected node content"),
            ("[1,", "yaml: line 1: did not find expected node content"),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err(), problem, "{text}");
        }
    }
}

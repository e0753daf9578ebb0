//! Objects as they stand in the store: JSON with a fixed beginning,
//! `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"17",…`.
//!
//! So a version is put in, or changed, without writing the rest again, and an item of a list, which has no kind of
//! its own, is a part of the stored bytes.

use std::io;

use bytes::Bytes;
use serde::Serialize as _;
use serde_json::ser::Formatter;
use serde_json::{Map, Value};

const METADATA: &str = "\"metadata\":{\"resourceVersion\":\"";

/// The beginning of every object of a kind in a version, up to and without `"metadata"`.
pub(super) fn head(api_version: &str, kind: &str) -> String {
    format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",")
}

/// An object that only lacks its version.
pub(super) struct Encoded {
    head: String,
    /// From the quote after the version.
    tail: Vec<u8>,
}

impl Encoded {
    /// `object` has `kind`, `apiVersion` and `metadata`; the version in it does not count.
    pub(super) fn new(object: &Value) -> Self {
        let text = |key: &str| object[key].as_str().unwrap_or_default();
        let mut head = head(text("apiVersion"), text("kind"));
        head.push_str(METADATA);
        let mut tail = vec![b'"'];
        let empty = Map::new();
        let metadata = object["metadata"].as_object().unwrap_or(&empty);
        write_fields(&mut tail, metadata, &["resourceVersion"]);
        tail.push(b'}');
        write_fields(
            &mut tail,
            object.as_object().unwrap_or(&empty),
            &["kind", "apiVersion", "metadata"],
        );
        tail.push(b'}');
        Self { head, tail }
    }

    pub(super) fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    pub(super) fn at(self, revision: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.head.len() + self.tail.len() + 20);
        out.extend_from_slice(self.head.as_bytes());
        out.extend_from_slice(revision.to_string().as_bytes());
        out.extend_from_slice(&self.tail);
        out
    }
}

/// `,"key":value` for each field that is not left out.
fn write_fields(out: &mut Vec<u8>, fields: &Map<String, Value>, left_out: &[&str]) {
    for (key, value) in fields {
        if left_out.contains(&key.as_str()) {
            continue;
        }
        out.push(b',');
        write_json(out, &Value::from(key.as_str()));
        out.push(b':');
        write_json(out, value);
    }
}

fn write_json(out: &mut Vec<u8>, value: &Value) {
    let mut serializer = serde_json::Serializer::with_formatter(out, WholeNumbers);
    // writing JSON into memory cannot fail
    let _ = value.serialize(&mut serializer);
}

/// Writes numbers as the real server does: without a point where they are whole.
struct WholeNumbers;

impl Formatter for WholeNumbers {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        match value.fract() == 0.0 && value.abs() < 1e21 {
            // a negative zero is zero
            true if value == 0.0 => writer.write_all(b"0"),
            true => write!(writer, "{value:.0}"),
            false => write!(writer, "{value}"),
        }
    }
}

/// Stored bytes with another version in them.
pub(super) fn at_version(stored: &[u8], revision: u64) -> Vec<u8> {
    let Some(start) = find(stored, METADATA.as_bytes()).map(|at| at + METADATA.len()) else {
        return stored.to_vec();
    };
    let digits = stored[start..]
        .iter()
        .take_while(|b| b.is_ascii_digit())
        .count();
    let mut out = Vec::with_capacity(stored.len() + 4);
    out.extend_from_slice(&stored[..start]);
    out.extend_from_slice(revision.to_string().as_bytes());
    out.extend_from_slice(&stored[start + digits..]);
    out
}

/// The stored object without `kind` and `apiVersion`, after its opening brace: what follows `{` in a list.
pub(super) fn without_kind<'a>(stored: &'a [u8], head: &str) -> &'a [u8] {
    stored.strip_prefix(head.as_bytes()).unwrap_or(&stored[1..])
}

/// The stored bytes as another version of a kind shows them whose fields are the same.
pub(super) fn with_head(stored: &Bytes, old_head: &str, new_head: &str) -> Bytes {
    if old_head == new_head {
        return stored.clone();
    }
    let mut out = Vec::with_capacity(stored.len() + new_head.len());
    out.extend_from_slice(new_head.as_bytes());
    out.extend_from_slice(without_kind(stored, old_head));
    out.into()
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Encoded, at_version, head, without_kind};

    #[test]
    fn an_object_comes_back_with_its_version() {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a \"quoted\"", "resourceVersion": "old"},
            "data": {"k": "\"metadata\":{\"resourceVersion\":\"9"},
        });
        let stored = Encoded::new(&object).at(17);
        let mut expected = object;
        expected["metadata"]["resourceVersion"] = json!("17");
        let back: Value = serde_json::from_slice(&stored).unwrap();
        assert_eq!(back, expected);
        let later: Value = serde_json::from_slice(&at_version(&stored, 1000)).unwrap();
        expected["metadata"]["resourceVersion"] = json!("1000");
        assert_eq!(later, expected);
    }

    #[test]
    fn an_item_has_no_kind() {
        let object =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}});
        let stored = Encoded::new(&object).at(3);
        let item = [b"{", without_kind(&stored, &head("v1", "Pod"))].concat();
        let item: Value = serde_json::from_slice(&item).unwrap();
        assert_eq!(
            item,
            json!({"metadata": {"name": "a", "resourceVersion": "3"}, "spec": {}})
        );
    }
}

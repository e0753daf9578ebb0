//! Objects as they stand in the store: JSON with a fixed beginning,
//! `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"17","managedFields":[…],…`.
//!
//! So a version is put in, or changed, without writing the rest again, an item of a list, which has no kind of
//! its own, is a part of the stored bytes, and who owns which fields, more than half of most objects and the same in
//! many, is kept apart from the rest.

use std::io::Write as _;
use std::sync::Arc;

use api::patch::apply::{self, Fields, Managed};
use bytes::Bytes;
use serde_json::{Map, Number, Value};

use crate::store::{self, Pieces};

const METADATA: &str = "\"metadata\":{\"resourceVersion\":\"";
const OWNERS: &str = ",\"managedFields\":[";
/// Between the head of an entry and its fields.
const FIELDS: &str = ",\"fieldsV1\":";
const NEXT_OWNER: &str = "},";
const END_OF_OWNERS: &str = "}]";
/// Texts shorter than this are not worth being looked for.
const WORTH_SHARING: usize = 64;

/// The beginning of every object of a kind in a version, up to and without `"metadata"`.
pub(super) fn head(api_version: &str, kind: &str) -> String {
    format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",")
}

/// An object that only lacks its version.
pub(super) struct Encoded {
    head: String,
    owners: Pieces,
    /// From what comes after version and owners.
    tail: Vec<u8>,
    /// Who reads it finds the very object it was made of: fractions may be read as whole numbers.
    pub(super) is_exact: bool,
    mark: u64,
}

impl Encoded {
    /// `object` has `kind`, `apiVersion` and `metadata`; the version in it does not count, nor do owners.
    pub(super) fn new(object: &Value, owners: &Managed) -> Self {
        Self::in_pieces(object, pieces(owners))
    }

    /// With the owners that it has in the store.
    pub(super) fn owned_as(object: &Value, stored: &store::Value) -> Self {
        Self::in_pieces(object, Arc::clone(stored.pieces()))
    }

    fn in_pieces(object: &Value, owners: Pieces) -> Self {
        let text = |key: &str| object[key].as_str().unwrap_or_default();
        let mut head = head(text("apiVersion"), text("kind"));
        head.push_str(METADATA);
        let mut tail = Writer {
            out: Vec::with_capacity(4096),
            wrote_fraction: false,
        };
        let empty = Map::new();
        let metadata = object["metadata"].as_object().unwrap_or(&empty);
        tail.fields(metadata, &["resourceVersion", "managedFields"]);
        tail.out.push(b'}');
        tail.fields(
            object.as_object().unwrap_or(&empty),
            &["kind", "apiVersion", "metadata"],
        );
        tail.out.push(b'}');
        Self {
            head,
            owners,
            tail: tail.out,
            is_exact: !tail.wrote_fraction,
            mark: 0,
        }
    }

    /// With a note about who wrote it; see [`store::Value::marked`].
    pub(super) fn marked(self, mark: u64) -> Self {
        Self { mark, ..self }
    }

    pub(super) fn len(&self) -> usize {
        let owners: usize = self.owners.iter().map(|piece| piece.len()).sum();
        self.head.len() + 1 + owners + self.tail.len()
    }

    pub(super) fn at(self, revision: u64) -> store::Value {
        let revision = revision.to_string();
        let at = self.head.len() + revision.len() + 1;
        // exactly: what is stored keeps its buffer
        let mut rest = Vec::with_capacity(at + self.tail.len());
        rest.extend_from_slice(self.head.as_bytes());
        rest.extend_from_slice(revision.as_bytes());
        rest.push(b'"');
        rest.extend_from_slice(&self.tail);
        store::Value::in_pieces(rest.into(), at, self.owners).marked(self.mark)
    }
}

fn pieces(owners: &Managed) -> Pieces {
    let mut pieces: Vec<Arc<str>> = Vec::new();
    let mut before = OWNERS;
    for (entry, fields) in owners.each() {
        let mut head = serde_json::to_string(&entry).unwrap_or_default();
        head.pop();
        pieces.push([before, &head, FIELDS].concat().into());
        pieces.push(match fields {
            Fields::Stored(text) => Arc::clone(text),
            Fields::Set(_) => shared(&fields.encode()),
        });
        before = NEXT_OWNER;
    }
    if !pieces.is_empty() {
        pieces.push(END_OF_OWNERS.into());
    }
    pieces.into()
}

fn shared(text: &str) -> Arc<str> {
    match text.len() < WORTH_SHARING {
        true => text.into(),
        false => store::shared(text),
    }
}

/// Who owns which fields of a stored object.
pub(super) fn owners(stored: &store::Value) -> Managed {
    let entry = |pair: &[Arc<str>]| {
        let [head, fields] = pair else {
            return None;
        };
        let head = head.strip_prefix(OWNERS).or(head.strip_prefix(NEXT_OWNER));
        let head = format!("{}}}", head?.strip_suffix(FIELDS)?);
        let head: apply::Entry = serde_json::from_str(&head).ok()?;
        Some((head, Fields::Stored(Arc::clone(fields))))
    };
    let entries = stored.pieces().chunks_exact(2).filter_map(entry);
    Managed::stored(entries).unwrap_or_default()
}

/// The value of bytes that [`Encoded`] once made.
pub(crate) fn split(stored: &[u8]) -> store::Value {
    let value = split_owners(stored).or_else(|| encoded_again(stored));
    value.unwrap_or_else(|| store::Value::whole(Bytes::copy_from_slice(stored)))
}

/// Owners may be elsewhere in the object; `None` if there are none.
fn encoded_again(stored: &[u8]) -> Option<store::Value> {
    find(stored, b"\"managedFields\":")?;
    let mut object: Value = serde_json::from_slice(stored).ok()?;
    let owners = Managed::take(&mut object).unwrap_or_default();
    let version = object["metadata"]["resourceVersion"].as_str()?;
    Some(Encoded::new(&object, &owners).at(version.parse().ok()?))
}

/// `None` if there are none where they should be.
fn split_owners(stored: &[u8]) -> Option<store::Value> {
    let version = find(stored, METADATA.as_bytes())? + METADATA.len();
    let at = version + find(&stored[version..], b"\"")? + 1;
    let text = |range: std::ops::Range<usize>| std::str::from_utf8(stored.get(range)?).ok();
    let mut pieces: Vec<Arc<str>> = Vec::new();
    let mut from = at;
    let mut before = OWNERS;
    while stored[from..].starts_with(before.as_bytes()) {
        let fields = from + find(&stored[from..], FIELDS.as_bytes())? + FIELDS.len();
        let end = fields + object_length(&stored[fields..])?;
        pieces.push(text(from..fields)?.into());
        pieces.push(shared(text(fields..end)?));
        (from, before) = (end, NEXT_OWNER);
    }
    if pieces.is_empty() {
        return None;
    }
    let end = from + END_OF_OWNERS.len();
    pieces.push(text(from..end).filter(|end| *end == END_OF_OWNERS)?.into());
    let rest = [&stored[..at], &stored[end..]].concat();
    Some(store::Value::in_pieces(rest.into(), at, pieces.into()))
}

/// How long the JSON object is that stands at the beginning.
fn object_length(json: &[u8]) -> Option<usize> {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for (index, byte) in json.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' if !in_text => depth += 1,
            b'}' if !in_text => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(index + 1);
                }
            }
            _ => {}
        }
    }
    None
}

struct Writer {
    out: Vec<u8>,
    wrote_fraction: bool,
}

impl Writer {
    /// `,"key":value` for each field that is not left out.
    fn fields(&mut self, fields: &Map<String, Value>, left_out: &[&str]) {
        for (key, value) in fields {
            if left_out.contains(&key.as_str()) {
                continue;
            }
            self.out.push(b',');
            self.field(key, value);
        }
    }

    fn field(&mut self, key: &str, value: &Value) {
        self.text(key);
        self.out.push(b':');
        self.value(value);
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.out.extend_from_slice(b"null"),
            Value::Bool(true) => self.out.extend_from_slice(b"true"),
            Value::Bool(false) => self.out.extend_from_slice(b"false"),
            Value::Number(number) => self.number(number),
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                self.out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    self.value(item);
                }
                self.out.push(b']');
            }
            Value::Object(fields) => {
                self.out.push(b'{');
                for (index, (key, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    self.field(key, value);
                }
                self.out.push(b'}');
            }
        }
    }

    /// Most texts are short and have nothing to escape: one look at all of it, and one copy.
    fn text(&mut self, text: &str) {
        let is_special = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
        let is_plain = !text.bytes().fold(false, |any, byte| any | is_special(byte));
        match is_plain {
            true => {
                self.out.push(b'"');
                self.out.extend_from_slice(text.as_bytes());
                self.out.push(b'"');
            }
            // writing JSON into memory cannot fail
            false => _ = serde_json::to_writer(&mut self.out, text),
        }
    }

    /// As the real server writes them: without a point where they are whole.
    fn number(&mut self, number: &Number) {
        let fraction = number.as_f64().filter(|_| number.is_f64());
        self.wrote_fraction |= fraction.is_some();
        // writing into memory cannot fail
        let _ = match fraction {
            None => write!(self.out, "{number}"),
            // a negative zero is zero
            Some(0.0) => write!(self.out, "0"),
            Some(value) if value.fract() == 0.0 && value.abs() < 1e21 => {
                write!(self.out, "{value:.0}")
            }
            Some(value) => write!(self.out, "{value}"),
        };
    }
}

/// A stored value with another version in it.
pub(super) fn at_version(stored: &store::Value, revision: u64) -> store::Value {
    let rest = stored.rest();
    let Some(start) = find(rest, METADATA.as_bytes()).map(|at| at + METADATA.len()) else {
        return stored.clone();
    };
    let digits = rest[start..]
        .iter()
        .take_while(|b| b.is_ascii_digit())
        .count();
    let revision = revision.to_string();
    let out = [&rest[..start], revision.as_bytes(), &rest[start + digits..]].concat();
    let at = start + revision.len() + 1;
    store::Value::in_pieces(out.into(), at, Arc::clone(stored.pieces()))
}

/// A stored object from the value of its metadata on.
pub(crate) fn from_metadata(stored: &[u8]) -> Option<&[u8]> {
    let at = find(stored, METADATA.as_bytes())?;
    Some(&stored[at + "\"metadata\":".len()..])
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use api::patch::apply::Managed;
    use serde_json::{Value, json};

    use super::{Encoded, at_version, head, owners, split};

    fn config_map() -> (Value, Managed) {
        let fields =
            json!({"f:data": {".": {}, "f:long enough to be worth sharing with others \" }": {}}});
        let entry = |manager: &str| {
            json!({
                "apiVersion": "v1", "operation": "Update", "manager": manager, "fieldsType": "FieldsV1",
                "fieldsV1": fields,
            })
        };
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": "a \"quoted\"", "resourceVersion": "17",
                "managedFields": [entry("a,\"fieldsV1\":{"), entry("b")],
            },
            "data": {"k": "\"metadata\":{\"resourceVersion\":\"9"},
        });
        let owners = Managed::take(&mut object.clone()).unwrap();
        (object, owners)
    }

    fn json(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn an_object_comes_back_with_its_version_and_its_owners() {
        let (mut object, owned) = config_map();
        let stored = Encoded::new(&object, &owned).at(17);
        assert_eq!(json(&stored.bytes()), object);
        assert_eq!(owners(&stored), owned);
        let later = at_version(&stored, 1000);
        object["metadata"]["resourceVersion"] = json!("1000");
        assert_eq!(json(&later.bytes()), object);
        let kept = Encoded::owned_as(&object, &stored).at(1000);
        assert_eq!(kept, later);
    }

    #[test]
    fn the_rest_has_everything_but_owners() {
        let (mut object, owned) = config_map();
        let stored = Encoded::new(&object, &owned).at(17);
        Managed::take(&mut object).unwrap();
        assert_eq!(json(stored.rest()), object);
        let ownerless = Encoded::new(&object, &Managed::default()).at(17);
        assert_eq!(ownerless.rest(), stored.rest());
        assert_eq!(ownerless.bytes(), stored.rest());
    }

    #[test]
    fn what_is_read_from_disk_is_what_was_written() {
        let (object, owned) = config_map();
        for owners in [owned, Managed::default()] {
            let written = Encoded::new(&object, &owners).at(17);
            let read = split(&written.bytes());
            assert_eq!(read, written);
            let shared = |value: &crate::store::Value| value.pieces().get(1).cloned();
            assert_eq!(
                shared(&read).map(|text| text.as_ptr()),
                shared(&written).map(|text| text.as_ptr())
            );
        }
    }

    #[test]
    fn bytes_that_were_not_written_here_mean_what_they_did() {
        let (object, owned) = config_map();
        let written = Encoded::new(&object, &owned).at(17);
        assert_eq!(split(object.to_string().as_bytes()), written);
        let whole = written.bytes();
        for end in 0..whole.len() {
            assert_eq!(split(&whole[..end]).bytes(), whole[..end]);
        }
    }

    #[test]
    fn an_item_has_no_kind() {
        let object =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}});
        let stored = Encoded::new(&object, &Managed::default()).at(3);
        let mut item = vec![b'{'];
        stored.write(head("v1", "Pod").len(), &mut item);
        assert_eq!(
            json(&item),
            json!({"metadata": {"name": "a", "resourceVersion": "3"}, "spec": {}})
        );
    }
}

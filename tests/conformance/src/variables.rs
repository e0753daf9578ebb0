//! `$name` in targets, headers and bodies.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};

use regex::{Captures, Regex};
use serde_json::Value;

static VARIABLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\$([a-z][a-z0-9]*)(?::([A-Za-z0-9.-]+))?").unwrap_or_else(|e| panic!("{e}"))
});

/// The variables of one case.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    plain: HashMap<String, String>,
    /// By object name, from the newest answer that held it.
    uids: HashMap<String, String>,
    versions: HashMap<String, String>,
}

impl Variables {
    pub(crate) fn set(&mut self, name: &str, value: String) {
        self.plain.insert(name.to_owned(), value);
    }

    /// Remembers uid and version of the objects in an answer.
    pub(crate) fn learn(&mut self, body: &Value) {
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str);
        if let Some(name) = text("/metadata/name") {
            for (map, pointer) in [
                (&mut self.uids, "/metadata/uid"),
                (&mut self.versions, "/metadata/resourceVersion"),
            ] {
                if let Some(value) = text(pointer) {
                    map.insert(name.to_owned(), value.to_owned());
                }
            }
        }
    }

    /// Words that are no variables stay: `$patch` and its like belong to strategic merge patches.
    pub(crate) fn expand(&self, text: &str) -> String {
        let expanded = VARIABLE.replace_all(text, |found: &Captures| {
            let argument = found.get(2).map(|m| m.as_str());
            let value = match (&found[1], argument) {
                ("uid", Some(name)) => self.uids.get(name).cloned(),
                ("rv", Some(name)) => self.versions.get(name).cloned(),
                ("chars", Some(count)) => count.parse().ok().map(|n| "a".repeat(n)),
                ("times", Some(argument)) => self.times(argument),
                ("byte", Some(hex)) => u8::from_str_radix(hex, 16).ok().map(stand_in),
                (name, None) => self.plain.get(name).map(|value| self.expand(value)),
                (name, Some(rest)) => self
                    .plain
                    .get(name)
                    .map(|value| format!("{}:{rest}", self.expand(value))),
            };
            value.unwrap_or_else(|| found[0].to_owned())
        });
        expanded.into_owned()
    }

    /// `COUNT.NAME`: that variable so many times.
    fn times(&self, argument: &str) -> Option<String> {
        let (count, name) = argument.split_once('.')?;
        let value = self.expand(self.plain.get(name)?);
        Some(value.repeat(count.parse().ok()?))
    }
}

/// The first of 256 private characters that stand for bytes which need not be text.
const BYTES: u32 = 0x0010_FF00;

fn stand_in(byte: u8) -> String {
    char::from_u32(BYTES + u32::from(byte)).map_or_else(String::new, String::from)
}

/// A body as it is sent.
pub(crate) fn bytes(body: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len());
    for character in body.chars() {
        match u32::from(character).checked_sub(BYTES).map(u8::try_from) {
            Some(Ok(byte)) => bytes.push(byte),
            _ => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// Eight characters that begin with a letter: fit for any name, of the same length in every run, and another one each
/// time.
pub(crate) fn random() -> String {
    static NEXT: LazyLock<AtomicU64> =
        LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(0)));
    let number = NEXT.fetch_add(1, Ordering::Relaxed) % 10_000_000;
    // digits alone: no word that a message could contain
    format!("x{number:07}")
}

#[cfg(test)]
mod tests {
    use super::{Variables, bytes, random};
    use serde_json::json;
    use std::collections::HashSet;

    #[test]
    fn no_two_names_are_the_same() {
        let names: HashSet<String> = (0..100_000).map(|_| random()).collect();
        assert_eq!(names.len(), 100_000);
        assert!(names.iter().all(|name| name.len() == 8));
    }

    #[test]
    fn known_words_are_replaced_and_others_stay() {
        let mut variables = Variables::default();
        variables.set("ns", "n1".to_owned());
        variables.set("cms", "/namespaces/$ns/configmaps".to_owned());
        variables.learn(&json!({"metadata": {"name": "a-b", "uid": "U", "resourceVersion": "7"}}));
        let text = r#"$cms/x $uid:a-b $rv:a-b $chars:3 {"$patch": "delete"} $rv:none"#;
        assert_eq!(
            variables.expand(text),
            r#"/namespaces/n1/configmaps/x U 7 aaa {"$patch": "delete"} $rv:none"#
        );
    }

    #[test]
    fn parts_are_repeated_and_bytes_need_not_be_text() {
        let mut variables = Variables::default();
        variables.set("open", "[".to_owned());
        let text = variables.expand("$times:3.open é $byte:ff $times:2.none");
        assert_eq!(bytes(&text), b"[[[ \xc3\xa9 \xff $times:2.none", "{text:?}");
    }
}

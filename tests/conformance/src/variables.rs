//! `$name` in targets, headers and bodies.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

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
}

/// Eight characters that begin with a letter: fit for any name, of the same length in every run.
pub(crate) fn random() -> String {
    let mut number = RandomState::new().hash_one(0);
    let mut text = String::from("x");
    for _ in 0..7 {
        // digits alone: no word that a message could contain
        text.push(char::from(
            b'0' + u8::try_from(number % 10).unwrap_or_default(),
        ));
        number /= 10;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Variables;
    use serde_json::json;

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
}

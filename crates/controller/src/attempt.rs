//! Objects of which some cannot be read.
//!
//! A list is read as a whole, so that one object of a newer definition would hide all others. Each is tried by itself.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::RawValue;

use crate::{
    brief::{as_kind, metadata},
    meta::{Key, Meta},
};

/// A `K`, or what is known of one that cannot be read.
#[derive(Clone, Debug)]
pub(crate) enum Attempt<K> {
    Read(K),
    Failed(Box<Unreadable>),
}

#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    metadata: ObjectMeta,
    /// The field, and what is wrong with it.
    why: String,
}

impl From<Unreadable> for Meta {
    fn from(object: Unreadable) -> Self {
        object.metadata.into()
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Attempt<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct OnlyMetadata {
            #[serde(deserialize_with = "metadata")]
            metadata: ObjectMeta,
        }
        let text = Box::<RawValue>::deserialize(from)?;
        let error = match serde_json::from_str(text.get()) {
            Ok(object) => return Ok(Self::Read(object)),
            Err(error) => error,
        };
        // whoever has no name cannot even be left out
        let OnlyMetadata { metadata } =
            serde_json::from_str(text.get()).map_err(|_| D::Error::custom(&error))?;
        let field = field_at(text.get(), &error);
        Ok(Self::Failed(Box::new(Unreadable {
            metadata,
            why: format!("{field}: {error}"),
        })))
    }
}

impl<K: Resource> Resource for Attempt<K> {
    as_kind!(K);

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Read(object) => object.meta(),
            Self::Failed(object) => &object.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Read(object) => object.meta_mut(),
            Self::Failed(object) => &mut object.metadata,
        }
    }
}

/// The path of the field at which reading stopped.
fn field_at(text: &str, error: &serde_json::Error) -> String {
    enum In {
        Object(String),
        List(usize),
    }
    let lines = text.split_inclusive('\n').take(error.line().max(1) - 1);
    let end = lines.map(str::len).sum::<usize>() + error.column();
    let (mut path, mut word, mut quote, mut is_escaped) = (Vec::new(), "", None, false);
    for (at, byte) in text.bytes().enumerate().take(end) {
        if let Some(start) = quote {
            if byte == b'"' && !is_escaped {
                (word, quote) = (text.get(start..at).unwrap_or_default(), None);
            }
            is_escaped = byte == b'\\' && !is_escaped;
            continue;
        }
        match (byte, path.last_mut()) {
            (b'"', _) => quote = Some(at + 1),
            (b'{', _) => path.push(In::Object(String::new())),
            (b'[', _) => path.push(In::List(0)),
            (b'}' | b']', _) => drop(path.pop()),
            (b':', Some(In::Object(field))) => word.clone_into(field),
            (b',', Some(In::List(index))) => *index += 1,
            _ => {}
        }
    }
    let mut field = String::new();
    for step in path {
        match step {
            In::Object(name) if !field.is_empty() && !name.is_empty() => {
                field += &format!(".{name}")
            }
            In::Object(name) => field += &name,
            In::List(index) => field += &format!("[{index}]"),
        }
    }
    field
}

/// Those of a kind that cannot be read, each with the version in which that was told.
#[derive(Default)]
pub(crate) struct Unread(HashMap<Key, u64>);

impl Unread {
    /// Told once for each version, however often that is listed.
    pub(crate) fn tell(&mut self, kind: &str, object: &Unreadable) {
        let Meta { key, version, .. } = object.clone().into();
        if self.is_news(key.clone(), version) {
            let why = &object.why;
            tracing::warn!(%kind, object = %key, version, why, "left alone, because it cannot be read");
        }
    }

    fn is_news(&mut self, key: Key, version: u64) -> bool {
        self.0.insert(key, version) != Some(version)
    }

    pub(crate) fn forget(&mut self, meta: &ObjectMeta) {
        // nearly always
        if !self.0.is_empty() {
            self.0.remove(&Meta::from(meta.clone()).key);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use api::sigs::v1beta1::SandboxWarmPool;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use kube::Resource as _;
    use serde_json::{Value, json};

    use super::{Attempt, Unread};
    use crate::meta::Key;

    fn attempt(spec: &Value) -> Attempt<SandboxWarmPool> {
        let object = json!({
            "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool",
            "metadata": {"name": "pool", "namespace": "n", "annotations": {"a\\": "\"{["}},
            "spec": spec,
        });
        serde_json::from_str(&object.to_string()).unwrap()
    }

    #[test]
    fn what_cannot_be_read_is_known_by_name_with_the_field_that_is_wrong() {
        let template = json!({"name": "one"});
        let good = attempt(&json!({"sandboxTemplateRef": template}));
        assert!(matches!(good, Attempt::Read(_)));
        for (spec, field, problem) in [
            (json!({}), "spec", "missing field `sandboxTemplateRef`"),
            (
                json!({"replicas": "many", "sandboxTemplateRef": template}),
                "spec.replicas",
                r#"string "many""#,
            ),
            (
                json!({"sandboxTemplateRef": [1]}),
                "spec.sandboxTemplateRef",
                "invalid type",
            ),
            (
                json!({"sandboxTemplateRef": template, "updateStrategy": {"rollingUpdate": {
                    "scatterStrategy": [{"key": "a", "value": "b"}, {"key": 5, "value": "b"}],
                }}}),
                "spec.updateStrategy.rollingUpdate.scatterStrategy[1].key",
                "integer `5`",
            ),
        ] {
            let read = attempt(&spec);
            assert_eq!(read.meta().name.as_deref(), Some("pool"));
            let Attempt::Failed(object) = read else {
                panic!("{spec} is read");
            };
            let why = &object.why;
            assert!(why.starts_with(field) && why.contains(problem), "{why}");
        }
    }

    #[test]
    fn what_has_no_name_is_an_error() {
        let read = serde_json::from_str::<Attempt<SandboxWarmPool>>(r#"{"spec": {}}"#);
        assert!(read.is_err());
    }

    #[test]
    fn each_version_of_what_cannot_be_read_is_news_once() {
        let mut unread = Unread::default();
        let key = Key::new("n", "pool");
        assert!(unread.is_news(key.clone(), 5));
        assert!(!unread.is_news(key.clone(), 5));
        assert!(unread.is_news(key.clone(), 6));
        assert!(unread.is_news(Key::new("n", "other"), 6));
        unread.forget(&ObjectMeta {
            namespace: Some("n".to_owned()),
            name: Some("pool".to_owned()),
            ..ObjectMeta::default()
        });
        assert!(unread.is_news(key, 6));
    }
}

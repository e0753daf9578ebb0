//! What controllers keep of an object's metadata.

use std::{cmp::Ordering, collections::BTreeMap, fmt, sync::Arc};

use engine::revision::name_hash;
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
    jiff::Timestamp,
};
use serde_json::{Value, json};

use crate::store::Texts;

/// Namespace and name. Clones share their text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Another object of the same namespace.
    #[must_use]
    pub fn beside(&self, name: &str) -> Self {
        Self {
            namespace: Arc::clone(&self.namespace),
            name: name.into(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// The metadata of a watched object, without what no controller asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    pub key: Key,
    pub uid: Box<str>,
    /// The resource version as a number, which is how versions of one kind are compared.
    pub version: u64,
    pub generation: i64,
    pub created: Timestamp,
    pub labels: Pairs,
    pub annotations: Pairs,
    /// The owner that is its controller.
    pub owner: Option<Box<Owner>>,
    /// It stays only until its finalizers, or its grace period, are over.
    pub is_deleting: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    pub name: Arc<str>,
    pub uid: Arc<str>,
}

impl Owner {
    /// The group of its API.
    pub fn group(&self) -> &str {
        self.api_version
            .split_once('/')
            .map_or("", |(group, _)| group)
    }
}

impl From<ObjectMeta> for Meta {
    fn from(meta: ObjectMeta) -> Self {
        let owner = meta.owner_references.into_iter().flatten();
        let owner = owner
            .filter(|owner| owner.controller == Some(true))
            .map(|owner| Box::new(owner.into()))
            .next();
        Self {
            key: Key::new(
                meta.namespace.as_deref().unwrap_or_default(),
                meta.name.as_deref().unwrap_or_default(),
            ),
            uid: meta.uid.unwrap_or_default().into(),
            version: version(meta.resource_version.as_deref()),
            generation: meta.generation.unwrap_or_default(),
            created: meta
                .creation_timestamp
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            labels: Pairs::from(&meta.labels.unwrap_or_default()),
            annotations: Pairs::from(&meta.annotations.unwrap_or_default()),
            owner,
            is_deleting: meta.deletion_timestamp.is_some(),
        }
    }
}

impl From<OwnerReference> for Owner {
    fn from(owner: OwnerReference) -> Self {
        Self {
            api_version: owner.api_version.into(),
            kind: owner.kind.into(),
            name: owner.name.into(),
            uid: owner.uid.into(),
        }
    }
}

/// Servers promise since 1.35 that resource versions are numbers that grow.
pub(crate) fn version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

impl Meta {
    /// Keeps once what many objects of a kind have in common, and what one has twice.
    pub fn share(&mut self, texts: &mut Texts) {
        let Key { namespace, name } = &mut self.key;
        *namespace = texts.share(Arc::clone(namespace));
        let hash = name_hash(name);
        let is_its_own = |text: &str| text.contains(&**name) || text.contains(&*hash);
        for Pairs(text) in [&mut self.labels, &mut self.annotations] {
            if !is_its_own(text) {
                *text = texts.share(Arc::clone(text));
            }
        }
        if let Some(owner) = &mut self.owner {
            owner.api_version = texts.share(Arc::clone(&owner.api_version));
            owner.kind = texts.share(Arc::clone(&owner.kind));
            if owner.name == *name {
                owner.name = Arc::clone(name);
            } else {
                owner.name = texts.share(Arc::clone(&owner.name));
                owner.uid = texts.share(Arc::clone(&owner.uid));
            }
        }
    }

    /// Whether an object of this group and kind is its controller, of whatever version.
    pub fn is_controlled_by_a(&self, group: &str, kind: &str) -> bool {
        let owner = self.owner.as_deref();
        owner.is_some_and(|owner| owner.group() == group && *owner.kind == *kind)
    }

    pub fn is_controlled_by(&self, uid: &str) -> bool {
        self.owner.as_ref().is_some_and(|owner| *owner.uid == *uid)
    }

    /// What an object that this one controls has in `metadata.ownerReferences`.
    pub fn as_owner(&self, api_version: &str, kind: &str) -> Value {
        json!({
            "apiVersion": api_version,
            "kind": kind,
            "name": &*self.key.name,
            "uid": &*self.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }
}

/// A sorted map of strings in one piece of memory: a cache of ten thousand objects holds twenty thousand of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(Arc<str>);

/// Keys cannot contain it; values are cut at it, and an API server would refuse such a label.
const END: char = '\0';

impl Pairs {
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut parts = self.0.split_terminator(END);
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        // bytes are searched, not characters: a pass over a large pool does little else
        let end = |rest: &str| rest.bytes().position(|byte| byte == END as u8);
        let mut rest = &*self.0;
        loop {
            let (found, after) = rest.split_at_checked(end(rest)?)?;
            let after = after.get(1..)?;
            let (value, left) = after.split_at_checked(end(after)?)?;
            match found.cmp(key) {
                Ordering::Less => rest = left.get(1..)?,
                Ordering::Equal => return Some(value),
                Ordering::Greater => return None,
            }
        }
    }

    #[must_use]
    pub fn without(&self, unwanted: impl Fn(&str) -> bool) -> Self {
        self.iter().filter(|(key, _)| !unwanted(key)).collect()
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        let sorted: BTreeMap<_, _> = pairs.into_iter().collect();
        let mut text = String::new();
        for (key, value) in sorted {
            text.push_str(key);
            text.push(END);
            text.push_str(value.split(END).next().unwrap_or_default());
            text.push(END);
        }
        Self(text.into())
    }
}

impl From<&BTreeMap<String, String>> for Pairs {
    fn from(map: &BTreeMap<String, String>) -> Self {
        map.iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Pairs;

    #[test]
    fn pairs_are_found_again() {
        let pairs: Pairs = [("b", "2"), ("a", ""), ("c/d", "x\0y")]
            .into_iter()
            .collect();
        assert_eq!(
            pairs.iter().collect::<Vec<_>>(),
            [("a", ""), ("b", "2"), ("c/d", "x")]
        );
        for (key, value) in [("a", Some("")), ("b", Some("2")), ("c/d", Some("x"))] {
            assert_eq!(pairs.get(key), value);
        }
        for missing in ["", "0", "aa", "c", "x"] {
            assert_eq!(pairs.get(missing), None);
        }
        assert_eq!(pairs.without(|key| key < "c").iter().count(), 1);
        assert_eq!(Pairs::default().iter().count(), 0);
    }
}

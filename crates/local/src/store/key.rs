//! Names of objects, and the ranges that lists and watches cover.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The name of one object. Ordered by resource, then namespace, then name.
///
/// The parts are opaque here: whatever a client sends in a URL makes a key, though perhaps of no object.
#[derive(Clone)]
pub struct Key {
    /// The three parts without separators, so that no character in a part can move a border.
    text: Arc<str>,
    /// Where the namespace begins in `text`; at most `name_at`.
    namespace_at: usize,
    /// Where the name begins in `text`.
    name_at: usize,
}

impl Key {
    /// `resource` is the plural with its group (`pods`, `sandboxes.agents.x-k8s.io`); `namespace` is empty for
    /// objects of the cluster.
    pub fn new(resource: &str, namespace: &str, name: &str) -> Key {
        let namespace_at = resource.len();
        let name_at = namespace_at + namespace.len();
        let text = [resource, namespace, name].concat().into();
        Key {
            text,
            namespace_at,
            name_at,
        }
    }

    pub fn resource(&self) -> &str {
        &self.text[..self.namespace_at]
    }

    pub fn namespace(&self) -> &str {
        &self.text[self.namespace_at..self.name_at]
    }

    pub fn name(&self) -> &str {
        &self.text[self.name_at..]
    }

    fn parts(&self) -> (&str, &str, &str) {
        (self.resource(), self.namespace(), self.name())
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Key {}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (resource, "", name) => write!(f, "{resource}/{name}"),
            (resource, namespace, name) => write!(f, "{resource}/{namespace}/{name}"),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The objects of one resource, in one namespace or in all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    resource: Arc<str>,
    namespace: Option<Arc<str>>,
}

impl Scope {
    /// Every object of `resource`, whatever its namespace.
    pub fn all(resource: &str) -> Scope {
        Scope {
            resource: resource.into(),
            namespace: None,
        }
    }

    /// The objects of `resource` in `namespace`.
    pub fn namespaced(resource: &str, namespace: &str) -> Scope {
        Scope {
            resource: resource.into(),
            namespace: Some(namespace.into()),
        }
    }

    pub fn resource(&self) -> &str {
        &self.resource
    }

    pub fn contains(&self, key: &Key) -> bool {
        key.resource() == &*self.resource && self.covers(key.namespace())
    }

    /// `contains` for a key whose resource is known to be this one.
    pub(super) fn covers(&self, namespace: &str) -> bool {
        self.namespace
            .as_deref()
            .is_none_or(|wanted| wanted == namespace)
    }

    /// Not after any key of this scope.
    pub(super) fn start(&self) -> Key {
        Key::new(
            &self.resource,
            self.namespace.as_deref().unwrap_or_default(),
            "",
        )
    }
}

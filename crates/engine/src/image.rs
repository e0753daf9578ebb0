//! References to images: what they name, whatever way they are written.

use std::borrow::Cow;

/// A reference, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference<'a> {
    registry: &'a str,
    path: Cow<'a, str>,
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

const DEFAULT_REGISTRY: &str = "docker.io";

impl<'a> Reference<'a> {
    pub(crate) fn of(image: &'a str) -> Self {
        let (named, digest) = match image.split_once('@') {
            Some((named, digest)) => (named, Some(digest)),
            None => (image, None),
        };
        // a colon before the last slash belongs to the port of a registry
        let last = named.rfind('/').map_or(0, |slash| slash + 1);
        let (named, tag) = match named[last..].split_once(':') {
            Some((name, tag)) => (&named[..last + name.len()], Some(tag)),
            None => (named, None),
        };
        let (registry, path) = match named.split_once('/') {
            Some((registry, path)) if is_registry(registry) => (registry, path),
            _ => (DEFAULT_REGISTRY, named),
        };
        let registry = match registry {
            "index.docker.io" => DEFAULT_REGISTRY,
            other => other,
        };
        let path = match registry == DEFAULT_REGISTRY && !path.contains('/') {
            true => Cow::Owned(format!("library/{path}")),
            false => Cow::Borrowed(path),
        };
        Self {
            registry,
            path,
            tag,
            digest,
        }
    }

    /// Whether both name one image. A digest decides if either has one; no tag is `latest`.
    pub(crate) fn names_the_same(&self, other: &Self) -> bool {
        let same_place = self.registry == other.registry && self.path == other.path;
        same_place
            && match (self.digest, other.digest) {
                (None, None) => self.tag.unwrap_or("latest") == other.tag.unwrap_or("latest"),
                (one, two) => one == two,
            }
    }

    pub(crate) fn digest(&self) -> Option<&'a str> {
        self.digest
    }

    /// What the API server fills in: a tag that moves is pulled always.
    pub(crate) fn default_pull_policy(&self) -> &'static str {
        let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let is_valid = !name.is_empty() && name.bytes().all(letter);
        let moves = match self.tag {
            Some(tag) => tag == "latest",
            None => self.digest.is_none(),
        };
        if is_valid && moves {
            "Always"
        } else {
            "IfNotPresent"
        }
    }
}

fn is_registry(name: &str) -> bool {
    name == "localhost" || name.contains(['.', ':']) || name.bytes().any(|b| b.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::Reference;

    #[test]
    fn references_are_compared_by_what_they_name() {
        let same = [
            ("nginx", "docker.io/library/nginx:latest"),
            ("index.docker.io/nginx:1", "nginx:1"),
            ("grafana/loki:3", "docker.io/grafana/loki:3"),
            ("r.example:5000/i", "r.example:5000/i:latest"),
            ("i:1@sha256:ab", "i@sha256:ab"),
        ];
        for (one, two) in same {
            assert!(
                Reference::of(one).names_the_same(&Reference::of(two)),
                "{one} {two}"
            );
        }
        let other = [
            ("nginx:1", "nginx:2"),
            ("localhost/nginx", "nginx"),
            ("r.example:5000/i", "r.example/i"),
            ("i@sha256:ab", "i@sha256:cd"),
            ("i@sha256:ab", "i"),
            ("sha256:ab", "i"),
        ];
        for (one, two) in other {
            assert!(
                !Reference::of(one).names_the_same(&Reference::of(two)),
                "{one} {two}"
            );
        }
    }

    #[test]
    fn what_is_pulled_always_is_told_by_the_tag() {
        let always = ["i", "i:latest", "r.example:5000/a/i", "r/i:latest"];
        let once = ["i:1", "i@sha256:0123", "i:1@sha256:0123", " i", "I", ""];
        for image in always {
            assert_eq!(
                Reference::of(image).default_pull_policy(),
                "Always",
                "{image}"
            );
        }
        for image in once {
            assert_eq!(
                Reference::of(image).default_pull_policy(),
                "IfNotPresent",
                "{image}"
            );
        }
    }
}

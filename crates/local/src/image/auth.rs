//! Who asks a registry: credentials, where they are found, and how a registry wants them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use oci_spec::distribution::Reference;
use serde::Deserialize;

/// How to introduce oneself to a registry.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Auth {
    #[default]
    Anonymous,
    Password {
        user: String,
        password: String,
    },
    Token(String),
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous => f.write_str("Anonymous"),
            Self::Password { user, .. } => write!(f, "Password {{ user: {user:?}, .. }}"),
            Self::Token(_) => f.write_str("Token(..)"),
        }
    }
}

/// All who may ask for an image, as far as anybody has said so.
#[derive(Default)]
pub struct Keyring(Vec<Key>);

struct Key {
    /// The longer what it is for, the better it fits.
    length: usize,
    auth: Auth,
}

impl Keyring {
    /// The entries for an image in a `config.json` of Docker, which is also what a pull secret holds.
    pub fn add_docker_config(&mut self, text: &[u8], image: &Reference) {
        if let Ok(DockerConfig { auths }) = serde_json::from_slice(text) {
            self.add(&auths, image);
        }
    }

    /// The same in a `.dockercfg`, which Docker had before and pull secrets of `kubernetes.io/dockercfg` still hold.
    pub fn add_dockercfg(&mut self, text: &[u8], image: &Reference) {
        if let Ok(entries) = serde_json::from_slice(text) {
            self.add(&entries, image);
        }
    }

    fn add(&mut self, entries: &DockerEntries, image: &Reference) {
        let fitting = entries.iter().filter(|(key, _)| fits(key, image));
        self.0.extend(fitting.filter_map(|(key, entry)| {
            let (length, auth) = (key.len(), Auth::of_entry(entry)?);
            Some(Key { length, auth })
        }));
    }

    /// Each of them once, who fits best first, and of those who fit alike who was added first.
    pub fn in_order(mut self) -> Vec<Auth> {
        self.0.sort_by_key(|key| Reverse(key.length));
        let mut order: Vec<Auth> = Vec::new();
        for Key { auth, .. } in self.0 {
            if !order.contains(&auth) {
                order.push(auth);
            }
        }
        order
    }
}

/// By registry.
type DockerEntries = BTreeMap<String, DockerEntry>;

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: DockerEntries,
}

#[derive(Deserialize)]
struct DockerEntry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    registrytoken: Option<String>,
}

impl Auth {
    /// The entry for an image in a `config.json` of Docker that fits it best.
    pub fn from_docker_config(text: &[u8], image: &Reference) -> Option<Self> {
        let mut keyring = Keyring::default();
        keyring.add_docker_config(text, image);
        keyring.in_order().into_iter().next()
    }

    fn of_entry(entry: &DockerEntry) -> Option<Self> {
        if let Some(token) = entry.registrytoken.as_ref().filter(|text| !text.is_empty()) {
            return Some(Self::Token(token.clone()));
        }
        let pair = match (&entry.username, &entry.password, &entry.auth) {
            (Some(user), Some(password), _) => Some((user.clone(), password.clone())),
            (_, _, Some(auth)) => decode(auth),
            _ => None,
        };
        pair.map(|(user, password)| Self::Password { user, password })
    }

    /// Who is asking, for messages.
    pub(super) fn who(&self) -> String {
        match self {
            Self::Anonymous => "strangers".to_owned(),
            Self::Password { user, .. } => format!("the user {user:?}"),
            Self::Token(_) => "the owner of the token".to_owned(),
        }
    }

    pub(super) fn header(&self) -> Option<String> {
        match self {
            Self::Anonymous => None,
            Self::Password { user, password } => {
                let pair = STANDARD.encode(format!("{user}:{password}"));
                Some(format!("Basic {pair}"))
            }
            Self::Token(token) => Some(format!("Bearer {token}")),
        }
    }
}

fn decode(auth: &str) -> Option<(String, String)> {
    let bytes = STANDARD_NO_PAD
        .decode(auth.trim().trim_end_matches('='))
        .ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.trim_end_matches('\0').to_owned()))
}

/// Whether the key of an entry, such as `https://registry.example/v1/` or `*.example/team`, is for an image.
fn fits(key: &str, image: &Reference) -> bool {
    let key = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"))
        .unwrap_or(key);
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    let path = path.trim_matches('/');
    let path = if matches!(path, "v1" | "v2") {
        ""
    } else {
        path
    };
    let is_here = host == image.registry()
        || host == image.resolve_registry()
        || matches_labels(host, image.registry());
    let rest = image.repository().strip_prefix(path);
    is_here && rest.is_some_and(|rest| path.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

/// `*` stands for a part of one label, never for several.
fn matches_labels(pattern: &str, host: &str) -> bool {
    let (patterns, labels) = (pattern.split('.'), host.split('.'));
    patterns.clone().count() == labels.clone().count()
        && patterns.zip(labels).all(|(pattern, label)| {
            let (first, last) = pattern.split_once('*').unwrap_or((pattern, ""));
            match pattern.contains('*') {
                true => {
                    label.len() >= first.len() + last.len()
                        && label.starts_with(first)
                        && label.ends_with(last)
                }
                false => pattern == label,
            }
        })
}

/// What a registry wants of those who come without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    /// A token that another server hands out.
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

impl Challenge {
    /// Reads a `WWW-Authenticate` header.
    pub(super) fn parse(header: &str) -> Option<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service, mut scope) = (None, None, None);
        for (name, value) in parameters(rest) {
            match name.to_ascii_lowercase().as_str() {
                "realm" => realm = Some(value),
                "service" => service = Some(value),
                "scope" => scope = Some(value),
                _ => {}
            }
        }
        Some(Self::Bearer {
            realm: realm?,
            service,
            scope,
        })
    }
}

/// `name="value"` with commas between; a value may hold commas itself.
fn parameters(text: &str) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_start_matches([',', ' ']).trim();
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let (value, next) = after.split_once(',').unwrap_or((after, ""));
                (value.trim().to_owned(), next)
            }
        };
        found.push((name, value));
        rest = next;
    }
    found
}

fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, next)| next)),
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::{Auth, Challenge, Keyring};

    fn found(key: &str, image: &str) -> Option<Auth> {
        let text = format!(r#"{{"auths": {{"{key}": {{"auth": "dXNlcjpwYTpzcw=="}}}}}}"#);
        Auth::from_docker_config(text.as_bytes(), &image.parse().unwrap())
    }

    #[test]
    fn credentials_are_found_by_the_registry_of_an_image() {
        let expected = Auth::Password {
            user: "user".to_owned(),
            password: "pa:ss".to_owned(),
        };
        for (key, image) in [
            ("https://index.docker.io/v1/", "busybox"),
            ("docker.io", "team/app:1"),
            ("registry.example:5000", "registry.example:5000/a/b"),
            ("https://registry.example/v2", "registry.example/a"),
            ("registry.example/a", "registry.example/a/b"),
            ("*.example", "registry.example/a"),
            ("r*y.example", "registry.example/a"),
        ] {
            assert_eq!(found(key, image), Some(expected.clone()), "{key} {image}");
        }
        for (key, image) in [
            ("registry.example", "busybox"),
            ("registry.example/a", "registry.example/ab"),
            ("*.example", "a.b.example/c"),
            ("example", "registry.example/a"),
        ] {
            assert_eq!(found(key, image), None, "{key} {image}");
        }
    }

    #[test]
    fn credentials_are_found_in_the_older_form_too() {
        let text = br#"{"registry.example": {"username": "user", "password": "pass"}}"#;
        let found = |image: &str| {
            let mut keyring = Keyring::default();
            keyring.add_dockercfg(text, &image.parse().unwrap());
            keyring.in_order().pop()
        };
        let expected = Auth::Password {
            user: "user".to_owned(),
            password: "pass".to_owned(),
        };
        assert_eq!(found("registry.example/a"), Some(expected));
        assert_eq!(found("busybox"), None);
    }

    #[test]
    fn all_who_may_ask_do_so_in_the_order_in_which_they_fit() {
        let image = "registry.example/team/app".parse().unwrap();
        let mut keyring = Keyring::default();
        for entries in [
            r#""registry.example": {"username": "first", "password": "p"}"#,
            r#""registry.example": {"username": "second", "password": "p"}, "other.example": {"username": "x", "password": "p"}"#,
            r#""registry.example/team": {"username": "team", "password": "p"}, "registry.example": {"username": "first", "password": "p"}"#,
            r#""registry.example/team/app": {}"#,
        ] {
            keyring.add_docker_config(format!(r#"{{"auths": {{{entries}}}}}"#).as_bytes(), &image);
        }
        keyring.add_docker_config(b"{", &image);
        let users: Vec<String> = keyring.in_order().iter().map(Auth::who).collect();
        let expected = ["team", "first", "second"].map(|name| format!("the user {name:?}"));
        assert_eq!(users, expected);
    }

    #[test]
    fn passwords_are_never_shown() {
        let auth = found("docker.io", "a").unwrap();
        assert!(!format!("{auth:?}").contains("pa:ss"));
    }

    #[test]
    fn challenges_are_understood() {
        let bearer = r#"Bearer realm="https://auth.example/token",service="a, b",scope="repository:x:pull,push""#;
        assert_eq!(
            Challenge::parse(bearer),
            Some(Challenge::Bearer {
                realm: "https://auth.example/token".to_owned(),
                service: Some("a, b".to_owned()),
                scope: Some("repository:x:pull,push".to_owned()),
            })
        );
        assert_eq!(
            Challenge::parse(r#"basic realm="x""#),
            Some(Challenge::Basic)
        );
        assert_eq!(Challenge::parse(r#"Bearer realm=a\"#).map(|_| ()), Some(()));
        assert_eq!(Challenge::parse("Bearer"), None);
        assert_eq!(Challenge::parse("Digest x=1"), None);
        assert_eq!(Challenge::parse(r#"Bearer service="a"#), None);
    }
}

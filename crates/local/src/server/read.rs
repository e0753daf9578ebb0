//! Single objects and lists.

use std::collections::HashMap;
use std::sync::Arc;

use api::patch::go::json_type;

use base64::alphabet::URL_SAFE;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, Engine as _};
use bytes::Bytes;
use serde_json::{Value, json};

use super::Server;
use super::answer::{Answer, Listed};
use super::encode;
use super::media;
use super::options::{ListOptions, Match, Query, version};
use super::resource::Resource;
use super::route::Target;
use super::select::Selection;
use crate::status::Failure;
use crate::store::{Entry, Key, Scope, Snapshot, WatchError};

impl Server {
    pub(super) fn get(&self, target: &Target, query: &Query) -> Result<Answer, Failure> {
        if let Some(version) = version(query)? {
            self.reached(version)?;
        }
        let entry = self.find(target)?;
        Ok(Answer::stored(entry))
    }

    /// The stored object that a path names.
    pub(super) fn find(&self, target: &Target) -> Result<Arc<Entry>, Failure> {
        let key = target.key();
        self.store
            .get(&key)
            .ok_or_else(|| Failure::not_found(target.resource.qualified(), key.name()))
    }

    /// Whether the store has come as far as a version that a client has seen.
    pub(super) fn reached(&self, version: u64) -> Result<(), Failure> {
        let current = self.store.revision();
        match version > current {
            true => Err(Failure::version_ahead(version, current)),
            false => Ok(()),
        }
    }

    pub(super) fn list(&self, target: &Target, options: ListOptions) -> Result<Answer, Failure> {
        let resource = &target.resource;
        let ListOptions { labels, fields, .. } = options;
        let selection = Selection::new(resource, labels, fields)?;
        let scope = target.scope();
        let resume = options.resume.as_deref().map(Token::read).transpose()?;
        if resume.is_some() && options.version.is_some_and(|version| version > 0) {
            let message = "specifying resource version is not allowed when using continue";
            return Err(Failure::bad_request(message));
        }
        let snapshot = self.store.snapshot();
        let at = match (&resume, options.version) {
            (Some(Token { revision: None, .. }), _) => snapshot.revision(),
            (
                Some(Token {
                    revision: Some(revision),
                    ..
                }),
                _,
            ) => {
                self.reached(*revision)?;
                *revision
            }
            (None, Some(version)) if version > 0 => {
                self.reached(version)?;
                match options.version_match {
                    Match::Exact => version,
                    Match::Unset | Match::NotOlderThan => snapshot.revision(),
                }
            }
            _ => snapshot.revision(),
        };
        let start = resume.as_ref().map(|token| token.place(target));
        let only = selection
            .name()
            .zip(target.namespace.as_deref().or(Some("")));
        let entries = match only {
            // who wants one name of the present is not shown through all of them
            Some((name, namespace)) if at == snapshot.revision() && target.is_one_place() => {
                let key = Key::new(&resource.stored_as, namespace, name);
                snapshot.get(&key).cloned().into_iter().collect()
            }
            // a page of the present begins where the last one ended
            _ if at == snapshot.revision() => {
                let (namespace, name) = start.unwrap_or_default();
                let first = Key::new(&resource.stored_as, namespace, name);
                snapshot.list_from(&scope, first).cloned().collect()
            }
            _ => self.entries_at(&snapshot, &scope, at)?,
        };
        let mut left = entries
            .into_iter()
            .filter(|entry| {
                let place = (entry.key.namespace(), entry.key.name());
                start.is_none_or(|start| place >= start)
            })
            .peekable();
        let limit = options.limit.unwrap_or(usize::MAX);
        let mut items = Vec::new();
        while items.len() < limit
            && let Some(entry) = left.next()
        {
            if selection.selects(resource, &entry) {
                items.push(entry);
            }
        }
        // the real server looks one object further, selected or not
        let more = left.peek().is_some();
        let resume = match items.last() {
            Some(last) if more => Some(Token::after(at, target, &last.key).write()),
            _ => None,
        };
        let remaining = (more && selection.is_all()).then(|| left.count());
        Ok(Answer::List(Listed {
            items,
            revision: at,
            resume,
            remaining,
        }))
    }

    /// The objects of a scope as of a revision that is not after the snapshot's.
    fn entries_at(
        &self,
        snapshot: &Snapshot,
        scope: &Scope,
        revision: u64,
    ) -> Result<Vec<Arc<Entry>>, Failure> {
        let mut entries: Vec<Arc<Entry>> = snapshot.list(scope).cloned().collect();
        if revision >= snapshot.revision() {
            return Ok(entries);
        }
        let gone = || {
            let message = "The provided continue parameter is too old to display a consistent list \
                 result. You can start a new list without the continue parameter.";
            Failure::expired(message)
        };
        let mut watch = self
            .store
            .watch(scope.clone(), revision)
            .map_err(|_| gone())?;
        // what the first change after the revision replaced is what there was at the revision
        let mut before: HashMap<Key, Option<Arc<Entry>>> = HashMap::new();
        while let Some(event) = watch.try_next().map_err(|_: WatchError| gone())? {
            if event.entry.revision > snapshot.revision() {
                break;
            }
            before
                .entry(event.entry.key.clone())
                .or_insert(event.previous);
        }
        entries.retain(|entry| !before.contains_key(&entry.key));
        entries.extend(before.into_values().flatten());
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(entries)
    }
}

impl Target {
    pub(super) fn key(&self) -> Key {
        Key::new(
            &self.resource.stored_as,
            self.namespace.as_deref().unwrap_or_default(),
            self.name.as_deref().unwrap_or_default(),
        )
    }

    /// Whether a name is enough to find an object.
    fn is_one_place(&self) -> bool {
        self.namespace.is_some() || !self.resource.namespaced
    }

    pub(super) fn scope(&self) -> Scope {
        match &self.namespace {
            Some(namespace) => Scope::namespaced(&self.resource.stored_as, namespace),
            None => Scope::all(&self.resource.stored_as),
        }
    }
}

/// Where the next page begins.
struct Token {
    /// `None`: whatever there is now.
    revision: Option<u64>,
    /// Relative to what is listed, so that a token cannot lead out of it: a name, or a namespace and a name.
    start: String,
}

struct WrittenToken {
    v: String,
    rv: i64,
    start: String,
}

impl Token {
    fn after(revision: u64, target: &Target, last: &Key) -> Self {
        // no name comes between one and the same with a zero byte
        let start = match target.namespace.is_none() && target.resource.namespaced {
            true => format!("{}/{}\0", last.namespace(), last.name()),
            false => format!("{}\0", last.name()),
        };
        Self {
            revision: Some(revision),
            start,
        }
    }

    /// The first namespace and name that may follow.
    fn place<'a>(&'a self, target: &'a Target) -> (&'a str, &'a str) {
        match &target.namespace {
            Some(namespace) => (namespace, &self.start),
            None if target.resource.namespaced => {
                self.start.split_once('/').unwrap_or((&self.start, ""))
            }
            None => ("", &self.start),
        }
    }

    fn write(&self) -> String {
        let token = json!({
            "v": "meta.k8s.io/v1",
            "rv": self.revision,
            "start": self.start,
        });
        TOKEN_BASE64.encode(token.to_string())
    }

    fn read(text: &str) -> Result<Self, Failure> {
        let bad = |why: &str| {
            Failure::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let bytes = TOKEN_BASE64
            .decode(text)
            .map_err(|error| bad(&illegal_base64(&error, text)))?;
        let token = media::parse_json(&bytes).map_err(|why| bad(&why))?;
        let token = WrittenToken::read(&token).map_err(|why| bad(&why))?;
        if token.v != "meta.k8s.io/v1" {
            let why = format!("server does not recognize this encoded version {}", token.v);
            return Err(bad(&why));
        }
        let of_version = |what: &str| bad(&format!("{what} (version meta.k8s.io/v1)"));
        if token.rv == 0 {
            return Err(of_version("incorrect encoded start resourceVersion"));
        }
        if token.start.is_empty() {
            return Err(of_version("encoded start key empty"));
        }
        let start = token.start.strip_prefix('/').unwrap_or(&token.start);
        if start.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(bad(&token.start));
        }
        Ok(Self {
            revision: token.rv.try_into().ok(),
            start: start.to_owned(),
        })
    }
}

impl WrittenToken {
    fn read(value: &Value) -> Result<Self, String> {
        let found = match value {
            Value::Object(_) | Value::Null => None,
            other => Some((other, "Go value", "storage.continueToken")),
        };
        let fields = [
            ("v", "Go struct field continueToken.v", "string"),
            ("rv", "Go struct field continueToken.rv", "int64"),
            ("start", "Go struct field continueToken.start", "string"),
        ];
        let wrong = |value: &Value, wanted: &str| match wanted {
            "string" => !value.is_string() && !value.is_null(),
            _ => value.as_i64().is_none() && !value.is_null(),
        };
        let mut fields = fields.into_iter().filter_map(|(name, place, wanted)| {
            let field = value.get(name).filter(|field| wrong(field, wanted))?;
            Some((field, place, wanted))
        });
        if let Some((found, place, wanted)) = found.or_else(|| fields.next()) {
            let found = match found {
                Value::Number(number) => format!("number {number}"),
                other => json_type(other).to_owned(),
            };
            return Err(format!(
                "json: cannot unmarshal {found} into {place} of type {wanted}"
            ));
        }
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            v: text("v"),
            rv: value["rv"].as_i64().unwrap_or_default(),
            start: text("start"),
        })
    }
}

/// Bits that are left over mean nothing.
const TOKEN_BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// What Go says about it.
fn illegal_base64(error: &DecodeError, text: &str) -> String {
    let at = match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => *at,
        DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => text.len().saturating_sub(1),
    };
    format!("illegal base64 data at input byte {at}")
}

/// Adds an object of the store as a version of its resource shows it.
pub(super) fn write_shown(
    resource: &Resource,
    entry: &Entry,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    out.extend_from_slice(resource.head().as_bytes());
    write_without_head(resource, entry, out)
}

/// From its metadata on.
pub(super) fn write_without_head(
    resource: &Resource,
    entry: &Entry,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    match resource.shows_as_stored(entry) {
        true => entry.value.write(resource.stored_head().len(), out),
        false => {
            let object = resource.read(entry)?;
            let value = encode::Encoded::owned_as(&object, &entry.value).at(entry.revision);
            value.write(resource.head().len(), out);
        }
    }
    Ok(())
}

/// An object of the store as a version of its resource shows it.
pub(super) fn shown(resource: &Resource, entry: &Entry) -> Result<Bytes, Failure> {
    if resource.shows_as_stored(entry) && resource.stored_head() == resource.head() {
        return Ok(entry.value.bytes());
    }
    let mut out = Vec::with_capacity(entry.value.len() + 64);
    write_shown(resource, entry, &mut out)?;
    Ok(out.into())
}

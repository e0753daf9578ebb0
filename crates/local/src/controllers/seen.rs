//! A write as controllers see it: what the metadata said before and after.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::server::from_metadata;
pub(super) use crate::server::metadata::{FOREGROUND, ORPHAN};
use crate::store::{Entry, Event, EventKind, Key};

/// A write that happened, or at the start an object that was found.
pub(super) struct Seen<'a> {
    pub(super) key: &'a Key,
    pub(super) before: Option<State<'a>>,
    /// `None`: it is gone.
    pub(super) after: Option<State<'a>>,
}

pub(super) struct State<'a> {
    pub(super) head: Head<'a>,
    pub(super) entry: &'a Entry,
}

/// As much of an object's metadata as its end depends on.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Head<'a> {
    #[serde(borrow, default)]
    pub(super) uid: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) resource_version: Cow<'a, str>,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(borrow)]
    finalizers: Option<Vec<Cow<'a, str>>>,
    #[serde(borrow)]
    owner_references: Option<Vec<Owner<'a>>>,
}

/// One of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Owner<'a> {
    #[serde(borrow, default)]
    pub(super) api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) uid: Cow<'a, str>,
    block_owner_deletion: Option<bool>,
    controller: Option<bool>,
}

impl Owner<'_> {
    pub(super) fn blocks(&self) -> bool {
        self.block_owner_deletion == Some(true)
    }

    pub(super) fn controls(&self) -> bool {
        self.controller == Some(true)
    }
}

impl<'a> Head<'a> {
    pub(super) fn read(object: &'a [u8]) -> Self {
        #[derive(Deserialize)]
        struct Object<'a> {
            #[serde(borrow)]
            metadata: Head<'a>,
        }
        // of a stored object the metadata comes first, and no more is read
        if let Some(metadata) = from_metadata(object) {
            let mut json = serde_json::Deserializer::from_slice(metadata);
            return Self::deserialize(&mut json).unwrap_or_default();
        }
        let object: Result<Object, _> = serde_json::from_slice(object);
        object.map(|object| object.metadata).unwrap_or_default()
    }

    pub(super) fn is_ending(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub(super) fn finalizers(&self) -> &[Cow<'a, str>] {
        self.finalizers.as_deref().unwrap_or_default()
    }

    pub(super) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers().iter().any(|finalizer| finalizer == name)
    }

    pub(super) fn owners(&self) -> &[Owner<'a>] {
        self.owner_references.as_deref().unwrap_or_default()
    }

    /// It ends when its dependents are gone.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_ending() && self.has_finalizer(FOREGROUND)
    }

    /// It ends when its dependents have forgotten it.
    pub(super) fn is_orphaning(&self) -> bool {
        self.is_ending() && self.has_finalizer(ORPHAN)
    }
}

impl<'a> State<'a> {
    fn of(entry: &'a Entry) -> Self {
        let head = Head::read(entry.value.rest());
        Self { head, entry }
    }
}

impl<'a> Seen<'a> {
    pub(super) fn found(entry: &'a Entry) -> Self {
        Self {
            key: &entry.key,
            before: None,
            after: Some(State::of(entry)),
        }
    }

    pub(super) fn of(event: &'a Event) -> Self {
        let after = match event.kind {
            EventKind::Added | EventKind::Modified => Some(State::of(&event.entry)),
            EventKind::Deleted => None,
        };
        Self {
            key: &event.entry.key,
            before: event.previous.as_deref().map(State::of),
            after,
        }
    }
}

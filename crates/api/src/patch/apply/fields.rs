//! The fields of one owner, as `managedFields` hold them: read only as far as a question needs.
//!
//! A write concerns few fields, and the sets it is compared with name hundreds. So a set stays the text it is stored
//! as until a write changes it.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::path::{BadPathElement, PathElement};
use super::set::FieldSet;

#[derive(Clone, Debug)]
pub enum Fields {
    /// FieldsV1 as [`FieldSet::encode`] writes it. It is not checked before it is needed.
    Stored(Arc<str>),
    Set(FieldSet),
}

impl Fields {
    pub(super) fn decode(fields: &Value) -> Result<Self, BadPathElement> {
        FieldSet::decode(fields).map(Self::Set)
    }

    /// FieldsV1.
    pub fn encode(&self) -> Cow<'_, str> {
        match self {
            Self::Stored(text) => Cow::Borrowed(text),
            Self::Set(set) => Cow::Owned(set.encode().to_string()),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Stored(text) => serde_json::from_str(text).unwrap_or_default(),
            Self::Set(set) => set.encode(),
        }
    }

    /// A text that was not written here owns nothing.
    pub(super) fn set(&self) -> Cow<'_, FieldSet> {
        match self {
            Self::Stored(_) => Cow::Owned(FieldSet::decode(&self.to_json()).unwrap_or_default()),
            Self::Set(set) => Cow::Borrowed(set),
        }
    }

    pub(super) fn into_set(self) -> FieldSet {
        match self {
            Self::Stored(_) => self.set().into_owned(),
            Self::Set(set) => set,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Stored(text) => text.len() <= "{}".len(),
            Self::Set(set) => set.is_empty(),
        }
    }

    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        match self {
            Self::Stored(_) if other.is_empty() => FieldSet::default(),
            Self::Stored(text) => {
                let mut json = serde_json::Deserializer::from_str(text);
                let left = Cell::new(other.len());
                let (wanted, left) = (other, &left);
                let level = json.deserialize_map(Level { wanted, left });
                match (level, left.get()) {
                    (_, 0) => other.clone(),
                    (level, _) => level.map(|level| level.found).unwrap_or_default(),
                }
            }
            Self::Set(set) => set.intersection(other),
        }
    }

    pub(super) fn remove(&mut self, other: &FieldSet) {
        if !self.intersection(other).is_empty() {
            *self = Self::Set(self.set().difference(other));
        }
    }

    pub(super) fn add(&mut self, other: &FieldSet) {
        if self.intersection(other) != *other {
            let set = std::mem::take(self).into_set();
            *self = Self::Set(set.union(other));
        }
    }
}

impl Default for Fields {
    fn default() -> Self {
        Self::Set(FieldSet::default())
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stored(one), Self::Stored(other)) => one == other,
            (Self::Set(one), Self::Set(other)) => one == other,
            (one, other) => one.set() == other.set(),
        }
    }
}

/// Reads one level of FieldsV1, and below it only what is wanted. Fails when all of that is found: the rest is not read.
struct Level<'w> {
    wanted: &'w FieldSet,
    /// How many members of the set have not been found, here or elsewhere.
    left: &'w Cell<usize>,
}

#[derive(Default)]
struct Found {
    found: FieldSet,
    /// The node itself is a member of the set above it.
    is_member: bool,
}

impl<'de> Visitor<'de> for Level<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a level of FieldsV1")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        let mut out = Found::default();
        let mut has_elements = false;
        let key = Key {
            read: !self.wanted.is_empty(),
        };
        while let Some(step) = map.next_key_seed(key)? {
            let element = match step {
                Step::Here => {
                    out.is_member = true;
                    None
                }
                Step::Unknown => None,
                Step::Down(element) => {
                    has_elements = true;
                    element
                }
            };
            let Some(element) = element else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let (member, below) = (
                self.wanted.members.contains(&element),
                self.wanted.children.get(&element),
            );
            if !member && below.is_none() {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let none = FieldSet::default();
            let wanted = below.unwrap_or(&none);
            let left = self.left;
            let Found { found, is_member } = map.next_value_seed(Level { wanted, left })?;
            if is_member && member {
                out.found.members.insert(element.clone());
                left.set(left.get().saturating_sub(1));
                if left.get() == 0 {
                    return Err(A::Error::custom("all is found"));
                }
            }
            if !found.is_empty() {
                out.found.children.insert(element, found);
            }
        }
        out.is_member |= !has_elements;
        Ok(out)
    }
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
    type Value = Found;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Found, D::Error> {
        json.deserialize_map(self)
    }
}

enum Step {
    /// `.`
    Here,
    /// Of a kind that a later version may have added.
    Unknown,
    /// Not read where nothing below is wanted.
    Down(Option<PathElement>),
}

#[derive(Clone, Copy)]
struct Key {
    read: bool,
}

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Step;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Step, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Step;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path element")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Step, E> {
        if text == "." {
            return Ok(Step::Here);
        }
        let known = matches!(text.as_bytes(), [b'f' | b'k' | b'v' | b'i', b':', ..]);
        match self.read {
            false if known => Ok(Step::Down(None)),
            false => Ok(Step::Unknown),
            true => match PathElement::parse(text) {
                Ok(Some(element)) => Ok(Step::Down(Some(element))),
                Ok(None) => Ok(Step::Unknown),
                Err(error) => Err(E::custom(error)),
            },
        }
    }
}

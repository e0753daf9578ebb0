//! Sets of fields, and their form in `managedFields`.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt,
};

use serde_json::{Map, Value};

use super::path::{BadPathElement, PathElement};
use crate::patch::types::{Form, TypeRef};

/// A set of paths, as a tree. A path may be a member without its parents being members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    pub(super) members: BTreeSet<PathElement>,
    /// Never holds an empty set.
    pub(super) children: BTreeMap<PathElement, FieldSet>,
}

/// A whole path; printed as `.spec.containers[name="web"].image`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<PathElement>);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

impl FieldSet {
    /// The set of these paths of field names.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let elements: Vec<PathElement> = path
                .iter()
                .map(|name| PathElement::Field((*name).to_owned()))
                .collect();
            set.insert(&elements);
        }
        set
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// How many paths there are.
    pub fn len(&self) -> usize {
        let below = self.children.values().map(Self::len);
        self.members.len() + below.sum::<usize>()
    }

    /// Adds a path, not its parents. The whole object (an empty path) belongs to nobody.
    pub fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => _ = self.members.insert(last.clone()),
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub fn contains(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self
                .children
                .get(first)
                .is_some_and(|below| below.contains(rest)),
        }
    }

    /// All paths, members of a level before what is below it.
    pub fn paths(&self) -> Vec<Path> {
        let mut out = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut out);
        out
    }

    fn collect_paths(&self, prefix: &mut Vec<PathElement>, out: &mut Vec<Path>) {
        for member in &self.members {
            let mut path = prefix.clone();
            path.push(member.clone());
            out.push(Path(path));
        }
        for (element, below) in &self.children {
            prefix.push(element.clone());
            below.collect_paths(prefix, out);
            prefix.pop();
        }
    }

    #[must_use]
    pub fn union(mut self, other: &Self) -> Self {
        self.members.extend(other.members.iter().cloned());
        for (element, below) in &other.children {
            match self.children.entry(element.clone()) {
                Entry::Vacant(entry) => _ = entry.insert(below.clone()),
                Entry::Occupied(mut entry) => {
                    let merged = std::mem::take(entry.get_mut()).union(below);
                    entry.insert(merged);
                }
            }
        }
        self
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self {
            members: &self.members & &other.members,
            children: self.pruned_children(|element, below| {
                Some(below.intersection(other.children.get(element)?))
            }),
        }
    }

    /// The paths of this set that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self {
            members: &self.members - &other.members,
            children: self.pruned_children(|element, below| {
                Some(match other.children.get(element) {
                    Some(taken) => below.difference(taken),
                    None => below.clone(),
                })
            }),
        }
    }

    /// The paths of this set that neither are in the other nor lie below one that is.
    #[must_use]
    pub fn difference_below(&self, other: &Self) -> Self {
        Self {
            members: &self.members - &other.members,
            children: self.pruned_children(|element, below| {
                if other.members.contains(element) {
                    return None;
                }
                Some(match other.children.get(element) {
                    Some(taken) => below.difference_below(taken),
                    None => below.clone(),
                })
            }),
        }
    }

    fn pruned_children(
        &self,
        below: impl Fn(&PathElement, &Self) -> Option<Self>,
    ) -> BTreeMap<PathElement, Self> {
        let pruned = self.children.iter().filter_map(|(element, set)| {
            let set = below(element, set).filter(|set| !set.is_empty())?;
            Some((element.clone(), set))
        });
        pruned.collect()
    }

    /// What is below an element.
    pub(super) fn below(&self, element: &PathElement) -> Option<&Self> {
        self.children.get(element)
    }

    /// The set with the fields on the way to its members, where the type names them. Such fields are
    /// not owned, but go when all that is below them goes.
    pub(super) fn with_named_fields(&self, schema: Option<TypeRef<'_>>) -> Self {
        let mut out = Self {
            members: self.members.clone(),
            children: BTreeMap::new(),
        };
        let def = schema.map(|schema| (schema, schema.def()));
        for (element, below) in &self.children {
            let mut next = None;
            match (element, def) {
                (PathElement::Field(name), Some((schema, def))) => {
                    if let Some(map) = &def.map {
                        if map.fields.contains_key(name) {
                            out.members.insert(element.clone());
                        }
                        next = schema.field(map, name);
                    }
                }
                (PathElement::Key(_), Some((schema, def))) => {
                    next = def.list.as_ref().map(|list| schema.follow(list.element));
                }
                _ => {}
            }
            out.children
                .insert(element.clone(), below.with_named_fields(next));
        }
        out
    }

    /// The set as the schema of today sees it: below a list or map that has become one value, the
    /// value itself is owned.
    pub(super) fn reconciled(self, schema: TypeRef<'_>) -> Self {
        let mut atomic = Self::default();
        self.find_atomic(schema, &mut Vec::new(), &mut atomic);
        match atomic.is_empty() {
            true => self,
            false => self.difference_below(&atomic).union(&atomic),
        }
    }

    fn find_atomic<'a>(
        &'a self,
        schema: TypeRef<'_>,
        path: &mut Vec<&'a PathElement>,
        out: &mut Self,
    ) {
        let form = schema.form(None);
        let mut found = || {
            let path: Vec<PathElement> = path.iter().copied().cloned().collect();
            out.insert(&path);
        };
        match form {
            Form::Map(map) if map.fields.is_empty() && schema.is_deduced() => return,
            Form::Map(map) if schema.is_atomic(map) => {
                if !self.is_empty() {
                    found();
                }
                return;
            }
            Form::List(list) if list.is_atomic() => return found(),
            Form::Scalar(_) | Form::Nothing => return,
            Form::Map(_) | Form::List(_) => {}
        }
        let next = |element: &PathElement| match (form, element) {
            (Form::Map(map), PathElement::Field(name)) => schema.field(map, name),
            (Form::Map(map), _) => map.element.map(|link| schema.follow(link)),
            (Form::List(list), _) => Some(schema.follow(list.element)),
            (Form::Scalar(_) | Form::Nothing, _) => None,
        };
        // what is a member and has nothing below it is owned whole already
        for (element, below) in &self.children {
            let Some(schema) = next(element) else {
                continue;
            };
            path.push(element);
            below.find_atomic(schema, path, out);
            path.pop();
        }
    }

    /// FieldsV1.
    pub fn encode(&self) -> Value {
        Value::Object(self.encode_level(false))
    }

    fn encode_level(&self, is_member: bool) -> Map<String, Value> {
        let mut out = Map::new();
        if is_member {
            out.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (element, below) in &self.children {
            let below = below.encode_level(self.members.contains(element));
            out.insert(element.encode(), Value::Object(below));
        }
        for element in &self.members {
            if !self.children.contains_key(element) {
                out.insert(element.encode(), Value::Object(Map::new()));
            }
        }
        out
    }

    /// Reads FieldsV1.
    pub fn decode(fields: &Value) -> Result<Self, BadPathElement> {
        Ok(Self::decode_level(fields)?.0)
    }

    /// The set below a node, and whether the node itself is a member.
    fn decode_level(fields: &Value) -> Result<(Self, bool), BadPathElement> {
        let mut set = Self::default();
        let mut is_member = false;
        if !fields.is_object() && !fields.is_null() {
            return Err(BadPathElement(fields.to_string()));
        }
        for (key, below) in fields.as_object().into_iter().flatten() {
            if key == "." {
                is_member = true;
                continue;
            }
            let Some(element) = PathElement::parse(key)? else {
                continue;
            };
            let (below, below_is_member) = Self::decode_level(below)?;
            if below_is_member {
                set.members.insert(element.clone());
            }
            if !below.is_empty() {
                set.children.insert(element, below);
            }
        }
        let is_member = is_member || set.is_empty();
        Ok((set, is_member))
    }
}

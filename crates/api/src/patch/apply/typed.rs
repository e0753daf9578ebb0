//! Walks over typed values: whether they fit their type, which fields they set, how two of them
//! differ, and one with fields taken out.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use serde_json::{Map, Value};

use super::{
    path::{PathElement, same},
    set::FieldSet,
};
use crate::patch::{
    go,
    types::{Form, ListType, MapType, Relation, Scalar, TypeRef},
};

/// The element's place in its list, or what is wrong with it.
pub(super) fn list_element(
    schema: TypeRef<'_>,
    list: &ListType,
    item: &Value,
) -> Result<PathElement, String> {
    let keys = match &list.relation {
        Relation::Keyed(keys) => keys,
        Relation::Set => return set_element(item),
        Relation::Atomic => return Err("invalid indexing of non-associative list".to_owned()),
    };
    let Value::Object(fields) = item else {
        return Err(match item {
            Value::Null => "associative list with keys may not have a null element",
            _ => "associative list with keys may not have non-map elements",
        }
        .to_owned());
    };
    let element = schema.follow(list.element).def();
    let default = |key: &str| element.map.as_ref()?.fields.get(key)?.default.clone();
    let present: Vec<(String, Value)> = keys
        .iter()
        .filter_map(|key| {
            let value = fields.get(key).cloned().or_else(|| default(key))?;
            Some((key.clone(), value))
        })
        .collect();
    if present.is_empty() {
        let keys: Vec<String> = keys.iter().map(|key| go::quote(key)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            keys.join(" ")
        ));
    }
    Ok(PathElement::key(present))
}

fn set_element(item: &Value) -> Result<PathElement, String> {
    Err(match item {
        Value::Object(_) => "associative list without keys has an element that's a map type",
        Value::Array(_) => "not supported: associative list with lists as elements",
        Value::Null => "associative list without keys has an element that's an explicit null",
        scalar => return Ok(PathElement::Value(super::path::Item(scalar.clone()))),
    }
    .to_owned())
}

/// What does not fit the type, each with its path. Parts that are the same in `fitting` are known to fit.
pub(super) fn validate(
    schema: TypeRef<'_>,
    value: &Value,
    duplicates: bool,
    fitting: Option<&Value>,
) -> Vec<String> {
    if fitting == Some(value) {
        return Vec::new();
    }
    match (schema.form(Some(value)), value) {
        (Form::Nothing, _) => vec![": schema error: invalid atom: inlined".to_owned()],
        (_, Value::Null) => Vec::new(),
        (Form::Scalar(scalar), value) => wrong_scalar(scalar, value).into_iter().collect(),
        (Form::List(list), Value::Array(items)) => {
            let fitting = fitting.and_then(Value::as_array);
            validate_list(schema, list, items, duplicates, fitting)
        }
        (Form::List(_), other) => vec![format!(": expected list, got {}", shown(other))],
        (Form::Map(map), Value::Object(fields)) => {
            let fitting = fitting.and_then(Value::as_object);
            validate_map(schema, map, fields, duplicates, fitting)
        }
        (Form::Map(_), other) => vec![format!(": expected map, got {}", shown(other))],
    }
}

/// A value as the server shows it where another type was expected.
fn shown(value: &Value) -> String {
    format!("&{{{}}}", go::display(value))
}

fn wrong_scalar(scalar: Scalar, value: &Value) -> Option<String> {
    let expected = match (scalar, value) {
        (Scalar::Number, Value::Number(_))
        | (Scalar::Text, Value::String(_))
        | (Scalar::Boolean, Value::Bool(_))
        | (Scalar::Any, Value::Number(_) | Value::String(_) | Value::Bool(_)) => return None,
        (Scalar::Number, _) => format!("numeric (int or float), got {}", go::type_name(value)),
        (Scalar::Text, _) => format!(
            "string, got &value.valueUnstructured{{Value:{}}}",
            go_syntax(value)
        ),
        (Scalar::Boolean, _) => format!("boolean, got {}", shown(value)),
        (Scalar::Any, _) => format!("any scalar, got {}", shown(value)),
    };
    Some(format!(": expected {expected}"))
}

/// A value as Go source.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::String(text) => go::quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("{}{{{}}}", go::LIST, items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{}:{}", go::quote(name), go_syntax(value)))
                .collect();
            format!("{}{{{}}}", go::MAP, fields.join(", "))
        }
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn validate_list(
    schema: TypeRef<'_>,
    list: &ListType,
    items: &[Value],
    duplicates: bool,
    fitting: Option<&Vec<Value>>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let element = match list.is_atomic() {
            true => PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX)),
            false => match list_element(schema, list, item) {
                Ok(element) => element,
                Err(problem) => {
                    problems.push(format!(": element {index}: {problem}"));
                    return problems;
                }
            },
        };
        // places in an atomic list are never the same
        if !duplicates && !list.is_atomic() && !seen.insert(element.clone()) {
            problems.push(format!(": duplicate entries for key {element}"));
        }
        let fitting = fitting.and_then(|fitting| fitting.get(index));
        let below = validate(schema.follow(list.element), item, duplicates, fitting);
        problems.extend(below.iter().map(|problem| format!("{element}{problem}")));
    }
    problems
}

fn validate_map(
    schema: TypeRef<'_>,
    map: &MapType,
    fields: &Map<String, Value>,
    duplicates: bool,
    fitting: Option<&Map<String, Value>>,
) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, value) in fields {
        let Some(field) = schema.field(map, name) else {
            problems.push(format!(".{name}: field not declared in schema"));
            break;
        };
        let fitting = fitting.and_then(|fitting| fitting.get(name));
        let below = validate(field, value, duplicates, fitting);
        problems.extend(below.iter().map(|problem| format!(".{name}{problem}")));
    }
    problems
}

/// The problems as the server prints them.
pub(super) fn problems_text(problems: &[String]) -> String {
    let clean = |problem: &String| problem.strip_prefix(": ").unwrap_or(problem).to_owned();
    match problems {
        [only] => clean(only),
        many => {
            let lines: Vec<String> = many
                .iter()
                .map(|problem| format!("  {}", clean(problem)))
                .collect();
            format!("errors:\n{}", lines.join("\n"))
        }
    }
}

/// The fields that the value sets.
pub(super) fn field_set(schema: TypeRef<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect_fields(schema, value, &mut Vec::new(), &mut set);
    set
}

fn collect_fields(
    schema: TypeRef<'_>,
    value: &Value,
    path: &mut Vec<PathElement>,
    set: &mut FieldSet,
) {
    match (schema.form(Some(value)), value) {
        (Form::Scalar(_), _) => set.insert(path),
        (Form::List(list), _) if list.is_atomic() => set.insert(path),
        (Form::List(list), Value::Array(items)) => {
            let elements: Vec<_> = items
                .iter()
                .map(|item| list_element(schema, list, item).ok())
                .collect();
            let mut copies: BTreeMap<&PathElement, usize> = BTreeMap::new();
            for element in elements.iter().flatten() {
                *copies.entry(element).or_default() += 1;
            }
            for (item, element) in items.iter().zip(&elements) {
                let Some(element) = element else { continue };
                path.push(element.clone());
                // of an element that is there twice nobody can say which one is meant
                if copies.get(element) == Some(&1) {
                    collect_fields(schema.follow(list.element), item, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        (Form::Map(map), _) if schema.is_atomic(map) => set.insert(path),
        (Form::Map(map), Value::Object(fields)) => {
            for (name, value) in fields {
                path.push(PathElement::Field(name.clone()));
                if let Some(field) = schema.field(map, name) {
                    collect_fields(field, value, path, set);
                }
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if empty || !map.fields.contains_key(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (Form::List(_) | Form::Map(_) | Form::Nothing, _) => {}
    }
}

/// How a second value differs from a first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    pub removed: FieldSet,
    pub modified: FieldSet,
    pub added: FieldSet,
}

impl Comparison {
    /// Fields that have another value than before.
    pub fn changed(&self) -> FieldSet {
        self.modified.clone().union(&self.added)
    }

    /// The comparison without these fields and all below them.
    pub(super) fn without(&self, ignored: &FieldSet) -> Self {
        Self {
            removed: self.removed.difference_below(ignored),
            modified: self.modified.difference_below(ignored),
            added: self.added.difference_below(ignored),
        }
    }
}

pub(super) fn compare(schema: TypeRef<'_>, left: &Value, right: &Value) -> Comparison {
    let walk = Compare {
        out: RefCell::default(),
    };
    walk.node(schema, Some(left), Some(right), &mut Vec::new());
    walk.out.into_inner()
}

struct Compare {
    out: RefCell<Comparison>,
}

type Side<'v> = Option<&'v Value>;

impl Compare {
    fn node(
        &self,
        schema: TypeRef<'_>,
        left: Side<'_>,
        right: Side<'_>,
        path: &mut Vec<PathElement>,
    ) {
        if let (Some(left), Some(right)) = (left, right)
            && same(left, right)
        {
            return;
        }
        let (before, after) = (schema.form(left), schema.form(right));
        let as_leaf = match (left, right) {
            (_, None) => self.form(schema, before, left, right, path),
            (None, _) => self.form(schema, after, left, right, path),
            (Some(_), Some(_)) => {
                if !before.is_like(&after) {
                    self.form(schema, before, left, right, path);
                }
                self.form(schema, after, left, right, path)
            }
        };
        if !as_leaf {
            let mut out = self.out.borrow_mut();
            match (left, right) {
                (None, _) => out.added.insert(path),
                (_, None) => out.removed.insert(path),
                (Some(_), Some(_)) => {}
            }
        }
    }

    /// Compares both sides as values of a form; says whether they were compared as one value.
    fn form(
        &self,
        schema: TypeRef<'_>,
        form: Form<'_>,
        left: Side<'_>,
        right: Side<'_>,
        path: &mut Vec<PathElement>,
    ) -> bool {
        match form {
            Form::Map(map) => {
                let (old, new) = (fields_of(left), fields_of(right));
                if schema.is_atomic(map) || (old.is_empty() && new.is_empty()) {
                    return self.leaf(left, right, path);
                }
                let added = new.keys().filter(|name| !old.contains_key(*name));
                for name in old.keys().chain(added) {
                    let Some(field) = schema.field(map, name) else {
                        continue;
                    };
                    path.push(PathElement::Field(name.clone()));
                    self.node(field, old.get(name), new.get(name), path);
                    path.pop();
                }
            }
            Form::List(list) => {
                let (old, new) = (items_of(left), items_of(right));
                if list.is_atomic() || (old.is_empty() && new.is_empty()) {
                    return self.leaf(left, right, path);
                }
                self.items(schema, list, old, new, path);
            }
            Form::Scalar(_) => return self.leaf(left, right, path),
            Form::Nothing => {}
        }
        false
    }

    fn leaf(&self, left: Side<'_>, right: Side<'_>, path: &[PathElement]) -> bool {
        let mut out = self.out.borrow_mut();
        match (left, right) {
            (None, _) => out.added.insert(path),
            (_, None) => out.removed.insert(path),
            (Some(left), Some(right)) if !same(left, right) => out.modified.insert(path),
            (Some(_), Some(_)) => {}
        }
        true
    }

    fn items(
        &self,
        schema: TypeRef<'_>,
        list: &ListType,
        old: &[Value],
        new: &[Value],
        path: &mut Vec<PathElement>,
    ) {
        let mut elements: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in old {
            if let Ok(element) = list_element(schema, list, item) {
                elements.entry(element).or_default().0.push(item);
            }
        }
        for item in new {
            if let Ok(element) = list_element(schema, list, item) {
                elements.entry(element).or_default().1.push(item);
            }
        }
        let target = schema.follow(list.element);
        for (element, (old, new)) in elements {
            path.push(element);
            // copies of an element are compared as one value, since nobody can say which is meant
            match (old.as_slice(), new.as_slice()) {
                ([] | [_], [] | [_]) => {
                    let (old, new) = (old.first().copied(), new.first().copied());
                    self.node(target, old, new, path);
                }
                ([_, _, ..], [_, _, ..]) => {
                    let equal = old.len() == new.len()
                        && old.iter().zip(&new).all(|(old, new)| same(old, new));
                    if !equal {
                        self.out.borrow_mut().modified.insert(path);
                    }
                }
                ([_, _, ..], _) => {
                    if let Some(new) = new.first() {
                        self.node(target, None, Some(new), path);
                    }
                    self.out.borrow_mut().removed.insert(path);
                }
                (_, [_, _, ..]) => {
                    if let Some(old) = old.first() {
                        self.node(target, Some(old), None, path);
                    }
                    self.out.borrow_mut().added.insert(path);
                }
            }
            path.pop();
        }
    }
}

fn fields_of(value: Side<'_>) -> &Map<String, Value> {
    static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    value.and_then(Value::as_object).unwrap_or(&NONE)
}

fn items_of(value: Side<'_>) -> &[Value] {
    value
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The value without the given fields and elements. What loses everything becomes null.
pub(super) fn remove(schema: TypeRef<'_>, value: &Value, gone: &FieldSet) -> Value {
    match (schema.form(Some(value)), value) {
        (Form::Scalar(_), _) => value.clone(),
        (Form::List(list), Value::Array(items)) if !list.is_atomic() => {
            let kept: Vec<Value> = items
                .iter()
                .filter_map(|item| {
                    let element = list_element(schema, list, item).ok()?;
                    if gone.members.contains(&element) {
                        return None;
                    }
                    Some(match gone.below(&element) {
                        Some(below) => remove(schema.follow(list.element), item, below),
                        None => item.clone(),
                    })
                })
                .collect();
            match kept.is_empty() {
                true => Value::Null,
                false => Value::Array(kept),
            }
        }
        (Form::Map(map), Value::Object(fields)) if !schema.is_atomic(map) => {
            let mut kept = Map::new();
            for (name, value) in fields {
                let element = PathElement::Field(name.clone());
                if gone.members.contains(&element) {
                    continue;
                }
                let value = match (gone.below(&element), schema.field(map, name)) {
                    (Some(below), Some(field)) => remove(field, value, below),
                    _ => value.clone(),
                };
                kept.insert(name.clone(), value);
            }
            match kept.is_empty() {
                true => Value::Null,
                false => Value::Object(kept),
            }
        }
        (Form::List(_) | Form::Map(_) | Form::Nothing, _) => Value::Null,
    }
}

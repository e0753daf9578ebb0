//! A schema as a tree that is quick to walk: bounds parsed, patterns and rules compiled, and at every node a note
//! of what can still come below it.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
    ops::Deref,
};

use serde_json::{Map, Value};

use super::{
    cel_values::escape,
    formats::{self, Format},
    pattern::Pattern,
    rules::Rule,
};
use crate::shared::{Pool, Shared};

/// The types of JSON that a schema can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Type {
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    String,
}

impl Type {
    pub(super) const NAMES: [&'static str; 6] =
        ["array", "boolean", "integer", "number", "object", "string"];

    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "array" => Self::Array,
            "boolean" => Self::Boolean,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "object" => Self::Object,
            "string" => Self::String,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Object => "object",
            Self::String => "string",
        }
    }
}

/// How the items of a list are told apart.
#[derive(Debug, Default, PartialEq, Hash)]
pub(super) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// What `additionalProperties` says.
#[derive(Debug, Default, PartialEq, Hash)]
pub(super) enum Additional {
    #[default]
    Unsaid,
    Any(bool),
    Each(Shared<Node>),
}

/// Limits of one value; most nodes have none.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Limits {
    pub(super) minimum: Option<f64>,
    pub(super) maximum: Option<f64>,
    pub(super) exclusive_minimum: bool,
    pub(super) exclusive_maximum: bool,
    pub(super) multiple_of: Option<f64>,
    pub(super) min_length: Option<i64>,
    pub(super) max_length: Option<i64>,
    pub(super) min_items: Option<i64>,
    pub(super) max_items: Option<i64>,
    pub(super) min_properties: Option<i64>,
    pub(super) max_properties: Option<i64>,
    pub(super) unique_items: bool,
    pub(super) pattern: Option<Shared<Pattern>>,
    pub(super) choices: Vec<Value>,
}

/// Schemas that the same value must meet as well.
#[derive(Debug, Default, PartialEq, Hash)]
pub(super) struct Junctors {
    pub(super) any_of: Vec<Shared<Node>>,
    pub(super) one_of: Vec<Shared<Node>>,
    pub(super) all_of: Vec<Shared<Node>>,
    pub(super) not: Option<Shared<Node>>,
}

/// What stands at a node or somewhere below it, so that a walk can stop early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Hash)]
pub(super) struct Below {
    pub(super) rules: bool,
    pub(super) keyed_lists: bool,
    pub(super) resources: bool,
    pub(super) defaults: bool,
    /// Fields that no schema describes.
    pub(super) unknown: bool,
}

/// Nothing in a node depends on where it stands: schemas that say the same share it.
#[derive(Debug, Default, PartialEq, Hash)]
pub(super) struct Node {
    /// The type as written.
    pub(super) declared: Option<Type>,
    /// The types that a value may have; none: any.
    pub(super) types: Vec<Type>,
    pub(super) format: Option<(String, Format)>,
    pub(super) nullable: bool,
    pub(super) default: Option<Value>,
    pub(super) int_or_string: bool,
    pub(super) preserve_unknown: bool,
    pub(super) embedded: bool,
    pub(super) list: ListType,
    pub(super) items: Option<Shared<Node>>,
    pub(super) properties: BTreeMap<String, Shared<Node>>,
    pub(super) additional: Additional,
    pub(super) required: Vec<String>,
    pub(super) limits: Option<Box<Limits>>,
    pub(super) junctors: Option<Box<Junctors>>,
    pub(super) rules: Vec<Rule>,
    /// Properties that have a default.
    pub(super) defaulted: Vec<String>,
    pub(super) below: Below,
}

static NODES: Pool<Node> = Pool::new();

impl Node {
    pub(super) fn compile(schema: &Value) -> Shared<Self> {
        match schema {
            Value::Object(schema) => Self::of(schema),
            _ => NODES.share(Self::default()),
        }
    }

    pub(super) fn of(schema: &Map<String, Value>) -> Shared<Self> {
        let declared = text(schema, "type").and_then(Type::parse);
        let int_or_string = flag(schema, "x-kubernetes-int-or-string");
        let types = match (int_or_string, declared) {
            (true, _) => vec![Type::Integer, Type::String],
            (false, declared) => declared.into_iter().collect(),
        };
        let format = text(schema, "format")
            .and_then(|name| Some((name.to_owned(), formats::known(name, &types)?)));
        let mut node = Self {
            declared,
            types,
            format,
            nullable: flag(schema, "nullable"),
            default: schema
                .get("default")
                .filter(|value| !value.is_null())
                .cloned(),
            int_or_string,
            preserve_unknown: flag(schema, "x-kubernetes-preserve-unknown-fields"),
            embedded: flag(schema, "x-kubernetes-embedded-resource"),
            list: list_type(schema),
            items: schema
                .get("items")
                .filter(|items| items.is_object())
                .map(Self::compile),
            properties: match schema.get("properties") {
                Some(Value::Object(properties)) => properties
                    .iter()
                    .map(|(name, schema)| (name.clone(), Self::compile(schema)))
                    .collect(),
                _ => BTreeMap::new(),
            },
            additional: match schema.get("additionalProperties") {
                None | Some(Value::Null) => Additional::Unsaid,
                Some(Value::Bool(any)) => Additional::Any(*any),
                Some(schema) => Additional::Each(Self::compile(schema)),
            },
            required: texts(schema, "required"),
            limits: limits(schema),
            junctors: junctors(schema),
            ..Self::default()
        };
        node.rules = match schema.get("x-kubernetes-validations") {
            Some(Value::Array(rules)) => rules
                .iter()
                .filter_map(|rule| Rule::compile(rule, &node))
                .collect(),
            _ => Vec::new(),
        };
        node.note();
        NODES.share(node)
    }

    /// Notes what stands here and below.
    fn note(&mut self) {
        self.defaulted = self
            .properties
            .iter()
            .filter(|(_, property)| property.default.is_some())
            .map(|(name, _)| name.clone())
            .collect();
        let mut below = Below {
            rules: !self.rules.is_empty(),
            keyed_lists: !matches!(self.list, ListType::Atomic),
            resources: self.embedded,
            defaults: self.default.is_some(),
            unknown: self.may_hold_unknown(),
        };
        for child in self.children() {
            below.rules |= child.below.rules;
            below.keyed_lists |= child.below.keyed_lists;
            below.resources |= child.below.resources;
            below.defaults |= child.below.defaults;
            below.unknown |= child.below.unknown;
        }
        self.below = below;
    }

    /// Pruning leaves nothing in an object without properties, unless it is the metadata of a resource.
    fn may_hold_unknown(&self) -> bool {
        match self.additional {
            Additional::Each(_) => false,
            Additional::Any(_) => true,
            Additional::Unsaid => {
                let bare = self.properties.is_empty() && self.declared == Some(Type::Object);
                self.preserve_unknown || self.embedded || bare
            }
        }
    }

    fn children(&self) -> impl Iterator<Item = &Self> {
        let each = match &self.additional {
            Additional::Each(each) => Some(each),
            Additional::Unsaid | Additional::Any(_) => None,
        };
        self.properties
            .values()
            .chain(&self.items)
            .chain(each)
            .map(Deref::deref)
    }

    /// The schema of a field or entry, if it has one.
    pub(super) fn member(&self, name: &str) -> Option<&Self> {
        let property = self.properties.get(name);
        let member = property.or(match &self.additional {
            Additional::Each(each) => Some(each),
            Additional::Unsaid | Additional::Any(_) => None,
        });
        member.map(Deref::deref)
    }

    /// Whether something is said of the value that depends on more than one of its fields, or on their values.
    pub(super) fn is_judged_as_one(&self) -> bool {
        let is_choice = |limits: &Limits| !limits.choices.is_empty();
        self.embedded
            || self.junctors.is_some()
            || self.limits.as_deref().is_some_and(is_choice)
            || self.rules.iter().any(|rule| rule.reads(None))
    }

    /// Whether a rule of this node looks at a field that did not change.
    pub(super) fn rules_read(&self, field: &str) -> bool {
        !self.rules.is_empty()
            && escape(field).is_some_and(|name| {
                let mut rules = self.rules.iter();
                rules.any(|rule| rule.reads(Some(&name)))
            })
    }

    /// Whether null is neither kept nor replaced.
    pub(super) fn drops_null(&self) -> bool {
        !self.nullable && self.default.is_none()
    }
}

pub(super) fn text<'a>(schema: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    schema
        .get(key)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}

pub(super) fn flag(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or_default()
}

pub(super) fn texts(schema: &Map<String, Value>, key: &str) -> Vec<String> {
    schema
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|value| value.as_str().map(str::to_owned))
        .collect()
}

fn list_type(schema: &Map<String, Value>) -> ListType {
    match text(schema, "x-kubernetes-list-type") {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(texts(schema, "x-kubernetes-list-map-keys")),
        _ => ListType::Atomic,
    }
}

fn limits(schema: &Map<String, Value>) -> Option<Box<Limits>> {
    const KEYS: &[&str] = &[
        "minimum",
        "maximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "uniqueItems",
        "pattern",
        "enum",
    ];
    if !KEYS.iter().any(|key| schema.contains_key(*key)) {
        return None;
    }
    let float = |key: &str| schema.get(key).and_then(Value::as_f64);
    let int = |key: &str| schema.get(key).and_then(Value::as_i64);
    Some(Box::new(Limits {
        minimum: float("minimum"),
        maximum: float("maximum"),
        exclusive_minimum: flag(schema, "exclusiveMinimum"),
        exclusive_maximum: flag(schema, "exclusiveMaximum"),
        multiple_of: float("multipleOf"),
        min_length: int("minLength"),
        max_length: int("maxLength"),
        min_items: int("minItems"),
        max_items: int("maxItems"),
        min_properties: int("minProperties"),
        max_properties: int("maxProperties"),
        unique_items: flag(schema, "uniqueItems"),
        pattern: text(schema, "pattern").map(Pattern::new),
        choices: match schema.get("enum") {
            Some(Value::Array(choices)) => choices.clone(),
            _ => Vec::new(),
        },
    }))
}

impl Hash for Limits {
    /// Of the most common limits; the others seldom are all that differs.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.minimum.map(f64::to_bits).hash(state);
        self.maximum.map(f64::to_bits).hash(state);
        (self.min_length, self.max_length).hash(state);
        (self.min_items, self.max_items).hash(state);
        self.pattern.hash(state);
        self.choices.hash(state);
    }
}

fn junctors(schema: &Map<String, Value>) -> Option<Box<Junctors>> {
    let several = |key: &str| match schema.get(key) {
        Some(Value::Array(schemas)) => schemas.iter().map(Node::compile).collect(),
        _ => Vec::new(),
    };
    let (any_of, one_of, all_of) = (several("anyOf"), several("oneOf"), several("allOf"));
    let not = schema
        .get("not")
        .filter(|not| not.is_object())
        .map(Node::compile);
    if any_of.is_empty() && one_of.is_empty() && all_of.is_empty() && not.is_none() {
        return None;
    }
    Some(Box::new(Junctors {
        any_of,
        one_of,
        all_of,
        not,
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Node;

    #[test]
    fn schemas_that_say_the_same_are_one_node() {
        let limited = json!({"type": "string", "maxLength": 5, "pattern": "^a+$"});
        let one = json!({"type": "object", "properties": {"a": limited, "b": limited}});
        let mut two = json!({"type": "array", "items": one});
        two["items"]["properties"]["a"]["description"] = json!("what a field means is not checked");
        let one = Node::compile(&one);
        assert_eq!(one.properties["a"], one.properties["b"]);
        assert_eq!(Node::compile(&two).items.as_ref(), Some(&one));
    }

    #[test]
    fn schemas_that_differ_in_any_check_are_two() {
        let plain = json!({"type": "integer", "minimum": 1});
        for (key, value) in [
            ("minimum", json!(2)),
            ("multipleOf", json!(3)),
            ("enum", json!([1])),
            ("default", json!(1)),
            ("nullable", json!(true)),
            ("format", json!("int32")),
            ("not", json!({"enum": [1]})),
            ("x-kubernetes-validations", json!([{"rule": "self > 1"}])),
        ] {
            let mut other = plain.clone();
            other[key] = value;
            assert_ne!(Node::compile(&plain), Node::compile(&other), "{key}");
        }
    }
}

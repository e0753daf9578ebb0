//! `x-kubernetes-validations`: rules on objects, and on what may become of them.

use std::hash::{Hash, Hasher};

use kube_cel::cel::Value as Cel;
use serde_json::Value;

use super::{
    cel::{Expression, Old},
    cel_bounds,
    correlate::{Pair, old_item},
    error::{FieldError, Reason},
    node::{Additional, Node, Type},
    path::Path,
    rule_path,
};

/// A rule, compiled.
#[derive(Debug, PartialEq)]
pub(super) struct Rule {
    /// What an error calls the rule: its message, or else its text.
    title: String,
    message: Option<String>,
    expression: Expression,
    message_expression: Option<Expression>,
    reason: Reason,
    /// The field that is blamed, below the one that has the rule.
    blamed: Option<String>,
    optional_old: bool,
}

impl Hash for Rule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.title.hash(state);
    }
}

impl Rule {
    /// None for a rule that says nothing, or does not parse: the schema's own check refuses it.
    pub(super) fn compile(rule: &Value, node: &Node) -> Option<Self> {
        let text = |key: &str| {
            rule.get(key)
                .and_then(Value::as_str)
                .map(str::trim)
                .filter(|text| !text.is_empty())
        };
        let source = rule.get("rule")?.as_str()?;
        let message = text("message").map(str::to_owned);
        Some(Self {
            title: message.clone().unwrap_or_else(|| source.trim().to_owned()),
            message,
            expression: Expression::parse(source).ok()?,
            message_expression: text("messageExpression")
                .and_then(|text| Expression::parse(text).ok()),
            reason: match text("reason") {
                Some("FieldValueForbidden") => Reason::Forbidden,
                Some("FieldValueRequired") => Reason::Required,
                Some("FieldValueDuplicate") => Reason::Duplicate,
                _ => Reason::Invalid,
            },
            blamed: rule
                .get("fieldPath")
                .and_then(Value::as_str)
                .and_then(|path| rule_path::normalize(path, node).ok()),
            optional_old: rule
                .get("optionalOldSelf")
                .and_then(Value::as_bool)
                .unwrap_or_default(),
        })
    }

    fn uses_old(&self) -> bool {
        self.expression.uses_old()
    }

    /// Whether a field matters that did not change; with no name, whether the value is read as a whole.
    pub(super) fn reads(&self, field: Option<&str>) -> bool {
        let mut expressions = [Some(&self.expression), self.message_expression.as_ref()]
            .into_iter()
            .flatten();
        self.optional_old || expressions.any(|expression| expression.reads(field))
    }
}

/// What came of evaluating all rules.
#[derive(Default)]
pub(super) struct Broken {
    pub(super) errors: Vec<FieldError>,
    /// Rules that were broken before and still are, by values that did not change.
    pub(super) warnings: Vec<FieldError>,
}

/// Where in the old object a walk is, if anywhere.
#[derive(Clone, Copy, Default)]
pub(super) struct Ratchet<'a> {
    current: Option<Pair<'a>>,
    nearest: Option<Pair<'a>>,
}

impl<'a> Ratchet<'a> {
    pub(super) fn at(pair: Option<Pair<'a>>) -> Self {
        Self {
            current: pair,
            nearest: None,
        }
    }

    fn unchanged(self) -> bool {
        self.current.or(self.nearest).is_some_and(Pair::unchanged)
    }

    fn member(self, name: &str) -> Self {
        match (self.current, self.nearest) {
            (None, _) => self,
            (Some(_), None) if matches!(name, "apiVersion" | "kind") => Self::default(),
            (Some(pair), _) => Self {
                current: pair.member(name),
                nearest: Some(pair),
            },
        }
    }

    fn item(self, index: usize) -> Self {
        match self.current {
            None => self,
            Some(pair) => Self {
                current: pair.item(index),
                nearest: Some(pair),
            },
        }
    }
}

/// A walk over an object and, beside it, the old one.
pub(super) struct Walk<'a> {
    /// What every path begins with.
    pub(super) prefix: &'a str,
    pub(super) broken: Broken,
    /// The rules so far took too long.
    gave_up: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(prefix: &'a str) -> Self {
        cel_bounds::begin();
        Self {
            prefix,
            broken: Broken::default(),
            gave_up: false,
        }
    }
}

impl Walk<'_> {
    pub(super) fn value(
        &mut self,
        node: &Node,
        new: &Value,
        old: Option<&Value>,
        path: &Path<'_>,
        ratchet: Ratchet<'_>,
        root: bool,
    ) {
        if !node.below.rules || new.is_null() {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        for rule in &node.rules {
            self.rule(rule, node, new, old, path, ratchet, root);
        }
        match new {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let old = old.and_then(|old| old.as_object()?.get(name));
                    let ratchet = ratchet.member(name);
                    match (node.properties.get(name), &node.additional) {
                        (Some(property), _) => {
                            self.value(property, value, old, &path.field(name), ratchet, false);
                        }
                        (None, Additional::Each(each)) => {
                            self.value(each, value, old, &path.key(name), ratchet, false);
                        }
                        (None, Additional::Unsaid | Additional::Any(_)) => {}
                    }
                }
            }
            Value::Array(items) => {
                let Some(of_items) = &node.items else {
                    return;
                };
                for (index, item) in items.iter().enumerate() {
                    let old = old.and_then(|old| old_item(node, old, item));
                    self.value(
                        of_items,
                        item,
                        old,
                        &path.index(index),
                        ratchet.item(index),
                        false,
                    );
                }
            }
            _ => {}
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the state of a walk at one node")]
    fn rule(
        &mut self,
        rule: &Rule,
        node: &Node,
        new: &Value,
        old: Option<&Value>,
        path: &Path<'_>,
        ratchet: Ratchet<'_>,
        root: bool,
    ) {
        if self.gave_up || rule.uses_old() && old.is_none() && !rule.optional_old {
            return;
        }
        let plain = old.map_or(Old::Absent, Old::Plain);
        let seen = if rule.optional_old {
            Old::Optional(old)
        } else {
            plain
        };
        let blame = |detail: &str| {
            let declared = node.declared.map_or("", Type::name);
            FieldError::invalid(path.bracketed(self.prefix), &declared.into(), detail)
        };
        match rule.expression.run(node, root, new, seen) {
            Ok(Cel::Bool(true)) => return,
            Ok(_) => {}
            Err(_) if cel_bounds::used_up() => {
                let detail = "validation failed due to running out of cost budget, no further validation rules \
                     will be run";
                let error = blame(detail);
                self.broken.errors.push(error);
                self.gave_up = true;
                return;
            }
            Err(error) if error.starts_with("no such overload") => {
                let detail = format!(
                    "'{error}': call arguments did not match a supported operator, function or macro \
                     signature for rule: {}",
                    rule.title
                );
                let error = blame(&detail);
                self.broken.errors.push(error);
                return;
            }
            Err(error) => {
                let error = blame(&format!("{error} evaluating rule: {}", rule.title));
                self.broken.errors.push(error);
                return;
            }
        }
        let said = rule
            .message_expression
            .as_ref()
            .and_then(|expression| message(expression.run(node, root, new, plain)))
            .or_else(|| rule.message.clone())
            .unwrap_or_else(|| format!("failed rule: {}", rule.title));
        let error = self.broken_rule(rule, node, new, path, &said);
        match !rule.uses_old() && ratchet.unchanged() {
            true => self.broken.warnings.push(error),
            false => self.broken.errors.push(error),
        }
    }

    fn broken_rule(
        &self,
        rule: &Rule,
        node: &Node,
        new: &Value,
        path: &Path<'_>,
        said: &str,
    ) -> FieldError {
        let place = path.bracketed(self.prefix);
        let field = match &rule.blamed {
            Some(blamed) if place == "<nil>" => blamed.clone(),
            Some(blamed) => format!("{place}.{blamed}"),
            None => place,
        };
        let shown = !matches!(node.declared, Some(Type::Object | Type::Array));
        let said = if rule.reason == Reason::Duplicate {
            ""
        } else {
            said
        };
        match rule.reason {
            Reason::Invalid | Reason::Duplicate if shown => {
                FieldError::with_value(rule.reason, field, new, said)
            }
            _ => FieldError::bare(rule.reason, field, said),
        }
    }
}

/// The message an expression makes; none if it is not one line of text.
fn message(made: Result<Cel, String>) -> Option<String> {
    const LONGEST: usize = 5 * 1024;
    let Ok(Cel::String(text)) = made else {
        return None;
    };
    let text = text.trim();
    (!text.is_empty() && !text.contains('\n') && text.len() <= LONGEST).then(|| text.to_owned())
}

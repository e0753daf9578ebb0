//! The rules of a schema: their form, and whether they compile.

use serde_json::{Map, Value, json};

use super::types::{self, Kind};
use crate::structural::{cel::Expression, error::FieldError, golang, node::Node, rule_path};

type Object = Map<String, Value>;

const KEY: &str = "x-kubernetes-validations";

fn rules(schema: &Object) -> impl Iterator<Item = (usize, &Value)> {
    schema
        .get(KEY)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
}

fn text<'a>(rule: &'a Value, key: &str) -> &'a str {
    rule.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// What can be wrong with a rule before it is compiled.
pub(super) fn form(schema: &Object, path: &str, errors: &mut Vec<FieldError>) {
    const REASONS: &[&str] = &[
        "FieldValueDuplicate",
        "FieldValueForbidden",
        "FieldValueInvalid",
        "FieldValueRequired",
    ];
    let lines = |text: &str| text.contains(['\n', '\r']);
    let node = Node::of(schema);
    for (index, rule) in rules(schema) {
        let place = |key: &str| format!("{path}.{KEY}[{index}].{key}");
        let invalid = |key: &str, detail: &str| {
            FieldError::invalid(place(key), &json!(text(rule, key)), detail)
        };
        let blank = |key: &str| !text(rule, key).is_empty() && text(rule, key).trim().is_empty();
        let message = text(rule, "message").trim();
        if text(rule, "rule").trim().is_empty() {
            errors.push(FieldError::required(place("rule"), "rule is not specified"));
        } else if blank("message") {
            errors.push(invalid("message", "must be non-empty if specified"));
        } else if lines(message) {
            errors.push(invalid("message", "must not contain line breaks"));
        } else if lines(text(rule, "rule").trim()) && message.is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(place("message"), detail));
        }
        if blank("messageExpression") {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(place("messageExpression"), detail));
        }
        if let Some(reason) = rule.get("reason").filter(|value| !value.is_null()) {
            let known: Vec<_> = REASONS.iter().map(|name| (*name).to_owned()).collect();
            if !known.iter().any(|name| reason == name) {
                errors.push(FieldError::not_supported(place("reason"), reason, &known));
            }
        }
        if blank("fieldPath") {
            errors.push(invalid("fieldPath", "must be non-empty if specified"));
        }
        if lines(text(rule, "fieldPath")) {
            errors.push(invalid("fieldPath", "must not contain line breaks"));
        }
        if !text(rule, "fieldPath").is_empty()
            && rule_path::normalize(text(rule, "fieldPath"), &node).is_err()
        {
            errors.push(invalid("fieldPath", "must be a valid path"));
        }
    }
}

/// Compiles the rules of a schema that is sound otherwise.
pub(super) fn compile(
    schema: &Object,
    node: &Node,
    root: bool,
    path: &str,
    uncorrelatable: Option<&str>,
    errors: &mut Vec<FieldError>,
) {
    for (index, rule) in rules(schema) {
        let place = |key: &str| format!("{path}.{KEY}[{index}].{key}");
        let mut refuse = |key: &str, detail: &str| {
            errors.push(FieldError::with_shown(place(key), shown(rule), detail));
        };
        let optional = rule.get("optionalOldSelf").and_then(Value::as_bool);
        let scope = types::Scope::new(node, root, optional.unwrap_or_default());
        let source = text(rule, "rule");
        let expression = match compiled(source, &scope) {
            Ok((expression, kind)) => {
                if !kind.may_be(&Kind::Bool) {
                    refuse("rule", "cel expression must evaluate to a bool");
                    continue;
                }
                expression
            }
            Err(error) => {
                refuse("rule", &format!("compilation failed: {error}"));
                continue;
            }
        };
        let message = text(rule, "messageExpression");
        if !message.is_empty() {
            match compiled(message, &scope) {
                Ok((_, kind)) if !kind.may_be(&Kind::String) => {
                    refuse(
                        "messageExpression",
                        "messageExpression must evaluate to a string",
                    );
                }
                Ok(_) => {}
                Err(error) => {
                    refuse(
                        "messageExpression",
                        &format!("messageExpression compilation failed: {error}"),
                    );
                }
            }
        }
        match (expression.uses_old(), uncorrelatable, optional) {
            (true, Some(above), _) => {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {above}"
                );
                errors.push(FieldError::invalid(place("rule"), &json!(source), &detail));
            }
            (false, _, Some(optional)) => {
                let detail = "may not be set if oldSelf is not used in rule";
                errors.push(FieldError::invalid(
                    place("optionalOldSelf"),
                    &json!(optional),
                    detail,
                ));
            }
            _ => {}
        }
    }
}

fn compiled<'a>(source: &str, scope: &types::Scope<'a>) -> Result<(Expression, Kind<'a>), String> {
    let expression = Expression::parse(source)?;
    let kind = scope.kind_of(source, expression.tree())?;
    Ok((expression, kind))
}

/// A rule as the API server prints it.
fn shown(rule: &Value) -> String {
    let text = |key: &str| golang::json(&json!(text(rule, key)));
    let maybe = |key: &str| golang::json(rule.get(key).unwrap_or(&Value::Null));
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        maybe("reason"),
        text("fieldPath"),
        maybe("optionalOldSelf"),
    )
}

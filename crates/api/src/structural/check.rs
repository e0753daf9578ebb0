//! Values against their schema: types, limits, required fields, junctors.
//!
//! Of several schemas that a value misses, the one with the most checks passed is reported; so every check
//! counts, in the same places as in the API server.

use serde_json::{Map, Value, json};

use super::{
    correlate::Pair,
    error::{FieldError, Reason},
    formats::Format,
    golang::{self, Num},
    limits,
    node::{Additional, Junctors, Node, Type},
    path::Path,
};
use crate::shared::Shared;

/// What came of checking a value.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) problems: Vec<Problem>,
    /// How many checks were made and passed.
    pub(super) passed: usize,
}

/// What is wrong, before it has a place.
pub(super) struct Problem {
    pub(super) kind: Kind,
    /// The dotted path of the value; the API server names none for what has no value.
    pub(super) name: Option<String>,
    /// The value as far as it is shown.
    pub(super) value: Value,
    pub(super) message: String,
}

pub(super) enum Kind {
    Required,
    NotSupported(Vec<String>),
    TooLong(i64),
    TooMany(i64, i64),
    Type,
    Other,
}

impl Outcome {
    pub(super) fn add(&mut self, problem: Problem) {
        if self
            .problems
            .iter()
            .all(|there| there.message != problem.message)
        {
            self.problems.push(problem);
        }
    }

    fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        other
            .problems
            .into_iter()
            .for_each(|problem| self.add(problem));
    }

    /// The problems with their places below a prefix.
    pub(super) fn into_errors(self, prefix: &str) -> Vec<FieldError> {
        self.problems
            .into_iter()
            .map(|problem| problem.into_error(prefix))
            .collect()
    }
}

impl Problem {
    /// A problem of a value with a name.
    pub(super) fn at(path: &Path<'_>, kind: Kind, value: Value, said: &str) -> Self {
        let name = path.dotted();
        let message = format!("{name} in body {said}");
        Self {
            kind,
            name: Some(name),
            value,
            message,
        }
    }

    /// A limit that makes no sense for the value.
    pub(super) fn bad_factor(path: &Path<'_>, value: Value, factor: i64) -> Self {
        let name = path.dotted();
        let message = format!("factor MultipleOf declared for {name} must be positive: {factor}");
        Self {
            kind: Kind::Other,
            name: Some(name),
            value,
            message,
        }
    }

    pub(super) fn nameless(message: String) -> Self {
        Self {
            kind: Kind::Other,
            name: None,
            value: json!(""),
            message,
        }
    }

    fn into_error(self, prefix: &str) -> FieldError {
        let name = self.name.unwrap_or_default();
        let name = name.strip_prefix('.').unwrap_or(&name);
        let field = match (prefix, name) {
            ("", "") => "<nil>".to_owned(),
            (prefix, "") => prefix.to_owned(),
            ("", name) => name.to_owned(),
            (prefix, name) => format!("{prefix}.{name}"),
        };
        match self.kind {
            Kind::Required => FieldError::required(field, ""),
            Kind::NotSupported(choices) => FieldError::not_supported(field, &self.value, &choices),
            Kind::TooLong(most) => FieldError::too_long(field, most),
            Kind::TooMany(actual, most) => FieldError::too_many(field, actual, most),
            Kind::Type => {
                FieldError::with_value(Reason::TypeInvalid, field, &self.value, &self.message)
            }
            Kind::Other => FieldError::invalid(field, &self.value, &self.message),
        }
    }
}

/// Checks a value; with an old one, what did not change is not reported.
pub(super) fn check(
    node: &Node,
    value: &Value,
    path: &Path<'_>,
    pair: Option<Pair<'_>>,
) -> Outcome {
    if pair.is_some_and(|pair| !pair.counts && pair.unchanged()) {
        return Outcome::default();
    }
    let mut outcome = plain(node, value, path, pair);
    if !outcome.problems.is_empty() && pair.is_some_and(Pair::unchanged) {
        outcome.problems.clear();
    }
    outcome
}

fn plain(node: &Node, value: &Value, path: &Path<'_>, pair: Option<Pair<'_>>) -> Outcome {
    let mut outcome = Outcome::default();
    if value.is_null() {
        match node.types.is_empty() || node.nullable {
            true => outcome.passed += 1,
            false => outcome.add(wrong_type(path, &names(&node.types), "null")),
        }
        choices(node, value, path, &mut outcome);
        return outcome;
    }
    if !node.types.is_empty() || node.format.is_some() {
        match type_problem(node, value, path) {
            Some(problem) => outcome.add(problem),
            None => outcome.passed += 1,
        }
        outcome.passed += 1;
    }
    if let Some(junctors) = &node.junctors {
        all_junctors(junctors, value, path, pair, &mut outcome);
    }
    outcome.passed += 2;
    match value {
        Value::String(text) => string(node, text, path, &mut outcome),
        Value::Number(number) => {
            limits::number(node, Num::of(number), path, &mut outcome);
            outcome.passed += 2;
        }
        Value::Array(list) => {
            items(node, list, path, pair, &mut outcome);
            outcome.passed += 2;
        }
        _ => {}
    }
    choices(node, value, path, &mut outcome);
    outcome.passed += 1;
    if let Value::Object(fields) = value {
        object(node, fields, path, pair, &mut outcome);
        outcome.passed += 1;
    }
    outcome.passed += 1;
    outcome
}

fn names(types: &[Type]) -> String {
    types
        .iter()
        .map(|one| one.name())
        .collect::<Vec<_>>()
        .join(",")
}

fn wrong_type(path: &Path<'_>, wanted: &str, found: &str) -> Problem {
    let said = format!("must be of type {wanted}: {}", golang::quote(found));
    Problem::at(path, Kind::Type, json!(found), &said)
}

/// The type a value has, and the format that goes with it.
fn type_of(value: &Value) -> (&'static str, &'static str, Option<Type>) {
    match value {
        Value::Null => ("null", "", None),
        Value::Bool(_) => ("boolean", "", Some(Type::Boolean)),
        Value::String(_) => ("string", "", Some(Type::String)),
        Value::Array(_) => ("array", "", Some(Type::Array)),
        Value::Object(_) => ("object", "", Some(Type::Object)),
        Value::Number(number) => match Num::of(number) {
            Num::Int(_) => ("integer", "int64", Some(Type::Integer)),
            Num::Float(_) => ("number", "float64", Some(Type::Number)),
        },
    }
}

fn type_problem(node: &Node, value: &Value, path: &Path<'_>) -> Option<Problem> {
    let (found, found_format, found_type) = type_of(value);
    let is = |one: Type| node.types.contains(&one);
    let fits = found_type.is_some_and(is)
        || match value {
            Value::Number(number) => match Num::of(number) {
                Num::Int(_) => is(Type::Number),
                Num::Float(float) => is(Type::Integer) && golang::is_whole(float),
            },
            _ => false,
        };
    let by_format = matches!(value, Value::String(_) | Value::Array(_));
    if let Some((format, _)) = &node.format {
        if !by_format && !fits && found_format != format {
            return Some(wrong_type(path, format, found_format));
        }
        // the format of a string says enough about its type
        if by_format && !is(Type::Number) && !is(Type::Integer) {
            return None;
        }
    }
    (!fits).then(|| wrong_type(path, &names(&node.types), found))
}

fn string(node: &Node, text: &str, path: &Path<'_>, outcome: &mut Outcome) {
    limits::string(node, text, path, outcome);
    outcome.passed += 1;
    if let Some((name, Format::Matches(matches))) = &node.format {
        if !matches(text) {
            outcome.add(wrong_type(path, name, text));
        }
        outcome.passed += 1;
    }
}

fn choices(node: &Node, value: &Value, path: &Path<'_>, outcome: &mut Outcome) {
    let Some(limits) = &node.limits else {
        return;
    };
    if limits.choices.is_empty()
        || limits
            .choices
            .iter()
            .any(|choice| limits::same(value, choice))
    {
        return;
    }
    let shown: Vec<_> = limits
        .choices
        .iter()
        .map(|choice| match choice {
            Value::String(text) => text.clone(),
            other => golang::json(other),
        })
        .collect();
    let said = format!("should be one of [{}]", shown.join(" "));
    outcome.add(Problem::at(
        path,
        Kind::NotSupported(shown),
        value.clone(),
        &said,
    ));
}

fn items(
    node: &Node,
    list: &[Value],
    path: &Path<'_>,
    pair: Option<Pair<'_>>,
    outcome: &mut Outcome,
) {
    if let Some(of_items) = &node.items {
        for (index, item) in list.iter().enumerate() {
            let pair = pair.and_then(|pair| pair.item(index));
            outcome.merge(check(of_items, item, &path.index(index), pair));
        }
    }
    limits::items(node, list, path, outcome);
}

fn object(
    node: &Node,
    fields: &Map<String, Value>,
    path: &Path<'_>,
    pair: Option<Pair<'_>>,
    outcome: &mut Outcome,
) {
    limits::properties(node, fields, path, outcome);
    let member = |name: &str| {
        // the version of an object may change without anybody writing it
        let visible = !path.is_root() || !matches!(name, "apiVersion" | "kind");
        pair.filter(|_| visible).and_then(|pair| pair.member(name))
    };
    for (name, value) in fields {
        match (node.properties.get(name), &node.additional) {
            (Some(property), _) => {
                outcome.merge(check(property, value, &path.field(name), member(name)));
            }
            (None, Additional::Each(each)) => {
                outcome.merge(check(each, value, &path.key(name), member(name)));
            }
            (None, Additional::Any(false)) => {
                let message = format!("{}.{name} in body is a forbidden property", path.dotted());
                outcome.add(Problem {
                    kind: Kind::Other,
                    name: Some(path.dotted()),
                    value: json!(name),
                    message,
                });
            }
            (None, Additional::Unsaid | Additional::Any(true)) => {}
        }
    }
    for name in &node.required {
        if !fields.contains_key(name) {
            outcome.add(Problem::at(
                &path.key(name),
                Kind::Required,
                json!(""),
                "is required",
            ));
        }
    }
}

fn all_junctors(
    junctors: &Junctors,
    value: &Value,
    path: &Path<'_>,
    pair: Option<Pair<'_>>,
    outcome: &mut Outcome,
) {
    let Junctors {
        any_of,
        one_of,
        all_of,
        not,
    } = junctors;
    let quoted = || golang::quote(&path.dotted());
    let pair = pair.map(|pair| Pair {
        counts: true,
        ..pair
    });
    let run = |node: &Node| plain(node, value, path, pair);
    if !any_of.is_empty() {
        match best(any_of, run, true) {
            (0, failure) => {
                let message = format!("{} must validate at least one schema (anyOf)", quoted());
                outcome.add(Problem::nameless(message));
                outcome.merge(failure);
            }
            (_, success) => outcome.merge(success),
        }
    }
    if !one_of.is_empty() {
        let (valid, result) = best(one_of, run, false);
        if valid != 1 {
            let found = match valid {
                0 => "Found none valid".to_owned(),
                several => format!("Found {several} valid alternatives"),
            };
            let message = format!(
                "{} must validate one and only one schema (oneOf). {found}",
                quoted()
            );
            outcome.add(Problem::nameless(message));
        }
        if valid < 2 {
            outcome.merge(result);
        }
    }
    if !all_of.is_empty() {
        let mut valid = 0;
        for node in all_of {
            let result = run(node);
            valid += usize::from(result.problems.is_empty());
            outcome.merge(result);
        }
        if valid != all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            let message = format!("{} must validate all the schemas (allOf){none}", quoted());
            outcome.add(Problem::nameless(message));
        }
    }
    if let Some(not) = not
        && run(not).problems.is_empty()
    {
        let message = format!("{} must not validate the schema (not)", quoted());
        outcome.add(Problem::nameless(message));
    }
}

/// How many schemas a value meets, and the first of those results, or the best of the others.
fn best(
    nodes: &[Shared<Node>],
    run: impl Fn(&Node) -> Outcome,
    one_is_enough: bool,
) -> (usize, Outcome) {
    let mut valid = 0;
    let mut success = None;
    let mut failure: Option<Outcome> = None;
    for node in nodes {
        let result = run(node);
        if result.problems.is_empty() {
            valid += 1;
            success.get_or_insert(result);
            if one_is_enough {
                break;
            }
        } else if failure
            .as_ref()
            .is_none_or(|best| result.passed > best.passed)
        {
            failure = Some(result);
        }
    }
    (valid, success.or(failure).unwrap_or_default())
}

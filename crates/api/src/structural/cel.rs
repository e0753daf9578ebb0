//! Rules are written in CEL: its functions, its values, and its errors as the API server words them.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, RwLock},
};

use kube_cel::{
    KubeCelExt,
    cel::{
        Context, ExecutionError, IdedExpr, Value as Cel,
        common::ast::{CallExpr, EntryExpr, Expr, operators},
        extractors::This,
        objects::OptionalValue,
        parser::Parser,
    },
};
use regex::Regex;
use serde_json::Value;

use super::{
    cel_bounds, cel_depth,
    cel_values::{Need, of},
    formats,
    node::Node,
    pattern,
};

/// The types that a rule may name.
pub(super) const TYPES: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "uint",
];

/// All functions, and the names of types.
static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| {
    let mut context = Context::default().with_all();
    context.add_function("type", |value: Cel| type_name(&value).to_owned());
    context.add_function("dyn", |value: Cel| Ok::<Cel, ExecutionError>(value));
    context.add_function("size", size);
    context.add_function("matches", matches);
    context.add_function("duration", duration);
    context.add_function("timestamp", timestamp);
    cel_bounds::add_functions(&mut context);
    for name in TYPES {
        context.add_variable_from_value(*name, *name);
    }
    context
});

fn type_name(value: &Cel) -> &'static str {
    match value {
        Cel::Bool(_) => "bool",
        Cel::Bytes(_) => "bytes",
        Cel::Float(_) => "double",
        Cel::Int(_) => "int",
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Null => "null_type",
        Cel::String(_) => "string",
        Cel::UInt(_) => "uint",
        Cel::Duration(_) => "google.protobuf.Duration",
        Cel::Timestamp(_) => "google.protobuf.Timestamp",
        _ => "type",
    }
}

/// The length of a string is the number of its characters.
fn size(This(value): This<Cel>) -> Result<i64, ExecutionError> {
    let size = match &value {
        Cel::List(items) => items.len(),
        Cel::Map(map) => map.map.len(),
        Cel::String(text) => text.chars().count(),
        Cel::Bytes(bytes) => bytes.len(),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    Ok(i64::try_from(size).unwrap_or(i64::MAX))
}

/// A rule's patterns are compiled once, not at every object.
fn matches(This(text): This<Arc<String>>, wanted: Arc<String>) -> Result<bool, ExecutionError> {
    static COMPILED: LazyLock<RwLock<HashMap<String, Regex>>> = LazyLock::new(RwLock::default);
    let found = COMPILED
        .read()
        .ok()
        .and_then(|all| all.get(wanted.as_str()).cloned());
    let regex = match found {
        Some(regex) => regex,
        None => {
            let regex = pattern::compile(&wanted)
                .map_err(|error| ExecutionError::function_error("matches", error))?;
            // a pattern that comes from an object could be any number of patterns
            if let Ok(mut all) = COMPILED.write()
                && all.len() < 1000
            {
                all.insert(wanted.to_string(), regex.clone());
            }
            regex
        }
    };
    Ok(regex.is_match(&text))
}

fn duration(value: Cel) -> Result<Cel, ExecutionError> {
    match value {
        Cel::String(text) => match formats::go_duration(&text) {
            Some(nanoseconds) => Ok(Cel::Duration(chrono::Duration::nanoseconds(nanoseconds))),
            None => Err(unreadable("duration", "google.protobuf.Duration")),
        },
        other => Ok(other),
    }
}

fn timestamp(value: Cel) -> Result<Cel, ExecutionError> {
    match value {
        Cel::String(text) => chrono::DateTime::parse_from_rfc3339(&text)
            .map(Cel::Timestamp)
            .map_err(|_| unreadable("timestamp", "google.protobuf.Timestamp")),
        other => Ok(other),
    }
}

fn unreadable(function: &str, wanted: &str) -> ExecutionError {
    let message = format!("type conversion error from 'string' to '{wanted}'");
    ExecutionError::function_error(function, message)
}

/// A compiled expression, and what it reads.
#[derive(Debug, PartialEq)]
pub(super) struct Expression {
    expression: IdedExpr,
    of_self: Reads,
    of_old: Reads,
}

/// The fields of a variable that an expression reads.
#[derive(Debug, Default, PartialEq)]
struct Reads {
    any: bool,
    all: bool,
    fields: Vec<String>,
    /// Those of them with which it does more than ask whether they are there, or the same in the other variable.
    values: Vec<String>,
}

impl Reads {
    fn all() -> Self {
        Self {
            all: true,
            ..Self::default()
        }
    }

    fn field(&mut self, name: &str, is_value: bool) {
        self.any = true;
        self.fields.push(name.to_owned());
        if is_value {
            self.values.push(name.to_owned());
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.all || self.fields.iter().any(|field| field == name)
    }

    fn wants_value(&self, name: &str) -> bool {
        self.all || self.values.iter().any(|field| field == name)
    }
}

impl Expression {
    pub(super) fn parse(source: &str) -> Result<Self, String> {
        cel_depth::check(source)?;
        let mut expression = Parser::default()
            .enable_optional_syntax(true)
            .parse(source)
            .map_err(|errors| {
                let lines: Vec<_> = errors
                    .errors
                    .iter()
                    .map(|error| pointed(source, error.pos, &error.msg))
                    .collect();
                lines.join("\n")
            })?;
        cel_bounds::bound(&mut expression, source)?;
        index_optionals(&mut expression);
        let mut of_self = Reads::default();
        let mut of_old = Reads::default();
        read(&expression, &mut of_self, &mut of_old);
        Ok(Self {
            expression,
            of_self,
            of_old,
        })
    }

    pub(super) fn tree(&self) -> &IdedExpr {
        &self.expression
    }

    pub(super) fn uses_old(&self) -> bool {
        self.of_old.any
    }

    /// Whether the value of a field matters, even if it is the same in `self` and `oldSelf`; with no name, whether one of
    /// these is read as a whole.
    pub(super) fn reads(&self, field: Option<&str>) -> bool {
        let mut variables = [&self.of_self, &self.of_old].into_iter();
        variables.any(|reads| match field {
            Some(name) => reads.wants_value(name),
            None => reads.all,
        })
    }

    fn need(&self, reads: &Reads, field: &str, is_same: impl FnOnce() -> bool) -> Need {
        match reads.wants(field) {
            false => Need::Nothing,
            true if !self.reads(Some(field)) && is_same() => Need::Presence,
            true => Need::Value,
        }
    }

    /// Evaluates with `self` and, if given, `oldSelf`.
    pub(super) fn run(
        &self,
        node: &Node,
        root: bool,
        new: &Value,
        old: Old<'_>,
    ) -> Result<Cel, String> {
        let mut scope = FUNCTIONS.new_inner_scope();
        if self.of_self.any {
            let other = match old {
                Old::Plain(old) => Some(old),
                Old::Absent | Old::Optional(_) => None,
            };
            let value = of(node, root, new, None, |field, name, value| {
                let is_same = || other.and_then(|other| other.get(name)) == Some(value);
                self.need(&self.of_self, field, is_same)
            });
            scope.add_variable_from_value("self", value);
        }
        if self.of_old.any {
            let value = |old: &Value, reads: &Reads| {
                of(node, root, old, Some(new), |field, name, value| {
                    self.need(reads, field, || new.get(name) == Some(value))
                })
            };
            match old {
                Old::Absent => {}
                Old::Plain(old) => {
                    scope.add_variable_from_value("oldSelf", value(old, &self.of_old));
                }
                Old::Optional(old) => {
                    let value = match old {
                        // what an optional is asked for is hidden behind `value()`
                        Some(old) => OptionalValue::of(value(old, &Reads::all())),
                        None => OptionalValue::none(),
                    };
                    scope.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(value)));
                }
            }
        }
        Cel::resolve(&self.expression, &scope).map_err(|error| said(&error))
    }
}

/// What an expression sees as `oldSelf`.
#[derive(Clone, Copy)]
pub(super) enum Old<'a> {
    Absent,
    Plain(&'a Value),
    Optional(Option<&'a Value>),
}

/// An error with the line it is in, and a mark below the place.
pub(super) fn pointed(source: &str, position: (isize, isize), message: &str) -> String {
    let (line, column) = position;
    let index = usize::try_from(line - 1).unwrap_or_default();
    let text = source.lines().nth(index).unwrap_or_default();
    let dots = ".".repeat(usize::try_from(column - 1).unwrap_or_default());
    format!("ERROR: <input>:{line}:{column}: {message}\n | {text}\n | {dots}^")
}

/// Makes `a.?b` an `a[?'b']`: the interpreter takes the former for an error when there is no such field.
fn index_optionals(expression: &mut IdedExpr) {
    if let Expr::Call(call) = &mut expression.expr
        && call.func_name == operators::OPT_SELECT
    {
        operators::OPT_INDEX.clone_into(&mut call.func_name);
    }
    cel_bounds::parts(expression)
        .into_iter()
        .for_each(index_optionals);
}

/// Finds out which fields of `self` and `oldSelf` an expression reads.
fn read(expression: &IdedExpr, of_self: &mut Reads, of_old: &mut Reads) {
    match &expression.expr {
        Expr::Ident(name) => match name.as_str() {
            "self" => (of_self.any, of_self.all) = (true, true),
            "oldSelf" => (of_old.any, of_old.all) = (true, true),
            _ => {}
        },
        Expr::Select(select) => match field_of(expression) {
            Some(("self", field)) => of_self.field(field, !select.test),
            Some((_, field)) => of_old.field(field, !select.test),
            None => read(&select.operand, of_self, of_old),
        },
        Expr::Call(call) if let Some(field) = compared(call) => {
            of_self.field(field, false);
            of_old.field(field, false);
        }
        Expr::Call(call) => call
            .target
            .as_deref()
            .into_iter()
            .chain(&call.args)
            .for_each(|part| read(part, of_self, of_old)),
        Expr::Comprehension(loops) => [
            &loops.iter_range,
            &loops.accu_init,
            &loops.loop_cond,
            &loops.loop_step,
            &loops.result,
        ]
        .into_iter()
        .for_each(|part| read(part, of_self, of_old)),
        Expr::List(list) => list
            .elements
            .iter()
            .for_each(|part| read(part, of_self, of_old)),
        Expr::Map(map) => map
            .entries
            .iter()
            .for_each(|entry| entries(&entry.expr, of_self, of_old)),
        Expr::Struct(fields) => {
            fields
                .entries
                .iter()
                .for_each(|entry| entries(&entry.expr, of_self, of_old));
        }
        Expr::Literal(_) | Expr::Unspecified => {}
    }
}

/// The variable and the field that an expression takes from it, if it does no more.
fn field_of(expression: &IdedExpr) -> Option<(&str, &str)> {
    let Expr::Select(select) = &expression.expr else {
        return None;
    };
    match &select.operand.expr {
        Expr::Ident(name) if matches!(name.as_str(), "self" | "oldSelf") => {
            Some((name, &select.field))
        }
        _ => None,
    }
}

/// The field of which a call asks whether it is the same in `self` and `oldSelf`, both times.
fn compared(call: &CallExpr) -> Option<&str> {
    let [one, other] = call.args.as_slice() else {
        return None;
    };
    let is_value = |side: &IdedExpr| matches!(&side.expr, Expr::Select(select) if !select.test);
    let ((of_one, field), (of_other, other_field)) = (field_of(one)?, field_of(other)?);
    let compares = matches!(
        call.func_name.as_str(),
        operators::EQUALS | operators::NOT_EQUALS
    );
    let is_both = of_one != of_other && field == other_field;
    (compares && is_both && is_value(one) && is_value(other)).then_some(field)
}

fn entries(entry: &EntryExpr, of_self: &mut Reads, of_old: &mut Reads) {
    match entry {
        EntryExpr::StructField(field) => read(&field.value, of_self, of_old),
        EntryExpr::MapEntry(entry) => {
            read(&entry.key, of_self, of_old);
            read(&entry.value, of_self, of_old);
        }
    }
}

const QUANTITIES: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// An evaluation's error in the words of the API server.
fn said(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => {
            format!("index out of bounds: {index}")
        }
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { function, message } => match function.as_str() {
            "quantity" => QUANTITIES.to_owned(),
            _ => message.clone(),
        },
        ExecutionError::NoSuchOverload
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::UnsupportedTargetType { .. }
        | ExecutionError::NotSupportedAsMethod { .. }
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..) => "no such overload".to_owned(),
        other => other.to_string(),
    }
}

//! The types of expressions, as far as it takes to find a field that does not exist, an unknown name, or two sides
//! that can never be equal. Where a type is not known, anything goes.

use kube_cel::cel::{
    IdedExpr,
    common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, SelectExpr},
};

use crate::structural::{
    cel::TYPES,
    cel_values as cel,
    node::{Additional, Node, Type},
};

#[derive(Clone, Debug)]
pub(super) enum Kind<'a> {
    Any,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Null,
    Timestamp,
    Duration,
    Type,
    List(Box<Self>),
    Map(Box<Self>),
    /// An object with declared fields; a resource has a few more.
    Object(&'a Node, bool),
}

impl Kind<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Any | Self::Object(..) => "dyn",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Null => "null",
            Self::Timestamp => "timestamp",
            Self::Duration => "duration",
            Self::Type => "type",
            Self::List(_) => "list",
            Self::Map(_) => "map",
        }
    }

    pub(super) fn may_be(&self, other: &Kind<'_>) -> bool {
        use Kind::{Any, List, Map, Object};
        match (self, other) {
            (Any, _)
            | (_, Any)
            | (List(_), List(_))
            | (Map(_) | Object(..), Map(_) | Object(..)) => true,
            (left, right) => std::mem::discriminant(left) == std::mem::discriminant(right),
        }
    }

    /// Whether the two are plain values, of which it is certain whether they can be equal.
    fn plain(&self) -> bool {
        use Kind::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
        matches!(
            self,
            Bool | Int | Uint | Double | String | Bytes | Timestamp | Duration
        )
    }
}

/// The names an expression may use.
pub(super) struct Scope<'a> {
    names: Vec<(String, Kind<'a>)>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(node: &'a Node, root: bool, optional_old: bool) -> Self {
        let own = of(node, root || node.embedded);
        let old = if optional_old { Kind::Any } else { own.clone() };
        let mut names = vec![("self".to_owned(), own), ("oldSelf".to_owned(), old)];
        let types = TYPES.iter().chain(&["type"]);
        names.extend(types.map(|name| ((*name).to_owned(), Kind::Type)));
        Self { names }
    }

    /// The type of an expression, or the error of the API server's compiler.
    pub(super) fn kind_of(&self, source: &str, expression: &IdedExpr) -> Result<Kind<'a>, String> {
        let mut checker = Checker {
            source,
            names: self.names.clone(),
        };
        checker.kind(expression)
    }
}

/// The type of a value with a schema.
fn of(node: &Node, resource: bool) -> Kind<'_> {
    if node.int_or_string || node.nullable {
        return Kind::Any;
    }
    match node.declared {
        Some(Type::Boolean) => Kind::Bool,
        Some(Type::Integer) => Kind::Int,
        Some(Type::Number) => Kind::Double,
        Some(Type::String) => match node.format.as_ref().map(|(name, _)| name.as_str()) {
            Some("date-time" | "date") => Kind::Timestamp,
            Some("duration") => Kind::Duration,
            Some("byte") => Kind::Bytes,
            _ => Kind::String,
        },
        Some(Type::Array) => {
            let item = node
                .items
                .as_deref()
                .map_or(Kind::Any, |item| of(item, item.embedded));
            Kind::List(Box::new(item))
        }
        Some(Type::Object) => match &node.additional {
            Additional::Each(each) => Kind::Map(Box::new(of(each, each.embedded))),
            Additional::Unsaid | Additional::Any(_) => Kind::Object(node, resource),
        },
        None => Kind::Any,
    }
}

struct Checker<'s, 'a> {
    source: &'s str,
    names: Vec<(String, Kind<'a>)>,
}

impl<'a> Checker<'_, 'a> {
    fn error(&self, at: usize, message: &str) -> String {
        let before = &self.source[..at.min(self.source.len())];
        let line = before.matches('\n').count();
        let column = before.chars().rev().take_while(|c| *c != '\n').count();
        let text = self.source.lines().nth(line).unwrap_or_default();
        let dots = ".".repeat(column);
        format!(
            "ERROR: <input>:{}:{}: {message}\n | {text}\n | {dots}^",
            line + 1,
            column + 1
        )
    }

    /// Where a text stands that is a word of its own.
    fn find(&self, wanted: &str) -> usize {
        let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        self.source
            .match_indices(wanted)
            .find(|(at, _)| {
                let before = self.source[..*at].chars().next_back();
                let after = self.source[at + wanted.len()..].chars().next();
                (wanted.starts_with('.') || !before.is_some_and(part)) && !after.is_some_and(part)
            })
            .map_or(0, |(at, _)| at)
    }

    fn kind(&mut self, expression: &IdedExpr) -> Result<Kind<'a>, String> {
        Ok(match &expression.expr {
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Kind::Bool,
                LiteralValue::Bytes(_) => Kind::Bytes,
                LiteralValue::Double(_) => Kind::Double,
                LiteralValue::Int(_) => Kind::Int,
                LiteralValue::Null => Kind::Null,
                LiteralValue::String(_) => Kind::String,
                LiteralValue::UInt(_) => Kind::Uint,
            },
            Expr::Ident(name) => return self.name(name),
            Expr::Select(select) => return self.select(select),
            Expr::Call(call) => return self.call(call),
            Expr::List(list) => {
                for element in &list.elements {
                    self.kind(element)?;
                }
                Kind::List(Box::new(Kind::Any))
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.kind(&entry.key)?;
                        self.kind(&entry.value)?;
                    }
                }
                Kind::Map(Box::new(Kind::Any))
            }
            Expr::Comprehension(loops) => {
                let item = match self.kind(&loops.iter_range)? {
                    Kind::List(item) => *item,
                    Kind::Map(_) | Kind::Object(..) => Kind::String,
                    _ => Kind::Any,
                };
                let start = self.kind(&loops.accu_init)?;
                let before = self.names.len();
                self.names.push((loops.iter_var.clone(), item));
                self.names.push((loops.accu_var.clone(), start));
                self.kind(&loops.loop_cond)?;
                self.kind(&loops.loop_step)?;
                let result = self.kind(&loops.result);
                self.names.truncate(before);
                return result;
            }
            Expr::Struct(_) | Expr::Unspecified => Kind::Any,
        })
    }

    fn name(&self, name: &str) -> Result<Kind<'a>, String> {
        let known = self.names.iter().rev().find(|(known, _)| known == name);
        match known {
            Some((_, kind)) => Ok(kind.clone()),
            // made by macros, or the first part of a function's name
            None if name.starts_with('@') || name.starts_with("__") => Ok(Kind::Any),
            None => {
                let message = format!("undeclared reference to '{name}' (in container '')");
                Err(self.error(self.find(name), &message))
            }
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Result<Kind<'a>, String> {
        let kind = match self.kind(&select.operand)? {
            Kind::Object(node, resource) => match member(node, resource, &select.field) {
                Some(kind) => kind,
                None => {
                    let message = format!("undefined field '{}'", select.field);
                    return Err(self.error(self.find(&format!(".{}", select.field)), &message));
                }
            },
            Kind::Map(value) => *value,
            _ => Kind::Any,
        };
        Ok(if select.test { Kind::Bool } else { kind })
    }

    fn call(&mut self, call: &CallExpr) -> Result<Kind<'a>, String> {
        let name = call.func_name.as_str();
        if let Some(target) = &call.target
            && !matches!(&target.expr, Expr::Ident(library) if LIBRARIES.contains(&library.as_str()))
        {
            self.kind(target)?;
        }
        let arguments = call
            .args
            .iter()
            .map(|part| self.kind(part))
            .collect::<Result<Vec<_>, _>>()?;
        match (name, arguments.as_slice()) {
            ("_==_" | "_!=_", [left, right]) => {
                if left.plain() && right.plain() && !left.may_be(right) {
                    let message = format!(
                        "found no matching overload for '{name}' applied to '({}, {})'",
                        left.name(),
                        right.name()
                    );
                    let operator = &name[1..3];
                    return Err(
                        self.error(self.source.find(operator).unwrap_or_default(), &message)
                    );
                }
                Ok(Kind::Bool)
            }
            ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [left, right]) => Ok(match (left, right) {
                (Kind::Int, Kind::Int) => Kind::Int,
                (Kind::Double, Kind::Double) => Kind::Double,
                (Kind::String, Kind::String) => Kind::String,
                _ => Kind::Any,
            }),
            ("_?_:_", [_, left, right]) if left.may_be(right) => Ok(left.clone()),
            ("_[_]", [Kind::List(item) | Kind::Map(item), _]) => Ok((**item).clone()),
            _ if name.starts_with(['_', '!', '-', '@']) => Ok(operator(name)),
            _ => match function(name) {
                Some(kind) => Ok(kind),
                None => {
                    let at = self.find(name) + name.len();
                    let message = format!("undeclared reference to '{name}' (in container '')");
                    Err(self.error(at, &message))
                }
            },
        }
    }
}

fn operator<'a>(name: &str) -> Kind<'a> {
    match name {
        "_&&_" | "_||_" | "!_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "@in" | "_in_" => Kind::Bool,
        _ => Kind::Any,
    }
}

fn member<'a>(node: &'a Node, resource: bool, field: &str) -> Option<Kind<'a>> {
    let declared = node
        .properties
        .iter()
        .find(|(name, _)| cel::escape(name).as_deref() == Some(field));
    match declared {
        Some((_, property)) => Some(of(property, property.embedded)),
        None if resource => match field {
            "apiVersion" | "kind" => Some(Kind::String),
            "metadata" => Some(Kind::Any),
            _ => None,
        },
        None => None,
    }
}

/// Names that stand before the dot of a function.
const LIBRARIES: &[&str] = &[
    "base64",
    "cel",
    "format",
    "ip",
    "jsonpatch",
    "lists",
    "math",
    "optional",
    "sets",
    "strings",
];

const BOOLEANS: &[&str] = &[
    "contains",
    "containsCIDR",
    "containsIP",
    "endsWith",
    "equivalent",
    "hasValue",
    "intersects",
    "isCIDR",
    "isCanonical",
    "isFinite",
    "isGlobalUnicast",
    "isGreaterThan",
    "isIP",
    "isInf",
    "isInteger",
    "isLessThan",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isNaN",
    "isQuantity",
    "isSemver",
    "isSorted",
    "isURL",
    "isUnspecified",
    "matches",
    "startsWith",
];
const INTEGERS: &[&str] = &[
    "asInteger",
    "compareTo",
    "family",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "indexOf",
    "int",
    "lastIndexOf",
    "major",
    "minor",
    "patch",
    "prefixLength",
    "sign",
    "size",
];
const STRINGS: &[&str] = &[
    "charAt",
    "escapeKey",
    "getEscapedPath",
    "getHost",
    "getHostname",
    "getPort",
    "getScheme",
    "join",
    "lowerAscii",
    "quote",
    "replace",
    "string",
    "substring",
    "trim",
    "upperAscii",
];
const OTHERS: &[&str] = &[
    "abs",
    "add",
    "all",
    "asApproximateFloat",
    "bind",
    "bitAnd",
    "bitNot",
    "bitOr",
    "bitShiftLeft",
    "bitShiftRight",
    "bitXor",
    "byte",
    "bytes",
    "ceil",
    "cidr",
    "date",
    "datetime",
    "decode",
    "distinct",
    "dns1035Label",
    "dns1035LabelPrefix",
    "dns1123Label",
    "dns1123LabelPrefix",
    "dns1123Subdomain",
    "dns1123SubdomainPrefix",
    "double",
    "duration",
    "dyn",
    "encode",
    "exists",
    "exists_one",
    "filter",
    "find",
    "findAll",
    "first",
    "flatten",
    "floor",
    "format",
    "getQuery",
    "greatest",
    "has",
    "ip",
    "labelValue",
    "last",
    "least",
    "map",
    "masked",
    "max",
    "min",
    "named",
    "none",
    "of",
    "ofNonZeroValue",
    "optFlatMap",
    "optMap",
    "or",
    "orValue",
    "qualifiedName",
    "quantity",
    "range",
    "reverse",
    "round",
    "semver",
    "slice",
    "sort",
    "sortBy",
    "split",
    "sqrt",
    "sub",
    "sum",
    "timestamp",
    "transformList",
    "transformMap",
    "trunc",
    "type",
    "uint",
    "uri",
    "url",
    "uuid",
    "validate",
    "value",
];

/// What a function returns, as far as it is the same for all its arguments; none for an unknown function.
fn function<'a>(name: &str) -> Option<Kind<'a>> {
    let last = name.rsplit('.').next().unwrap_or(name);
    Some(match last {
        _ if BOOLEANS.contains(&last) => Kind::Bool,
        _ if INTEGERS.contains(&last) => Kind::Int,
        _ if STRINGS.contains(&last) => Kind::String,
        "type" => Kind::Type,
        _ if OTHERS.contains(&last) => Kind::Any,
        _ => return None,
    })
}

//! The JSON paths of printer columns: `.spec.replicas`, `.metadata.labels.a\.b/c`, `[0]`, `[*]`, and
//! `.status.conditions[?(@.type=='Ready')].status`.

use std::cmp::Ordering;

use api::depth::MOST_NESTED;
use serde_json::Value;
use thiserror::Error;

#[derive(Debug, Error, PartialEq, Eq)]
#[error("cannot read the JSON path {path:?} at {rest:?}: {expected}")]
pub struct PathError {
    path: String,
    rest: String,
    expected: &'static str,
}

#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    text: String,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// Counted from the end where negative.
    Index(i64),
    All,
    /// Items of a list of which the field is there, and compares so.
    Filter {
        field: Vec<Step>,
        comparison: Option<(Comparison, Value)>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The longer ones first, so that they are not taken for the shorter.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::Number(left), Value::Number(right)) => left
                .as_f64()
                .zip(right.as_f64())
                .and_then(|(left, right)| left.partial_cmp(&right)),
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            _ => None,
        };
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => order.is_some_and(Ordering::is_lt),
            Self::LessOrEqual => order.is_some_and(Ordering::is_le),
            Self::Greater => order.is_some_and(Ordering::is_gt),
            Self::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
        }
    }
}

impl JsonPath {
    pub fn parse(path: &str) -> Result<Self, PathError> {
        let mut parser = Parser {
            path,
            rest: path,
            filters: 0,
        };
        let steps = parser.steps()?;
        match parser.rest.is_empty() {
            true => Ok(Self {
                text: path.to_owned(),
                steps,
            }),
            false => Err(parser.error("a field after '.', or an index in brackets")),
        }
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first value the path leads to.
    pub fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        follow(&self.steps, object)
    }
}

fn follow<'a>(steps: &[Step], value: &'a Value) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else {
        return Some(value);
    };
    match step {
        Step::Field(name) => follow(rest, value.get(name)?),
        Step::Index(index) => {
            let items = value.as_array()?;
            let index = match usize::try_from(*index) {
                Ok(index) => index,
                Err(_) => items
                    .len()
                    .checked_sub(usize::try_from(index.unsigned_abs()).ok()?)?,
            };
            follow(rest, items.get(index)?)
        }
        Step::All => children(value).find_map(|child| follow(rest, child)),
        Step::Filter { field, comparison } => value
            .as_array()?
            .iter()
            .filter(|item| match (follow(field, item), comparison) {
                (Some(found), Some((comparison, wanted))) => comparison.holds(found, wanted),
                (found, _) => found.is_some(),
            })
            .find_map(|item| follow(rest, item)),
    }
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        _ => Box::new(std::iter::empty()),
    }
}

struct Parser<'a> {
    path: &'a str,
    rest: &'a str,
    /// How many filters the rest is within.
    filters: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, expected: &'static str) -> PathError {
        PathError {
            path: self.path.to_owned(),
            rest: self.rest.to_owned(),
            expected,
        }
    }

    fn take(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, prefix: &str, expected: &'static str) -> Result<(), PathError> {
        if self.take(prefix) {
            Ok(())
        } else {
            Err(self.error(expected))
        }
    }

    fn steps(&mut self) -> Result<Vec<Step>, PathError> {
        let mut steps = Vec::new();
        loop {
            if self.take("[") {
                steps.push(self.bracket()?);
            } else if self.take(".") {
                match self.rest.starts_with(['[', ']']) || self.rest.is_empty() {
                    true => {}
                    false => steps.push(self.field()?),
                }
            } else {
                return Ok(steps);
            }
        }
    }

    fn field(&mut self) -> Result<Step, PathError> {
        if self.take("*") {
            return Ok(Step::All);
        }
        let mut name = String::new();
        let mut chars = self.rest.char_indices();
        let end = loop {
            match chars.next() {
                None => break self.rest.len(),
                Some((_, '\\')) => name.extend(chars.next().map(|(_, c)| c)),
                Some((at, '.' | '[' | ']' | ')' | '=' | '!' | '<' | '>' | ' ')) => break at,
                Some((_, c)) => name.push(c),
            }
        };
        if name.is_empty() {
            return Err(self.error("the name of a field"));
        }
        self.rest = &self.rest[end..];
        Ok(Step::Field(name))
    }

    fn bracket(&mut self) -> Result<Step, PathError> {
        let step = if self.take("*") {
            Step::All
        } else if self.take("?(@") {
            let filter = self.filter()?;
            self.expect(")", "')'")?;
            filter
        } else if self.rest.starts_with(['\'', '"']) {
            match self.literal()? {
                Value::String(name) => Step::Field(name),
                _ => return Err(self.error("a quoted name")),
            }
        } else {
            let number = self.until("]");
            Step::Index(number.parse().map_err(|_| self.error("an index"))?)
        };
        self.expect("]", "']'")?;
        Ok(step)
    }

    fn filter(&mut self) -> Result<Step, PathError> {
        // every filter goes down one level, and no object has more
        if self.filters == MOST_NESTED {
            return Err(self.error("no more filters within each other"));
        }
        self.filters += 1;
        let field = self.steps()?;
        self.filters -= 1;
        self.skip_spaces();
        let comparison = COMPARISONS.iter().find(|(sign, _)| self.take(sign));
        let comparison = match comparison {
            None if self.rest.starts_with(')') => None,
            None => return Err(self.error("a comparison such as '=='")),
            Some((_, comparison)) => {
                self.skip_spaces();
                Some((*comparison, self.literal()?))
            }
        };
        self.skip_spaces();
        Ok(Step::Filter { field, comparison })
    }

    fn literal(&mut self) -> Result<Value, PathError> {
        for quote in ["'", "\""] {
            if self.take(quote) {
                let text = self.until(quote).to_owned();
                self.expect(quote, "a closing quote")?;
                return Ok(Value::String(text));
            }
        }
        let text = self.until(")").trim();
        serde_json::from_str(text).map_err(|_| self.error("a quoted text, a number or a boolean"))
    }

    fn until(&mut self, end: &str) -> &'a str {
        let (text, rest) = self
            .rest
            .split_at(self.rest.find(end).unwrap_or(self.rest.len()));
        self.rest = rest;
        text
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::JsonPath;

    #[test]
    fn paths_of_printer_columns_lead_where_they_say() {
        let object = json!({
            "metadata": {"labels": {"agents.kruise.io/sandbox-claimed": "true"}},
            "spec": {"replicas": 3, "ports": [{"port": 80}, {"port": 443}]},
            "status": {"conditions": [
                {"type": "Suspended", "status": "False"},
                {"type": "Ready", "status": "True", "reason": "DependenciesReady"},
            ]},
        });
        for (path, found) in [
            (".spec.replicas", json!(3)),
            (
                r".metadata.labels.agents\.kruise\.io/sandbox-claimed",
                json!("true"),
            ),
            (
                ".metadata.labels['agents.kruise.io/sandbox-claimed']",
                json!("true"),
            ),
            (
                ".status.conditions[?(@.type=='Ready')].status",
                json!("True"),
            ),
            (
                ".status.conditions[?(@.type == \"Ready\")].reason",
                json!("DependenciesReady"),
            ),
            (
                ".status.conditions[?(@.type!='Ready')].status",
                json!("False"),
            ),
            (".spec.ports[?(@.port==443)].port", json!(443)),
            (".spec.ports[?(@.port>80)].port", json!(443)),
            (".spec.ports[?(@.port<=80)].port", json!(80)),
            (".status.conditions[?(@.reason)].type", json!("Ready")),
            (".spec.ports[0].port", json!(80)),
            (".spec.ports[-1].port", json!(443)),
            (".spec.ports[*].port", json!(80)),
        ] {
            assert_eq!(
                JsonPath::parse(path).unwrap().first(&object),
                Some(&found),
                "{path}"
            );
        }
        for path in [
            ".spec.absent",
            ".status.conditions[?(@.type=='No')].status",
            ".spec.ports[7]",
            ".metadata[?(@.x==1)]",
        ] {
            assert_eq!(
                JsonPath::parse(path).unwrap().first(&object),
                None,
                "{path}"
            );
        }
    }

    #[test]
    fn filters_within_filters_have_an_end() {
        let nested = |levels| format!("{}{}", "[?(@".repeat(levels), ")]".repeat(levels));
        let lists = json!([[[1]]]);
        assert!(JsonPath::parse(&nested(3)).unwrap().first(&lists).is_some());
        assert!(JsonPath::parse(&nested(4)).unwrap().first(&lists).is_none());
        assert!(JsonPath::parse(&nested(100_000)).is_err());
    }

    #[test]
    fn a_path_that_cannot_be_read_says_where() {
        for path in [
            "spec",
            ".a[",
            ".a[x]",
            ".a[?(@.b=1)]",
            ".a[?(@.b=='x]",
            ".a]",
        ] {
            let error = JsonPath::parse(path).unwrap_err().to_string();
            assert!(error.contains(path), "{error}");
        }
    }
}

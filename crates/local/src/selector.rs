//! Label and field selectors, as they stand in a query.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use api::structural::{FieldError, names};
use serde_json::json;
use thiserror::Error;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum SelectorError {
    #[error("unable to parse requirement: {0}")]
    Requirement(String),
    #[error("found '{found}', expected: {expected}")]
    Unexpected {
        found: String,
        expected: &'static str,
    },
    #[error("found '{0}' expected: '('")]
    NoList(String),
    #[error("{0}")]
    Invalid(String),
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    FieldTerm { selector: String, term: String },
    #[error("invalid field selector: invalid escape sequence: \\{0}")]
    Escape(String),
    #[error("invalid field selector: unescaped character in value: {}", u32::from(*.0))]
    Unescaped(char),
}

/// All requirements must hold; none selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    Exists,
    Absent,
    In(Vec<String>),
    /// Also holds where the label is absent.
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl Labels {
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut tokens = Tokens { rest: text };
        let mut requirements = Vec::new();
        loop {
            match tokens.peek() {
                Token::Word(_) | Token::Not => requirements.push(
                    requirement(&mut tokens)
                        .map_err(|error| SelectorError::Requirement(error.to_string()))?,
                ),
                Token::End => return Ok(Self(requirements)),
                found => return Err(unexpected(&found, "!, identifier, or 'end of string'")),
            }
            match tokens.next() {
                Token::End => return Ok(Self(requirements)),
                Token::Comma => match tokens.peek() {
                    Token::Word(_) | Token::Not => {}
                    found => return Err(unexpected(&found, "identifier after ','")),
                },
                found => return Err(unexpected(&found, "',' or 'end of string'")),
            }
        }
    }

    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub fn matches<K, V>(&self, labels: &BTreeMap<K, V>) -> bool
    where
        K: Borrow<str> + Ord,
        V: AsRef<str>,
    {
        let value = |key: &str| labels.get(key).map(AsRef::as_ref);
        self.0
            .iter()
            .all(|requirement| requirement.holds(value(&requirement.key)))
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::Exists => value.is_some(),
            Operator::Absent => value.is_none(),
            Operator::In(values) => {
                value.is_some_and(|value| values.iter().any(|one| one == value))
            }
            Operator::NotIn(values) => {
                value.is_none_or(|value| values.iter().all(|one| one != value))
            }
            Operator::Greater(bound) => number().is_some_and(|number| number > *bound),
            Operator::Less(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Comma,
    Open,
    Close,
    Not,
    Equal,
    DoubleEqual,
    NotEqual,
    Greater,
    Less,
    End,
}

/// Symbols, longer ones before those that they begin with.
const SYMBOLS: &[(&str, Token)] = &[
    ("==", Token::DoubleEqual),
    ("!=", Token::NotEqual),
    ("=", Token::Equal),
    ("!", Token::Not),
    (",", Token::Comma),
    ("(", Token::Open),
    (")", Token::Close),
    (">", Token::Greater),
    ("<", Token::Less),
];

struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn split(&self) -> (Token<'a>, &'a str) {
        let text = self.rest.trim_start();
        if text.is_empty() || text.starts_with('\0') {
            return (Token::End, text);
        }
        // to the real server a zero byte is the end where a token could begin, and nothing behind one
        let behind = |rest: &'a str| rest.strip_prefix('\0').unwrap_or(rest);
        if let Some((symbol, token)) = SYMBOLS.iter().find(|(symbol, _)| text.starts_with(symbol)) {
            return (token.clone(), behind(&text[symbol.len()..]));
        }
        let ends = |c: char| c.is_whitespace() || "=!,()<>\0".contains(c);
        let (word, rest) = text.split_at(text.find(ends).unwrap_or(text.len()));
        (Token::Word(word), behind(rest))
    }

    fn peek(&self) -> Token<'a> {
        self.split().0
    }

    fn next(&mut self) -> Token<'a> {
        let (token, rest) = self.split();
        self.rest = rest;
        token
    }
}

impl Token<'_> {
    fn text(&self) -> &str {
        match self {
            Token::Word(word) => word,
            Token::End => "",
            symbol => {
                let mut known = SYMBOLS.iter();
                let found = known.find(|(_, token)| token == symbol);
                found.map_or("", |(text, _)| text)
            }
        }
    }
}

fn unexpected(found: &Token, expected: &'static str) -> SelectorError {
    SelectorError::Unexpected {
        found: found.text().to_owned(),
        expected,
    }
}

fn requirement(tokens: &mut Tokens) -> Result<Requirement, SelectorError> {
    let absent = tokens.peek() == Token::Not;
    if absent {
        tokens.next();
    }
    let key = match tokens.next() {
        Token::Word(key) => key.to_owned(),
        found => return Err(unexpected(&found, "identifier")),
    };
    if absent {
        return checked(key, Operator::Absent);
    }
    if matches!(tokens.peek(), Token::End | Token::Comma) {
        return checked(key, Operator::Exists);
    }
    let operator = match tokens.next() {
        Token::Equal | Token::DoubleEqual => Operator::In(vec![value(tokens)?]),
        Token::NotEqual => Operator::NotIn(vec![value(tokens)?]),
        Token::Greater => Operator::Greater(number(&key, &value(tokens)?)?),
        Token::Less => Operator::Less(number(&key, &value(tokens)?)?),
        Token::Word("in") => Operator::In(values(tokens)?),
        Token::Word("notin") => Operator::NotIn(values(tokens)?),
        found => return Err(unexpected(&found, "in, notin, =, ==, !=, gt, lt")),
    };
    checked(key, operator)
}

/// Keys and values must be such as labels can have.
fn checked(key: String, operator: Operator) -> Result<Requirement, SelectorError> {
    let mut errors = key_errors(&key);
    if let Operator::In(values) | Operator::NotIn(values) = &operator {
        let mut sorted: Vec<&String> = values.iter().collect();
        sorted.sort();
        sorted.dedup();
        for (index, value) in sorted.into_iter().enumerate() {
            let problems = names::label_value_problems(value);
            if !problems.is_empty() {
                let field = format!("values[{index}][{key}]");
                let detail = problems.join("; ");
                errors.push(FieldError::invalid(field, &json!(value), &detail));
            }
        }
    }
    match errors.is_empty() {
        true => Ok(Requirement { key, operator }),
        false => Err(SelectorError::Invalid(together(&errors))),
    }
}

fn key_errors(key: &str) -> Vec<FieldError> {
    let problems = names::qualified_name_problems(key);
    match problems.is_empty() {
        true => Vec::new(),
        false => vec![FieldError::invalid(
            "<nil>",
            &json!(key),
            &problems.join("; "),
        )],
    }
}

/// Several errors stand in brackets.
fn together(errors: &[FieldError]) -> String {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// A value may be left out: `a=` asks for the empty value.
fn value(tokens: &mut Tokens) -> Result<String, SelectorError> {
    match tokens.peek() {
        Token::End | Token::Comma => Ok(String::new()),
        Token::Word(word) => {
            tokens.next();
            Ok(word.to_owned())
        }
        found => Err(unexpected(&found, "identifier")),
    }
}

fn number(key: &str, text: &str) -> Result<i64, SelectorError> {
    text.parse().map_err(|_| {
        let mut errors = key_errors(key);
        let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
        errors.push(FieldError::invalid("values[0]", &json!(text), detail));
        SelectorError::Invalid(together(&errors))
    })
}

fn values(tokens: &mut Tokens) -> Result<Vec<String>, SelectorError> {
    match tokens.next() {
        Token::Open => {}
        found => return Err(SelectorError::NoList(found.text().to_owned())),
    }
    match tokens.peek() {
        Token::Word(_) | Token::Comma => {}
        Token::Close => {
            tokens.next();
            return Ok(vec![String::new()]);
        }
        found => return Err(unexpected(&found, "',', ')' or identifier")),
    }
    let mut values = Vec::new();
    // nothing before, between or after commas is the empty value
    let mut expects_value = true;
    loop {
        match tokens.next() {
            Token::Word(word) => {
                values.push(word.to_owned());
                expects_value = false;
                match tokens.peek() {
                    Token::Comma | Token::Close => {}
                    found => return Err(unexpected(&found, "',' or ')'")),
                }
            }
            Token::Comma => {
                if expects_value {
                    values.push(String::new());
                }
                expects_value = true;
            }
            Token::Close => {
                if expects_value {
                    values.push(String::new());
                }
                return Ok(values);
            }
            found => return Err(unexpected(&found, "',', or identifier")),
        }
    }
}

/// Fields that must, or must not, have a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(Vec<Field>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub path: String,
    pub value: String,
    pub equal: bool,
}

impl Fields {
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let terms = split_unescaped(text)
            .into_iter()
            .filter(|term| !term.is_empty());
        let field = |term: &str| {
            for (symbol, equal) in [("!=", false), ("==", true), ("=", true)] {
                if let Some((path, value)) = term.split_once(symbol) {
                    let value = unescape(value)?;
                    return Ok(Field {
                        path: path.to_owned(),
                        value,
                        equal,
                    });
                }
            }
            Err(not_understood(text, term))
        };
        let fields: Vec<Field> = terms.map(|term| field(&term)).collect::<Result<_, _>>()?;
        // a sign alone asks for nothing
        let asks = |field: &Field| !(field.path.is_empty() && field.value.is_empty());
        Ok(Self(fields.into_iter().filter(asks).collect()))
    }

    /// Adds that a field must have a value.
    pub fn require(&mut self, path: &str, value: &str) {
        self.0.push(Field {
            path: path.to_owned(),
            value: value.to_owned(),
            equal: true,
        });
    }

    pub fn iter(&self) -> impl Iterator<Item = &Field> {
        self.0.iter()
    }

    /// `value_of` gives the value of a field; an absent one counts as empty.
    pub fn matches<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        let holds = |field: &Field| {
            (value_of(&field.path).unwrap_or_default() == field.value) == field.equal
        };
        self.0.iter().all(holds)
    }
}

fn not_understood(selector: &str, term: &str) -> SelectorError {
    SelectorError::FieldTerm {
        selector: selector.to_owned(),
        term: term.to_owned(),
    }
}

/// A comma in a value is written `\,`.
fn split_unescaped(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            terms.push(String::new());
        } else if let Some(term) = terms.last_mut() {
            term.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    terms
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut out = String::new();
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next) if "\\,=".contains(next) => out.push(next),
                next => return Err(SelectorError::Escape(next.into_iter().collect())),
            },
            ',' | '=' => return Err(SelectorError::Unescaped(c)),
            other => out.push(other),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Fields, Labels};

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn label_selectors_select_what_they_say() {
        let object = labels(&[("app", "web"), ("tier", "3"), ("empty", "")]);
        for (selector, selected) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("app=web", true),
            ("app==web", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (web, db)", true),
            ("app in (db)", false),
            ("app notin (db,cache)", true),
            ("other notin (db)", true),
            ("empty=", true),
            ("app=", false),
            ("tier>2,tier<4", true),
            ("tier>3", false),
            ("app>1", false),
            (" app = web , tier ", true),
            ("app=web,tier=4", false),
            ("app in (web,)", true),
            ("empty in ()", true),
        ] {
            assert_eq!(
                Labels::parse(selector).unwrap().matches(&object),
                selected,
                "{selector}"
            );
        }
    }

    #[test]
    fn a_selector_that_cannot_be_read_says_where() {
        for (selector, found) in [
            ("=web", "="),
            ("app in web", "web"),
            ("app in (web", ""),
            ("a b", "b"),
            ("a,", ""),
        ] {
            let error = Labels::parse(selector).unwrap_err().to_string();
            assert!(
                error.contains(&format!("found '{found}'")),
                "{selector}: {error}"
            );
        }
    }

    #[test]
    fn field_selectors_compare_and_escape() {
        let value_of = |path: &str| match path {
            "metadata.name" => Some("a,b"),
            "status.phase" => Some("Running"),
            _ => None,
        };
        for (selector, selected) in [
            ("", true),
            ("status.phase=Running", true),
            ("status.phase!=Running", false),
            ("metadata.name==a\\,b,status.phase=Running", true),
            ("spec.nodeName=", true),
            ("spec.nodeName!=", false),
        ] {
            assert_eq!(
                Fields::parse(selector).unwrap().matches(value_of),
                selected,
                "{selector}"
            );
        }
        assert!(Fields::parse("status.phase").is_err());
        assert!(Fields::parse("a=b\\x").is_err());
    }
}

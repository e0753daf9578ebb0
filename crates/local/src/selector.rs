//! Label and field selectors, as they stand in a query.

use std::collections::BTreeMap;

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
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    FieldTerm { selector: String, term: String },
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
        if tokens.peek() == Token::End {
            return Ok(Self::default());
        }
        loop {
            requirements.push(requirement(&mut tokens)?);
            match tokens.next() {
                Token::End => return Ok(Self(requirements)),
                Token::Comma => {}
                found => return Err(unexpected(&found, "',' or end of string")),
            }
        }
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0
            .iter()
            .all(|requirement| requirement.holds(labels.get(&requirement.key)))
    }
}

impl Requirement {
    fn holds(&self, value: Option<&String>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::Exists => value.is_some(),
            Operator::Absent => value.is_none(),
            Operator::In(values) => value.is_some_and(|value| values.contains(value)),
            Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
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
    NotEqual,
    Greater,
    Less,
    End,
}

/// Symbols, longest first.
const SYMBOLS: &[(&str, Token)] = &[
    ("==", Token::Equal),
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
        if text.is_empty() {
            return (Token::End, text);
        }
        if let Some((symbol, token)) = SYMBOLS.iter().find(|(symbol, _)| text.starts_with(symbol)) {
            return (token.clone(), &text[symbol.len()..]);
        }
        let ends = |c: char| c.is_whitespace() || "=!,()<>".contains(c);
        let (word, rest) = text.split_at(text.find(ends).unwrap_or(text.len()));
        (Token::Word(word), rest)
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

fn unexpected(found: &Token, expected: &'static str) -> SelectorError {
    let text = match found {
        Token::Word(word) => (*word).to_owned(),
        Token::End => String::new(),
        symbol => SYMBOLS
            .iter()
            .rev()
            .find(|(_, token)| token == symbol)
            .map(|(text, _)| (*text).to_owned())
            .unwrap_or_default(),
    };
    SelectorError::Requirement(
        SelectorError::Unexpected {
            found: text,
            expected,
        }
        .to_string(),
    )
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
        return Ok(Requirement {
            key,
            operator: Operator::Absent,
        });
    }
    if matches!(tokens.peek(), Token::End | Token::Comma) {
        return Ok(Requirement {
            key,
            operator: Operator::Exists,
        });
    }
    let operator = match tokens.next() {
        Token::Equal => Operator::In(vec![value(tokens)]),
        Token::NotEqual => Operator::NotIn(vec![value(tokens)]),
        Token::Greater => Operator::Greater(number(tokens)?),
        Token::Less => Operator::Less(number(tokens)?),
        Token::Word("in") => Operator::In(values(tokens)?),
        Token::Word("notin") => Operator::NotIn(values(tokens)?),
        found => return Err(unexpected(&found, "in, notin, =, ==, !=, gt, lt")),
    };
    Ok(Requirement { key, operator })
}

/// A value may be left out: `a=` asks for the empty value.
fn value(tokens: &mut Tokens) -> String {
    match tokens.peek() {
        Token::Word(word) => {
            tokens.next();
            word.to_owned()
        }
        _ => String::new(),
    }
}

fn number(tokens: &mut Tokens) -> Result<i64, SelectorError> {
    let found = tokens.next();
    match &found {
        Token::Word(word) => word.parse().map_err(|_| unexpected(&found, "an integer")),
        _ => Err(unexpected(&found, "identifier")),
    }
}

fn values(tokens: &mut Tokens) -> Result<Vec<String>, SelectorError> {
    match tokens.next() {
        Token::Open => {}
        found => return Err(unexpected(&found, "'('")),
    }
    let mut values = vec![value(tokens)];
    loop {
        match tokens.next() {
            Token::Close => return Ok(values),
            Token::Comma => values.push(value(tokens)),
            found => return Err(unexpected(&found, "',' or ')'")),
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
                    let value = unescape(value).ok_or_else(|| not_understood(text, term))?;
                    return Ok(Field {
                        path: path.to_owned(),
                        value,
                        equal,
                    });
                }
            }
            Err(not_understood(text, term))
        };
        terms
            .map(|term| field(&term))
            .collect::<Result<_, _>>()
            .map(Self)
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

fn unescape(value: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next().filter(|next| "\\,=".contains(*next))?),
            ',' | '=' => return None,
            other => out.push(other),
        }
    }
    Some(out)
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

//! Patterns are written for Go's regular expressions; where Rust's mean something else they are rewritten.

use std::{
    hash::{Hash, Hasher},
    sync::OnceLock,
};

use regex::Regex;

use crate::shared::{Pool, Shared};

/// A pattern of a schema, compiled when it is first asked for: the quantity of a pod spec is there a hundred times.
#[derive(Debug)]
pub(super) struct Pattern {
    /// As written.
    pub(super) text: String,
    compiled: OnceLock<Result<Regex, String>>,
}

static PATTERNS: Pool<Pattern> = Pool::new();

impl Pattern {
    pub(super) fn new(text: &str) -> Shared<Self> {
        PATTERNS.share(Self {
            text: text.to_owned(),
            compiled: OnceLock::new(),
        })
    }

    pub(super) fn compiled(&self) -> Result<&Regex, &String> {
        self.compiled.get_or_init(|| compile(&self.text)).as_ref()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// Compiles a pattern; the error is worded as Go words it, where that is known.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    Regex::new(&translate(pattern)).map_err(|error| complaint(pattern, &error))
}

fn complaint(pattern: &str, error: &regex::Error) -> String {
    let text = error.to_string();
    if text.contains("unclosed group") {
        return format!("error parsing regexp: missing closing ): `{pattern}`");
    }
    if text.contains("look-around") {
        let lookaround = ["(?!", "(?=", "(?<!", "(?<="];
        if let Some(found) = lookaround.iter().find(|one| pattern.contains(**one)) {
            let found = found.replace("<!", "<").replace("<=", "<");
            return format!("error parsing regexp: invalid or unsupported Perl syntax: `{found}`");
        }
    }
    let last = text.lines().last().unwrap_or(&text);
    format!(
        "error parsing regexp: {}",
        last.trim_start_matches("error: ")
    )
}

/// Perl's classes are ASCII in Go, and brackets and ampersands within a class are letters.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut letters = pattern.chars().peekable();
    // the letters since a class was opened, none outside
    let mut class: Option<usize> = None;
    while let Some(letter) = letters.next() {
        if let Some(length) = &mut class {
            *length += 1;
        }
        match (letter, class) {
            ('\\', _) => match letters.next() {
                Some('d') => out.push_str("[0-9]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('s') => out.push_str(r"[\t\n\f\r ]"),
                Some('S') => out.push_str(r"[^\t\n\f\r ]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('b') if class.is_none() => out.push_str(r"(?-u:\b)"),
                Some(other) => {
                    out.push('\\');
                    out.push(other);
                }
                None => out.push('\\'),
            },
            ('[', None) => {
                class = Some(0);
                out.push('[');
                if letters.peek() == Some(&'^') {
                    letters.next();
                    out.push('^');
                }
            }
            ('[', Some(_)) if letters.peek() == Some(&':') => out.push('['),
            ('[' | '&' | '~', Some(_)) => {
                out.push('\\');
                out.push(letter);
            }
            // a closing bracket that comes first is a letter
            (']', Some(1)) => out.push_str(r"\]"),
            (']', Some(_)) if out.ends_with(':') && out.contains("[:") => out.push(']'),
            (']', Some(_)) => {
                class = None;
                out.push(']');
            }
            _ => out.push(letter),
        }
    }
    out
}

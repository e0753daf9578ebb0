//! Reading JSON, and saying what is wrong with it in the words that clients of the API know.

use api::depth::MOST_NESTED;
use serde_json::Value;

/// The nesting at which the real server stops reading.
const DEEPEST: usize = 10_000;

/// The value of a text, or what is wrong with it.
pub(in crate::server) fn parse(body: &[u8]) -> Result<Value, String> {
    let text = String::from_utf8_lossy(body);
    let error = match serde_json::from_str(&text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    Scanner::check(body)?;
    // the text is JSON, but what it says cannot be held: a number without bounds, deep nesting, half a character
    if is_too_deep(&text) {
        return Err(format!("nested deeper than {MOST_NESTED} levels"));
    }
    let whole = without_halves(&text);
    match whole == text {
        true => Err(error.to_string()),
        false => serde_json::from_str(&whole).map_err(|error| error.to_string()),
    }
}

/// Whether a text that is JSON opens more than it may before it closes.
fn is_too_deep(text: &str) -> bool {
    let mut scanner = Scanner {
        rest: text.as_bytes(),
    };
    let mut depth = 0_usize;
    while let Some(first) = scanner.rest.first().copied() {
        scanner.rest = &scanner.rest[1..];
        match first {
            // a fault would have been found before
            b'"' if scanner.string().is_err() => return false,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MOST_NESTED {
            return true;
        }
    }
    false
}

/// Escapes that are one half of a character without the other stand for the character of all that is unreadable.
fn without_halves(text: &str) -> String {
    let code = |escape: &str| {
        let digits = escape.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = match code(rest) {
            Some(0xD800..=0xDBFF)
                if matches!(rest.get(6..).and_then(code), Some(0xDC00..=0xDFFF)) =>
            {
                12
            }
            Some(0xD800..=0xDFFF) => {
                out.push('\u{FFFD}');
                rest = &rest[6..];
                continue;
            }
            _ => rest.chars().take(2).map(char::len_utf8).sum(),
        };
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out + rest
}

/// Walks over a text to the first character that cannot stand where it does.
struct Scanner<'a> {
    rest: &'a [u8],
}

type Checked<T> = Result<T, String>;

impl Scanner<'_> {
    fn check(text: &[u8]) -> Checked<()> {
        let mut scanner = Scanner { rest: text };
        let mut open: Vec<u8> = Vec::new();
        loop {
            let first = scanner.value(open.len())?;
            let end = match first {
                b'{' => Some(b'}'),
                b'[' => Some(b']'),
                _ => None,
            };
            if let Some(end) = end {
                open.push(first);
                if scanner.peek() != Some(end) {
                    scanner.key(first)?;
                    continue;
                }
            }
            if scanner.close(&mut open)? {
                return Ok(());
            }
        }
    }

    /// The first character of a value; unless it is a list or an object, the value is passed.
    fn value(&mut self, depth: usize) -> Checked<u8> {
        self.spaces();
        let first = self.next()?;
        match first {
            b'{' | b'[' if depth >= DEEPEST => {
                return Err(invalid(first, "exceeded max depth"));
            }
            b'{' | b'[' => self.spaces(),
            b'"' => self.string()?,
            b'-' | b'0'..=b'9' => self.number(first)?,
            b't' => self.literal("true")?,
            b'f' => self.literal("false")?,
            b'n' => self.literal("null")?,
            _ => return Err(invalid(first, "looking for beginning of value")),
        }
        Ok(first)
    }

    /// Goes on after a value, up to the next one. True at the end of the text.
    fn close(&mut self, open: &mut Vec<u8>) -> Checked<bool> {
        loop {
            self.spaces();
            let Some(container) = open.last().copied() else {
                return match self.rest.first() {
                    None => Ok(true),
                    Some(more) => Err(invalid(*more, "after top-level value")),
                };
            };
            let (end, place) = match container {
                b'{' => (b'}', "after object key:value pair"),
                _ => (b']', "after array element"),
            };
            match self.next()? {
                b',' => {
                    self.key(container)?;
                    return Ok(false);
                }
                byte if byte == end => _ = open.pop(),
                byte => return Err(invalid(byte, place)),
            }
        }
    }

    /// The key before the next value; lists have none.
    fn key(&mut self, container: u8) -> Checked<()> {
        if container != b'{' {
            return Ok(());
        }
        self.spaces();
        match self.next()? {
            b'"' => self.string()?,
            byte => {
                let place = "looking for beginning of object key string";
                return Err(invalid(byte, place));
            }
        }
        self.spaces();
        match self.next()? {
            b':' => Ok(()),
            byte => Err(invalid(byte, "after object key")),
        }
    }

    fn string(&mut self) -> Checked<()> {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next()? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let digit = self.next()?;
                            if !digit.is_ascii_hexdigit() {
                                return Err(invalid(digit, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    byte => return Err(invalid(byte, "in string escape code")),
                },
                byte if byte < b' ' => return Err(invalid(byte, "in string literal")),
                _ => {}
            }
        }
    }

    fn number(&mut self, first: u8) -> Checked<()> {
        let first = match first {
            b'-' => self.digit("in numeric literal")?,
            digit => digit,
        };
        if first != b'0' {
            self.digits();
        }
        if self.take(b".") {
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if self.take(b"eE") {
            self.take(b"+-");
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn literal(&mut self, word: &str) -> Checked<()> {
        for expected in word.bytes().skip(1) {
            let byte = self.next()?;
            if byte != expected {
                let expected = char::from(expected);
                let place = format!("in literal {word} (expecting '{expected}')");
                return Err(invalid(byte, &place));
            }
        }
        Ok(())
    }

    fn digit(&mut self, place: &str) -> Checked<u8> {
        match self.next()? {
            digit @ b'0'..=b'9' => Ok(digit),
            byte => Err(invalid(byte, place)),
        }
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.rest = &self.rest[1..];
        }
    }

    fn take(&mut self, any_of: &[u8]) -> bool {
        let there = self.peek().is_some_and(|byte| any_of.contains(&byte));
        if there {
            self.rest = &self.rest[1..];
        }
        there
    }

    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn next(&mut self) -> Checked<u8> {
        let (first, rest) = self
            .rest
            .split_first()
            .ok_or("unexpected end of JSON input")?;
        self.rest = rest;
        Ok(*first)
    }

    fn spaces(&mut self) {
        while self.take(b" \t\r\n") {}
    }
}

fn invalid(byte: u8, place: &str) -> String {
    format!("invalid character {} {place}", quoted(byte))
}

/// A byte, taken for a character, as Go quotes it.
fn quoted(byte: u8) -> String {
    let inner = match byte {
        b'\'' => "\\'".to_owned(),
        b'\\' => "\\\\".to_owned(),
        7 => "\\a".to_owned(),
        8 => "\\b".to_owned(),
        b'\t' => "\\t".to_owned(),
        b'\n' => "\\n".to_owned(),
        11 => "\\v".to_owned(),
        12 => "\\f".to_owned(),
        b'\r' => "\\r".to_owned(),
        0..=31 | 127 => format!("\\x{byte:02x}"),
        128..=160 | 173 => format!("\\u{byte:04x}"),
        printable => char::from(printable).to_string(),
    };
    format!("'{inner}'")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::{DEEPEST, Scanner, parse, quoted};

    #[test]
    fn faults_are_named_by_the_first_character_that_is_out_of_place() {
        for (text, fault) in [
            ("", "unexpected end of JSON input"),
            ("   ", "unexpected end of JSON input"),
            ("{\"metadata\": {\"name\":", "unexpected end of JSON input"),
            (
                "hello",
                "invalid character 'h' looking for beginning of value",
            ),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            (
                "{\"a\":1,}",
                "invalid character '}' looking for beginning of object key string",
            ),
            (
                "{a:1}",
                "invalid character 'a' looking for beginning of object key string",
            ),
            (
                "{'a':1}",
                "invalid character '\\'' looking for beginning of object key string",
            ),
            (
                "{\"a\":1 2}",
                "invalid character '2' after object key:value pair",
            ),
            (
                "{\"a\":01}",
                "invalid character '1' after object key:value pair",
            ),
            ("[1 2]", "invalid character '2' after array element"),
            (
                "[1,]",
                "invalid character ']' looking for beginning of value",
            ),
            (
                "{\"a\":tru}",
                "invalid character '}' in literal true (expecting 'e')",
            ),
            ("{\"a\":-}", "invalid character '}' in numeric literal"),
            (
                "{\"a\":1.}",
                "invalid character '}' after decimal point in numeric literal",
            ),
            (
                "{\"a\":1e}",
                "invalid character '}' in exponent of numeric literal",
            ),
            (
                "{\"a\":\"\\x\"}",
                "invalid character 'x' in string escape code",
            ),
            (
                "{\"a\":\"\\u12g\"}",
                "invalid character 'g' in \\u hexadecimal character escape",
            ),
            (
                "{\"a\":\"\u{1}\"}",
                "invalid character '\\x01' in string literal",
            ),
            ("{} x", "invalid character 'x' after top-level value"),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err(), fault, "{text}");
        }
    }

    #[test]
    fn what_is_json_has_no_fault() {
        for text in [
            "null",
            " -0.5e+7 ",
            "[]",
            "{}",
            "[[], {}, {\"a\": [1, \"\\u00e4\\n\"], \"b\": false}]",
            "{\"k\":\"\\ud800\"}",
        ] {
            assert_eq!(Scanner::check(text.as_bytes()), Ok(()), "{text}");
        }
    }

    #[test]
    fn nesting_has_a_bound() {
        let text = "[".repeat(DEEPEST + 1);
        assert_eq!(
            parse(text.as_bytes()).unwrap_err(),
            "invalid character '[' exceeded max depth"
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let value = parse(b"{\"a\": \"\xff\"}").unwrap();
        assert_eq!(value["a"], "\u{fffd}");
        assert_eq!(quoted(0x9e), "'\\u009e'");
    }
}

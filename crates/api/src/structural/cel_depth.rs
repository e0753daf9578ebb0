//! How deep an expression nests, told from its text: the parser would go down the whole way before anything could be
//! said about the tree.

/// How deep the API server lets an expression nest.
pub(super) const DEEPEST: usize = 250;
/// How many of these levels may be brackets and choices: the parser counts them too, but loses count at its own limit.
const MOST_WITHIN: usize = 90;
/// The parser takes longer than seconds for more.
const LONGEST: usize = 20_000;

/// Fails where the parser would go too deep or take too long.
pub(super) fn check(source: &str) -> Result<(), String> {
    let size = source.chars().count();
    if size > LONGEST {
        return Err(format!(
            "ERROR: <input>:-1:0: expression code point size exceeds limit: size: {size}, limit {LONGEST}"
        ));
    }
    let mut scan = Scan::default();
    let mut rest = source;
    while let Some(letter) = rest.chars().next() {
        rest = scan.token(letter, rest);
        if scan.is_too_deep() {
            return Err(too_deep());
        }
    }
    Ok(())
}

pub(super) fn too_deep() -> String {
    format!("ERROR: <input>:-1:0: expression recursion limit exceeded: {DEEPEST}")
}

/// What stands between two brackets, so far.
#[derive(Clone, Copy, Default)]
struct Level {
    /// `a ? b : c`, each within the one before.
    choices: usize,
    /// Of a chain such as `1 + 2 + 3`, each around those before.
    operators: usize,
    /// Of a chain such as `a.b[c]` at the end of the former.
    members: usize,
}

#[derive(Default)]
struct Scan {
    outer: Vec<Level>,
    inner: Level,
    /// Nobody knows what is text and what is not behind a quote that nothing ends: from there on all counts.
    lost: bool,
}

impl Scan {
    fn is_too_deep(&self) -> bool {
        let levels = || self.outer.iter().chain([&self.inner]);
        let within: usize = levels().map(|level| 1 + level.choices).sum();
        let chains: usize = levels().map(|level| level.operators + level.members).sum();
        within > MOST_WITHIN || within + chains > DEEPEST
    }

    /// Counts what the rest begins with; returns what follows.
    fn token<'a>(&mut self, letter: char, rest: &'a str) -> &'a str {
        let after = &rest[letter.len_utf8()..];
        match letter {
            _ if is_word(letter) => return self.word(rest),
            '\'' | '"' => return self.text(rest, false),
            '/' if rest.starts_with("//") && !self.lost => {
                return after.trim_start_matches(|letter| letter != '\n');
            }
            '(' | '[' | '{' => {
                self.inner.members += 1;
                self.outer.push(std::mem::take(&mut self.inner));
            }
            ')' | ']' | '}' if !self.lost => self.inner = self.outer.pop().unwrap_or_default(),
            ',' if !self.lost => self.inner = Level::default(),
            '&' | '|' | ':' if !self.lost => self.begin_operand(0, 0),
            '?' => self.begin_operand(1, 0),
            '.' => self.inner.members += 1,
            '+' | '-' | '*' | '/' | '%' | '<' | '>' | '=' | '!' => {
                let operators = self.inner.operators + 1;
                self.begin_operand(0, operators);
            }
            _ => {}
        }
        after
    }

    fn begin_operand(&mut self, choices: usize, operators: usize) {
        self.inner.choices += choices;
        if self.lost {
            self.inner.operators += 1;
        } else {
            (self.inner.operators, self.inner.members) = (operators, 0);
        }
    }

    /// A word, with the text that it may begin.
    fn word<'a>(&mut self, rest: &'a str) -> &'a str {
        let (word, after) =
            rest.split_at(rest.find(|letter| !is_word(letter)).unwrap_or(rest.len()));
        if word == "in" {
            let operators = self.inner.operators + 1;
            self.begin_operand(0, operators);
        }
        if !after.starts_with(['\'', '"']) {
            return after;
        }
        match word.to_ascii_lowercase().as_str() {
            "in" | "b" => self.text(after, false),
            "r" | "br" => self.text(after, true),
            _ => {
                self.lost = true;
                after
            }
        }
    }

    /// What follows a text.
    fn text<'a>(&mut self, rest: &'a str, raw: bool) -> &'a str {
        match text_length(rest, raw) {
            Some(length) if !self.lost => &rest[length..],
            _ => {
                self.lost = true;
                &rest[1..]
            }
        }
    }
}

fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// The length of a text with its quotes, if it ends.
fn text_length(rest: &str, raw: bool) -> Option<usize> {
    let quote = ["'''", "\"\"\"", "'", "\""]
        .into_iter()
        .find(|quote| rest.starts_with(quote))?;
    let mut at = quote.len();
    loop {
        let here = &rest[at..];
        if here.starts_with(quote) {
            return Some(at + quote.len());
        }
        at += match here.chars().next()? {
            '\n' | '\r' if quote.len() == 1 => return None,
            '\\' if !raw => escape_length(here)?,
            letter => letter.len_utf8(),
        };
    }
}

fn escape_length(rest: &str) -> Option<usize> {
    let mut letters = rest.chars().skip(1);
    let (length, radix) = match letters.next()? {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => return Some(2),
        'x' | 'X' => (2, 16),
        'u' => (4, 16),
        'U' => (8, 16),
        '0'..='3' => (2, 8),
        _ => return None,
    };
    let digits = letters.take(length).filter(|letter| letter.is_digit(radix));
    (digits.count() == length).then_some(2 + length)
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn rules_that_people_write_are_not_too_deep() {
        for source in [
            "self.c.all(x, x.startsWith(\"y\")) && (!has(self.b) || self.b.size() < 5)".to_owned(),
            "self.a == 1 || ".repeat(200) + "true",
            format!("self.a in [{}]", "'a.b.c', ".repeat(300)),
            format!("self.b.matches('{}')", "[a-z.+*/]".repeat(100)),
            format!("self.b.matches(r'{}')", r"\.\(".repeat(300)),
            format!(
                "'''{}''' == self.b // {}",
                "it's.\n".repeat(300),
                "(".repeat(300)
            ),
        ] {
            assert_eq!(check(&source), Ok(()), "{source}");
        }
    }

    #[test]
    fn chains_and_brackets_have_an_end() {
        for source in [
            "self".to_owned() + &".a".repeat(300),
            "1".to_owned() + &"+1".repeat(300),
            "1".to_owned() + &" in 1".repeat(300),
            "(".repeat(100),
            "true?1:".repeat(100),
            "self[0]".to_owned() + &"[')']".repeat(300),
            // what no quote ends, and what no escape is, is no text
            format!("'{}", ".a".repeat(300)),
            format!("'\n{}'", ".a,".repeat(300)),
            format!("'\\q{}'", ".a,".repeat(300)),
            format!("bar'\\'{}'", ".a,".repeat(300)),
            "self.a".repeat(5_000),
        ] {
            assert!(check(&source).is_err(), "{source}");
        }
    }
}

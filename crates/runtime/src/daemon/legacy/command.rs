//! A line of words, split as POSIX shells quote, with nothing else that a shell would do.

use crate::daemon::error::Error;

#[derive(Clone, Copy)]
enum Quote {
    None,
    Single,
    Double,
}

pub(super) fn split(line: &str) -> Result<Vec<String>, Error> {
    let mut words = Vec::new();
    // `None` between words: a pair of quotes is a word, too
    let mut word: Option<String> = None;
    let mut quote = Quote::None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Quote::None, ' ' | '\t' | '\r' | '\n') => words.extend(word.take()),
            (Quote::None, '\'') => quote = opened(Quote::Single, &mut word),
            (Quote::None, '"') => quote = opened(Quote::Double, &mut word),
            (Quote::Single, '\'') | (Quote::Double, '"') => quote = Quote::None,
            (Quote::None | Quote::Double, '\\') => {
                let escaped = characters.next();
                let escaped = escaped.ok_or_else(|| refused("ends with a backslash"))?;
                let word = word.get_or_insert_default();
                if matches!(quote, Quote::Double) && !matches!(escaped, '"' | '\\') {
                    word.push('\\');
                }
                word.push(escaped);
            }
            (_, character) => word.get_or_insert_default().push(character),
        }
    }
    if !matches!(quote, Quote::None) {
        return Err(refused("has a quote that is not closed"));
    }
    words.extend(word);
    Ok(words)
}

fn opened(quote: Quote, word: &mut Option<String>) -> Quote {
    word.get_or_insert_default();
    quote
}

fn refused(why: &str) -> Error {
    Error::invalid(format!("the command {why}"))
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn lines_are_split_as_python_splits_them() {
        for (line, words) in [
            ("", &[][..]),
            ("  a\tb\n c ", &["a", "b", "c"]),
            ("'a b'\"c d\"e", &["a bc de"]),
            ("'' \"\"", &["", ""]),
            (r"a\ b \' \\", &["a b", "'", r"\"]),
            (r#""a\"b\\c\d\$""#, &[r#"a"b\c\d\$"#]),
            (r"'a\'b", &[r"a\b"]),
            ("a;b|c>$d #e *", &["a;b|c>$d", "#e", "*"]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
        for line in ["'", "a \"b", r"a \", r#""a\"#] {
            assert!(split(line).is_err(), "{line}");
        }
    }
}

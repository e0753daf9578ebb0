//! What names, labels and their keys may look like, and what is said of those that do not.

const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and \
    end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const KIND: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

fn too_long(most: usize) -> String {
    format!("must be no more than {most} bytes")
}

fn lower(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// Begins and ends with a letter or digit, and has nothing but those and `extra` between.
fn framed(text: &str, letter: impl Fn(u8) -> bool, extra: &[u8]) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            letter(*first) && letter(*last) && bytes.iter().all(|b| letter(*b) || extra.contains(b))
        }
        _ => false,
    }
}

pub(super) fn kind_problem(kind: &str) -> Option<String> {
    let lowered = kind.to_lowercase();
    let mut problems = Vec::new();
    if lowered.len() > 63 {
        problems.push(too_long(63));
    }
    if !framed(&lowered, lower, b"-") || !lowered.starts_with(|c: char| c.is_ascii_lowercase()) {
        problems.push(KIND.to_owned());
    }
    (!problems.is_empty()).then(|| {
        format!(
            "may have mixed case, but should otherwise match: {}",
            problems.join(",")
        )
    })
}

pub(super) fn path_segment_problems(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    let mut problems = Vec::new();
    for letter in ['/', '%'] {
        if name.contains(letter) {
            problems.push(format!("may not contain '{letter}'"));
        }
    }
    problems
}

pub(super) fn label_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(too_long(63));
    }
    if !framed(text, lower, b"-") {
        problems.push(LABEL.to_owned());
    }
    problems
}

pub(super) fn label_value_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(too_long(63));
    }
    if !text.is_empty() && !framed(text, |b| b.is_ascii_alphanumeric(), b"-_.") {
        problems.push(LABEL_VALUE.to_owned());
    }
    problems
}

pub(super) fn qualified_name_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name =
        match text.split_once('/') {
            None => text,
            Some((_, name)) if name.contains('/') => {
                let problem = NAME_PART.replacen("name part", "a qualified name", 1).replace(
                "')",
                "') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
            );
                return vec![problem];
            }
            Some((prefix, name)) => {
                if prefix.is_empty() {
                    problems.push("prefix part must be non-empty".to_owned());
                } else if prefix.len() > 253 {
                    problems.push(format!("prefix part {}", too_long(253)));
                } else if !prefix.split('.').all(|part| framed(part, lower, b"-")) {
                    problems.push(format!("prefix part {SUBDOMAIN}"));
                }
                name
            }
        };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push(format!("name part {}", too_long(63)));
    }
    if !framed(name, |b| b.is_ascii_alphanumeric(), b"-_.") {
        problems.push(NAME_PART.to_owned());
    }
    problems
}

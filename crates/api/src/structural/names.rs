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
const LETTER_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// The limit of labels, their keys and their values.
const LONGEST_LABEL: usize = 63;
const LONGEST_SUBDOMAIN: usize = 253;

/// Said of labels; of names the server says the same in characters, though it counts bytes as well.
fn too_many_bytes(most: usize) -> String {
    format!("must be no more than {most} bytes")
}

fn too_long(most: usize) -> String {
    format!("must be no more than {most} characters")
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

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|part| framed(part, lower, b"-"))
}

/// What is wrong with the name of a kind, which may be written in capitals.
pub fn kind_problem(kind: &str) -> Option<String> {
    let problems = letter_label_problems(&kind.to_lowercase());
    (!problems.is_empty()).then(|| {
        format!(
            "may have mixed case, but should otherwise match: {}",
            problems.join(",")
        )
    })
}

/// What is wrong with a name that stands in a path; a prefix of one may be less.
pub fn path_segment_problems(name: &str, prefix: bool) -> Vec<String> {
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

/// What is wrong with a subdomain of RFC 1123.
pub fn subdomain_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > LONGEST_SUBDOMAIN {
        problems.push(too_long(LONGEST_SUBDOMAIN));
    }
    if !is_subdomain(text) {
        problems.push(SUBDOMAIN.to_owned());
    }
    problems
}

/// What is wrong with a label of RFC 1123.
pub fn label_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > LONGEST_LABEL {
        problems.push(too_long(LONGEST_LABEL));
    }
    if !framed(text, lower, b"-") {
        let dotted = is_subdomain(text);
        problems.push(
            if dotted {
                "must not contain dots"
            } else {
                LABEL
            }
            .to_owned(),
        );
    }
    problems
}

/// What is wrong with a label of RFC 1035, which begins with a letter.
pub fn letter_label_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > LONGEST_LABEL {
        problems.push(too_long(LONGEST_LABEL));
    }
    if !framed(text, lower, b"-") || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        problems.push(LETTER_LABEL.to_owned());
    }
    problems
}

/// What is wrong with the value of a label.
pub fn label_value_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > LONGEST_LABEL {
        problems.push(too_many_bytes(LONGEST_LABEL));
    }
    if !text.is_empty() && !framed(text, |b| b.is_ascii_alphanumeric(), b"-_.") {
        problems.push(LABEL_VALUE.to_owned());
    }
    problems
}

/// What is wrong with the key of a label or an annotation, or with the name of a finalizer.
pub fn qualified_name_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            let rule = NAME_PART.replacen("name part", "a valid label key", 1);
            let prefixed =
                "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("{rule} {prefixed}")];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > LONGEST_SUBDOMAIN {
                    problems.push(format!("prefix part {}", too_many_bytes(LONGEST_SUBDOMAIN)));
                }
                if !is_subdomain(prefix) {
                    problems.push(format!("prefix part {SUBDOMAIN}"));
                }
            }
            name
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > LONGEST_LABEL {
        problems.push(format!("name part {}", too_many_bytes(LONGEST_LABEL)));
    }
    if !framed(name, |b| b.is_ascii_alphanumeric(), b"-_.") {
        problems.push(NAME_PART.to_owned());
    }
    problems
}

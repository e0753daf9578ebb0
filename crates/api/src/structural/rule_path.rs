//! The field a rule blames, written as a JSON path: `.spec.ports['http']`.

use super::node::{Additional, Node};

/// The path as errors show it; an error says what is wrong with it.
pub(super) fn normalize(path: &str, node: &Node) -> Result<String, String> {
    let mut node = node;
    let mut out = String::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (name, after) = match rest.as_bytes()[0] {
            b'.' => {
                let tail = &rest[1..];
                let end = tail.find(['.', '[', ']']).unwrap_or(tail.len());
                if tail.is_empty() {
                    return Err("unexpected end of JSON path".to_owned());
                }
                (tail[..end].to_owned(), &tail[end..])
            }
            b'[' => quoted(&rest[1..])?,
            _ => return Err(format!("expected [ or . but got: {rest}")),
        };
        rest = after;
        let invalid = || "does not refer to a valid field".to_owned();
        if node.properties.is_empty() {
            let Additional::Each(each) = &node.additional else {
                return Err(invalid());
            };
            out.push_str(&format!("[{name}]"));
            node = each;
        } else {
            node = node.properties.get(&name).ok_or_else(invalid)?;
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name);
        }
    }
    Ok(out)
}

fn quoted(text: &str) -> Result<(String, &str), String> {
    let inner = text
        .strip_prefix('\'')
        .ok_or_else(|| format!("expected single quoted string but got {text}"))?;
    let mut name = String::new();
    let mut letters = inner.char_indices();
    while let Some((place, letter)) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some((_, escaped)) => name.push(escaped),
                None => break,
            },
            '\'' => {
                return match inner[place + 1..].strip_prefix(']') {
                    Some(after) => Ok((name, after)),
                    None => Err("expected ]".to_owned()),
                };
            }
            other => name.push(other),
        }
    }
    Err("unexpected end of JSON path".to_owned())
}

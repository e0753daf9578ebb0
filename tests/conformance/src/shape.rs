//! What of an answer goes into the transcript: the masks that a case asks for.

use serde_json::{Map, Value};

/// Reductions of a body, applied in the order keep, drop, only, sort, mask. Pointers are JSON pointers in which
/// `*` stands for every item or field.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape {
    /// The status line alone.
    pub(crate) brief: bool,
    /// Show `metadata.managedFields`, which is left out otherwise.
    pub(crate) managed: bool,
    /// A list's resourceVersion is compared like an object's: it is that of a fixed state.
    pub(crate) exact: bool,
    keep: Vec<Path>,
    drop: Vec<Path>,
    mask: Vec<Path>,
    only: Vec<(Path, String, Vec<String>)>,
    sort: Vec<(Path, String)>,
}

type Path = Vec<String>;

impl Shape {
    /// Takes in one directive; false if it is none of this module's.
    pub(crate) fn directive(&mut self, verb: &str, rest: &str) -> Result<bool, String> {
        let mut words = rest.split_whitespace();
        match verb {
            "brief" => self.brief = true,
            "managed" => self.managed = true,
            "exact" => self.exact = true,
            "keep" => self.keep.extend(words.map(path)),
            "drop" => self.drop.extend(words.map(path)),
            "mask" => self.mask.extend(words.map(path)),
            "only" | "sort" => {
                let (Some(at), Some(by)) = (words.next(), words.next()) else {
                    return Err(format!("@{verb} wants a pointer and a key"));
                };
                match by.split_once('=') {
                    Some((key, values)) if verb == "only" => {
                        let values = values.split(',').map(str::to_owned).collect();
                        self.only.push((path(at), key.to_owned(), values));
                    }
                    None if verb == "sort" => self.sort.push((path(at), by.to_owned())),
                    _ => return Err(format!("@{verb} does not understand {by:?}")),
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(crate) fn add(&mut self, other: Self) {
        // without `..`: a new reduction must not be forgotten here
        let Self {
            brief,
            managed,
            exact,
            keep,
            drop,
            mask,
            only,
            sort,
        } = other;
        self.brief |= brief;
        self.managed |= managed;
        self.exact |= exact;
        self.keep.extend(keep);
        self.drop.extend(drop);
        self.mask.extend(mask);
        self.only.extend(only);
        self.sort.extend(sort);
    }

    pub(crate) fn apply(&self, body: &mut Value) {
        if !self.keep.is_empty() {
            let paths: Vec<&[String]> = self.keep.iter().map(Vec::as_slice).collect();
            *body = keep(body, &paths);
        }
        for path in &self.drop {
            at(body, path, &mut |parent, key| remove(parent, key));
        }
        for (path, key, values) in &self.only {
            each(body, path, &mut |found| {
                if let Value::Array(items) = found {
                    items.retain(|item| values.iter().any(|v| text(item, key) == *v));
                }
            });
        }
        for (path, key) in &self.sort {
            each(body, path, &mut |found| {
                if let Value::Array(items) = found {
                    items.sort_by_key(|item| text(item, key));
                }
            });
        }
        for path in &self.mask {
            each(body, path, &mut |found| *found = "<masked>".into());
        }
    }
}

fn path(pointer: &str) -> Path {
    pointer
        .split('/')
        .skip(1)
        .map(|segment| segment.replace("~1", "/").replace("~0", "~"))
        .collect()
}

/// The value that an item is chosen or sorted by: a field, or a field of its metadata, or the item itself.
fn text(item: &Value, key: &str) -> String {
    let found = item
        .get(key)
        .or_else(|| item.pointer(&format!("/metadata/{key}")))
        .or_else(|| item.pointer(&format!("/object/metadata/{key}")))
        .unwrap_or(item);
    match found {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn keep(value: &Value, paths: &[&[String]]) -> Value {
    if paths.iter().any(|path| path.is_empty()) {
        return value.clone();
    }
    let below = |key: &str| -> Vec<&[String]> {
        paths
            .iter()
            .filter(|path| path[0] == "*" || path[0] == key)
            .map(|path| &path[1..])
            .collect()
    };
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter_map(|(key, field)| {
                let paths = below(key);
                (!paths.is_empty()).then(|| (key.clone(), keep(field, &paths)))
            });
            Value::Object(kept.collect::<Map<_, _>>())
        }
        Value::Array(items) => {
            let kept = items.iter().enumerate().filter_map(|(index, item)| {
                let paths = below(&index.to_string());
                (!paths.is_empty()).then(|| keep(item, &paths))
            });
            Value::Array(kept.collect())
        }
        other => other.clone(),
    }
}

/// Calls `act` with every value at the path.
fn each(value: &mut Value, path: &[String], act: &mut dyn FnMut(&mut Value)) {
    let Some((first, rest)) = path.split_first() else {
        return act(value);
    };
    match value {
        Value::Object(fields) if first == "*" => {
            fields.values_mut().for_each(|v| each(v, rest, act));
        }
        Value::Array(items) if first == "*" => items.iter_mut().for_each(|v| each(v, rest, act)),
        Value::Object(fields) => {
            if let Some(field) = fields.get_mut(first) {
                each(field, rest, act);
            }
        }
        Value::Array(items) => {
            if let Some(item) = first.parse().ok().and_then(|i: usize| items.get_mut(i)) {
                each(item, rest, act);
            }
        }
        _ => {}
    }
}

/// Calls `act` with the parent of every value at the path, and the value's key.
fn at(value: &mut Value, path: &[String], act: &mut dyn FnMut(&mut Value, &str)) {
    if let Some((last, parents)) = path.split_last() {
        each(value, parents, &mut |parent| act(parent, last));
    }
}

fn remove(parent: &mut Value, key: &str) {
    match parent {
        Value::Object(fields) => drop(fields.remove(key)),
        Value::Array(items) => {
            if let Some(index) = key.parse().ok().filter(|i: &usize| *i < items.len()) {
                items.remove(index);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::Shape;
    use serde_json::json;

    #[test]
    fn a_body_is_reduced_as_asked() {
        let mut shape = Shape::default();
        for (verb, rest) in [
            ("keep", "/items /kind"),
            ("drop", "/items/*/secret"),
            ("only", "/items name=b,a"),
            ("sort", "/items name"),
            ("mask", "/items/0/n"),
        ] {
            assert!(shape.directive(verb, rest).unwrap(), "{verb}");
        }
        let mut body = json!({
            "kind": "L",
            "other": 1,
            "items": [
                {"name": "b", "n": 1, "secret": 1},
                {"name": "a", "n": 2},
                {"name": "c", "n": 3},
            ],
        });
        shape.apply(&mut body);
        let expected = json!({
            "kind": "L",
            "items": [{"name": "a", "n": "<masked>"}, {"name": "b", "n": 1}],
        });
        assert_eq!(body, expected);
    }
}

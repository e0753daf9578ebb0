//! Replaces what differs from run to run by names that keep equality and order: the same uid is the same `u1`, and
//! a later resourceVersion has a later `r2`.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use regex::{Captures, Regex};
use serde_json::{Map, Value};

use crate::causes;

/// Runs of this many letters come from `$chars:N`.
const LONG: usize = 40;

/// What a namespace holds without anyone's asking; the time of its appearance is open.
const NOISE: [(&str, &str); 2] = [
    ("ConfigMap", "kube-root-ca.crt"),
    ("ServiceAccount", "default"),
];

macro_rules! pattern {
    ($name:ident, $text:expr) => {
        static $name: LazyLock<Regex> =
            LazyLock::new(|| Regex::new($text).unwrap_or_else(|e| panic!("{e}")));
    };
}
pattern!(
    UID,
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
);
pattern!(
    TIME,
    r"(\d{4})-(\d\d)-(\d\d)T\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"
);
// in sentences about versions
pattern!(
    VERSION,
    r"(?i)(too old resource version: \d+ \(|resource ?version[^0-9]{0,40}?|current: )(\d+)"
);
// refusals quote the object in the order of the server's own fields
pattern!(QUOTED, r#"Invalid value: "\{\\"apiVersion.*\}": "#);
pattern!(AGE, r"^(\d+[smhd]){1,2}$|^<invalid>$|^<unknown>$");
pattern!(CHARS, r"a{40,}");
pattern!(TOKEN_VOLUME, r"kube-api-access-[a-z0-9]{5}\b");

/// How an answer is looked at.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct View {
    /// Show `metadata.managedFields`.
    pub(crate) managed: bool,
    /// A list's version is that of a fixed state.
    pub(crate) exact: bool,
    /// A bookmark's version moves like a list's.
    pub(crate) bookmark: bool,
}

/// The names given so far in one case.
#[derive(Debug, Default)]
pub(crate) struct Masks {
    uids: HashMap<String, usize>,
    versions: BTreeMap<u64, String>,
    /// Strings that the server or the run chose, and what stands for them.
    texts: Vec<(String, String)>,
    generated: usize,
    allocated: usize,
}

impl Masks {
    /// From now on `text` is shown as `shown`.
    pub(crate) fn text(&mut self, text: &str, shown: &str) {
        if !self.texts.iter().any(|(known, _)| known == text) {
            self.texts.push((text.to_owned(), shown.to_owned()));
        }
    }

    pub(crate) fn body(&mut self, body: &mut Value, view: View) {
        causes::sort(body);
        self.collect(body);
        self.value(body, view, false);
    }

    /// Learns generated names and allocated addresses before anything is shown.
    fn collect(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                let field = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
                if let (Some(prefix), Some(name)) =
                    (field("/metadata/generateName"), field("/metadata/name"))
                    && name.len() > prefix.len()
                    && name.starts_with(prefix)
                    && !self.texts.iter().any(|(known, _)| known == name)
                {
                    self.generated += 1;
                    let shown = format!("{prefix}<generated{}>", self.generated);
                    self.text(name, &shown);
                }
                if let Some(address) = field("/spec/clusterIP")
                    && address.contains(['.', ':'])
                    && !self.texts.iter().any(|(known, _)| known == address)
                {
                    self.allocated += 1;
                    self.text(address, &format!("<address{}>", self.allocated));
                }
                fields.values().for_each(|field| self.collect(field));
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            _ => {}
        }
    }

    fn value(&mut self, value: &mut Value, view: View, cell: bool) {
        match value {
            Value::Object(fields) => self.object(fields, view),
            Value::Array(items) => {
                for item in items {
                    self.value(item, view, cell);
                }
            }
            Value::String(text) if cell && AGE.is_match(text) => *text = "<age>".to_owned(),
            Value::String(text) => *text = self.line(text),
            _ => {}
        }
    }

    fn object(&mut self, fields: &mut Map<String, Value>, view: View) {
        let mut list = view.bookmark;
        for key in ["items", "rows"] {
            if let Some(Value::Array(items)) = fields.get_mut(key) {
                items.retain(|item| !is_noise(item));
                list = true;
            }
        }
        let mut keys: Vec<String> = fields.keys().cloned().collect();
        // a list's own metadata comes last: its version is told in terms of the items'
        keys.sort_by_key(|key| (list && key == "metadata", key.clone()));
        for key in keys {
            let Some(field) = fields.get_mut(&key) else {
                continue;
            };
            match (key.as_str(), &mut *field) {
                ("metadata", Value::Object(metadata)) => {
                    self.metadata(metadata, view, list && !view.exact);
                }
                ("resourceVersion", Value::String(version)) => {
                    *field = self.version(version).into();
                }
                ("cells", _) => self.value(field, view, true),
                _ => self.value(field, view, false),
            }
        }
    }

    fn metadata(&mut self, metadata: &mut Map<String, Value>, view: View, list: bool) {
        if let Some(Value::String(token)) = metadata.get_mut("continue")
            && !token.is_empty()
        {
            *token = "<continue>".to_owned();
        }
        if let Some(entries) = metadata.remove("managedFields")
            && view.managed
        {
            metadata.insert("managedFields".to_owned(), compact(&entries));
        }
        if list && let Some(Value::String(version)) = metadata.get_mut("resourceVersion") {
            *version = self.bound(version);
        }
        self.object(
            metadata,
            View {
                bookmark: false,
                ..view
            },
        );
    }

    /// `r1`, `r2`, … in the order of appearance; one that is older than an earlier one says so.
    fn version(&mut self, text: &str) -> String {
        let Some(number) = text.parse::<u64>().ok().filter(|n| *n > 0) else {
            return text.to_owned();
        };
        if let Some(known) = self.versions.get(&number) {
            return known.clone();
        }
        let mut name = format!("r{}", self.versions.len() + 1);
        if let Some((_, later)) = self.versions.range(number..).next() {
            let later = later.split(' ').next().unwrap_or_default();
            name = format!("{name} (before {later})");
        }
        self.versions.insert(number, name.clone());
        name
    }

    /// The version of a list or a bookmark moves with every write to the server, so only its place relative to the
    /// newest object of the case is comparable.
    fn bound(&self, text: &str) -> String {
        let Ok(number) = text.parse::<u64>() else {
            return text.to_owned();
        };
        match self.versions.last_key_value() {
            None => "<version>".to_owned(),
            Some((newest, name)) => {
                let name = name.split(' ').next().unwrap_or_default();
                let sign = if number < *newest { "<" } else { ">=" };
                format!("{sign} {name}")
            }
        }
    }

    /// A text in which values are embedded: a message, a header, a name.
    pub(crate) fn line(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (known, shown) in &self.texts {
            if text.contains(known.as_str()) {
                text = text.replace(known.as_str(), shown);
            }
        }
        let text = QUOTED.replace_all(&text, r#"Invalid value: "<object>": "#);
        let text = UID.replace_all(&text, |found: &Captures| {
            let next = self.uids.len() + 1;
            let number = self.uids.entry(found[0].to_owned()).or_insert(next);
            format!("<u{number}>")
        });
        let text = TIME.replace_all(&text, |found: &Captures| {
            match (is_now(found), found.get(4)) {
                (false, _) => found[0].to_owned(),
                (true, None) => "<time>".to_owned(),
                (true, Some(_)) => "<microtime>".to_owned(),
            }
        });
        let text = CHARS.replace_all(&text, |found: &Captures| {
            debug_assert!(found[0].len() >= LONG);
            format!("$chars:{}", found[0].len())
        });
        let text = TOKEN_VOLUME.replace_all(&text, "kube-api-access-<generated>");
        let text = VERSION.replace_all(&text, |found: &Captures| {
            let number = found[2].parse::<u64>().unwrap_or_default();
            match self.versions.get(&number) {
                Some(name) => format!("{}<{name}>", &found[1]),
                // small numbers and those out of reach come from the case itself
                // the brackets hold how far a server's memory goes back
                None if (100..1_000_000_000).contains(&number) || found[1].ends_with('(') => {
                    format!("{}<version>", &found[1])
                }
                None => found[0].to_owned(),
            }
        });
        text.into_owned()
    }
}

/// Whether nobody has asked for it; `item` is an object, a row of a table, or an event.
pub(crate) fn is_noise(item: &Value) -> bool {
    is_bookmark_by_the_way(item) || is_of_the_cluster(item)
}

/// A server may tell how far a watch is whenever it likes; only the end of initial events has its place.
fn is_bookmark_by_the_way(event: &Value) -> bool {
    let mark = "/object/metadata/annotations/k8s.io~1initial-events-end";
    event["type"] == "BOOKMARK" && event.pointer(mark).is_none()
}

/// What comes with every namespace.
fn is_of_the_cluster(item: &Value) -> bool {
    let object = item.get("object").unwrap_or(item);
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    NOISE.iter().any(|(kind, noise)| {
        let stated = object.get("kind").and_then(Value::as_str);
        // items of a typed list do not repeat their kind
        name == Some(noise) && stated.is_none_or(|k| k == *kind || k == "PartialObjectMetadata")
    })
}

/// One line per manager: who, how, at which version, and the set of fields.
fn compact(entries: &Value) -> Value {
    let line = |entry: &Value| -> Value {
        let part = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let mut head = vec![part("manager"), part("operation"), part("apiVersion")];
        if entry.get("subresource").is_some() {
            head.push(format!("/{}", part("subresource")));
        }
        serde_json::json!({ head.join(" "): sorted(&entry["fieldsV1"]) })
    };
    match entries {
        Value::Array(entries) => {
            // entries of one second are ordered by name, others by time: only the set is comparable
            let mut lines: Vec<Value> = entries.iter().map(line).collect();
            lines.sort_by_key(Value::to_string);
            Value::Array(lines)
        }
        other => other.clone(),
    }
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<_, _> =
                fields.iter().map(|(k, v)| (k.clone(), sorted(v))).collect();
            Value::Object(sorted.into_iter().collect())
        }
        other => other.clone(),
    }
}

/// Whether a timestamp is of this run: within a day of the clock here, so that fixed ones in cases stay.
fn is_now(found: &Captures) -> bool {
    let number = |i: usize| found[i].parse::<i64>().unwrap_or_default();
    let today = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs() / 86_400);
    let day = days(number(1), number(2), number(3));
    i64::try_from(today).is_ok_and(|today| (today - day).abs() <= 1)
}

/// Days since 1970 of a Gregorian date; years are counted from March so that the leap day is the last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469
}

#[cfg(test)]
mod tests {
    use super::{Masks, View, days};
    use serde_json::json;

    #[test]
    fn dates_become_days() {
        assert_eq!(days(1970, 1, 1), 0);
        assert_eq!(days(2000, 3, 1), 11_017);
        assert_eq!(days(2024, 2, 29), 19_782);
    }

    #[test]
    fn versions_keep_equality_and_order() {
        let mut masks = Masks::default();
        let mut body = json!([
            {"metadata": {"resourceVersion": "120"}},
            {"metadata": {"resourceVersion": "130"}},
            {"metadata": {"resourceVersion": "125"}},
            {"metadata": {"resourceVersion": "120"}},
            {"metadata": {"resourceVersion": "140"}, "items": []},
        ]);
        masks.body(&mut body, View::default());
        let shown: Vec<_> = body
            .as_array()
            .unwrap()
            .iter()
            .map(|o| o["metadata"]["resourceVersion"].as_str().unwrap())
            .collect();
        assert_eq!(shown, ["r1", "r2", "r3 (before r2)", "r1", ">= r2"]);
    }

    #[test]
    fn uids_are_counted_and_fixed_times_stay() {
        let mut masks = Masks::default();
        let uid = "01234567-89ab-cdef-0123-456789abcdef";
        assert_eq!(masks.line(&format!("{uid} {uid}")), "<u1> <u1>");
        assert_eq!(masks.line("2020-01-01T00:00:00Z"), "2020-01-01T00:00:00Z");
    }
}

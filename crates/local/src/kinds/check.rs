//! What checks of fields share: where a field is, and the errors found so far.

use std::fmt;

use api::structural::names;
use api::structural::{FieldError, Reason};
use serde_json::Value;

use super::internal;

/// Where a field is. Written out only when something is wrong with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    pub(super) const fn new(field: &'a str) -> Self {
        Self {
            parent: None,
            step: Step::Field(field),
        }
    }

    pub(super) fn field<'b>(&'b self, name: &'b str) -> Path<'b> {
        self.then(Step::Field(name))
    }

    pub(super) fn index(&self, index: usize) -> Path<'_> {
        self.then(Step::Index(index))
    }

    pub(super) fn key<'b>(&'b self, key: &'b str) -> Path<'b> {
        self.then(Step::Key(key))
    }

    fn then<'b>(&'b self, step: Step<'b>) -> Path<'b> {
        Path {
            parent: Some(self),
            step,
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match (self.step, self.parent) {
            (Step::Field(name), None) => f.write_str(name),
            (Step::Field(name), Some(_)) => write!(f, ".{name}"),
            (Step::Index(index), _) => write!(f, "[{index}]"),
            (Step::Key(key), _) => write!(f, "[{key}]"),
        }
    }
}

pub(super) const FIXED: &str = "field is immutable";
const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// The errors of one object.
#[derive(Debug, Default)]
pub(super) struct Errors(Vec<FieldError>);

impl Errors {
    /// All that a check finds.
    pub(super) fn of(check: impl FnOnce(&mut Self)) -> Vec<FieldError> {
        let mut errors = Self::default();
        check(&mut errors);
        errors.0
    }

    pub(super) fn into_vec(self) -> Vec<FieldError> {
        self.0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    pub(super) fn required(&mut self, path: &Path, detail: &str) {
        self.push(FieldError::required(path.to_string(), detail));
    }

    pub(super) fn forbidden(&mut self, path: &Path, detail: &str) {
        self.push(FieldError::forbidden(path.to_string(), detail));
    }

    pub(super) fn invalid(&mut self, path: &Path, value: impl Into<Value>, detail: &str) {
        self.push(FieldError::invalid(path.to_string(), &value.into(), detail));
    }

    /// As [`Errors::invalid`], for a value of the server's internal types.
    pub(super) fn invalid_internal(
        &mut self,
        path: &Path,
        kind: &str,
        value: &Value,
        detail: &str,
    ) {
        let shown = internal::quoted(kind, value);
        self.push(FieldError::with_shown(path.to_string(), shown, detail));
    }

    pub(super) fn duplicate(&mut self, path: &Path, value: impl Into<Value>) {
        self.with(Reason::Duplicate, path, value.into(), "");
    }

    pub(super) fn duplicate_with(&mut self, path: &Path, value: Value, detail: &str) {
        self.with(Reason::Duplicate, path, value, detail);
    }

    pub(super) fn too_long(&mut self, path: &Path, most: usize) {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.push(FieldError::too_long(path.to_string(), most));
    }

    pub(super) fn not_found(&mut self, path: &Path, value: &str) {
        self.with(Reason::NotFound, path, value.into(), "");
    }

    fn with(&mut self, reason: Reason, path: &Path, value: Value, detail: &str) {
        let field = path.to_string();
        self.push(FieldError::with_value(reason, field, &value, detail));
    }

    pub(super) fn not_supported(&mut self, path: &Path, value: &str, supported: &[&str]) {
        self.not_supported_value(path, &value.into(), supported);
    }

    pub(super) fn not_supported_value(&mut self, path: &Path, value: &Value, supported: &[&str]) {
        let supported: Vec<_> = supported.iter().map(|text| (*text).to_owned()).collect();
        let field = path.to_string();
        self.push(FieldError::not_supported(field, value, &supported));
    }

    /// A word out of a few, which must be there.
    pub(super) fn one_of(&mut self, path: &Path, value: &str, supported: &[&str]) {
        if value.is_empty() {
            self.required(path, "");
        } else if !supported.contains(&value) {
            self.not_supported(path, value, supported);
        }
    }

    /// All that is wrong with one text.
    pub(super) fn problems(&mut self, path: &Path, value: &str, problems: Vec<String>) {
        for problem in problems {
            self.invalid(path, value, &problem);
        }
    }

    pub(super) fn label(&mut self, path: &Path, value: &str) {
        self.problems(path, value, names::label_problems(value));
    }

    pub(super) fn subdomain(&mut self, path: &Path, value: &str) {
        self.problems(path, value, names::subdomain_problems(value));
    }

    pub(super) fn qualified_name(&mut self, path: &Path, value: &str) {
        self.problems(path, value, names::qualified_name_problems(value));
    }

    /// A name that must be there and may have dots.
    pub(super) fn reference(&mut self, path: &Path, name: &str) {
        match name {
            "" => self.required(path, ""),
            name => self.subdomain(path, name),
        }
    }

    /// A map of labels, as selectors have them.
    pub(super) fn labels<'a>(
        &mut self,
        path: &Path,
        labels: impl Iterator<Item = (&'a str, &'a Value)>,
    ) {
        for (key, value) in labels {
            self.qualified_name(path, key);
            let value = value.as_str().unwrap_or_default();
            self.problems(path, value, names::label_value_problems(value));
        }
    }

    pub(super) fn not_negative(&mut self, path: &Path, value: Option<i64>) {
        if let Some(value) = value.filter(|value| *value < 0) {
            self.invalid(path, value, NOT_NEGATIVE);
        }
    }

    /// A quantity that may be zero.
    pub(super) fn quantity_not_negative(&mut self, path: &Path, quantity: &str) {
        if quantity.starts_with('-') {
            self.invalid(path, quantity, NOT_NEGATIVE);
        }
    }

    pub(super) fn port(&mut self, path: &Path, port: i64) {
        self.range(path, port, 1, 65535);
    }

    pub(super) fn range(&mut self, path: &Path, value: i64, least: i64, most: i64) {
        if !(least..=most).contains(&value) {
            let detail = format!("must be between {least} and {most}, inclusive");
            self.invalid(path, value, &detail);
        }
    }

    /// A port by number or name.
    pub(super) fn port_or_name(&mut self, path: &Path, port: Option<&Value>) {
        match port {
            Some(Value::String(name)) => self.problems(path, name, port_name_problems(name)),
            port => self.port(path, port.and_then(Value::as_i64).unwrap_or(0)),
        }
    }

    /// A field that must not change.
    pub(super) fn fixed(&mut self, path: &Path, new: Option<&Value>, old: Option<&Value>) {
        if new != old {
            self.invalid(path, new.cloned().unwrap_or(Value::Null), FIXED);
        }
    }

    /// As [`Errors::fixed`], for a text that is empty where it is absent.
    pub(super) fn fixed_text(&mut self, path: &Path, new: &str, old: &str) {
        if new != old {
            self.invalid(path, new, FIXED);
        }
    }

    pub(super) fn ip(&mut self, path: &Path, value: &str) {
        if !is_ip(value) {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            self.invalid(path, value, detail);
        }
    }

    pub(super) fn cidr(&mut self, path: &Path, value: &str) {
        if cidr(value).is_none() {
            let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            self.invalid(path, value, detail);
        }
    }
}

/// An address as fields of old take it: leading zeros in IPv4 octets are allowed there.
pub(super) fn is_ip(text: &str) -> bool {
    address(text).is_some()
}

fn address(text: &str) -> Option<std::net::IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let octets: Vec<&str> = text.split('.').collect();
    let parsed: Vec<u8> = octets
        .iter()
        .filter(|octet| !octet.is_empty() && octet.bytes().all(|b| b.is_ascii_digit()))
        .filter_map(|octet| octet.parse().ok())
        .collect();
    match (octets.len(), parsed.as_slice()) {
        (4, &[a, b, c, d]) => Some([a, b, c, d].into()),
        _ => None,
    }
}

/// The address of a block, and the length of its prefix.
pub(super) fn cidr(text: &str) -> Option<(std::net::IpAddr, u8)> {
    let (base, length) = text.split_once('/')?;
    let base = address(base)?;
    let length: u8 = length.parse().ok()?;
    let most = if base.is_ipv4() { 32 } else { 128 };
    (length <= most).then_some((base, length))
}

/// What is wrong with the name of a port.
pub(super) fn port_name_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut say = |problem: &str| problems.push(problem.to_owned());
    if name.len() > 15 {
        say("must be no more than 15 characters");
    }
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if name.is_empty() || !name.bytes().all(letter) {
        say("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.bytes().any(|b| b.is_ascii_lowercase()) {
        say("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        say("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        say("must not begin or end with a hyphen");
    }
    problems
}

/// What is wrong with a key of a ConfigMap or a Secret.
pub(super) fn data_key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key.len() > 253 {
        problems.push("must be no more than 253 characters".to_owned());
    }
    let letter = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if key.is_empty() || !key.bytes().all(letter) {
        problems.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match key {
        "." | ".." => problems.push(format!("must not be '{key}'")),
        _ if key.starts_with("..") => problems.push("must not start with '..'".to_owned()),
        _ => {}
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::{Path, cidr, data_key_problems, is_ip, port_name_problems};

    #[test]
    fn a_path_reads_as_the_server_writes_it() {
        let spec = Path::new("spec");
        let containers = spec.field("containers");
        let first = containers.index(0);
        assert_eq!(first.field("name").to_string(), "spec.containers[0].name");
        assert_eq!(Path::new("data").key("a b").to_string(), "data[a b]");
    }

    #[test]
    fn addresses_and_blocks_are_told_from_nonsense() {
        assert!(is_ip("10.0.0.1") && is_ip("::1") && is_ip("010.0.0.1"));
        assert!(!is_ip("10.0.0") && !is_ip("nonsense") && !is_ip("10.0.0.256"));
        assert!(cidr("10.0.0.0/8").is_some() && cidr("10.0.0.0/33").is_none());
    }

    #[test]
    fn names_of_ports_and_keys_are_checked() {
        assert!(port_name_problems("http").is_empty());
        assert_eq!(port_name_problems("80").len(), 1);
        assert_eq!(port_name_problems("a--b").len(), 1);
        assert!(data_key_problems("a.b").is_empty());
        assert_eq!(data_key_problems("..a"), ["must not start with '..'"]);
    }
}

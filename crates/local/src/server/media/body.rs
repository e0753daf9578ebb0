//! Reading the bodies of requests, and the failures for what cannot be read.

use api::depth::{MOST_NESTED, is_deeper};
use api::patch::go::{cannot_unmarshal, json_type};
use api::protobuf::{Envelope, ProtobufError};
use api::structural;
use serde_json::{Map, Value};

use super::{BodyEncoding, Encoding, OBJECTS, PatchKind, json, yaml};
use crate::kinds::BUILT_IN;
use crate::status::Failure;

/// How many bytes the body of a request may have; for a longer one there is [`Failure::too_large`].
pub(crate) const LIMIT: usize = 3 * 1024 * 1024;
/// What Go calls the part of an object that says what it is.
pub(crate) const TYPE_META: &str = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
                                    Kind string \"json:\\\"kind,omitempty\\\"\" }";
const MOST_OPERATIONS: usize = 10_000;
const OPTIONS: &str = "DeleteOptions";

/// What a request should send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    /// A body of a custom kind must say what it is.
    pub custom: bool,
}

/// A body, and what is odd about its text.
#[derive(Debug, PartialEq)]
pub(crate) struct Decoded {
    pub value: Value,
    pub duplicates: Duplicates,
}

/// Fields that are written twice, and in a JSON patch those that it does not have.
#[derive(Debug, PartialEq)]
pub(crate) enum Duplicates {
    /// Whole sentences.
    Json(Vec<String>),
    /// With their lines.
    Yaml(Vec<String>),
}

impl Duplicates {
    const NONE: Self = Self::Json(Vec::new());

    /// What a client is warned of.
    pub(crate) fn warnings(&self) -> &[String] {
        match self {
            Self::Json(problems) | Self::Yaml(problems) => problems,
        }
    }

    /// The parts of a strict decoding error: those of YAML are one.
    pub(crate) fn problems(&self) -> Vec<String> {
        match self {
            Self::Json(problems) => problems.clone(),
            Self::Yaml(lines) if lines.is_empty() => Vec::new(),
            Self::Yaml(lines) => {
                vec![format!("yaml: unmarshal errors:\n  {}", lines.join("\n  "))]
            }
        }
    }
}

/// The object that a client sends to create or to replace one. Duplicates are looked for unless field validation is
/// off.
pub(crate) fn decode_object(
    body: &[u8],
    encoding: BodyEncoding,
    expected: Expected,
    validate: bool,
) -> Result<Decoded, Failure> {
    let unrecognized = |problem: String| {
        Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {problem} ({})",
            expected.kind,
            summary(body)
        ))
    };
    let encoding = match encoding {
        BodyEncoding::Text(encoding) => encoding,
        // nobody knows what the fields of custom kinds are numbered
        BodyEncoding::Protobuf if expected.custom => {
            return Err(Failure::unsupported_media_type(&OBJECTS));
        }
        BodyEncoding::Protobuf => {
            let envelope = Envelope::open(body).map_err(|error| unrecognized(error.to_string()))?;
            return decode_message(&envelope.or(expected.api_version, expected.kind), expected);
        }
    };
    let mut decoded = decode_typed(body, encoding, validate).map_err(unrecognized)?;
    let said = TypeMeta::of(&decoded.value).map_err(unrecognized)?;
    if expected.custom && said.kind.is_empty() {
        let body = String::from_utf8_lossy(body);
        return Err(unrecognized(format!(
            "Object 'Kind' is missing in '{body}'"
        )));
    }
    said.check(expected)?;
    if decoded.value.is_null() {
        decoded.value = Value::Object(Map::new());
    }
    Ok(decoded)
}

/// Protobuf has numbers for fields, so that there are none with wrong names, and none that are duplicates.
fn decode_message(envelope: &Envelope, expected: Expected) -> Result<Decoded, Failure> {
    let said = TypeMeta {
        api_version: &envelope.api_version,
        kind: &envelope.kind,
    };
    said.check(expected)?;
    let value = envelope.object();
    Ok(Decoded {
        value: value.map_err(|error| said.cannot_be_handled(expected, &error.to_string()))?,
        duplicates: Duplicates::NONE,
    })
}

/// The `DeleteOptions` of a request with a body.
pub(crate) fn decode_options(body: &[u8], encoding: BodyEncoding) -> Result<Value, Failure> {
    let encoding = match encoding {
        BodyEncoding::Text(encoding) => encoding,
        BodyEncoding::Protobuf => return decode_options_message(body),
    };
    let decoded = decode_typed(body, encoding, false).map_err(Failure::bad_request)?;
    TypeMeta::of(&decoded.value)
        .and_then(TypeMeta::check_options)
        .map_err(Failure::bad_request)?;
    match decoded.value {
        Value::Null => Ok(Value::Object(Map::new())),
        options => Ok(options),
    }
}

fn decode_options_message(body: &[u8]) -> Result<Value, Failure> {
    let refused = |error: ProtobufError| Failure::bad_request(error.to_string());
    let envelope = Envelope::open(body).map_err(refused)?;
    let said = TypeMeta {
        api_version: &envelope.api_version,
        kind: &envelope.kind,
    };
    said.check_options().map_err(Failure::bad_request)?;
    envelope.or("v1", OPTIONS).object().map_err(refused)
}

/// A patch. What it does when it is applied is not looked at.
pub(crate) fn decode_patch(
    kind: PatchKind,
    body: &[u8],
    validate: bool,
) -> Result<Decoded, Failure> {
    match kind {
        PatchKind::Merge => decode_merge(body, validate),
        PatchKind::Json => decode_operations(body, validate),
        PatchKind::Strategic => {
            let decoded = decode(body, Encoding::Json, validate).map_err(Failure::bad_request)?;
            object_or_nothing(decoded).map_err(Failure::bad_request)
        }
        PatchKind::Apply => {
            let prefixed = |prefix: &'static str| {
                move |problem| {
                    Failure::bad_request(format!("error decoding YAML: {prefix}{problem}"))
                }
            };
            let decoded = decode(body, Encoding::Yaml, validate)
                .map_err(prefixed("error converting YAML to JSON: "))?;
            object_or_nothing(decoded)
                .map_err(prefixed("error unmarshaling JSON: while decoding JSON: "))
        }
    }
}

fn decode_merge(body: &[u8], validate: bool) -> Result<Decoded, Failure> {
    let bad = |problem| match validate {
        true => Failure::bad_request(format!("error decoding patch: {problem}")),
        false => Failure::bad_request("Invalid JSON Patch"),
    };
    let decoded = decode(body, Encoding::Json, validate).map_err(bad)?;
    match decoded.value {
        Value::Null => Err(Failure::bad_request("Invalid JSON Patch")),
        _ => object_or_nothing(decoded).map_err(bad),
    }
}

fn decode_operations(body: &[u8], validate: bool) -> Result<Decoded, Failure> {
    let (prefix, list, operation) = match validate {
        true => (
            "error decoding patch: ",
            "[]handlers.jsonPatchOp",
            "handlers.jsonPatchOp",
        ),
        false => ("", "jsonpatch.Patch", "jsonpatch.Operation"),
    };
    let bad = |problem| Failure::bad_request(format!("{prefix}{problem}"));
    let mut decoded = decode(body, Encoding::Json, validate).map_err(bad)?;
    if decoded.value.is_null() {
        decoded.value = Value::Array(Vec::new());
    }
    let Some(operations) = decoded.value.as_array() else {
        return Err(bad(cannot_unmarshal(&decoded.value, list)));
    };
    let mut problems = Vec::new();
    for (index, value) in operations.iter().enumerate() {
        match value {
            Value::Null => {}
            Value::Object(fields) if validate => {
                check_operation(index, fields, &mut problems).map_err(bad)?;
            }
            Value::Object(_) => {}
            other => return Err(bad(cannot_unmarshal(other, operation))),
        }
    }
    if operations.len() > MOST_OPERATIONS {
        return Err(Failure::too_large(&format!(
            "The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    problems.extend(decoded.duplicates.warnings().iter().cloned());
    let marked = problems
        .iter()
        .map(|problem| format!("json patch {problem}"));
    decoded.duplicates = Duplicates::Json(marked.collect());
    Ok(decoded)
}

fn check_operation(
    index: usize,
    fields: &Map<String, Value>,
    problems: &mut Vec<String>,
) -> Result<(), String> {
    for (name, value) in fields {
        match name.as_str() {
            "op" | "path" | "from" if !value.is_string() && !value.is_null() => {
                return Err(format!(
                    "json: cannot unmarshal {} into Go struct field jsonPatchOp.{name} of type string",
                    json_type(value)
                ));
            }
            "op" | "path" | "from" | "value" => {}
            _ => problems.push(structural::unknown_field(&format!("[{index}].{name}"))),
        }
    }
    Ok(())
}

/// Null means that nothing is asked for.
fn object_or_nothing(mut decoded: Decoded) -> Result<Decoded, String> {
    match &decoded.value {
        Value::Object(_) => {}
        Value::Null => decoded.value = Value::Object(Map::new()),
        other => return Err(cannot_unmarshal(other, "map[string]interface {}")),
    }
    Ok(decoded)
}

fn decode(body: &[u8], encoding: Encoding, validate: bool) -> Result<Decoded, String> {
    let decoded = decode_any(body, encoding, validate)?;
    match is_deeper(&decoded.value, MOST_NESTED) {
        true => Err(format!("nested deeper than {MOST_NESTED} levels")),
        false => Ok(decoded),
    }
}

fn decode_any(body: &[u8], encoding: Encoding, validate: bool) -> Result<Decoded, String> {
    let from_json = |value| {
        let text = String::from_utf8_lossy(body);
        let duplicates = match validate {
            true => structural::duplicate_fields(&text),
            false => Vec::new(),
        };
        Decoded {
            value,
            duplicates: Duplicates::Json(
                duplicates
                    .iter()
                    .map(|path| structural::duplicate_field(path))
                    .collect(),
            ),
        }
    };
    match encoding {
        Encoding::Json => json::parse(body).map(from_json),
        Encoding::Yaml => {
            // most YAML that programs send is JSON, which is read faster as such
            if body.first() == Some(&b'{')
                && let Ok(value) = serde_json::from_slice(body)
            {
                let decoded = from_json(value);
                if decoded.duplicates == Duplicates::NONE {
                    return Ok(decoded);
                }
            }
            yaml::parse(body).map(|parsed| Decoded {
                value: parsed.value,
                duplicates: Duplicates::Yaml(parsed.duplicates),
            })
        }
    }
}

/// A body that is searched for its type before all else, so that a fault in JSON is one of that search.
fn decode_typed(body: &[u8], encoding: Encoding, validate: bool) -> Result<Decoded, String> {
    decode(body, encoding, validate).map_err(|problem| match encoding {
        Encoding::Json => untyped(&problem),
        Encoding::Yaml => problem,
    })
}

fn untyped(problem: &str) -> String {
    format!("couldn't get version/kind; json parse error: {problem}")
}

/// What a body says it is.
#[derive(Clone, Copy)]
struct TypeMeta<'a> {
    api_version: &'a str,
    kind: &'a str,
}

impl<'a> TypeMeta<'a> {
    fn of(value: &'a Value) -> Result<Self, String> {
        if !value.is_object() && !value.is_null() {
            return Err(untyped(&cannot_unmarshal(value, TYPE_META)));
        }
        let text = |field: &str| match value.get(field) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(other) => Err(untyped(&format!(
                "json: cannot unmarshal {} into Go struct field .{field} of type string",
                json_type(other)
            ))),
        };
        let said = Self {
            api_version: text("apiVersion")?,
            kind: text("kind")?,
        };
        match said.api_version.matches('/').count() {
            0 | 1 => Ok(said),
            _ => Err(format!(
                "unexpected GroupVersion string: {}",
                said.api_version
            )),
        }
    }

    fn check(self, expected: Expected) -> Result<(), Failure> {
        let other_version = || {
            Err(Failure::bad_request(format!(
                "the API version in the data ({}) does not match the expected API version ({})",
                self.api_version, expected.api_version
            )))
        };
        let or = |said, otherwise| if str::is_empty(said) { otherwise } else { said };
        if expected.custom {
            return match self.api_version == expected.api_version {
                true => Ok(()),
                false => other_version(),
            };
        }
        let known = TypeMeta {
            api_version: or(self.api_version, expected.api_version),
            kind: or(self.kind, expected.kind),
        };
        match other_kind(expected, known.api_version, known.kind) {
            None => Ok(()),
            Some(_)
                if known.kind == expected.kind && is_built_in(known.api_version, known.kind) =>
            {
                other_version()
            }
            Some(problem) => Err(known.cannot_be_handled(expected, &problem)),
        }
    }

    fn cannot_be_handled(self, expected: Expected, problem: &str) -> Failure {
        let (_, version) = self
            .api_version
            .split_once('/')
            .unwrap_or(("", self.api_version));
        Failure::bad_request(format!(
            "{} in version {version:?} cannot be handled as a {}: {problem}",
            self.kind, expected.kind
        ))
    }

    /// Fails unless these are the options of a delete.
    fn check_options(self) -> Result<(), String> {
        match (self.kind, self.api_version) {
            ("" | OPTIONS, _) => Ok(()),
            (kind, "") => Err(not_registered(kind, "meta.k8s.io/v1")),
            (kind, version) => Err(not_registered(kind, version)),
        }
    }
}

fn is_built_in(api_version: &str, kind: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    BUILT_IN
        .iter()
        .any(|known| (known.group, known.version, known.kind) == (group, version, kind))
}

/// Why an object of this kind is none of the built-in kind that is expected.
pub(crate) fn other_kind(expected: Expected, api_version: &str, kind: &str) -> Option<String> {
    if (api_version, kind) == (expected.api_version, expected.kind) {
        return None;
    }
    let (_, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Some(match is_built_in(api_version, kind) {
        true => format!(
            "converting ({version}.{kind}) to ({}.{}): unknown conversion",
            internal_package(expected.api_version),
            expected.kind
        ),
        false => not_registered(kind, api_version),
    })
}

fn not_registered(kind: &str, version: &str) -> String {
    format!(
        "no kind {kind:?} is registered for version {version:?} in scheme \
         \"pkg/runtime/scheme.go:111\""
    )
}

/// What errors call the type of an object or, with `List` behind its kind, of a list: `*core.Secret`.
pub(crate) fn go_type(expected: Expected, list: bool) -> String {
    let suffix = if list { "List" } else { "" };
    match expected.custom {
        true => format!("*unstructured.Unstructured{suffix}"),
        false => {
            let package = internal_package(expected.api_version);
            format!("*{package}.{}{suffix}", expected.kind)
        }
    }
}

/// Where the API server that everybody knows has the types of a group.
fn internal_package(api_version: &str) -> &str {
    match api_version.split_once('/') {
        None | Some(("events.k8s.io", _)) => "core",
        Some((group, _)) => group.split('.').next().unwrap_or(group),
    }
}

/// The beginning of a body, for errors about it.
fn summary(body: &[u8]) -> String {
    const LENGTH: usize = 30;
    let (shown, more) = match body.len() > LENGTH {
        true => (&body[..LENGTH], " ..."),
        false => (body, ""),
    };
    match shown.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(shown).into_owned() + more,
        Some(_) => {
            let hex: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            hex + more
        }
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;

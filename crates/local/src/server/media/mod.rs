//! The forms of requests and answers: which one a client wants, which one it sends, and reading it.

mod accept;
mod body;
mod content;
mod json;
mod yaml;

pub(crate) use accept::{Answer, Endpoint, Form, negotiate, preferred, pretty};
pub(crate) use body::{
    Decoded, Duplicates, Expected, LIMIT, TYPE_META, decode_object, decode_options, decode_patch,
    go_type, other_kind,
};
pub(crate) use content::{BodyEncoding, PatchKind, body_encoding, patch_kind};
pub(super) use json::parse as parse_json;

/// How objects are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
}

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
/// Read, and named where a client is told what there is, since the API is known to have it; never answered with.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const OBJECTS: [&str; 3] = [JSON, YAML, PROTOBUF];
const STREAMS: [&str; 2] = [
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

//! The OpenAPI documents of what the API serves: version 3 by group and version, version 2 as one. A document is written
//! piece by piece into its final text, because as a tree of values it would take several times the memory.

mod binary;
mod custom;
mod operations;
mod parameters;
mod render;
mod schemas;

use std::collections::BTreeSet;
use std::sync::Arc;

use binary::Message;
use serde_json::{Value, json};

use super::discovery;
use super::registry::Registry;
use super::resource::Resource;

/// Which form of OpenAPI a document has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    V3,
    V2,
}

impl Dialect {
    fn reference(self, name: &str) -> String {
        match self {
            Dialect::V3 => format!("#/components/schemas/{name}"),
            Dialect::V2 => format!("#/definitions/{name}"),
        }
    }
}

const V3: &str = "/openapi/v3";
const TITLE: &str = "Kubernetes";
const VERSION: &str = "1.36";
const API_GROUP: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroup";

/// The text of the document of version 3 at a path; nothing if there is none.
pub(super) fn answer(registry: &Registry, path: &str) -> Option<Vec<u8>> {
    match path.trim_end_matches('/').strip_prefix(V3)? {
        "" => Some(root(registry)),
        rest => document(registry, rest.strip_prefix('/')?),
    }
}

/// The document of version 2 as JSON.
pub(super) fn json(registry: &Registry) -> Vec<u8> {
    whole(registry, Writer::new())
}

/// The document of version 2 as protobuf.
pub(super) fn binary(registry: &Registry) -> Vec<u8> {
    whole(registry, Writer::binary(&binary::DOCUMENT))
}

/// A name of the document's content, as the root's links carry it in `hash` and answers in `ETag`, there in quotes.
pub(super) fn hash(document: &[u8]) -> String {
    format!("{:016X}", discovery::hash(document))
}

/// What stands below `/openapi/v3`: a version's resources, or one of the paths that describe the API.
enum Part<'a> {
    Resources { group: &'a str, version: &'a str },
    Group(&'a str),
    Plain(&'static Plain),
}

/// A path whose answer is one object of one type.
struct Plain {
    name: &'static str,
    tag: &'static str,
    operation: &'static str,
    answer: &'static str,
}

const PLAIN: &[Plain] = &[
    Plain {
        name: "api",
        tag: "core",
        operation: "getCoreAPIVersions",
        answer: "io.k8s.apimachinery.pkg.apis.meta.v1.APIVersions",
    },
    Plain {
        name: "apis",
        tag: "apis",
        operation: "getAPIVersions",
        answer: "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList",
    },
    Plain {
        name: "version",
        tag: "version",
        operation: "getCodeVersion",
        answer: "io.k8s.apimachinery.pkg.version.Info",
    },
];

impl Part<'_> {
    fn path(&self) -> String {
        match self {
            Part::Resources { group, version } => discovery::base(group, version)[1..].to_owned(),
            Part::Group(group) => format!("apis/{group}"),
            Part::Plain(plain) => plain.name.to_owned(),
        }
    }
}

fn parts(registry: &Registry) -> Vec<Part<'_>> {
    let mut parts: Vec<Part<'_>> = PLAIN.iter().map(Part::Plain).collect();
    for (group, versions) in discovery::group_versions(registry) {
        if !group.is_empty() && !is_custom(registry, group) {
            parts.push(Part::Group(group));
        }
        parts.extend(
            versions
                .into_iter()
                .map(|version| Part::Resources { group, version }),
        );
    }
    parts
}

/// Whether CRDs define the group; it has documents for its versions only.
fn is_custom(registry: &Registry, group: &str) -> bool {
    registry
        .iter()
        .any(|resource| resource.group == group && resource.custom().is_some())
}

fn root(registry: &Registry) -> Vec<u8> {
    let mut out = Writer::new();
    out.nested("paths", |out| {
        for part in parts(registry) {
            let path = part.path();
            let hash = hash(&written(registry, &part));
            let link = format!("{V3}/{path}?hash={hash}");
            out.member(&path, &json!({"serverRelativeURL": link}));
        }
    });
    out.finish()
}

fn document(registry: &Registry, path: &str) -> Option<Vec<u8>> {
    let parts = parts(registry);
    let part = parts.iter().find(|part| part.path() == path)?;
    Some(written(registry, part))
}

fn written(registry: &Registry, part: &Part<'_>) -> Vec<u8> {
    let mut out = Writer::new();
    let mut types = Types::default();
    out.member("openapi", &json!("3.0.0"));
    out.member("info", &json!({"title": TITLE, "version": VERSION}));
    out.nested("paths", |out| {
        write_paths(registry, part, Dialect::V3, out, &mut types);
    });
    out.nested("components", |out| {
        out.nested("schemas", |out| {
            types.write(registry, Dialect::V3, out);
        });
        out.member("securitySchemes", &bearer_token());
    });
    out.finish()
}

/// Everything in one document of version 2.
fn whole(registry: &Registry, mut out: Writer) -> Vec<u8> {
    let mut types = Types::default();
    out.member("swagger", &json!("2.0"));
    out.member("info", &json!({"title": TITLE, "version": VERSION}));
    out.nested("paths", |out| {
        for part in parts(registry) {
            write_paths(registry, &part, Dialect::V2, out, &mut types);
        }
    });
    out.nested("definitions", |out| {
        types.write(registry, Dialect::V2, out);
    });
    out.member("securityDefinitions", &bearer_token());
    out.member("security", &json!([{"BearerToken": []}]));
    out.finish()
}

fn bearer_token() -> Value {
    json!({"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}})
}

fn write_paths<'a>(
    registry: &'a Registry,
    part: &Part<'_>,
    dialect: Dialect,
    out: &mut Writer,
    types: &mut Types<'a>,
) {
    let mut put = |paths: Vec<operations::Path>| {
        for path in paths {
            types.want(path.types());
            out.member(&path.address, &path.render(dialect));
        }
    };
    match part {
        Part::Plain(plain) => {
            let address = format!("/{}/", plain.name);
            put(vec![operations::describing(
                address,
                plain.operation.to_owned(),
                plain.tag.to_owned(),
                plain.answer,
            )]);
        }
        Part::Group(group) => {
            let operation = format!("get{}APIGroup", operations::camel(group));
            let address = format!("/apis/{group}/");
            let tag = operations::group_tag(group);
            put(vec![operations::describing(
                address, operation, tag, API_GROUP,
            )]);
        }
        Part::Resources { group, version } => {
            let resources = registry
                .iter()
                .filter(|resource| resource.group == *group && resource.version == *version);
            let resources: Vec<&Resource> = resources.map(Arc::as_ref).collect();
            for resource in &resources {
                put(operations::of_resource(resource));
            }
            let created = discovery::CREATE_ONLY.iter();
            for only in created.filter(|only| only.group == *group && only.version == *version) {
                put(vec![operations::of_create_only(only)]);
            }
            if resources.iter().all(|resource| resource.custom().is_none()) {
                put(vec![operations::listing_resources(group, version)]);
            }
            types.resources.extend(resources);
        }
    }
}

/// The types that a document has to define.
#[derive(Default)]
struct Types<'a> {
    /// Their kinds and lists.
    resources: Vec<&'a Resource>,
    /// Of Kubernetes' own types.
    wanted: BTreeSet<String>,
}

/// An object in the making, as JSON or as protobuf.
struct Writer {
    out: Vec<u8>,
    /// What is being written, if it is protobuf.
    binary: Option<&'static Message>,
}

impl Writer {
    fn new() -> Self {
        Self {
            out: b"{".to_vec(),
            binary: None,
        }
    }

    fn binary(message: &'static Message) -> Self {
        Self {
            out: Vec::new(),
            binary: Some(message),
        }
    }

    fn key(&mut self, key: &str) {
        if !self.out.ends_with(b"{") {
            self.out.push(b',');
        }
        self.out.extend(Value::from(key).to_string().into_bytes());
        self.out.push(b':');
    }

    fn member(&mut self, key: &str, value: &Value) {
        if let Some(message) = self.binary {
            return message.put(&mut self.out, key, value);
        }
        self.key(key);
        self.out.extend(value.to_string().into_bytes());
    }

    fn nested(&mut self, key: &str, members: impl FnOnce(&mut Self)) {
        if let Some(message) = self.binary {
            if let Some((number, inner)) = message.inner(key) {
                let mut nested = Self::binary(inner);
                members(&mut nested);
                binary::bytes(&mut self.out, number, &nested.out);
            }
            return;
        }
        self.key(key);
        self.out.push(b'{');
        members(self);
        self.out.push(b'}');
    }

    fn finish(mut self) -> Vec<u8> {
        if self.binary.is_none() {
            self.out.push(b'}');
        }
        self.out
    }
}

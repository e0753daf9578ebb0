//! The operations of the API: which paths there are, and what they take and give.

use api::core;

use super::parameters::{
    NAME, NAMESPACE, NONE, OF_CREATE, OF_DELETE, OF_DELETE_COLLECTION, OF_LIST, OF_PATCH, PRETTY,
    Parameter,
};
use super::schemas::type_name;
use crate::server::discovery::{self, CreateOnly};
use crate::server::resource::{Resource, Subresource};

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const RESOURCE_LIST: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList";

/// Kinds whose deletion answers with the object.
const GIVEN_WHEN_DELETED: &[&str] = &[
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "Service",
    "ServiceAccount",
    "StorageClass",
];

/// A path with all that can be done there.
pub(super) struct Path {
    pub(super) address: String,
    pub(super) parameters: Vec<&'static Parameter>,
    pub(super) operations: Vec<Operation>,
}

pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) id: String,
    pub(super) tag: String,
    pub(super) action: &'static str,
    /// Group, version and kind.
    pub(super) of: Option<(String, String, String)>,
    pub(super) parameters: &'static [Parameter],
    pub(super) body: Option<Body>,
    /// The codes of success, and what comes with them.
    pub(super) codes: &'static [u16],
    pub(super) gives: Gives,
}

pub(super) struct Body {
    pub(super) type_name: String,
    pub(super) forms: &'static [&'static str],
    pub(super) required: bool,
}

pub(super) enum Gives {
    Object(String),
    /// A list, or a stream of its changes.
    List(String),
    Text,
}

/// How a verb of discovery looks in a document.
struct Verb {
    name: &'static str,
    method: &'static str,
    action: &'static str,
    /// How ids begin.
    id: &'static str,
    parameters: &'static [Parameter],
    codes: &'static [u16],
}

const fn verb(
    name: &'static str,
    method: &'static str,
    action: &'static str,
    id: &'static str,
    parameters: &'static [Parameter],
    codes: &'static [u16],
) -> Verb {
    Verb {
        name,
        method,
        action,
        id,
        parameters,
        codes,
    }
}

static VERBS: &[Verb] = &[
    verb("list", "get", "list", "list", OF_LIST, &[200]),
    verb(
        "create",
        "post",
        "post",
        "create",
        OF_CREATE,
        &[200, 201, 202],
    ),
    verb(
        "deletecollection",
        "delete",
        "deletecollection",
        "delete",
        OF_DELETE_COLLECTION,
        &[200],
    ),
    verb("get", "get", "get", "read", NONE, &[200]),
    verb("update", "put", "put", "replace", OF_CREATE, &[200, 201]),
    verb("patch", "patch", "patch", "patch", OF_PATCH, &[200, 201]),
    verb(
        "delete",
        "delete",
        "delete",
        "delete",
        OF_DELETE,
        &[200, 202],
    ),
];

/// Verbs of a whole collection; the others are of one object.
const OF_COLLECTION: &[&str] = &["list", "create", "deletecollection"];

/// `CoreV1`, `ConformanceSandbarDevV1`.
fn id_of(group: &str, version: &str) -> String {
    format!("{}{}", camel(group), capital(version))
}

/// `core_v1`, `conformanceSandbarDev_v1`.
fn tag_of(group: &str, version: &str) -> String {
    format!("{}_{version}", group_tag(group))
}

pub(super) fn group_tag(group: &str) -> String {
    let camel = camel(group);
    let mut letters = camel.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

/// A group as operations name it.
pub(super) fn camel(group: &str) -> String {
    match group {
        "" => "Core".to_owned(),
        group => group
            .strip_suffix(".k8s.io")
            .unwrap_or(group)
            .split(['.', '-'])
            .map(capital)
            .collect(),
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

pub(super) const ANY_FORM: &[&str] = &["*/*"];
const CUSTOM_FORMS: &[&str] = &["application/json", "application/yaml"];
const CUSTOM_PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

pub(super) fn of_resource(resource: &Resource) -> Vec<Path> {
    let base = discovery::base(&resource.group, &resource.version);
    let all = format!("{base}/{}", resource.plural);
    let place = match resource.namespaced {
        true => format!("{base}/namespaces/{{namespace}}/{}", resource.plural),
        false => all.clone(),
    };
    let own = Target {
        resource,
        scope: if resource.namespaced {
            "Namespaced"
        } else {
            ""
        },
        sub: None,
    };
    let is_of_collection = |verb: &&Verb| OF_COLLECTION.contains(&verb.name);
    let verbs = || {
        VERBS
            .iter()
            .filter(|verb| resource.verbs().any(|own| own == verb.name))
    };
    let mut paths = Vec::new();
    let list = verbs().find(|verb| verb.name == "list");
    if let Some(list) = list.filter(|_| resource.namespaced) {
        let everywhere = Target { scope: "", ..own };
        let mut list = everywhere.operation(list);
        list.id += "ForAllNamespaces";
        paths.push(path(all, vec![list]));
    }
    let of_collection = verbs().filter(is_of_collection);
    paths.push(path(
        place.clone(),
        of_collection.map(|verb| own.operation(verb)).collect(),
    ));
    let of_object = verbs().filter(|verb| !is_of_collection(verb));
    paths.push(path(
        format!("{place}/{{name}}"),
        of_object.map(|verb| own.operation(verb)).collect(),
    ));
    for sub in &resource.subresources {
        let target = Target {
            sub: Some(sub),
            ..own
        };
        let verbs = VERBS.iter().filter(|verb| sub.verbs.contains(&verb.name));
        paths.push(path(
            format!("{place}/{{name}}/{}", sub.name),
            verbs.map(|verb| target.operation(verb)).collect(),
        ));
    }
    paths
}

fn path(address: String, operations: Vec<Operation>) -> Path {
    let mut parameters = Vec::new();
    if address.contains("{name}") {
        parameters.push(&NAME);
    }
    if address.contains("{namespace}") {
        parameters.push(&NAMESPACE);
    }
    parameters.push(&PRETTY);
    Path {
        address,
        parameters,
        operations,
    }
}

/// What an operation is done to.
#[derive(Clone, Copy)]
struct Target<'a> {
    resource: &'a Resource,
    /// `Namespaced` or nothing, as ids have it.
    scope: &'static str,
    sub: Option<&'a Subresource>,
}

impl Target<'_> {
    fn id(&self, verb: &str, before: &str) -> String {
        let Resource {
            group,
            version,
            kind,
            ..
        } = self.resource;
        let scope = self.scope;
        let sub = self.sub.map(|sub| capital(&sub.name)).unwrap_or_default();
        let place = id_of(group, version);
        format!("{verb}{place}{before}{scope}{kind}{sub}")
    }

    /// Streams go through the server to the node.
    fn is_connected(&self) -> bool {
        self.sub.is_some_and(|sub| sub.kind.ends_with("Options"))
    }

    fn operation(&self, verb: &Verb) -> Operation {
        let resource = self.resource;
        let connected = self.is_connected();
        let codes: &[u16] = match verb.name {
            _ if connected => &[200],
            "patch" if resource.custom().is_some() => &[200],
            _ => verb.codes,
        };
        let id = match verb.name {
            _ if connected => self.id("connect", &capital(verb.method)),
            "deletecollection" => self.id(verb.id, "Collection"),
            _ => self.id(verb.id, ""),
        };
        Operation {
            method: verb.method,
            id,
            tag: tag_of(&resource.group, &resource.version),
            action: if connected { "connect" } else { verb.action },
            of: Some(self.of()),
            parameters: if connected { NONE } else { verb.parameters },
            body: self.body(verb).filter(|_| !connected),
            codes,
            gives: self.gives(verb),
        }
    }

    fn of(&self) -> (String, String, String) {
        let resource = self.resource;
        let own = (resource.group.clone(), resource.version.clone());
        match self.sub {
            // a real server says nothing else of the subresources of custom kinds
            Some(sub) if resource.custom().is_none() => {
                let (group, version) = sub.group_version.clone().unwrap_or(own);
                (group, version, sub.kind.clone())
            }
            _ => (own.0, own.1, resource.kind.clone()),
        }
    }

    fn type_name(&self) -> String {
        let resource = self.resource;
        match self.sub {
            Some(sub) => match &sub.group_version {
                Some((group, version)) => core::type_name(&format!("{group}/{version}"), &sub.kind),
                None => type_name(resource, &sub.kind),
            },
            None => type_name(resource, &resource.kind),
        }
    }

    fn body(&self, verb: &Verb) -> Option<Body> {
        let custom = self.resource.custom().is_some();
        let (forms, patches) = match custom {
            true => (CUSTOM_FORMS, CUSTOM_PATCHES),
            false => (ANY_FORM, PATCHES),
        };
        let (type_name, forms, required) = match verb.name {
            "create" | "update" => (self.type_name(), forms, true),
            "patch" => (PATCH.to_owned(), patches, true),
            "delete" => (DELETE_OPTIONS.to_owned(), forms, false),
            "deletecollection" if !custom => (DELETE_OPTIONS.to_owned(), forms, false),
            _ => return None,
        };
        Some(Body {
            type_name,
            forms,
            required,
        })
    }

    fn gives(&self, verb: &Verb) -> Gives {
        let resource = self.resource;
        let built_in = resource.custom().is_none();
        let is_log = self.sub.is_some_and(|sub| sub.name == "log");
        match verb.name {
            _ if is_log || self.is_connected() => Gives::Text,
            "list" if built_in => Gives::List(type_name(resource, &resource.list_kind)),
            "list" => Gives::Object(type_name(resource, &resource.list_kind)),
            "delete" if built_in && GIVEN_WHEN_DELETED.contains(&resource.kind.as_str()) => {
                Gives::Object(self.type_name())
            }
            "delete" | "deletecollection" => Gives::Object(STATUS.to_owned()),
            _ => Gives::Object(self.type_name()),
        }
    }
}

pub(super) fn of_create_only(only: &CreateOnly) -> Path {
    let CreateOnly {
        group,
        version,
        kind,
        ..
    } = *only;
    let base = discovery::base(group, version);
    let (address, scope) = match only.namespaced {
        true => (
            format!("{base}/namespaces/{{namespace}}/{}", only.plural),
            "Namespaced",
        ),
        false => (format!("{base}/{}", only.plural), ""),
    };
    let api_version = base
        .trim_start_matches("/api/")
        .trim_start_matches("/apis/");
    let type_name = core::type_name(api_version, kind);
    let create = Operation {
        method: "post",
        id: format!("create{}{scope}{kind}", id_of(group, version)),
        tag: tag_of(group, version),
        action: "post",
        of: Some((group.to_owned(), version.to_owned(), kind.to_owned())),
        parameters: OF_CREATE,
        body: Some(Body {
            type_name: type_name.clone(),
            forms: ANY_FORM,
            required: true,
        }),
        codes: &[200, 201, 202],
        gives: Gives::Object(type_name),
    };
    path(address, vec![create])
}

pub(super) fn listing_resources(group: &str, version: &str) -> Path {
    let address = format!("{}/", discovery::base(group, version));
    let id = format!("get{}APIResources", id_of(group, version));
    describing(address, id, tag_of(group, version), RESOURCE_LIST)
}

/// A path that says something about the API itself.
pub(super) fn describing(address: String, id: String, tag: String, answer: &str) -> Path {
    let get = Operation {
        method: "get",
        id,
        tag,
        action: "",
        of: None,
        parameters: NONE,
        body: None,
        codes: &[200],
        gives: Gives::Object(answer.to_owned()),
    };
    Path {
        address,
        parameters: Vec::new(),
        operations: vec![get],
    }
}

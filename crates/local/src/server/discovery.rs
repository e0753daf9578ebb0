//! What the API serves, as clients discover it: pure functions from the registry to JSON.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::registry::Registry;
use super::resource::{Resource, Subresource};

/// The version of Kubernetes whose API this is.
const MAJOR: &str = "1";
const MINOR: &str = "36";
const RELEASE: &str = "v1.36.3+sandbar";

/// Whether `Accept` asks for all groups with their resources in one answer, and in which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregated {
    No,
    V2,
}

impl Aggregated {
    fn api_version(self) -> Option<&'static str> {
        match self {
            Aggregated::No => None,
            Aggregated::V2 => Some("apidiscovery.k8s.io/v2"),
        }
    }
}

/// A resource that only takes requests and stores nothing.
#[derive(Debug)]
pub(super) struct CreateOnly {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
}

pub(super) static CREATE_ONLY: &[CreateOnly] = &[
    CreateOnly {
        group: "",
        version: "v1",
        kind: "Binding",
        plural: "bindings",
        namespaced: true,
    },
    CreateOnly {
        group: "authentication.k8s.io",
        version: "v1",
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        namespaced: false,
    },
    CreateOnly {
        group: "authorization.k8s.io",
        version: "v1",
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        namespaced: false,
    },
];

/// Groups that come first, in the order a real server has; all others follow by name.
const FIRST: &[&str] = &[
    "",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "networking.k8s.io",
    "policy",
    "storage.k8s.io",
    "apiextensions.k8s.io",
    "coordination.k8s.io",
];

/// The answer to a GET of one of the paths that describe the API; nothing if the path is none of them or names a group
/// or version that is not served. Only `/api` and `/apis` have an aggregated form.
pub(super) fn answer(registry: &Registry, path: &str, form: Aggregated) -> Option<Value> {
    let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    match (steps.as_slice(), form.api_version()) {
        ([], _) => Some(paths(registry)),
        (["version"], _) => Some(version()),
        (["api"], None) => Some(legacy_versions()),
        (["api"], Some(api_version)) => Some(aggregated(registry, api_version, true)),
        (["api", version], _) => resources(registry, "", version),
        (["apis"], None) => Some(group_list(registry)),
        (["apis"], Some(api_version)) => Some(aggregated(registry, api_version, false)),
        (["apis", group], _) => one_group(registry, group),
        (["apis", group, version], _) => resources(registry, group, version),
        _ => None,
    }
}

/// A name of the content, for `ETag` and `If-None-Match`.
pub(super) fn etag(document: &Value) -> String {
    format!("\"{:016X}\"", hash(document.to_string().as_bytes()))
}

/// FNV-1a: the same in every build, which `std`'s hashes do not promise.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// One resource of a version, whether it stores anything or not.
struct Entry<'a> {
    version: &'a str,
    plural: &'a str,
    shown: Shown<'a>,
}

enum Shown<'a> {
    Stored(&'a Resource),
    CreateOnly(&'static CreateOnly),
}

/// All groups in their order, each with its versions, the preferred one first.
pub(super) fn group_versions(registry: &Registry) -> Vec<(&str, Vec<&str>)> {
    let stored = registry
        .iter()
        .map(|resource| (resource.group.as_str(), resource.version.as_str()));
    let created = CREATE_ONLY.iter().map(|only| (only.group, only.version));
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (group, version) in stored.chain(created) {
        let versions = groups.entry(group).or_default();
        if !versions.contains(&version) {
            versions.push(version);
        }
    }
    for versions in groups.values_mut() {
        versions.sort_by(|a, b| priority(a).cmp(&priority(b)).then_with(|| a.cmp(b)));
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    let place = |group: &str| FIRST.iter().position(|first| *first == group);
    groups.sort_by_key(|(group, _)| place(group).unwrap_or(FIRST.len()));
    groups
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Priority {
    Stable(Reverse<u64>),
    Beta(Reverse<(u64, u64)>),
    Alpha(Reverse<(u64, u64)>),
    Other,
}

/// The smaller, the more preferred: stable before beta before alpha, newer before older.
fn priority(version: &str) -> Priority {
    let number = |text: &str| match text.as_bytes() {
        [b'1'..=b'9', ..] => text.parse::<u64>().ok(),
        _ => None,
    };
    let Some(rest) = version.strip_prefix('v') else {
        return Priority::Other;
    };
    let staged = |stage: &str| {
        let (major, minor) = rest.split_once(stage)?;
        Some(Reverse((number(major)?, number(minor)?)))
    };
    number(rest)
        .map(|major| Priority::Stable(Reverse(major)))
        .or_else(|| staged("beta").map(Priority::Beta))
        .or_else(|| staged("alpha").map(Priority::Alpha))
        .unwrap_or(Priority::Other)
}

fn entries<'a>(registry: &'a Registry, group: &str) -> Vec<Entry<'a>> {
    let stored = registry.iter().map(|resource| Entry {
        version: &resource.version,
        plural: &resource.plural,
        shown: Shown::Stored(resource),
    });
    let created = CREATE_ONLY.iter().map(|only| Entry {
        version: only.version,
        plural: only.plural,
        shown: Shown::CreateOnly(only),
    });
    let of_group = |entry: &Entry<'_>| match &entry.shown {
        Shown::Stored(resource) => resource.group == group,
        Shown::CreateOnly(only) => only.group == group,
    };
    let mut entries: Vec<_> = stored.chain(created).filter(of_group).collect();
    entries.sort_by_key(|entry| entry.plural);
    entries
}

fn paths(registry: &Registry) -> Value {
    let mut paths: Vec<String> = [
        "/api",
        "/apis",
        "/healthz",
        "/livez",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .into();
    for (group, versions) in group_versions(registry) {
        if !group.is_empty() {
            paths.push(format!("/apis/{group}"));
        }
        paths.extend(versions.iter().map(|version| base(group, version)));
    }
    paths.sort();
    json!({"paths": paths})
}

/// Where the resources of a version are: `/api/v1`, `/apis/apps/v1`.
pub(super) fn base(group: &str, version: &str) -> String {
    match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    }
}

fn api_version(group: &str, version: &str) -> String {
    match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

fn version() -> Value {
    let platform = match std::env::consts::ARCH {
        "x86_64" => "linux/amd64",
        "aarch64" => "linux/arm64",
        _ => "linux",
    };
    json!({
        "major": MAJOR,
        "minor": MINOR,
        "gitVersion": RELEASE,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": platform,
    })
}

/// Clients take the address they already use when the server names none.
fn legacy_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

fn group_list(registry: &Registry) -> Value {
    let groups: Vec<Value> = group_versions(registry)
        .iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| group_of(group, versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group_of(group: &str, versions: &[&str]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "preferredVersion": versions.first(), "versions": versions})
}

fn one_group(registry: &Registry, group: &str) -> Option<Value> {
    let groups = group_versions(registry);
    let (name, versions) = groups.iter().find(|(name, _)| *name == group)?;
    let mut answer = group_of(name, versions);
    answer["kind"] = json!("APIGroup");
    answer["apiVersion"] = json!("v1");
    Some(answer)
}

fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let entries = entries(registry, group);
    let resources: Vec<Value> = entries
        .iter()
        .filter(|entry| entry.version == version)
        .flat_map(|entry| match &entry.shown {
            Shown::Stored(resource) => listed(resource),
            Shown::CreateOnly(only) => vec![listed_create_only(only)],
        })
        .collect();
    if resources.is_empty() {
        return None;
    }
    let mut answer = json!({
        "kind": "APIResourceList",
        "groupVersion": api_version(group, version),
        "resources": resources,
    });
    if !group.is_empty() {
        answer["apiVersion"] = json!("v1");
    }
    Some(answer)
}

fn listed_create_only(only: &CreateOnly) -> Value {
    json!({
        "name": only.plural,
        "singularName": only.kind.to_lowercase(),
        "namespaced": only.namespaced,
        "kind": only.kind,
        "verbs": ["create"],
    })
}

/// A resource and its subresources, each as an entry of its own.
fn listed(resource: &Resource) -> Vec<Value> {
    let mut own = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs(resource),
        "storageVersionHash": storage_version(resource),
    });
    put_names(&mut own, resource);
    let subresources = by_name(resource).into_iter().map(|sub| {
        let mut entry = json!({
            "name": format!("{}/{}", resource.plural, sub.name),
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": sub.kind,
            "verbs": sub.verbs,
        });
        if let Some((group, version)) = &sub.group_version {
            entry["group"] = json!(group);
            entry["version"] = json!(version);
        }
        entry
    });
    std::iter::once(own).chain(subresources).collect()
}

fn put_names(entry: &mut Value, resource: &Resource) {
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
}

fn by_name(resource: &Resource) -> Vec<&Subresource> {
    let mut subresources: Vec<_> = resource.subresources.iter().collect();
    subresources.sort_by(|a, b| a.name.cmp(&b.name));
    subresources
}

/// A real server names the verbs of custom kinds in another order than those of its own.
fn verbs(resource: &Resource) -> Vec<&'static str> {
    let mut verbs: Vec<_> = resource.verbs().collect();
    if resource.custom().is_some() {
        verbs.retain(|verb| *verb != "create");
        let place = verbs.iter().position(|verb| *verb == "update");
        verbs.insert(place.unwrap_or(verbs.len()), "create");
    }
    verbs
}

fn storage_version(resource: &Resource) -> String {
    let stored = match resource.custom() {
        Some(custom) => &custom.stored_api_version,
        None => &resource.api_version,
    };
    base64(hash(format!("{stored}/{}", resource.kind).as_bytes()))
}

fn base64(number: u64) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    // 64 bits are ten whole digits and four bits, which the eleventh digit has on its left
    let bits = u128::from(number) << 2;
    let digits = (0..11).rev().map(|place| {
        let digit = (bits >> (6 * place)) & 63;
        char::from(DIGITS[digit as usize])
    });
    digits.chain(['=']).collect()
}

fn aggregated(registry: &Registry, list_version: &str, legacy: bool) -> Value {
    let items: Vec<Value> = group_versions(registry)
        .into_iter()
        .filter(|(group, _)| group.is_empty() == legacy)
        .map(|(group, versions)| {
            let entries = entries(registry, group);
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| version_of(&entries, version))
                .collect();
            let metadata = match group {
                "" => json!({}),
                name => json!({"name": name}),
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": list_version,
        "metadata": {},
        "items": items,
    })
}

fn version_of(entries: &[Entry<'_>], version: &str) -> Value {
    let resources: Vec<Value> = entries
        .iter()
        .filter(|entry| entry.version == version)
        .map(|entry| match &entry.shown {
            Shown::Stored(resource) => discovered(resource),
            Shown::CreateOnly(only) => json!({
                "resource": only.plural,
                "responseKind": {"group": "", "version": "", "kind": only.kind},
                "scope": scope(only.namespaced),
                "singularResource": only.kind.to_lowercase(),
                "verbs": ["create"],
            }),
        })
        .collect();
    json!({"version": version, "freshness": "Current", "resources": resources})
}

fn discovered(resource: &Resource) -> Value {
    // an empty group and version are those of the list
    let own = match resource.custom() {
        Some(_) => (resource.group.as_str(), resource.version.as_str()),
        None => ("", ""),
    };
    let response = |(group, version): (&str, &str), kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": response(own, &resource.kind),
        "scope": scope(resource.namespaced),
        "singularResource": resource.singular,
        "verbs": verbs(resource),
    });
    put_names(&mut entry, resource);
    let subresources: Vec<Value> = by_name(resource)
        .into_iter()
        .map(|sub| {
            let of = match &sub.group_version {
                Some((group, version)) => (group.as_str(), version.as_str()),
                None => own,
            };
            json!({
                "subresource": sub.name,
                "responseKind": response(of, &sub.kind),
                "verbs": sub.verbs,
            })
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = json!(subresources);
    }
    entry
}

fn scope(namespaced: bool) -> &'static str {
    if namespaced { "Namespaced" } else { "Cluster" }
}

//! What a server serves, and what people call it.

use anyhow::{Result, bail, ensure};
use futures::future::try_join;
use kube::{
    Api, Resource as _,
    api::{ApiResource, DynamicObject, Request},
    client::{APIGroupDiscovery, APIResourceDiscovery},
};

use super::place::Place;

/// A kind of objects in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) resource: ApiResource,
    pub(super) is_namespaced: bool,
    singular: String,
    short_names: Vec<String>,
    categories: Vec<String>,
}

impl Kind {
    /// The word before the name of an object, as in `deployment.apps/web`.
    pub(super) fn word(&self) -> String {
        let kind = self.resource.kind.to_lowercase();
        match self.resource.group.as_str() {
            "" => kind,
            group => format!("{kind}.{group}"),
        }
    }

    /// The namespace of an object of this kind that is asked for in this one.
    pub(super) fn namespace<'a>(&self, namespace: &'a str) -> Option<&'a str> {
        self.is_namespaced.then_some(namespace)
    }

    pub(super) fn api(&self, place: &Place, namespace: Option<&str>) -> Api<DynamicObject> {
        let client = place.client.clone();
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::all_with(client, &self.resource),
        }
    }

    pub(super) fn request(&self, namespace: Option<&str>) -> Request {
        Request::new(DynamicObject::url_path(&self.resource, namespace))
    }

    fn is_called(&self, name: &str) -> bool {
        let kind = self.resource.kind.to_lowercase();
        name == self.resource.plural || name == self.singular || name == kind
    }

    /// Whether it is of what follows the first dot: a group, or a version and a group.
    fn is_of(&self, rest: &str) -> bool {
        let ApiResource { group, version, .. } = &self.resource;
        rest == group || rest == format!("{version}.{group}")
    }

    fn is_same_in_another_version(&self, other: &Kind) -> bool {
        let (a, b) = (&self.resource, &other.resource);
        a.group == b.group && a.plural == b.plural
    }
}

/// All kinds, those first that are meant if a name is not clear.
#[derive(Debug)]
pub(super) struct Kinds(Vec<Kind>);

impl Kinds {
    pub(super) async fn of(place: &Place) -> Result<Self> {
        let client = &place.client;
        let asking = try_join(
            client.list_core_api_versions_aggregated(),
            client.list_api_groups_aggregated(),
        );
        let (core, groups) = place.ask(asking).await?;
        ensure!(
            !core.items.is_empty(),
            "the server does not say what it serves in one answer, as Kubernetes does since 1.27"
        );
        let groups = core.items.into_iter().chain(groups.items);
        Ok(Self(groups.flat_map(kinds).collect()))
    }

    /// What a word names: one kind, or all of a category.
    pub(super) fn find(&self, word: &str) -> Result<Vec<&Kind>> {
        let lower = word.to_lowercase();
        let (name, rest) = match lower.split_once('.') {
            Some((name, rest)) => (name, Some(rest)),
            None => (lower.as_str(), None),
        };
        let of_group = || {
            self.0
                .iter()
                .filter(|kind| rest.is_none_or(|rest| kind.is_of(rest)))
        };
        let called = of_group().find(|kind| kind.is_called(name));
        let short = || of_group().find(|kind| kind.short_names.iter().any(|short| short == name));
        if let Some(kind) = called.or_else(short) {
            return Ok(vec![kind]);
        }
        let mut kinds: Vec<&Kind> = Vec::new();
        for kind in of_group().filter(|kind| kind.categories.iter().any(|one| one == name)) {
            if !kinds.iter().any(|one| one.is_same_in_another_version(kind)) {
                kinds.push(kind);
            }
        }
        if kinds.is_empty() {
            bail!("the server doesn't have a resource type {word:?}");
        }
        Ok(kinds)
    }

    /// The kind of an object that says what it is.
    pub(super) fn of_object(&self, api_version: &str, kind: &str) -> Option<&Kind> {
        let is_it =
            |one: &&Kind| one.resource.api_version == api_version && one.resource.kind == kind;
        self.0.iter().find(is_it)
    }
}

fn kinds(group: APIGroupDiscovery) -> Vec<Kind> {
    let name = group.metadata.and_then(|metadata| metadata.name);
    let name = name.unwrap_or_default();
    let mut kinds = Vec::new();
    for version in group.versions {
        let served = version.version.unwrap_or_default();
        let of_version = version.resources.into_iter();
        kinds.extend(of_version.filter_map(|one| kind(&name, &served, one)));
    }
    kinds
}

fn kind(group: &str, version: &str, served: APIResourceDiscovery) -> Option<Kind> {
    let api_version = match group {
        "" => version.to_owned(),
        _ => format!("{group}/{version}"),
    };
    Some(Kind {
        resource: ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version,
            kind: served.response_kind?.kind?,
            plural: served.resource?,
        },
        is_namespaced: served.scope.as_deref() == Some("Namespaced"),
        singular: served.singular_resource.unwrap_or_default(),
        short_names: served.short_names,
        categories: served.categories,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use kube::client::APIGroupDiscoveryList;
    use serde_json::{Value, json};

    use super::{Kinds, kinds};

    fn resource(plural: &str, kind: &str, short: &[&str], categories: &[&str]) -> Value {
        json!({
            "resource": plural, "responseKind": {"kind": kind}, "scope": "Namespaced",
            "singularResource": kind.to_lowercase(), "shortNames": short, "categories": categories,
        })
    }

    fn served() -> Kinds {
        let list = json!({"items": [
            {"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [
                resource("pods", "Pod", &["po"], &["all"]), resource("services", "Service", &["svc"], &["all"]),
            ]}]},
            {"metadata": {"name": "first.io"}, "versions": [
                {"version": "v2", "resources": [resource("boxes", "Box", &["bx"], &["all"])]},
                {"version": "v1", "resources": [resource("boxes", "Box", &["bx"], &["all"])]},
            ]},
            {"metadata": {"name": "second.io"}, "versions": [{"version": "v1", "resources": [
                resource("boxes", "Box", &["pod"], &[]),
            ]}]},
        ]});
        let list: APIGroupDiscoveryList = serde_json::from_value(list).unwrap();
        Kinds(list.items.into_iter().flat_map(kinds).collect())
    }

    #[test]
    fn a_kind_goes_by_many_names() {
        let kinds = served();
        for (word, expected) in [
            ("pods", "v1 pod"),
            ("Pod", "v1 pod"),
            ("po", "v1 pod"),
            ("boxes", "first.io/v2 box.first.io"),
            ("bx.first.io", "first.io/v2 box.first.io"),
            ("boxes.v1.first.io", "first.io/v1 box.first.io"),
            ("BOX.second.io", "second.io/v1 box.second.io"),
            ("pods.v1.", "v1 pod"),
        ] {
            let found = kinds.find(word).unwrap();
            assert_eq!(found.len(), 1);
            let told = format!("{} {}", found[0].resource.api_version, found[0].word());
            assert_eq!(told, expected, "{word}");
        }
    }

    #[test]
    fn a_category_is_all_its_kinds_in_one_version_each() {
        let kinds = served();
        let found = kinds.find("all").unwrap();
        let words: Vec<String> = found.iter().map(|kind| kind.word()).collect();
        assert_eq!(words, ["pod", "service", "box.first.io"]);
        assert_eq!(found[2].resource.version, "v2");
    }

    #[test]
    fn what_is_not_served_is_named() {
        for word in ["nope", "pods.first.io", "boxes.v3.first.io"] {
            let error = served().find(word).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("the server doesn't have a resource type {word:?}")
            );
        }
    }
}

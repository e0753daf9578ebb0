//! From a path to what it names.

use std::sync::Arc;

use api::structural::names;
use percent_encoding::percent_decode_str;

use super::registry::Registry;
use super::resource::Resource;
use crate::status::Failure;

#[derive(Debug)]
pub(super) enum Route {
    Resource(Target),
    /// Health, discovery, OpenAPI, questions about the caller: no resource.
    Other,
    /// The group exists, the resource does not.
    UnknownResource,
    /// Not even the group.
    UnknownPath,
}

/// A collection, an object, or a part of one.
#[derive(Debug)]
pub(super) struct Target {
    pub resource: Arc<Resource>,
    /// `None`: all namespaces, or a resource of the cluster.
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
    /// The old form `/api/v1/watch/…`.
    pub watch: bool,
}

pub(super) fn route(registry: &Registry, path: &str) -> Route {
    // decoded before it is split, as authorisation reads it: an encoded slash is a slash to both
    let path = percent_decode_str(path).decode_utf8_lossy();
    let below = path.strip_prefix('/').unwrap_or(&path);
    let parts: Vec<&str> = below.trim_end_matches('/').split('/').collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Route::Other,
    };
    if !registry.has_group(group) {
        return Route::UnknownPath;
    }
    match target(registry, group, version, rest) {
        Some(target) => Route::Resource(target),
        // of custom groups the real server knows only what is defined
        None if is_custom(registry, group) => Route::UnknownPath,
        None => Route::UnknownResource,
    }
}

fn is_custom(registry: &Registry, group: &str) -> bool {
    let mut resources = registry.iter().filter(|resource| resource.group == group);
    resources.all(|resource| resource.custom().is_some())
}

impl Target {
    /// A name that means something in paths is none.
    pub(super) fn check_name(&self) -> Result<(), Failure> {
        let name = self.name.as_deref().unwrap_or_default();
        let problems = names::path_segment_problems(name, false);
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Failure::bad_request(format!(
                "Name parameter invalid: {name:?}: {}",
                problems.join(";")
            ))),
        }
    }

    /// One object.
    pub(super) fn object(resource: &Arc<Resource>, namespace: &str, name: &str) -> Self {
        Self {
            resource: Arc::clone(resource),
            namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
            name: Some(name.to_owned()),
            subresource: None,
            watch: false,
        }
    }
}

fn target(registry: &Registry, group: &str, version: &str, parts: &[&str]) -> Option<Target> {
    let (watch, parts) = match parts {
        ["watch", rest @ ..] => (true, rest),
        parts => (false, parts),
    };
    let (namespace, parts) = match parts {
        // a part of the namespace itself
        ["namespaces", _, "status" | "finalize"] => (None, parts),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        parts => (None, parts),
    };
    let (plural, name, subresource) = match parts {
        [plural] => (plural, None, None),
        [plural, name] => (plural, Some(*name), None),
        [plural, name, subresource] => (plural, Some(*name), Some(*subresource)),
        _ => return None,
    };
    let resource = registry.find(group, version, plural)?;
    let fits = match resource.namespaced {
        true => namespace.is_some() || name.is_none(),
        false => namespace.is_none(),
    };
    let unknown = subresource.is_some_and(|name| resource.subresource(name).is_none());
    // the real server looks for the part of a custom object when it has the object
    if !fits || (unknown && resource.custom().is_none()) {
        return None;
    }
    Some(Target {
        resource: Arc::clone(resource),
        namespace: namespace.map(str::to_owned),
        name: name.map(str::to_owned),
        subresource: subresource.map(str::to_owned),
        watch,
    })
}

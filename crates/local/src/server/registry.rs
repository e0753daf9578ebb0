//! All resources that the API serves at a moment. It never changes; a new CRD makes a new one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::resource::Resource;
use crate::kinds::BUILT_IN;

#[derive(Clone, Debug)]
pub struct Registry {
    /// By group, version, plural.
    resources: BTreeMap<(String, String, String), Arc<Resource>>,
}

impl Registry {
    pub fn built_in() -> Self {
        let mut registry = Self {
            resources: BTreeMap::new(),
        };
        registry.add(BUILT_IN.iter().map(|kind| Arc::new(Resource::from(kind))));
        registry
    }

    /// Adds resources, in place of those that have the same path.
    pub fn add(&mut self, resources: impl IntoIterator<Item = Arc<Resource>>) {
        for resource in resources {
            let path = (
                resource.group.clone(),
                resource.version.clone(),
                resource.plural.clone(),
            );
            self.resources.insert(path, resource);
        }
    }

    /// Takes out all versions that the CRD of this name defines.
    pub fn remove_custom(&mut self, crd: &str) {
        self.resources
            .retain(|_, resource| resource.custom().is_none_or(|custom| custom.crd != crd));
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        // a tuple of `&str` cannot look up a tuple of `String`, and the map is small
        let path = (group.to_owned(), version.to_owned(), plural.to_owned());
        self.resources.get(&path)
    }

    /// Ordered by group, version and plural.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    pub fn has_group(&self, group: &str) -> bool {
        self.iter().any(|resource| resource.group == group)
    }

    /// Any version of a kind in a group, for what refers to objects by kind.
    pub fn of_kind(&self, group: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.iter()
            .find(|resource| resource.group == group && resource.kind == kind)
    }
}

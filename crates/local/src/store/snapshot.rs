//! All objects as of one revision.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;

use super::key::{Key, Scope};
use super::object::{Entry, Record};

pub(super) type Objects = OrdSet<Record>;

/// All objects as of one revision; later writes do not change it. Cheap to take, to clone and to keep: two
/// snapshots share what is the same in both.
#[derive(Clone)]
pub struct Snapshot {
    pub(super) objects: Objects,
    pub(super) revision: u64,
}

impl Snapshot {
    /// Every write up to this revision is in here, and none after it.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn get(&self, key: &Key) -> Option<&Arc<Entry>> {
        self.objects.get(key).map(|record| &record.0)
    }

    /// The objects of `scope` in the order of their keys.
    pub fn list<'a>(&'a self, scope: &'a Scope) -> impl Iterator<Item = &'a Arc<Entry>> + 'a {
        self.range(scope, Bound::Included(scope.start()))
    }

    /// What `list` gives from `first` on, which need not exist: the next page.
    pub fn list_from<'a>(
        &'a self,
        scope: &'a Scope,
        first: Key,
    ) -> impl Iterator<Item = &'a Arc<Entry>> + 'a {
        self.range(scope, Bound::Included(first.max(scope.start())))
    }

    /// All objects of all resources in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.objects.iter().map(|record| &record.0)
    }

    /// How many objects there are of all resources.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    fn range<'a>(
        &'a self,
        scope: &'a Scope,
        from: Bound<Key>,
    ) -> impl Iterator<Item = &'a Arc<Entry>> + 'a {
        let records = self.objects.range::<_, Key>((from, Bound::Unbounded));
        records
            .map(|record| &record.0)
            .take_while(|entry| scope.contains(&entry.key))
    }
}

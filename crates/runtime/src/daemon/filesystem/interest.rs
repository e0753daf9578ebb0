//! Who wants to know what happens where. No system calls: what the kernel is to be told is returned.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Which watch; never used again.
pub(super) type WatchId = u64;

/// The kernel's number of a directory.
pub(super) type Descriptor = i32;

#[derive(Default)]
pub(super) struct Interests {
    /// A directory has one descriptor, however many watches it is part of.
    by_descriptor: HashMap<Descriptor, BTreeMap<WatchId, PathBuf>>,
}

impl Interests {
    /// The watch has this directory, which is at `below` seen from its root.
    pub(super) fn add(&mut self, descriptor: Descriptor, watch: WatchId, below: PathBuf) {
        let interested = self.by_descriptor.entry(descriptor).or_default();
        interested.insert(watch, below);
    }

    pub(super) fn of(&self, descriptor: Descriptor) -> Vec<(WatchId, PathBuf)> {
        let interested = self.by_descriptor.get(&descriptor).into_iter().flatten();
        interested
            .map(|(watch, below)| (*watch, below.clone()))
            .collect()
    }

    /// The directories of a watch.
    pub(super) fn in_watch(&self, watch: WatchId) -> Vec<(Descriptor, &Path)> {
        let all = self.by_descriptor.iter();
        let of_watch = all.filter_map(|(descriptor, interested)| {
            let below = interested.get(&watch)?;
            Some((*descriptor, below.as_path()))
        });
        of_watch.collect()
    }

    /// What the watch has at or beneath `from` is at or beneath `to` now.
    pub(super) fn rename(&mut self, watch: WatchId, from: &Path, to: &Path) {
        let all = self.by_descriptor.values_mut();
        for at in all.filter_map(|interested| interested.get_mut(&watch)) {
            if let Ok(beneath) = at.strip_prefix(from) {
                *at = to.components().chain(beneath.components()).collect();
            }
        }
    }

    /// The kernel has given up the descriptor.
    pub(super) fn forget(&mut self, descriptor: Descriptor) {
        self.by_descriptor.remove(&descriptor);
    }

    /// The watch has no longer what is at or beneath `below`. Returns the descriptors that nobody is interested in any more.
    pub(super) fn remove(&mut self, watch: WatchId, below: &Path) -> Vec<Descriptor> {
        let mut idle = Vec::new();
        self.by_descriptor.retain(|descriptor, interested| {
            if interested
                .get(&watch)
                .is_some_and(|at| at.starts_with(below))
            {
                interested.remove(&watch);
            }
            if interested.is_empty() {
                idle.push(*descriptor);
            }
            !interested.is_empty()
        });
        idle
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Interests;

    #[test]
    fn a_directory_is_renamed_with_what_is_beneath_it_for_one_watch() {
        let mut interests = Interests::default();
        interests.add(1, 10, "a".into());
        interests.add(2, 10, "a/b".into());
        interests.add(3, 10, "ab".into());
        interests.add(2, 11, "a".into());
        interests.rename(10, Path::new("a"), Path::new("c/d"));
        assert_eq!(interests.of(1), [(10, "c/d".into())]);
        assert_eq!(interests.of(2), [(10, "c/d/b".into()), (11, "a".into())]);
        assert_eq!(interests.of(3), [(10, "ab".into())]);
    }

    #[test]
    fn a_directory_is_let_go_with_its_last_watch() {
        let mut interests = Interests::default();
        interests.add(1, 10, "".into());
        interests.add(2, 10, "a".into());
        interests.add(2, 11, "".into());
        interests.add(3, 10, "ab".into());
        assert_eq!(interests.remove(10, Path::new("a")), [0; 0]);
        assert_eq!(interests.of(2), [(11, "".into())]);
        assert_eq!(interests.remove(11, Path::new("")), [2]);
        let mut rest = interests.remove(10, Path::new(""));
        rest.sort_unstable();
        assert_eq!(rest, [1, 3]);
    }
}

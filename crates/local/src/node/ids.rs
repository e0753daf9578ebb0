//! Which ids of the machine the users of a pod are, for pods that ask for users of their own. A pod keeps its ids for life,
//! and nobody else has them meanwhile: they are written down in its directory.

use std::{
    collections::BTreeSet,
    io,
    path::Path,
    sync::{Mutex, PoisonError},
};

use container::{IdMap, UserNamespace};

use super::{directories, place::PodPlace, record};

/// So many a pod has: all that programs expect to be there.
pub(crate) const COUNT: u32 = 1 << 16;
/// Above what people, services and other container managers are given, and below what some programs take for negative.
const FIRST: u32 = 0x7000_0000;
/// As many ranges as there are up to there.
const RANGES: u32 = (0x8000_0000 - FIRST) / COUNT;

pub(crate) struct Ids {
    /// Where this instance begins to look: others may be on the same machine.
    offset: u32,
    turn: Mutex<()>,
}

impl Ids {
    /// Another instance, named otherwise, mostly begins elsewhere.
    pub(crate) fn new(instance: &str) -> Self {
        let hash = instance.bytes().fold(0_u32, |hash, byte| {
            hash.wrapping_mul(31).wrapping_add(u32::from(byte))
        });
        Self {
            offset: hash % RANGES,
            turn: Mutex::default(),
        }
    }

    /// Those that a pod has, or is given now.
    pub(crate) fn of(&self, place: &PodPlace, pods: &Path) -> io::Result<UserNamespace> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let first = match record::ids(place) {
            Some(first) => first,
            None => self.take(place, pods)?,
        };
        let map = vec![IdMap {
            inside: 0,
            outside: first,
            count: COUNT,
        }];
        Ok(UserNamespace {
            uids: map.clone(),
            gids: map,
        })
    }

    fn take(&self, place: &PodPlace, pods: &Path) -> io::Result<u32> {
        let others = directories(pods);
        let others = others.iter().map(|uid| PodPlace::new(pods, uid));
        let taken: BTreeSet<u32> = others.filter_map(|other| record::ids(&other)).collect();
        let ranges = (0..RANGES).map(|index| FIRST + (self.offset + index) % RANGES * COUNT);
        let mut free = ranges.filter(|first| !taken.contains(first));
        let first = free
            .next()
            .ok_or_else(|| io::Error::other("all ids for users of pods are taken"))?;
        record::save_ids(place, first)?;
        Ok(first)
    }
}

#[cfg(test)]
mod tests {
    use super::{COUNT, FIRST, Ids, RANGES};
    use crate::node::place::PodPlace;

    #[test]
    fn each_pod_has_ids_of_its_own_and_keeps_them() {
        let pods = tempfile::tempdir().unwrap();
        let first = |ids: &Ids, uid: &str| {
            let place = PodPlace::new(pods.path(), uid);
            let namespace = ids.of(&place, pods.path()).unwrap();
            assert_eq!(namespace.uids[0].count, COUNT);
            namespace.uids[0].outside
        };
        let ids = Ids::new("one");
        let (a, b) = (first(&ids, "a"), first(&ids, "b"));
        assert!(a.abs_diff(b) >= COUNT);
        assert_eq!(first(&Ids::new("one"), "a"), a, "also after a restart");
        std::fs::remove_dir_all(pods.path().join("a")).unwrap();
        assert_eq!(
            first(&ids, "c"),
            a,
            "what a pod had is given away when it is gone"
        );
        assert!(a >= FIRST && a.checked_add(COUNT).is_some());
        assert_ne!(Ids::new("other").offset, ids.offset);
        assert!(ids.offset < RANGES);
    }
}

//! What a watch tells of the objects of one kind, cut down to what matters to whoever keeps it.

use std::collections::{BTreeMap, BTreeSet};

use kube::runtime::watcher::Event;

pub(crate) struct Kept<K, T> {
    key: fn(&K) -> Option<String>,
    trim: fn(&K) -> Option<T>,
    now: BTreeMap<String, T>,
    /// A list that is not complete yet.
    listing: BTreeMap<String, T>,
    is_listed: bool,
}

impl<K, T: PartialEq> Kept<K, T> {
    /// By their keys. Objects of which nothing is left are not kept.
    pub(crate) fn new(key: fn(&K) -> Option<String>, trim: fn(&K) -> Option<T>) -> Self {
        Self {
            key,
            trim,
            now: BTreeMap::new(),
            listing: BTreeMap::new(),
            is_listed: false,
        }
    }

    /// Whether all are known that were there at one moment.
    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed
    }

    pub(crate) fn all(&self) -> &BTreeMap<String, T> {
        &self.now
    }

    pub(crate) fn get(&self, key: &str) -> Option<&T> {
        self.now.get(key)
    }

    /// Says of which objects something that matters has changed.
    pub(crate) fn take(&mut self, event: &Event<K>) -> BTreeSet<String> {
        match event {
            Event::Init => {
                self.listing.clear();
                BTreeSet::new()
            }
            Event::InitApply(object) => {
                let (key, value) = ((self.key)(object), (self.trim)(object));
                self.listing.extend(key.zip(value));
                BTreeSet::new()
            }
            Event::InitDone => {
                self.is_listed = true;
                let listed = std::mem::take(&mut self.listing);
                let before = std::mem::replace(&mut self.now, listed);
                let keys = before.keys().chain(self.now.keys());
                let differs = |key: &&String| before.get(*key) != self.now.get(*key);
                keys.filter(differs).cloned().collect()
            }
            Event::Apply(object) => self.set((self.key)(object), (self.trim)(object)),
            Event::Delete(object) => self.set((self.key)(object), None),
        }
    }

    fn set(&mut self, key: Option<String>, value: Option<T>) -> BTreeSet<String> {
        let Some(key) = key.filter(|key| self.now.get(key) != value.as_ref()) else {
            return BTreeSet::new();
        };
        match value {
            Some(value) => self.now.insert(key.clone(), value),
            None => self.now.remove(&key),
        };
        BTreeSet::from([key])
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;

    use super::Kept;

    type Object = (&'static str, Option<u32>, &'static str);

    fn kept() -> Kept<Object, u32> {
        Kept::new(|object| Some(object.0.to_owned()), |object| object.1)
    }

    fn changed(kept: &mut Kept<Object, u32>, event: Event<Object>) -> Vec<String> {
        kept.take(&event).into_iter().collect()
    }

    #[test]
    fn what_does_not_matter_is_no_change() {
        let mut kept = kept();
        assert_eq!(changed(&mut kept, Event::Apply(("a", Some(1), "x"))), ["a"]);
        assert!(changed(&mut kept, Event::Apply(("a", Some(1), "y"))).is_empty());
        assert!(changed(&mut kept, Event::Apply(("b", None, "x"))).is_empty());
        assert_eq!(changed(&mut kept, Event::Apply(("a", None, "y"))), ["a"]);
        assert!(kept.all().is_empty());
    }

    #[test]
    fn a_list_replaces_what_was_known_once_it_is_complete() {
        let mut kept = kept();
        for object in [("a", Some(1), ""), ("b", Some(1), ""), ("c", Some(1), "")] {
            changed(&mut kept, Event::Apply(object));
        }
        changed(&mut kept, Event::Init);
        changed(&mut kept, Event::InitApply(("b", Some(2), "")));
        changed(&mut kept, Event::InitApply(("c", Some(1), "")));
        assert_eq!(kept.get("b"), Some(&1));
        assert!(!kept.is_listed());
        assert_eq!(changed(&mut kept, Event::InitDone), ["a", "b"]);
        assert_eq!(kept.get("b"), Some(&2));
        assert!(kept.is_listed());
    }

    #[test]
    fn what_is_deleted_changes_once() {
        let mut kept = kept();
        changed(&mut kept, Event::Apply(("a", Some(1), "")));
        assert_eq!(changed(&mut kept, Event::Delete(("a", Some(1), ""))), ["a"]);
        assert!(changed(&mut kept, Event::Delete(("a", Some(1), ""))).is_empty());
    }
}

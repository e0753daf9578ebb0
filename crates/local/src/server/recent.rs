//! Objects that were written last, parsed: who wrote an object is likely to write it again soon.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// How many bytes they may have in the store; parsed, they take about five times as many.
const MOST: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Recent(Mutex<Objects>);

#[derive(Default)]
struct Objects {
    /// The oldest first.
    objects: VecDeque<Object>,
    size: usize,
}

struct Object {
    /// No other state of any object has it.
    revision: u64,
    object: Value,
    size: usize,
}

impl Objects {
    fn remove(&mut self, at: usize) -> Option<Value> {
        let removed = self.objects.remove(at)?;
        self.size -= removed.size;
        Some(removed.object)
    }
}

impl Recent {
    /// Takes the object out: it is about to be written over. If it is not after all, it is read again the next time.
    pub(super) fn take(&self, revision: u64) -> Option<Value> {
        let mut objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = objects.objects.iter();
        let at = all.rposition(|object| object.revision == revision)?;
        objects.remove(at)
    }

    /// The object must be what its stored bytes say, without owners.
    pub(super) fn put(&self, revision: u64, mut object: Value, size: usize) {
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        let mut objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        objects.size += size;
        objects.objects.push_back(Object {
            revision,
            object,
            size,
        });
        let mut oldest = Vec::new();
        while objects.size > MOST {
            oldest.extend(objects.remove(0));
        }
        // freeing them takes longer than all the rest
        drop(objects);
        drop(oldest);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{MOST, Recent};

    #[test]
    fn an_object_is_given_once_with_the_revision_it_was_written_at() {
        let recent = Recent::default();
        recent.put(7, json!({"metadata": {"resourceVersion": "6"}}), 1);
        assert_eq!(recent.take(6), None);
        let object = json!({"metadata": {"resourceVersion": "7"}});
        assert_eq!(recent.take(7), Some(object));
        assert_eq!(recent.take(7), None);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let recent = Recent::default();
        for revision in 0..5 {
            recent.put(revision, json!({"metadata": {}}), MOST / 4);
        }
        assert_eq!(recent.take(0), None);
        assert!(recent.take(1).is_some());
        recent.put(5, json!({"metadata": {}}), MOST + 1);
        for revision in 2..=5 {
            assert_eq!(recent.take(revision), None);
        }
    }
}

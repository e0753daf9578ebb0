//! Objects that were written last, parsed: who wrote an object is likely to write it again soon.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// How many there are at most; a Sandbox takes about 25 KB when parsed.
const MOST: usize = 128;

/// By revision, which no other state of any object has.
#[derive(Default)]
pub(super) struct Recent(Mutex<VecDeque<(u64, Value)>>);

impl Recent {
    /// Takes the object out: the state that is written over is not asked for again.
    pub(super) fn take(&self, revision: u64) -> Option<Value> {
        let mut objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = objects.iter().rposition(|(of, _)| *of == revision)?;
        objects.remove(at).map(|(_, object)| object)
    }

    /// The object must be what its stored bytes say, without owners.
    pub(super) fn put(&self, revision: u64, mut object: Value) {
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        let mut objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        objects.push_back((revision, object));
        let oldest = match objects.len() > MOST {
            true => objects.pop_front(),
            false => None,
        };
        // freeing it takes longer than all the rest
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
        recent.put(7, json!({"metadata": {"resourceVersion": "6"}}));
        assert_eq!(recent.take(6), None);
        let object = json!({"metadata": {"resourceVersion": "7"}});
        assert_eq!(recent.take(7), Some(object));
        assert_eq!(recent.take(7), None);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let recent = Recent::default();
        for revision in 0..=MOST as u64 {
            recent.put(revision, json!({"metadata": {}}));
        }
        assert_eq!(recent.take(0), None);
        assert!(recent.take(1).is_some());
    }
}

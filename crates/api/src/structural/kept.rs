//! The parts of an object that a change leaves alone.

use serde_json::{Map, Value};

use super::prune::META;

/// Parts that were taken out of an object, so that whoever walks over it does not look at them. In their place is null
/// until they are put back.
#[derive(Default)]
pub(super) struct Kept {
    here: Vec<(String, Value)>,
    below: Vec<(String, Self)>,
}

impl Kept {
    /// Takes out what is the same in the old object, down to the fields that differ. What every resource has stays: it is
    /// read whole.
    pub(super) fn take(new: &mut Map<String, Value>, old: &Map<String, Value>) -> Self {
        let mut kept = Self::default();
        for (name, value) in new {
            if META.contains(&name.as_str()) {
                continue;
            }
            match (old.get(name), value) {
                (Some(old), value) if old == value => {
                    kept.here.push((name.clone(), value.take()));
                }
                (Some(Value::Object(old)), Value::Object(new)) => {
                    kept.below.push((name.clone(), Self::take(new, old)));
                }
                _ => {}
            }
        }
        kept
    }

    pub(super) fn put_back(self, object: &mut Map<String, Value>) {
        for (name, kept) in self.below {
            if let Some(Value::Object(object)) = object.get_mut(&name) {
                kept.put_back(object);
            }
        }
        object.extend(self.here);
    }
}

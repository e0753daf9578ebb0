//! Fields in the order of a text, and those that are written twice in it.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::path::Path;

/// The paths of fields that a JSON text has more than once, in the order of the text. A text that is no JSON has
/// none.
pub fn duplicate_fields(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let read = walk(text, &mut |path, moment| {
        if moment == Moment::WrittenAgain {
            found.push(path.dotted());
        }
    });
    if read { found } else { Vec::new() }
}

/// Puts paths of fields into the order in which a JSON text has them.
pub fn in_order_of(text: &str, paths: &mut Vec<String>) {
    if paths.len() < 2 {
        return;
    }
    let mut left: HashMap<&str, usize> = HashMap::with_capacity(paths.len());
    for path in &*paths {
        *left.entry(path).or_default() += 1;
    }
    let mut ordered = Vec::with_capacity(paths.len());
    let mut take = |path: &str| {
        if let Some(copies @ 1..) = left.get_mut(path) {
            *copies -= 1;
            ordered.push(path.to_owned());
        }
    };
    walk(text, &mut |path, moment| {
        if moment == Moment::Begins {
            take(&path.dotted());
        }
    });
    paths.iter().for_each(|path| take(path));
    *paths = ordered;
}

/// What happens at a field while a text is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    Begins,
    /// Its value has been read, and it is the second of its name.
    WrittenAgain,
}

fn walk(text: &str, told: &mut dyn FnMut(&Path<'_>, Moment)) -> bool {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let seed = Seed {
        path: &Path::ROOT,
        told,
    };
    seed.deserialize(&mut deserializer).is_ok()
}

struct Seed<'a> {
    path: &'a Path<'a>,
    told: &'a mut dyn FnMut(&Path<'_>, Moment),
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen: BTreeMap<String, bool> = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            let place = self.path.field(&name);
            (self.told)(&place, Moment::Begins);
            map.next_value_seed(Seed {
                path: &place,
                told: self.told,
            })?;
            match seen.get_mut(&name) {
                Some(true) => {}
                Some(said) => {
                    *said = true;
                    (self.told)(&place, Moment::WrittenAgain);
                }
                None => _ = seen.insert(name, false),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0;
        loop {
            let place = self.path.index(index);
            let seed = Seed {
                path: &place,
                told: self.told,
            };
            if items.next_element_seed(seed)?.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(IgnoredAny).map(|_| ())
    }
}

//! Fields that are written twice in a text.

use std::{collections::BTreeMap, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::path::Path;

/// The paths of fields that a JSON text has more than once, in the order of the text. A text that is no JSON has
/// none.
pub fn duplicate_fields(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let seed = Seed {
        path: &Path::ROOT,
        found: &mut found,
    };
    match seed.deserialize(&mut deserializer) {
        Ok(()) => found,
        Err(_) => Vec::new(),
    }
}

struct Seed<'a> {
    path: &'a Path<'a>,
    found: &'a mut Vec<String>,
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
            map.next_value_seed(Seed {
                path: &place,
                found: self.found,
            })?;
            let text = place.dotted();
            match seen.get_mut(&name) {
                Some(true) => {}
                Some(said) => {
                    *said = true;
                    self.found.push(text);
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
                found: self.found,
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

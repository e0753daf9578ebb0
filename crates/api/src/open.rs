//! Values of which a newer definition may know more than this release.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{
        DeserializeOwned,
        value::{Error, StrDeserializer},
    },
};

/// One of the values of `T`, or a word that is none of them. A closed enum would make the whole object unreadable, and with
/// it every list that the object is in. The schema is that of `T`.
#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
#[serde(untagged)]
pub enum Open<T> {
    Known(T),
    Unknown(String),
}

/// What a field says. A word that nobody here knows counts as left out.
pub fn known<T: Copy>(field: &Option<Open<T>>) -> Option<T> {
    match field {
        Some(Open::Known(value)) => Some(*value),
        Some(Open::Unknown(_)) | None => None,
    }
}

impl<T: fmt::Debug> fmt::Display for Open<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(value) => write!(f, "{value:?}"),
            Self::Unknown(word) => f.write_str(word),
        }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Open<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let word = String::deserialize(from)?;
        let known = T::deserialize(StrDeserializer::<Error>::new(&word));
        Ok(known.map_or(Self::Unknown(word), Self::Known))
    }
}

impl<T: JsonSchema> JsonSchema for Open<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Open, known};
    use crate::sigs::{rolling_update::UpdateStrategyType, v1beta1::SandboxWarmPoolSpec};

    #[test]
    fn a_word_that_is_not_known_is_kept_and_counts_as_left_out() {
        for (word, meant) in [
            ("Recreate", Some(UpdateStrategyType::Recreate)),
            ("Canary", None),
            ("", None),
        ] {
            let read: Open<UpdateStrategyType> = serde_json::from_value(json!(word)).unwrap();
            assert_eq!(json!(read), json!(word));
            assert_eq!(read.to_string(), word);
            assert_eq!(known(&Some(read)), meant);
        }
        for wrong in [json!(5), json!({}), Value::Null] {
            assert!(serde_json::from_value::<Open<UpdateStrategyType>>(wrong).is_err());
        }
    }

    #[test]
    fn a_pool_of_a_newer_definition_is_read_and_written_as_it_is() {
        let spec = json!({
            "sandboxTemplateRef": {"name": "one"},
            "claimPolicy": "Dearest",
            "updateStrategy": {"type": "Canary", "rollingUpdate": {"inPlace": "Rarely"}},
        });
        let read: SandboxWarmPoolSpec = serde_json::from_value(spec.clone()).unwrap();
        assert_eq!(json!(read), spec);
    }
}

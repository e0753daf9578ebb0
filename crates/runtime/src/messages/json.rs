//! Where protobuf's JSON form differs from what serde would write by itself.

use std::fmt;

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::engine::{DecodePaddingMode, Engine};
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat};
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::ser::{self, Serialize, Serializer};

use super::filesystem::{EventType, FileType, Timestamp};
use super::process::Signal;

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const ANY_STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const ANY_URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

pub(super) fn base64<S: Serializer>(bytes: &Option<Bytes>, out: S) -> Result<S::Ok, S::Error> {
    let bytes: &[u8] = bytes.as_deref().unwrap_or_default();
    out.serialize_str(&STANDARD.encode(bytes))
}

/// 64-bit numbers are strings: JavaScript would round them.
pub(super) fn long<S: Serializer>(number: &impl fmt::Display, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(number)
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's shape")]
pub(super) fn file_type<S: Serializer>(number: &i32, out: S) -> Result<S::Ok, S::Error> {
    name(&FileType::NAMES, *number, out)
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's shape")]
pub(super) fn event_type<S: Serializer>(number: &i32, out: S) -> Result<S::Ok, S::Error> {
    name(&EventType::NAMES, *number, out)
}

fn name<S: Serializer>(names: &[&str], number: i32, out: S) -> Result<S::Ok, S::Error> {
    match usize::try_from(number).ok().and_then(|n| names.get(n)) {
        Some(name) => out.serialize_str(name),
        None => out.serialize_i32(number),
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's shape")]
pub(super) fn is_false(value: &bool) -> bool {
    !value
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let nanos = u32::try_from(self.nanos).map_err(ser::Error::custom)?;
        let time = DateTime::from_timestamp(self.seconds, nanos)
            .ok_or_else(|| ser::Error::custom("time out of range"))?;
        out.serialize_str(&time.to_rfc3339_opts(SecondsFormat::AutoSi, true))
    }
}

pub(super) fn number<'de, D: Deserializer<'de>>(input: D) -> Result<u32, D::Error> {
    input.deserialize_any(Number)
}

pub(super) fn optional_number<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<u32>, D::Error> {
    number(input).map(Some)
}

pub(super) fn signal<'de, D: Deserializer<'de>>(input: D) -> Result<i32, D::Error> {
    input.deserialize_any(SignalName)
}

pub(super) fn optional_bytes<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<Bytes>, D::Error> {
    input.deserialize_str(Base64).map(Some)
}

struct Number;

impl Visitor<'_> for Number {
    type Value = u32;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a number from 0 to 4294967295")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u32, E> {
        u32::try_from(value).map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<u32, E> {
        let wrong = |_| E::invalid_value(Unexpected::Str(value), &self);
        value.parse().map_err(wrong)
    }
}

struct SignalName;

impl Visitor<'_> for SignalName {
    type Value = i32;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the name or number of a signal")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<i32, E> {
        i32::try_from(value).map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<i32, E> {
        let known = Signal::NAMES.iter().find(|(name, _)| *name == value);
        known
            .map(|(_, number)| *number)
            .ok_or_else(|| E::invalid_value(Unexpected::Str(value), &self))
    }
}

struct Base64;

impl Visitor<'_> for Base64 {
    type Value = Bytes;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("bytes in base64")
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Bytes, E> {
        let url_safe = value.bytes().any(|b| b == b'-' || b == b'_');
        let engine = if url_safe { ANY_URL_SAFE } else { ANY_STANDARD };
        engine
            .decode(value)
            .map(Bytes::from)
            .map_err(|e| E::custom(format_args!("bytes are not base64: {e}")))
    }
}

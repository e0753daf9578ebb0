//! Messages as bytes, in the form that the caller chose.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::daemon::error::Error;
use crate::envelope::{self, PREFIX};

/// A message that callers send.
pub(crate) trait Ask: Message + Default + DeserializeOwned + Send + 'static {}
impl<T: Message + Default + DeserializeOwned + Send + 'static> Ask for T {}

/// A message that the daemon sends.
pub(crate) trait Tell: Message + Serialize + Send + Sync + 'static {}
impl<T: Message + Serialize + Send + Sync + 'static> Tell for T {}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    Json,
    Proto,
}

impl Codec {
    pub(super) fn decode<Q: Ask>(self, bytes: Bytes) -> Result<Q, Error> {
        match self {
            Self::Proto => Q::decode(bytes)
                .map_err(|e| Error::invalid(format!("the message is not protobuf: {e}"))),
            Self::Json => from_json(&bytes),
        }
    }

    pub(super) fn encode<A: Tell>(self, message: &A) -> Result<Bytes, Error> {
        match self {
            Self::Proto => Ok(message.encode_to_vec().into()),
            Self::Json => serde_json::to_vec(message)
                .map(Bytes::from)
                .map_err(|e| Error::internal(format!("the answer cannot be written: {e}"))),
        }
    }

    /// A message in its envelope.
    pub(super) fn enclose<A: Tell>(self, message: &A) -> Result<Bytes, Error> {
        let mut envelope = BytesMut::zeroed(PREFIX).writer();
        match self {
            Self::Proto => message
                .encode(envelope.get_mut())
                .map_err(|e| Error::internal(format!("the answer cannot be written: {e}")))?,
            Self::Json => serde_json::to_writer(&mut envelope, message)
                .map_err(|e| Error::internal(format!("the answer cannot be written: {e}")))?,
        }
        let mut envelope = envelope.into_inner();
        envelope::seal(&mut envelope)
            .ok_or_else(|| Error::internal("the answer is longer than an envelope can say"))?;
        Ok(envelope.freeze())
    }
}

/// A message in protobuf's JSON form.
pub(crate) fn from_json<Q: DeserializeOwned>(bytes: &[u8]) -> Result<Q, Error> {
    let refused = |e| Error::invalid(format!("the message is not understood: {e}"));
    // an array would be taken for the fields in their order
    let object: Map<String, Value> = serde_json::from_slice(bytes).map_err(refused)?;
    let mut value = Value::Object(object);
    drop_nulls(&mut value);
    Q::deserialize(value).map_err(refused)
}

/// In protobuf's JSON a null is an absent field.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

//! The bodies of requests: whole, or as envelopes of a flag byte, a length and a message.

use std::io::Read;
use std::marker::PhantomData;

use bytes::{Buf, Bytes, BytesMut};
use flate2::read::GzDecoder;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::call::Call;
use super::codec::{Ask, Codec, PREFIX};
use crate::daemon::error::{Code, Error};

/// The largest message that is taken, as sent and when unpacked.
const LARGEST: usize = 64 << 20;

const COMPRESSED: u8 = 1;
const END_OF_STREAM: u8 = 2;

/// The only message of a request.
pub(super) async fn read_one<Q: Ask>(call: &Call, body: Incoming) -> Result<Q, Error> {
    if call.is_connect_unary() {
        let mut bytes = read_all(body).await?;
        if call.compressed() && !bytes.is_empty() {
            bytes = unpack(&bytes)?;
        }
        return call.codec().decode(bytes);
    }
    let mut requests = Requests::new(call, body);
    let Some(request) = requests.next().await? else {
        return Err(Error::invalid("the request has no message"));
    };
    // to the end, or the connection could not be used again
    match requests.next().await? {
        None => Ok(request),
        Some(_) => Err(Error::invalid("the request has more than one message")),
    }
}

async fn read_all(mut body: Incoming) -> Result<Bytes, Error> {
    let mut whole = BytesMut::new();
    while let Some(bytes) = read_some(&mut body).await? {
        if whole.len() + bytes.len() > LARGEST {
            return Err(too_large());
        }
        whole.extend_from_slice(&bytes);
    }
    Ok(whole.freeze())
}

async fn read_some(body: &mut Incoming) -> Result<Option<Bytes>, Error> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Error::invalid(format!("the request broke off: {e}")))?;
        if let Ok(bytes) = frame.into_data() {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

fn too_large() -> Error {
    let message = format!("the message is larger than {LARGEST} bytes");
    Error::new(Code::ResourceExhausted, message)
}

fn unpack(packed: &[u8]) -> Result<Bytes, Error> {
    let mut unpacked = Vec::new();
    GzDecoder::new(packed)
        .take(LARGEST as u64 + 1)
        .read_to_end(&mut unpacked)
        .map_err(|e| Error::invalid(format!("the message is not gzip: {e}")))?;
    if unpacked.len() > LARGEST {
        return Err(too_large());
    }
    Ok(unpacked.into())
}

/// The messages of a request, one after the other.
pub(crate) struct Requests<Q> {
    body: Incoming,
    unread: BytesMut,
    codec: Codec,
    compressed: bool,
    message: PhantomData<fn() -> Q>,
}

impl<Q: Ask> Requests<Q> {
    pub(super) fn new(call: &Call, body: Incoming) -> Self {
        Self {
            body,
            unread: BytesMut::new(),
            codec: call.codec(),
            compressed: call.compressed(),
            message: PhantomData,
        }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Q>, Error> {
        let Some((flags, payload)) = self.envelope().await? else {
            return Ok(None);
        };
        if flags & END_OF_STREAM != 0 {
            while read_some(&mut self.body).await?.is_some() {}
            return Ok(None);
        }
        let payload = match (flags & COMPRESSED != 0, self.compressed) {
            (false, _) => payload,
            (true, true) => unpack(&payload)?,
            (true, false) => {
                return Err(Error::invalid(
                    "a message is compressed, but no compression was announced",
                ));
            }
        };
        self.codec.decode(payload).map(Some)
    }

    async fn envelope(&mut self) -> Result<Option<(u8, Bytes)>, Error> {
        loop {
            if let Some(prefix) = self.unread.first_chunk::<PREFIX>() {
                let [flags, length @ ..] = *prefix;
                let length = u32::from_be_bytes(length) as usize;
                if length > LARGEST {
                    return Err(too_large());
                }
                if self.unread.len() >= PREFIX + length {
                    self.unread.advance(PREFIX);
                    return Ok(Some((flags, self.unread.split_to(length).freeze())));
                }
            }
            match read_some(&mut self.body).await? {
                Some(bytes) => self.unread.extend_from_slice(&bytes),
                None if self.unread.is_empty() => return Ok(None),
                None => return Err(Error::invalid("the request ends within an envelope")),
            }
        }
    }
}

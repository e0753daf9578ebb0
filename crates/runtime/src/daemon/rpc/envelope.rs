//! The bodies of requests: whole, or as envelopes of a flag byte, a length and a message.

use std::io::Read as _;
use std::marker::PhantomData;

use bytes::{Bytes, BytesMut};
use flate2::read::GzDecoder;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::call::Call;
use super::codec::{Ask, Codec};
use crate::code::Code;
use crate::daemon::error::Error;
use crate::envelope::{self, END_OF_STREAM};

/// The largest message that is taken, as sent and when unpacked.
const LARGEST: usize = 64 << 20;

const COMPRESSED: u8 = 1;

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
    messages: Messages<Q>,
}

impl<Q: Ask> Requests<Q> {
    pub(super) fn new(call: &Call, body: Incoming) -> Self {
        let messages = Messages::new(call.codec(), call.compressed());
        Self { body, messages }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Q>, Error> {
        loop {
            match self.messages.next()? {
                Some(Read::Message(message)) => return Ok(Some(message)),
                Some(Read::End) => {
                    while read_some(&mut self.body).await?.is_some() {}
                    return Ok(None);
                }
                None => match read_some(&mut self.body).await? {
                    Some(bytes) => self.messages.arrived(&bytes),
                    None => return self.messages.finish().map(|()| None),
                },
            }
        }
    }
}

/// What has arrived of a request, taken apart.
pub(crate) struct Messages<Q> {
    unread: BytesMut,
    codec: Codec,
    compressed: bool,
    message: PhantomData<fn() -> Q>,
}

pub(crate) enum Read<Q> {
    Message(Q),
    /// Nothing counts that comes after it.
    End,
}

impl<Q: Ask> Messages<Q> {
    pub(crate) fn new(codec: Codec, compressed: bool) -> Self {
        Self {
            unread: BytesMut::new(),
            codec,
            compressed,
            message: PhantomData,
        }
    }

    pub(crate) fn arrived(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// `None` when more must arrive.
    pub(crate) fn next(&mut self) -> Result<Option<Read<Q>>, Error> {
        let opened = envelope::open(&mut self.unread, LARGEST);
        let Some((flags, payload)) = opened.map_err(|_| too_large())? else {
            return Ok(None);
        };
        if flags & END_OF_STREAM != 0 {
            return Ok(Some(Read::End));
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
        self.codec.decode(payload).map(|it| Some(Read::Message(it)))
    }

    /// Nothing more arrives.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        if self.unread.is_empty() {
            return Ok(());
        }
        Err(Error::invalid("the request ends within an envelope"))
    }
}

//! Frames as bytes. Nothing here waits or allocates more than a frame's limit.

use bytes::{Buf as _, Bytes, BytesMut};

use super::headers::{Headers, Packer, Unpacker};

/// Of frames other than data; the largest that a client sends has some hundred bytes.
const LARGEST_CONTROL: usize = 64 * 1024;
/// Data is passed on in pieces of at most this size, however long the frame is.
const PIECE: usize = 32 * 1024;
const HEAD: usize = 8;
const FIN: u8 = 1;
const VERSION: u16 = 3;
const CONTROL: u32 = 1 << 31;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const SETTINGS: u16 = 4;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
const WINDOW_UPDATE: u16 = 9;

/// Bytes that no client sends which speaks the protocol. The connection is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of version {0} came, and only version 3 is spoken here")]
    Version(u16),
    #[error("a frame of the unknown type {0} came")]
    Type(u16),
    #[error("a frame of type {kind} has {length} bytes")]
    Length { kind: u16, length: usize },
    #[error("a frame belongs to stream 0, which there is not")]
    NoStream,
    #[error("the headers of a stream cannot be read: {0}")]
    Headers(&'static str),
}

/// What the peer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A new stream; `is_last` where the peer will send nothing on it.
    Opened {
        stream: u32,
        headers: Headers,
        is_last: bool,
    },
    /// Data of a stream; after `is_last` there is no more.
    Data {
        stream: u32,
        bytes: Bytes,
        is_last: bool,
    },
    /// The stream is over in both directions.
    Reset { stream: u32 },
    /// To be sent back, unless it is an answer.
    Ping(u32),
    /// The peer leaves.
    GoAway,
    /// More headers, settings or windows: nothing that matters here, but for the end of a stream.
    Other { ended: Option<u32> },
}

/// Makes events of bytes.
pub struct Decoder {
    unpacker: Unpacker,
    /// The frame of data that is being read.
    data: Option<Data>,
}

#[derive(Clone, Copy)]
struct Data {
    stream: u32,
    left: usize,
    is_last: bool,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            unpacker: Unpacker::new(),
            data: None,
        }
    }
}

impl Decoder {
    /// The next event, if all of it is there.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Event>, FrameError> {
        if let Some(data) = self.data {
            return Ok(self.piece(data, buffer));
        }
        let Some((head, _)) = buffer.split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let (first, second) = halves(head);
        let flags = head[4];
        let length = usize::try_from(second & 0x00ff_ffff).unwrap_or(usize::MAX);
        if first & CONTROL == 0 {
            if first == 0 {
                return Err(FrameError::NoStream);
            }
            buffer.advance(HEAD);
            let data = Data {
                stream: first,
                left: length,
                is_last: flags & FIN != 0,
            };
            self.data = Some(data);
            return Ok(self.piece(data, buffer));
        }
        let [_, _, high, low, ..] = *head;
        let kind = u16::from_be_bytes([high, low]);
        let version = u16::from_be_bytes([head[0] & 0x7f, head[1]]);
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        if length > LARGEST_CONTROL {
            return Err(FrameError::Length { kind, length });
        }
        if buffer.len() < HEAD + length {
            return Ok(None);
        }
        buffer.advance(HEAD);
        let payload = buffer.split_to(length);
        self.control(kind, flags, &payload).map(Some)
    }

    fn piece(&mut self, data: Data, buffer: &mut BytesMut) -> Option<Event> {
        if data.left > 0 && buffer.is_empty() {
            return None;
        }
        let bytes = buffer
            .split_to(buffer.len().min(data.left).min(PIECE))
            .freeze();
        let left = data.left - bytes.len();
        self.data = (left > 0).then_some(Data { left, ..data });
        Some(Event::Data {
            stream: data.stream,
            bytes,
            is_last: data.is_last && left == 0,
        })
    }

    fn control(&mut self, kind: u16, flags: u8, payload: &[u8]) -> Result<Event, FrameError> {
        let is_last = flags & FIN != 0;
        let wrong = FrameError::Length {
            kind,
            length: payload.len(),
        };
        match kind {
            SYN_STREAM => {
                let (head, block) = payload.split_first_chunk::<10>().ok_or(wrong)?;
                let stream = stream(head)?;
                let headers = self.unpacker.unpack(block)?;
                Ok(Event::Opened {
                    stream,
                    headers,
                    is_last,
                })
            }
            SYN_REPLY | HEADERS => {
                let (head, block) = payload.split_first_chunk::<4>().ok_or(wrong)?;
                let stream = stream(head)?;
                // the next block cannot be unpacked without this one
                self.unpacker.unpack(block)?;
                Ok(Event::Other {
                    ended: is_last.then_some(stream),
                })
            }
            RST_STREAM => {
                let head: &[u8; 8] = payload.try_into().map_err(|_| wrong)?;
                let stream = stream(head)?;
                Ok(Event::Reset { stream })
            }
            PING => {
                let id: [u8; 4] = payload.try_into().map_err(|_| wrong)?;
                Ok(Event::Ping(u32::from_be_bytes(id)))
            }
            GOAWAY if payload.len() == 8 => Ok(Event::GoAway),
            WINDOW_UPDATE if payload.len() == 8 => Ok(Event::Other { ended: None }),
            SETTINGS if payload.len() % 8 == 4 => Ok(Event::Other { ended: None }),
            GOAWAY | WINDOW_UPDATE | SETTINGS => Err(wrong),
            kind => Err(FrameError::Type(kind)),
        }
    }
}

fn halves(head: &[u8; HEAD]) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = *head;
    (
        u32::from_be_bytes([a, b, c, d]),
        u32::from_be_bytes([e, f, g, h]),
    )
}

/// The number that a payload begins with.
fn stream(payload: &[u8]) -> Result<u32, FrameError> {
    let number = payload.first_chunk::<4>().copied().unwrap_or_default();
    match u32::from_be_bytes(number) & !CONTROL {
        0 => Err(FrameError::NoStream),
        stream => Ok(stream),
    }
}

/// Why a stream is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reset {
    ProtocolError = 1,
    Refused = 3,
    Cancel = 5,
}

/// Makes frames.
pub(super) struct Encoder {
    packer: Packer,
}

impl Encoder {
    pub(super) fn new() -> Self {
        Self {
            packer: Packer::new(),
        }
    }

    /// The head of a frame of data; the data follows it.
    pub(super) fn data(stream: u32, length: usize, is_last: bool) -> [u8; HEAD] {
        let length = u32::try_from(length).unwrap_or(u32::MAX) & 0x00ff_ffff;
        let flags = u32::from(is_last) << 24;
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&stream.to_be_bytes());
        head[4..].copy_from_slice(&(flags | length).to_be_bytes());
        head
    }

    /// A stream is accepted.
    pub(super) fn reply(&mut self, stream: u32) -> Vec<u8> {
        let block = self.packer.empty();
        control(SYN_REPLY, &[&stream.to_be_bytes(), &block])
    }

    pub(super) fn reset(stream: u32, why: Reset) -> Vec<u8> {
        let why = why as u32;
        control(RST_STREAM, &[&stream.to_be_bytes(), &why.to_be_bytes()])
    }

    pub(super) fn ping(id: u32) -> Vec<u8> {
        control(PING, &[&id.to_be_bytes()])
    }

    /// No more streams than up to `last`, and all went well.
    pub(super) fn go_away(last: u32) -> Vec<u8> {
        control(GOAWAY, &[&last.to_be_bytes(), &[0; 4]])
    }
}

fn control(kind: u16, payload: &[&[u8]]) -> Vec<u8> {
    let payload = payload.concat();
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX) & 0x00ff_ffff;
    let mut frame = Vec::with_capacity(HEAD + payload.len());
    frame.extend_from_slice(&(VERSION | 0x8000).to_be_bytes());
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&payload);
    frame
}

#[cfg(test)]
pub(super) mod tests;

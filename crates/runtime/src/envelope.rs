//! Messages on a stream, each in an envelope: a flag byte, a length, and the message.

use bytes::{Buf as _, Bytes, BytesMut};

/// Flag byte and length.
pub(crate) const PREFIX: usize = 5;

/// The flag of the last envelope, which says whether all went well.
pub(crate) const END_OF_STREAM: u8 = 2;

/// `None` if it is longer than an envelope can say.
pub(crate) fn enclose(flags: u8, message: &[u8]) -> Option<Bytes> {
    let mut envelope = BytesMut::zeroed(PREFIX);
    envelope.extend_from_slice(message);
    envelope[0] = flags;
    seal(&mut envelope)?;
    Some(envelope.freeze())
}

/// Writes the length of the message that follows the prefix.
pub(crate) fn seal(envelope: &mut [u8]) -> Option<()> {
    let length = u32::try_from(envelope.len() - PREFIX).ok()?;
    envelope[1..PREFIX].copy_from_slice(&length.to_be_bytes());
    Some(())
}

/// Takes the first envelope out of what was read, once it is there as a whole. One that is to be larger than `largest` is an error,
/// and its length.
pub(crate) fn open(unread: &mut BytesMut, largest: usize) -> Result<Option<(u8, Bytes)>, usize> {
    let Some([flags, length @ ..]) = unread.first_chunk::<PREFIX>().copied() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(length) as usize;
    if length > largest {
        return Err(length);
    }
    if unread.len() < PREFIX + length {
        return Ok(None);
    }
    unread.advance(PREFIX);
    Ok(Some((flags, unread.split_to(length).freeze())))
}

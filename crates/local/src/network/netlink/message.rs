//! Messages as bytes: a header, a fixed part and attributes, all aligned to four bytes.

/// Length, type, flags, sequence number and port.
pub(in crate::network) const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
const ALIGNMENT: usize = 4;
/// The two upper bits of an attribute's type say that it is nested and in which byte order.
const TYPE_MASK: u16 = 0x3fff;
const NESTED: u16 = 0x8000;

const REQUEST: u16 = 0x1;
pub(super) const ACKNOWLEDGE: u16 = 0x4;
const DUMP: u16 = 0x300;
const REPLACE: u16 = 0x100;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

/// A message that is being written.
#[derive(Debug, Clone)]
pub(in crate::network) struct Message {
    bytes: Vec<u8>,
}

/// What a request does about something that exists already, or not yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::network) enum Mode {
    /// Changes or deletes what is there.
    Change,
    /// Fails if it is there.
    Create,
    /// Makes it be there.
    Ensure,
    /// Adds it behind the others.
    Append,
    /// Makes it be there, instead of what was.
    Replace,
    /// Asks for all of them.
    Dump,
}

impl Mode {
    fn flags(self) -> u16 {
        REQUEST
            | match self {
                Mode::Change => 0,
                Mode::Create => CREATE | EXCLUSIVE,
                Mode::Ensure => CREATE,
                Mode::Append => CREATE | APPEND,
                Mode::Replace => CREATE | REPLACE,
                Mode::Dump => DUMP,
            }
    }
}

impl Message {
    pub(in crate::network) fn new(kind: u16, mode: Mode, fixed: &[u8]) -> Message {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&mode.flags().to_ne_bytes());
        bytes.extend_from_slice(fixed);
        let mut message = Message { bytes };
        message.align();
        message
    }

    pub(in crate::network) fn add(&mut self, kind: u16, value: &[u8]) -> &mut Message {
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.align();
        self
    }

    /// A text with the zero byte that the kernel wants behind it.
    pub(in crate::network) fn add_text(&mut self, kind: u16, value: &str) -> &mut Message {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.add(kind, &bytes)
    }

    /// A number in the order of this machine, as links and routes have it.
    pub(in crate::network) fn add_u32(&mut self, kind: u16, value: u32) -> &mut Message {
        self.add(kind, &value.to_ne_bytes())
    }

    /// A number in the order of the network, as nftables has it.
    pub(in crate::network) fn add_be32(&mut self, kind: u16, value: u32) -> &mut Message {
        self.add(kind, &value.to_be_bytes())
    }

    /// An attribute that consists of what `fill` adds.
    pub(in crate::network) fn nest(
        &mut self,
        kind: u16,
        fill: impl FnOnce(&mut Message),
    ) -> &mut Message {
        let start = self.bytes.len();
        self.add(kind | NESTED, &[]);
        fill(self);
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    /// Bytes without a header of their own, as the fixed part of a nested message.
    pub(in crate::network) fn add_raw(&mut self, bytes: &[u8]) -> &mut Message {
        self.bytes.extend_from_slice(bytes);
        self.align();
        self
    }

    /// The message with its length and number, ready to be sent.
    pub(super) fn numbered(mut self, sequence: u32, flags: u16) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let flags = u16::from_ne_bytes([self.bytes[6], self.bytes[7]]) | flags;
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }

    fn align(&mut self) {
        let aligned = self.bytes.len().next_multiple_of(ALIGNMENT);
        self.bytes.resize(aligned, 0);
    }
}

/// A message that was received.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) body: &'a [u8],
}

/// The messages in a buffer. Whatever does not have the form of one ends them.
pub(super) fn received(mut bytes: &[u8]) -> impl Iterator<Item = Received<'_>> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
        let body = bytes.get(HEADER..length)?;
        let message = Received {
            kind: u16_at(bytes, 4)?,
            flags: u16_at(bytes, 6)?,
            sequence: u32_at(bytes, 8)?,
            body,
        };
        bytes = bytes
            .get(length.next_multiple_of(ALIGNMENT)..)
            .unwrap_or_default();
        Some(message)
    })
}

/// The attributes in the rest of a message. Whatever does not have the form of one ends them.
pub(in crate::network) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & TYPE_MASK;
        let value = bytes.get(ATTRIBUTE_HEADER..length)?;
        bytes = bytes
            .get(length.next_multiple_of(ALIGNMENT)..)
            .unwrap_or_default();
        Some((kind, value))
    })
}

/// The text of an attribute, without what follows its zero byte.
pub(in crate::network) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0);
    let value = &value[..end.unwrap_or(value.len())];
    String::from_utf8_lossy(value).into_owned()
}

pub(in crate::network) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(two.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{HEADER, Message, Mode, attributes, received, text};

    #[test]
    fn what_was_nested_is_read_back() {
        let mut message = Message::new(7, Mode::Change, &[1, 2, 3, 4]);
        message.add_text(3, "eth0");
        message.nest(18, |inside| {
            inside.add_u32(1, 5);
        });
        let bytes = message.numbered(9, 0);
        let all: Vec<_> = received(&bytes).collect();
        assert_eq!((all.len(), all[0].kind, all[0].sequence), (1, 7, 9));
        let found: Vec<_> = attributes(&all[0].body[4..]).collect();
        assert_eq!((found[0].0, text(found[0].1)), (3, "eth0".to_owned()));
        let inside: Vec<_> = attributes(found[1].1).collect();
        assert_eq!(
            (found[1].0, &inside[..]),
            (18, &[(1, &5_u32.to_ne_bytes()[..])][..])
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let bodies: usize = received(&bytes).map(|message| message.body.len() + HEADER).sum();
            prop_assert!(bodies <= bytes.len() + 3);
            let values: usize = attributes(&bytes).map(|(_, value)| value.len()).sum();
            prop_assert!(values <= bytes.len());
        }
    }
}

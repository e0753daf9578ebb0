//! The parts that messages are made of.

use super::ProtobufError;

pub(super) const VARINT: u8 = 0;
pub(super) const FIXED_64: u8 = 1;
pub(super) const LENGTH_DELIMITED: u8 = 2;
const START_OF_GROUP: u8 = 3;
const END_OF_GROUP: u8 = 4;
const FIXED_32: u8 = 5;

/// What stands before a value.
#[derive(Clone, Copy)]
pub(super) struct Tag {
    pub(super) number: u32,
    pub(super) wire_type: u8,
}

impl Tag {
    pub(super) fn expect(self, wire_type: u8, field: &str) -> Result<(), ProtobufError> {
        match self.wire_type == wire_type {
            true => Ok(()),
            false => Err(ProtobufError::WrongWireType {
                wire_type: self.wire_type,
                field: field.to_owned(),
            }),
        }
    }
}

pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(content: &'a [u8]) -> Self {
        Self { rest: content }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The tag of the next field, if the message has one more.
    pub(super) fn tag(&mut self, message: &str) -> Result<Option<Tag>, ProtobufError> {
        if self.is_at_end() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let wire_type = wire_type(tag);
        if wire_type == END_OF_GROUP {
            return Err(ProtobufError::EndOfNoGroup(message.to_owned()));
        }
        let number = truncated(tag >> 3);
        match u32::try_from(number) {
            Ok(number) if number > 0 => Ok(Some(Tag { number, wire_type })),
            _ => Err(ProtobufError::IllegalTag {
                message: message.to_owned(),
                number,
                tag,
            }),
        }
    }

    pub(super) fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self
                .rest
                .split_first()
                .ok_or(ProtobufError::UnexpectedEnd)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ProtobufError::Overflow)
    }

    pub(super) fn int64(&mut self) -> Result<i64, ProtobufError> {
        self.varint().map(u64::cast_signed)
    }

    /// What does not fit is cut off, as Go does.
    pub(super) fn int32(&mut self) -> Result<i32, ProtobufError> {
        self.varint().map(truncated)
    }

    pub(super) fn double(&mut self) -> Result<f64, ProtobufError> {
        let (bytes, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(ProtobufError::UnexpectedEnd)?;
        self.rest = rest;
        Ok(f64::from_le_bytes(*bytes))
    }

    /// As many bytes as the number before them says.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], ProtobufError> {
        let length = self.varint()?;
        if i64::try_from(length).is_err() {
            return Err(ProtobufError::NegativeLength);
        }
        self.take(length)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], ProtobufError> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(ProtobufError::UnexpectedEnd)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Passes over the value of a field that nobody knows.
    pub(super) fn skip(&mut self, wire_type: u8) -> Result<(), ProtobufError> {
        let mut open: usize = 0;
        let mut next = wire_type;
        loop {
            match next {
                VARINT => drop(self.varint()?),
                FIXED_64 => drop(self.take(8)?),
                LENGTH_DELIMITED => drop(self.bytes()?),
                START_OF_GROUP => open += 1,
                END_OF_GROUP => {
                    open = open
                        .checked_sub(1)
                        .ok_or(ProtobufError::UnexpectedEndOfGroup)?;
                }
                FIXED_32 => drop(self.take(4)?),
                other => return Err(ProtobufError::IllegalWireType(other)),
            }
            if open == 0 {
                return Ok(());
            }
            next = self::wire_type(self.varint()?);
        }
    }
}

fn wire_type(tag: u64) -> u8 {
    (tag & 7).to_le_bytes()[0]
}

#[expect(clippy::cast_possible_truncation, reason = "the point of it")]
fn truncated(value: u64) -> i32 {
    value as i32
}

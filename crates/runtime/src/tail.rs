//! The last that a process wrote.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::messages::once::Tail;

pub(crate) struct Last {
    limit: usize,
    bytes: VecDeque<u8>,
    dropped: u64,
}

impl Last {
    /// That goes on after what was told of it before.
    pub(crate) fn new(limit: usize, told: Option<&Tail>) -> Self {
        let last = told.and_then(|tail| tail.last.as_deref());
        Self {
            limit,
            bytes: last.unwrap_or_default().iter().copied().collect(),
            dropped: told.map_or(0, |tail| tail.dropped),
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(self.limit)..];
        let surplus = (self.bytes.len() + kept.len()).saturating_sub(self.limit);
        self.bytes.drain(..surplus);
        self.bytes.extend(kept);
        self.dropped += (surplus + bytes.len() - kept.len()) as u64;
    }

    pub(crate) fn tell(&self) -> Tail {
        let (first, second) = self.bytes.as_slices();
        Tail {
            last: Some(Bytes::from([first, second].concat())),
            dropped: self.dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Last;

    #[test]
    fn the_last_that_was_written_is_kept_and_what_went_before_is_counted() {
        let mut last = Last::new(10, None);
        for piece in [&b"abc"[..], b"xxxxxxxx", b"yz"] {
            last.push(piece);
        }
        let told = last.tell();
        assert_eq!(
            (told.last.as_deref(), told.dropped),
            (Some(&b"xxxxxxxxyz"[..]), 3)
        );
        last.push(&[b'w'; 30]);
        let told = last.tell();
        assert_eq!(
            (told.last.as_deref(), told.dropped),
            (Some(&[b'w'; 10][..]), 33)
        );
    }
}

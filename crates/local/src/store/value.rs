//! The bytes of an object.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use bytes::Bytes;

/// The bytes of an object, of which a part may be kept apart: text that few readers need and that many objects share, so
/// that memory holds it once. Without that part the rest is JSON as well.
#[derive(Clone, PartialEq, Eq)]
pub struct Value {
    rest: Bytes,
    /// Where in the rest the pieces belong.
    at: usize,
    pieces: Pieces,
    mark: u64,
}

/// Text in pieces; the long ones come from [`shared`].
pub type Pieces = Arc<[Arc<str>]>;

/// What a value has that is all in one.
static NONE: LazyLock<Pieces> = LazyLock::new(|| Arc::new([]));

impl Value {
    pub fn whole(bytes: Bytes) -> Value {
        Value {
            rest: bytes,
            at: 0,
            pieces: Arc::clone(&NONE),
            mark: 0,
        }
    }

    /// With the pieces at a place in the rest.
    pub fn in_pieces(rest: Bytes, at: usize, pieces: Pieces) -> Value {
        match pieces.is_empty() {
            true => Value::whole(rest),
            false => Value {
                rest,
                at,
                pieces,
                mark: 0,
            },
        }
    }

    /// With a note of the writer's, which is in memory only: what was read from disk has 0.
    pub fn marked(self, mark: u64) -> Value {
        Value { mark, ..self }
    }

    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// Everything but the pieces.
    pub fn rest(&self) -> &Bytes {
        &self.rest
    }

    pub fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    pub fn len(&self) -> usize {
        let pieces = self.pieces.iter().map(|piece| piece.len());
        self.rest.len() + pieces.sum::<usize>()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes it takes beside another that it shares pieces with.
    pub(super) fn len_beside(&self, other: Option<&Value>) -> usize {
        let others = other.map_or(&[][..], |other| &other.pieces);
        let is_own = |piece: &&Arc<str>| !others.iter().any(|other| Arc::ptr_eq(piece, other));
        let own = self.pieces.iter().filter(is_own);
        self.rest.len() + own.map(|piece| piece.len()).sum::<usize>()
    }

    pub fn bytes(&self) -> Bytes {
        if self.pieces.is_empty() {
            return self.rest.clone();
        }
        let mut out = Vec::with_capacity(self.len());
        self.write(0, &mut out);
        out.into()
    }

    /// Adds the bytes after the first `skipped`, which must come before the pieces.
    pub fn write(&self, skipped: usize, out: &mut Vec<u8>) {
        debug_assert!(self.pieces.is_empty() || skipped <= self.at);
        let at = self.at.max(skipped);
        out.extend_from_slice(&self.rest[skipped..at]);
        for piece in &*self.pieces {
            out.extend_from_slice(piece.as_bytes());
        }
        out.extend_from_slice(&self.rest[at..]);
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        // copied, not kept: a buffer that grew is up to twice as large, and cutting it off leaves holes
        Value::whole(Bytes::copy_from_slice(&bytes))
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.bytes()))
    }
}

/// The text, held once however often it is asked for.
pub fn shared(text: &str) -> Arc<str> {
    TEXTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(text)
}

static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Texts {
    by_hash: HashMap<u64, Vec<Weak<str>>>,
    hasher: RandomState,
    /// The bytes of those that were held when the others were last taken out.
    held: usize,
    /// The bytes that came since then.
    added: usize,
}

/// How many bytes may come, beyond twice those that are held, before those that nobody holds are taken out: a text is
/// freed with the last reference to it, and this table's is one.
const SLACK: usize = 1 << 20;

impl Texts {
    fn get(&mut self, text: &str) -> Arc<str> {
        let hash = self.hasher.hash_one(text);
        let known = self.by_hash.entry(hash).or_default();
        let same = |known: &Weak<str>| known.upgrade().filter(|known| **known == *text);
        if let Some(known) = known.iter().find_map(same) {
            return known;
        }
        let new: Arc<str> = text.into();
        known.push(Arc::downgrade(&new));
        self.added += text.len();
        if self.added > self.held + SLACK {
            self.sweep();
        }
        new
    }

    fn sweep(&mut self) {
        let mut held = 0;
        self.by_hash.retain(|_, texts| {
            texts.retain(|text| match text.upgrade() {
                Some(text) => {
                    held += text.len();
                    true
                }
                None => false,
            });
            !texts.is_empty()
        });
        (self.held, self.added) = (held, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Texts, Value};

    #[test]
    fn a_value_in_pieces_is_written_whole_or_without_its_beginning() {
        let pieces: Arc<[Arc<str>]> = ["<b>".into(), "<c>".into()].into();
        let value = Value::in_pieces("a12d".into(), 3, pieces);
        assert_eq!(value.bytes(), "a12<b><c>d");
        assert_eq!(value.len(), 10);
        let mut out = Vec::new();
        value.write(2, &mut out);
        assert_eq!(out, b"2<b><c>d");
        let shares = Value::in_pieces("ad".into(), 1, [Arc::clone(&value.pieces[0])].into());
        assert_eq!(shares.len_beside(None), 5);
        assert_eq!(shares.len_beside(Some(&value)), 2);
    }

    #[test]
    fn a_text_is_held_once_and_only_as_long_as_it_is_used() {
        let mut texts = Texts::default();
        let first = texts.get("long");
        assert!(Arc::ptr_eq(&first, &texts.get("long")));
        for number in 0..1000 {
            texts.get(&format!("{number:0>10000}"));
        }
        assert!(texts.by_hash.len() < 200, "{}", texts.by_hash.len());
        assert!(Arc::ptr_eq(&first, &texts.get("long")));
    }
}

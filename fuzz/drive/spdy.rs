//! Frames of SPDY, in pieces of any size: nothing panics, and little does not become much.

use bytes::BytesMut;
use local::server::streams::{Decoder, Event};

/// The first byte is the size of the pieces.
pub(crate) fn drive(input: &[u8]) {
    let Some((size, bytes)) = input.split_first() else {
        return;
    };
    let mut decoder = Decoder::default();
    let mut buffer = BytesMut::new();
    let mut data = 0;
    for piece in bytes.chunks(usize::from(*size).max(1)) {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(Some(Event::Data { bytes, .. })) => data += bytes.len(),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => return assert!(error.to_string().len() < 200),
            }
        }
        assert!(data <= bytes.len());
    }
}

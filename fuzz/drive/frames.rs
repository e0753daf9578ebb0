//! Streams of messages, Connect's and gRPC's, in pieces of any size: what is understood is the same as of the whole.

use runtime::daemon::fuzz::Stream;

/// A byte of flags, one for the size of the pieces, and the envelopes.
pub(crate) fn drive(input: &[u8]) {
    let [flags, size, bytes @ ..] = input else {
        return;
    };
    let stream = Stream {
        json: flags & 1 != 0,
        compressed: flags & 2 != 0,
        inputs: flags & 4 != 0,
    };
    let whole = stream.read(std::iter::once(bytes));
    let pieces = stream.read(bytes.chunks(usize::from(*size).max(1)));
    assert_eq!(whole, pieces);
    assert!(whole.len() <= bytes.len() / 5 + 1);
}

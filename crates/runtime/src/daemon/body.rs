//! The body of an answer: known at once, sent piece by piece, or read from a file.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};

use super::channel;
use super::files::Content;

pub(crate) enum Body {
    Full(Bytes),
    /// Ends when the sender is dropped.
    Pieces(channel::Receiver<Piece>),
    File(Content),
}

/// Smaller than a frame, which may have trailers in it.
pub(crate) enum Piece {
    Data(Bytes),
    Trailers(Box<HeaderMap>),
}

impl From<Piece> for Frame<Bytes> {
    fn from(piece: Piece) -> Self {
        match piece {
            Piece::Data(bytes) => Self::data(bytes),
            Piece::Trailers(trailers) => Self::trailers(*trailers),
        }
    }
}

impl Body {
    pub(crate) fn empty() -> Self {
        Self::Full(Bytes::new())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Pieces(pieces) => pieces
                .poll_recv(cx)
                .map(|piece| piece.map(|piece| Ok(piece.into()))),
            Self::File(content) => content
                .poll_next(cx)
                .map(|piece| Some(piece?.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Pieces(_) => SizeHint::default(),
            Self::File(content) => content.size_hint(),
        }
    }
}

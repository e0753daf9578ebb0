//! The bytes of a file on their way out: read by other threads, one piece ahead of what the client has taken.

use std::fs::File;
use std::future::Future;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::SizeHint;
use rustix::buffer::spare_capacity;
use tokio::task::{JoinHandle, spawn_blocking};

/// Large enough that handing it over costs nothing, small enough for hundreds of downloads at once.
const PIECE: usize = 256 << 10;

pub(crate) struct Content {
    /// Unknown when compressed, and of files that do not say it.
    length: Option<u64>,
    step: Step,
}

enum Step {
    Next(Box<Source>),
    Reading(JoinHandle<(Box<Source>, io::Result<Bytes>)>),
    Done,
}

struct Source {
    file: File,
    /// Nothing if all of it is to be read, however much that is.
    left: Option<u64>,
    gzip: Option<GzEncoder<Vec<u8>>>,
}

impl Content {
    /// The next `length` bytes of the file, which must not become fewer meanwhile, or all that come.
    pub(super) fn plain(file: File, length: Option<u64>) -> Self {
        Self {
            length,
            step: Step::Next(Box::new(Source {
                file,
                left: length,
                gzip: None,
            })),
        }
    }

    pub(super) fn gzip(file: File, length: Option<u64>) -> Self {
        Self {
            length: None,
            step: Step::Next(Box::new(Source {
                file,
                left: length,
                gzip: Some(GzEncoder::new(Vec::new(), Compression::fast())),
            })),
        }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.length
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            match std::mem::replace(&mut self.step, Step::Done) {
                Step::Done => return Poll::Ready(None),
                Step::Next(source) => {
                    self.step = Step::Reading(spawn_blocking(move || source.read()));
                }
                Step::Reading(mut reading) => {
                    let Poll::Ready(read) = Pin::new(&mut reading).poll(cx) else {
                        self.step = Step::Reading(reading);
                        return Poll::Pending;
                    };
                    let (source, piece) = read.map_err(io::Error::other)?;
                    let piece = piece?;
                    if piece.is_empty() {
                        return Poll::Ready(None);
                    }
                    self.step = Step::Reading(spawn_blocking(move || source.read()));
                    return Poll::Ready(Some(Ok(piece)));
                }
            }
        }
    }
}

impl Source {
    fn read(mut self: Box<Self>) -> (Box<Self>, io::Result<Bytes>) {
        let piece = if self.gzip.is_some() {
            self.read_compressed()
        } else {
            self.read_plain(PIECE)
        };
        (self, piece.map(Bytes::from))
    }

    fn read_plain(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let left = self.left.map(|left| usize::try_from(left).unwrap_or(most));
        let wanted = left.unwrap_or(most).min(most);
        let mut piece = Vec::with_capacity(wanted);
        while piece.len() < wanted {
            match rustix::io::read(&self.file, spare_capacity(&mut piece))? {
                0 if self.left.is_none() => return Ok(piece),
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                _ => {}
            }
        }
        let Some(left) = &mut self.left else {
            return Ok(piece);
        };
        // a vector may have got more room than it was asked for
        piece.truncate(wanted);
        *left -= wanted as u64;
        Ok(piece)
    }

    /// Goes on until something comes out: an empty piece means the end.
    fn read_compressed(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let Some(mut encoder) = self.gzip.take() else {
                return Ok(Vec::new());
            };
            let plain = self.read_plain(PIECE)?;
            if plain.is_empty() {
                return encoder.finish();
            }
            encoder.write_all(&plain)?;
            let compressed = std::mem::take(encoder.get_mut());
            self.gzip = Some(encoder);
            if !compressed.is_empty() {
                return Ok(compressed);
            }
        }
    }
}

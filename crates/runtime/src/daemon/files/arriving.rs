//! The body of an upload as something that can be read by the thread that writes the file.

use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use bytes::{Buf, Bytes};
use flate2::bufread::MultiGzDecoder;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Pieces that may wait for the disk: a piece is at most what the connection reads at once, about 400 KiB.
const WAITING: usize = 4;

/// An upload from which nothing comes for so long is given up.
const IDLE: Duration = Duration::from_secs(120);

/// How much of a refused upload is read, and for how long, so that its client comes to read the refusal.
const REFUSED: usize = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(5);

type Piece = io::Result<Bytes>;

pub(in crate::daemon) struct Arriving {
    pieces: mpsc::Receiver<Piece>,
    current: Bytes,
}

pub(super) fn channel() -> (mpsc::Sender<Piece>, Arriving) {
    let (sender, pieces) = mpsc::channel(WAITING);
    let current = Bytes::new();
    (sender, Arriving { pieces, current })
}

/// Hands over what arrives until the body ends, or nobody wants more.
pub(super) async fn feed(body: &mut Incoming, reader: mpsc::Sender<Piece>) {
    loop {
        let piece = match timeout(IDLE, body.frame()).await {
            Ok(None) => return,
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => Ok(data),
                Err(_trailers) => continue,
            },
            Ok(Some(Err(error))) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, error)),
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
        };
        let last = piece.is_err();
        if reader.send(piece).await.is_err() || last {
            return;
        }
    }
}

pub(super) async fn drain(body: &mut Incoming) {
    let read = async {
        let mut left = REFUSED;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(length) {
                Some(less) => left = less,
                None => return,
            }
        }
    };
    // whoever sends more does without the answer
    let _ = timeout(PATIENCE, read).await;
}

impl Arriving {
    pub(super) fn unpacked(self, gzip: bool) -> Box<dyn BufRead> {
        if gzip {
            Box::new(BufReader::with_capacity(
                64 << 10,
                MultiGzDecoder::new(self),
            ))
        } else {
            Box::new(self)
        }
    }
}

impl BufRead for Arriving {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.current.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.current = piece?,
                None => break,
            }
        }
        Ok(&self.current)
    }

    fn consume(&mut self, amount: usize) {
        self.current.advance(amount);
    }
}

impl Read for Arriving {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let amount = available.len().min(buffer.len());
        buffer[..amount].copy_from_slice(&available[..amount]);
        self.consume(amount);
        Ok(amount)
    }
}

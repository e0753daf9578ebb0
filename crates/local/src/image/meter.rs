//! Reading a compressed layer: what goes in and what comes out is counted, hashed and held to limits.

use std::cell::Cell;
use std::io::{self, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest as _, Sha256};

use super::digest::Digest;

/// What an image may cost before it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all layers of an image, unpacked.
    pub bytes: u64,
    /// Entries of all layers of an image: each may take an inode, of which a disk has a fixed number.
    pub entries: u64,
    /// How many bytes one compressed byte may become.
    pub ratio: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 20 << 30,
            // four times what the largest images with a whole desktop or all of npm have
            entries: 2_000_000,
            ratio: 500,
        }
    }
}

/// Below this many bytes any ratio is fine: a file of zeros is no attack before it is large.
const RATIO_FROM: u64 = 1 << 30;

/// Long names, PAX records and maps of sparse files that precede one entry.
const METADATA: u64 = 1 << 20;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Which limit was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Excess {
    Bytes,
    Ratio,
    Metadata,
}

/// The counts of one layer. The two readers and the unpacker share it.
pub(super) struct Meter {
    compressed: Cell<u64>,
    expanded: Cell<u64>,
    /// Bytes that may be read until somebody says otherwise.
    allowance: Cell<u64>,
    limits: Limits,
    excess: Cell<Option<Excess>>,
}

impl Meter {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            compressed: Cell::new(0),
            expanded: Cell::new(0),
            allowance: Cell::new(u64::MAX),
            limits,
            excess: Cell::new(None),
        }
    }

    /// What the layer has made so far.
    pub(super) fn expanded(&self) -> u64 {
        self.expanded.get()
    }

    /// The limit that was passed; an error of a reader is its consequence.
    pub(super) fn excess(&self) -> Option<Excess> {
        self.excess.get()
    }

    /// The next reads belong to what precedes an entry, which is kept in memory as a whole.
    pub(super) fn expect_metadata(&self) {
        self.allowance.set(METADATA);
    }

    pub(super) fn expect_content(&self) {
        self.allowance.set(u64::MAX);
    }

    /// Whether this many more bytes fit.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        bytes <= self.limits.bytes.saturating_sub(self.expanded.get())
    }

    /// Counts bytes that come out of the layer or, in the holes of a sparse file, out of nothing.
    pub(super) fn charge(&self, bytes: u64) -> io::Result<()> {
        let expanded = self.expanded.get().saturating_add(bytes);
        self.expanded.set(expanded);
        let allowance = self.allowance.get();
        self.allowance.set(allowance.saturating_sub(bytes));
        let most = self.compressed.get().saturating_mul(self.limits.ratio);
        let excess = if expanded > self.limits.bytes {
            Excess::Bytes
        } else if expanded > RATIO_FROM.min(self.limits.bytes / 2) && expanded > most {
            Excess::Ratio
        } else if bytes > allowance {
            Excess::Metadata
        } else {
            return Ok(());
        };
        self.excess.set(Some(excess));
        Err(io::Error::other("a limit was passed"))
    }
}

/// Counts and hashes what is read.
pub(super) struct Metered<R, C> {
    inner: R,
    count: C,
    hash: Sha256,
}

/// The blob as it is stored.
pub(super) fn compressed<'m, R: Read + 'm>(
    inner: R,
    meter: &'m Meter,
) -> Metered<R, impl Fn(u64) -> io::Result<()> + 'm> {
    Metered::new(inner, |bytes| {
        meter.compressed.set(meter.compressed.get() + bytes);
        Ok(())
    })
}

/// A blob that is only copied, and so not held to limits.
pub(super) fn hashed<R: Read>(inner: R) -> Metered<R, impl Fn(u64) -> io::Result<()>> {
    Metered::new(inner, |_| Ok(()))
}

/// The tar archive that the blob is.
pub(super) fn expanded<'m, R: Read + 'm>(
    inner: R,
    meter: &'m Meter,
) -> Metered<R, impl Fn(u64) -> io::Result<()> + 'm> {
    Metered::new(inner, |bytes| meter.charge(bytes))
}

impl<R: Read, C: Fn(u64) -> io::Result<()>> Metered<R, C> {
    fn new(inner: R, count: C) -> Self {
        Self {
            inner,
            count,
            hash: Sha256::new(),
        }
    }

    /// Reads what follows the archive, and says what all of it was.
    pub(super) fn finish(mut self) -> io::Result<Digest> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(Digest::finish(self.hash))
    }
}

impl<R: Read, C: Fn(u64) -> io::Result<()>> Read for Metered<R, C> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.hash.update(&into[..count]);
        (self.count)(count as u64)?;
        Ok(count)
    }
}

/// How something is compressed, as its first bytes tell; the media type of a layer is a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    Gzip,
    Zstd,
}

impl Packing {
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        let begins = |begin: &[u8]| head.starts_with(begin);
        (begins(&GZIP).then_some(Self::Gzip)).or_else(|| begins(&ZSTD).then_some(Self::Zstd))
    }
}

/// As many of the first bytes as tell the packing.
pub(super) fn head(mut from: impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(ZSTD.len());
    from.by_ref()
        .take(ZSTD.len() as u64)
        .read_to_end(&mut head)?;
    Ok(head)
}

pub(super) fn decompress<'a>(mut from: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let head = head(&mut from)?;
    let packing = Packing::of(&head);
    let whole = BufReader::with_capacity(128 << 10, Cursor::new(head).chain(from));
    Ok(match packing {
        Some(Packing::Gzip) => Box::new(MultiGzDecoder::new(whole)),
        Some(Packing::Zstd) => Box::new(zstd::Decoder::with_buffer(whole)?),
        None => Box::new(whole),
    })
}

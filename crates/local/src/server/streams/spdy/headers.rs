//! Blocks of headers, which SPDY compresses: one zlib stream per direction, as long as the connection lasts.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::frame::FrameError;

/// What a block may be when it is unpacked. The headers of a stream here have less than a hundred bytes.
const LARGEST: usize = 32 * 1024;
const MOST: u32 = 100;

/// Headers in the order in which they came. Names are lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// The value of a header, whatever the case of its name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut found = self
            .0
            .iter()
            .filter(|(key, _)| key.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.as_str())
    }

    fn parse(block: &[u8]) -> Result<Self, FrameError> {
        let mut rest = block;
        let count = number(&mut rest)?;
        if count > MOST {
            return Err(FrameError::Headers("too many of them"));
        }
        let mut headers = Vec::new();
        for _ in 0..count {
            let name = text(&mut rest)?;
            let value = text(&mut rest)?;
            if name.is_empty() || name.bytes().any(|byte| byte.is_ascii_uppercase()) {
                return Err(FrameError::Headers("a name is empty or not lower case"));
            }
            if headers.iter().any(|(known, _)| *known == name) {
                return Err(FrameError::Headers("a name comes twice"));
            }
            headers.push((name, value));
        }
        match rest.is_empty() {
            true => Ok(Self(headers)),
            false => Err(FrameError::Headers("something follows them")),
        }
    }
}

fn number(rest: &mut &[u8]) -> Result<u32, FrameError> {
    let (bytes, after) = rest
        .split_first_chunk::<4>()
        .ok_or(FrameError::Headers("they end too early"))?;
    *rest = after;
    Ok(u32::from_be_bytes(*bytes))
}

fn text(rest: &mut &[u8]) -> Result<String, FrameError> {
    let length = number(rest)?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > rest.len() {
        return Err(FrameError::Headers("they end too early"));
    }
    let (bytes, after) = rest.split_at(length);
    *rest = after;
    let text = std::str::from_utf8(bytes).map_err(|_| FrameError::Headers("one is no text"))?;
    Ok(text.to_owned())
}

/// Unpacks the blocks of one connection, which must all be unpacked, in order.
pub(super) struct Unpacker(Decompress);

impl Unpacker {
    pub(super) fn new() -> Self {
        Self(Decompress::new(true))
    }

    pub(super) fn unpack(&mut self, packed: &[u8]) -> Result<Headers, FrameError> {
        let mut block = Vec::with_capacity(1024);
        let mut rest = packed;
        loop {
            if block.len() >= LARGEST {
                return Err(FrameError::Headers("they are too large"));
            }
            block.reserve(1024);
            let (taken, given) = (self.0.total_in(), self.0.total_out());
            let status = self
                .0
                .decompress_vec(rest, &mut block, FlushDecompress::Sync);
            let taken = usize::try_from(self.0.total_in() - taken).unwrap_or(usize::MAX);
            rest = rest.get(taken..).unwrap_or_default();
            match status {
                Err(error) if error.needs_dictionary().is_some() => {
                    let set = self.0.set_dictionary(&dictionary());
                    set.map_err(|_| FrameError::Headers("they need an unknown dictionary"))?;
                }
                Err(_) => return Err(FrameError::Headers("they cannot be unpacked")),
                Ok(Status::StreamEnd) => {
                    return Err(FrameError::Headers("no others can follow them"));
                }
                Ok(Status::Ok | Status::BufError) => {
                    let stuck = taken == 0 && self.0.total_out() == given;
                    match (rest.is_empty(), block.len() < block.capacity()) {
                        // whatever is left inside has come out
                        (true, true) => return Headers::parse(&block),
                        (false, _) if stuck => {
                            return Err(FrameError::Headers("they cannot be unpacked"));
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

/// Packs the blocks of one connection.
pub(super) struct Packer(Compress);

impl Packer {
    pub(super) fn new() -> Self {
        let mut zlib = Compress::new(Compression::best(), true);
        // it is refused only where something has been packed already
        let _ = zlib.set_dictionary(&dictionary());
        Self(zlib)
    }

    /// A block without any header: nobody reads what a server answers.
    pub(super) fn empty(&mut self) -> Vec<u8> {
        self.pack(&0_u32.to_be_bytes())
    }

    pub(super) fn pack(&mut self, block: &[u8]) -> Vec<u8> {
        let mut packed = Vec::with_capacity(block.len() + 64);
        let mut rest = block;
        loop {
            let taken = self.0.total_in();
            // an error needs a stream that has been finished, which this one never is
            let _ = self.0.compress_vec(rest, &mut packed, FlushCompress::Sync);
            let taken = usize::try_from(self.0.total_in() - taken).unwrap_or(usize::MAX);
            rest = rest.get(taken..).unwrap_or_default();
            if rest.is_empty() && packed.len() < packed.capacity() {
                return packed;
            }
            packed.reserve(64);
        }
    }
}

/// What both sides know before anything is sent: section 2.6.10.1 of the SPDY/3 draft. It is a block of words, each after its
/// length, and then values in one piece.
fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in WORDS.split(' ') {
        // the only words with a space in them
        let word = word.replace('_', " ");
        let length = u32::try_from(word.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(word.as_bytes());
    }
    bytes.extend_from_slice(VALUES.as_bytes());
    bytes
}

const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
    accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
    content-length content-location content-md5 content-range content-type date etag expect expires from host if-match \
    if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
    proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
    keep-alive origin";

const VALUES: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
    203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden\
    404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable\
    Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT\
    chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,\
    publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use flate2::{Compress, Compression, FlushCompress};

    use super::{FrameError, Headers, LARGEST, Packer, Unpacker, dictionary};

    fn block(headers: &[(&str, &str)]) -> Vec<u8> {
        let mut block = u32::try_from(headers.len()).unwrap().to_be_bytes().to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            block.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
            block.extend_from_slice(text.as_bytes());
        }
        block
    }

    #[test]
    fn the_dictionary_is_the_published_one() {
        let dictionary = dictionary();
        assert_eq!(dictionary.len(), 1423);
        // its checksum stands in everything that is packed with it
        let mut zlib = Compress::new(Compression::best(), true);
        assert_eq!(zlib.set_dictionary(&dictionary).unwrap(), 0xe3c6_a7c2);
    }

    #[test]
    fn blocks_are_unpacked_one_after_the_other() {
        let (mut packer, mut unpacker) = (Packer::new(), Unpacker::new());
        for port in ["80", "8080", "80"] {
            let sent = [("streamtype", "data"), ("port", port)];
            let packed = packer.pack(&block(&sent));
            let headers = unpacker.unpack(&packed).unwrap();
            assert_eq!(headers.get("streamType"), Some("data"));
            assert_eq!(headers.get("port"), Some(port));
            assert_eq!(headers.get("requestID"), None);
        }
        assert_eq!(
            unpacker.unpack(&packer.empty()).unwrap(),
            Headers::default()
        );
    }

    #[test]
    fn what_is_packed_without_the_dictionary_is_read_as_well() {
        let mut zlib = Compress::new(Compression::fast(), true);
        let mut packed = Vec::with_capacity(1024);
        let sent = block(&[("a", "b")]);
        zlib.compress_vec(&sent, &mut packed, FlushCompress::Sync)
            .unwrap();
        assert_eq!(Unpacker::new().unpack(&packed).unwrap().get("a"), Some("b"));
    }

    #[test]
    fn little_does_not_become_much() {
        let sent = block(&[("a", &"x".repeat(100 * LARGEST))]);
        let packed = Packer::new().pack(&sent);
        assert!(packed.len() < 2 * LARGEST);
        let refused = Unpacker::new().unpack(&packed);
        assert_eq!(refused, Err(FrameError::Headers("they are too large")));
    }

    #[test]
    fn a_block_that_is_none_is_refused() {
        for wrong in [
            vec![],
            vec![0, 0, 0],
            vec![0, 0, 0, 1],
            vec![0xff; 4],
            vec![0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, b'a'],
            [block(&[("a", "b")]), vec![0]].concat(),
            block(&[("a", "b"), ("a", "c")]),
            block(&[("A", "b")]),
            block(&[("", "b")]),
            vec![0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0, 0, 0, 0],
        ] {
            let packed = Packer::new().pack(&wrong);
            assert!(Unpacker::new().unpack(&packed).is_err(), "{wrong:?}");
        }
        assert!(Unpacker::new().unpack(b"no zlib").is_err());
    }
}

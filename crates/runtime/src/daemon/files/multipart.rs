//! `multipart/form-data`, read as it arrives: memory does not grow with the size of a part.

use std::io::{self, BufRead, Write};

use memchr::memmem;

/// No client writes more about a part.
const LARGEST_HEAD: usize = 16 << 10;

/// The bounds of RFC 2046.
const LONGEST_BOUNDARY: usize = 70;

pub(in crate::daemon) struct Multipart<R> {
    source: R,
    /// Line break, two dashes and the boundary.
    delimiter: Vec<u8>,
    unread: Vec<u8>,
    /// Whether a delimiter has just been passed.
    between_parts: bool,
}

/// What a part says about itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::daemon) struct Part {
    pub(in crate::daemon) name: String,
    /// With its directories.
    pub(in crate::daemon) filename: Option<String>,
}

/// The boundary that a content type names.
pub(in crate::daemon) fn boundary(content_type: &str) -> Option<String> {
    let (_, parameters) = content_type.split_once(';')?;
    let mut found = parameters_of(parameters).into_iter();
    let (_, boundary) = found.find(|(name, _)| name == "boundary")?;
    (1..=LONGEST_BOUNDARY)
        .contains(&boundary.len())
        .then_some(boundary)
}

impl<R: BufRead> Multipart<R> {
    pub(in crate::daemon) fn new(source: R, boundary: &str) -> Self {
        Self {
            source,
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            // the first boundary may begin the body: a line break before it makes it like the others
            unread: b"\r\n".to_vec(),
            between_parts: false,
        }
    }

    /// The next part; what was left of the one before is passed over. `None` after the last.
    pub(in crate::daemon) fn next(&mut self) -> io::Result<Option<Part>> {
        if !self.between_parts {
            self.copy_until_delimiter(&mut io::sink())?;
        }
        self.between_parts = false;
        if self.was_last_delimiter()? {
            return Ok(None);
        }
        let line = self.take_line()?;
        if !line.iter().all(|byte| matches!(byte, b' ' | b'\t')) {
            return Err(malformed("a boundary is followed by something else"));
        }
        let mut part = Part::default();
        loop {
            let line = self.take_line()?;
            if line.is_empty() {
                return Ok(Some(part));
            }
            let line = String::from_utf8(line).map_err(|_| malformed("a header is not UTF-8"))?;
            part.read_header(&line);
        }
    }

    /// Copies the content of the part that `next` gave last.
    pub(in crate::daemon) fn copy_to(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.copy_until_delimiter(out)?;
        self.between_parts = true;
        Ok(())
    }

    fn copy_until_delimiter(&mut self, out: &mut impl Write) -> io::Result<()> {
        let finder = memmem::Finder::new(&self.delimiter).into_owned();
        loop {
            if let Some(at) = finder.find(&self.unread) {
                out.write_all(&self.unread[..at])?;
                self.unread.drain(..at + self.delimiter.len());
                return Ok(());
            }
            // its beginning may be at the end of what is there
            let sure = self.unread.len().saturating_sub(self.delimiter.len() - 1);
            out.write_all(&self.unread[..sure])?;
            self.unread.drain(..sure);
            self.read_more()?;
        }
    }

    /// Two dashes follow the last one, and need no line to end with.
    fn was_last_delimiter(&mut self) -> io::Result<bool> {
        while self.unread.len() < 2 {
            self.read_more()?;
        }
        Ok(self.unread.starts_with(b"--"))
    }

    /// Without its end.
    fn take_line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let end = memmem::find(&self.unread, b"\r\n");
            // the last byte may be the first of the line's end
            let length = end.unwrap_or(self.unread.len().saturating_sub(1));
            if length > LARGEST_HEAD {
                return Err(malformed("the headers of a part are too long"));
            }
            if let Some(at) = end {
                let mut line: Vec<u8> = self.unread.drain(..at + 2).collect();
                line.truncate(at);
                return Ok(line);
            }
            self.read_more()?;
        }
    }

    fn read_more(&mut self) -> io::Result<()> {
        let available = self.source.fill_buf()?;
        if available.is_empty() {
            return Err(malformed("the body ends within a part"));
        }
        self.unread.extend_from_slice(available);
        let amount = available.len();
        self.source.consume(amount);
        Ok(())
    }
}

impl Part {
    fn read_header(&mut self, line: &str) {
        let Some((name, value)) = line.split_once(':') else {
            return;
        };
        if !name.trim().eq_ignore_ascii_case("content-disposition") {
            return;
        }
        let (_, parameters) = value.split_once(';').unwrap_or_default();
        for (name, value) in parameters_of(parameters) {
            match name.as_str() {
                "name" => self.name = value,
                "filename" => {
                    self.filename.get_or_insert(value);
                }
                "filename*" => self.filename = extended(&value).or(self.filename.take()),
                _ => {}
            }
        }
    }
}

/// `name=value` and `name="value"`, separated by semicolons, which quotes may contain.
fn parameters_of(text: &str) -> Vec<(String, String)> {
    let mut parameters = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let (value, after) = match after.trim_start().strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let (value, after) = after.split_once(';').unwrap_or((after, ""));
                (value.trim().to_owned(), after)
            }
        };
        let name = name.trim_matches(|c: char| c == ';' || c.is_whitespace());
        parameters.push((name.to_ascii_lowercase(), value));
        rest = after;
    }
    parameters
}

fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => match characters.next() {
                Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                Some((_, other)) => value.extend(['\\', other]),
                None => value.push('\\'),
            },
            _ => value.push(character),
        }
    }
    (value, "")
}

/// `UTF-8''caf%C3%A9`.
fn extended(value: &str) -> Option<String> {
    let (charset, rest) = value.split_once('\'')?;
    let (_language, encoded) = rest.split_once('\'')?;
    charset.eq_ignore_ascii_case("utf-8").then_some(())?;
    let decoded = percent_encoding::percent_decode_str(encoded).decode_utf8();
    decoded.ok().map(Into::into)
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::{LARGEST_HEAD, LONGEST_BOUNDARY, Multipart, Part, boundary};

    /// Everything in it, read in pieces of the given size.
    fn read(body: &[u8], piece: usize) -> std::io::Result<Vec<(Part, Vec<u8>)>> {
        let mut multipart = Multipart::new(BufReader::with_capacity(piece, body), "XX");
        let mut parts = Vec::new();
        while let Some(part) = multipart.next()? {
            let mut content = Vec::new();
            multipart.copy_to(&mut content)?;
            parts.push((part, content));
        }
        Ok(parts)
    }

    #[test]
    fn parts_are_the_same_however_they_arrive() {
        let body = b"preamble\r\n--XX\r\nContent-Disposition: form-data; name=\"file\"; \
            filename=\"/a dir/b;\\\"c.txt\"\r\n\r\none\r\n--X\r\n\r\n--XX \r\ncontent-disposition: \
            form-data; filename*=UTF-8''caf%C3%A9; name=file; filename=cafe\r\nX: y\r\n\r\n\r\n--XX--\r\n";
        for piece in 1..body.len() {
            let parts = read(body, piece).unwrap();
            assert_eq!(parts.len(), 2, "{piece}");
            assert_eq!(parts[0].0.filename.as_deref(), Some("/a dir/b;\"c.txt"));
            assert_eq!(parts[0].1, b"one\r\n--X\r\n");
            assert_eq!(parts[1].0.filename.as_deref(), Some("café"));
            assert_eq!(parts[1].0.name, "file");
            assert_eq!(parts[1].1, b"");
        }
    }

    #[test]
    fn a_header_that_begins_like_the_last_boundary_is_a_header() {
        let body = b"--XX\r\n--Content-Disposition: form-data; name=no\r\n\r\nx\r\n--XX--";
        for piece in 1..body.len() {
            let parts = read(body, piece).unwrap();
            assert_eq!(parts, [(Part::default(), b"x".to_vec())], "{piece}");
        }
    }

    #[test]
    fn a_header_is_too_long_however_it_arrives() {
        for (length, is_read) in [(LARGEST_HEAD, true), (LARGEST_HEAD + 1, false)] {
            let header = "x".repeat(length);
            let body = format!("--XX\r\n{header}\r\n\r\ncontent\r\n--XX--");
            for piece in [1, 100, body.len()] {
                let read = read(body.as_bytes(), piece);
                assert_eq!(read.is_ok(), is_read, "{length} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_body_that_breaks_off_is_an_error() {
        let whole = b"--XX\r\nContent-Disposition: form-data; name=file\r\n\r\ncontent\r\n--XX--";
        assert_eq!(read(whole, 7).unwrap().len(), 1);
        for length in 0..whole.len() {
            assert!(read(&whole[..length], 7).is_err(), "{length}");
        }
    }

    #[test]
    fn the_boundary_is_a_parameter_of_the_content_type() {
        let longest = "x".repeat(LONGEST_BOUNDARY);
        for (content_type, expected) in [
            ("multipart/form-data; boundary=abc", Some("abc")),
            (
                "multipart/form-data; charset=x; boundary=\"a b\"",
                Some("a b"),
            ),
            ("multipart/form-data; boundary=", None),
            ("multipart/form-data", None),
            (&format!("x; boundary={longest}"), Some(&*longest)),
            (&format!("x; boundary={longest}x"), None),
        ] {
            assert_eq!(boundary(content_type).as_deref(), expected);
        }
    }
}

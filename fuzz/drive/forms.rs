//! Uploads as `multipart/form-data`, in pieces of any size: the parts are the same as of the whole, and no larger.

use std::io::BufReader;

use runtime::daemon::fuzz::read_form;

/// A byte for the size of the pieces, a content type, a zero byte, and the body.
pub(crate) fn drive(input: &[u8]) {
    let Some((size, rest)) = input.split_first() else {
        return;
    };
    let mut parts = rest.splitn(2, |byte| *byte == 0);
    let (Some(content_type), Some(body)) = (parts.next(), parts.next()) else {
        return;
    };
    let Ok(content_type) = std::str::from_utf8(content_type) else {
        return;
    };
    let piece = usize::from(*size).max(1);
    let read = |piece| {
        let form = read_form(content_type, BufReader::with_capacity(piece, body));
        form.map(|form| form.map_err(|error| error.to_string()))
    };
    let whole = read(body.len().max(1));
    assert_eq!(whole, read(piece));
    if let Some(Ok(parts)) = whole {
        let length = |(name, file, content): &(String, Option<String>, Vec<u8>)| {
            name.len() + file.as_ref().map_or(0, String::len) + content.len()
        };
        assert!(parts.iter().map(length).sum::<usize>() <= body.len());
    }
}
